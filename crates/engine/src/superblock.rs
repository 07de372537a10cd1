//! What every drive of a pool carries alike: its label, the roots of the shards, the catalog.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::across::{Lock, Turn};
use crate::area;
use crate::error::{Error, Kind, Result};
use crate::format::catalog::Catalog;
use crate::format::label::{DriveMark, Label, PoolState};
use crate::format::root::Root;
use crate::segment::{DriveSet, DriveState};

/// Keeps labels, roots and catalogs alike on all drives that can be used. Whichever reactor changes
/// something writes it.
pub struct Superblock {
    pub drives: DriveSet,
    /// As on the first drive; others differ in their index.
    label: Lock<Label>,
    catalog: Lock<Catalog>,
    /// One change of labels or catalog at a time. A shard's root is the shard's alone.
    turn: Turn,
    /// Failures of drives, as [`DriveSet::changes`] counts them, that the labels tell of.
    told: AtomicU64,
}

/// What is written to all drives.
enum What<'a> {
    Label(&'a Label),
    Root(&'a Root),
    Catalog([u8; 16], &'a Catalog),
}

impl Superblock {
    #[must_use]
    pub fn new(drives: DriveSet, label: Label, catalog: Catalog) -> Self {
        Self {
            drives,
            label: Lock::new(label),
            catalog: Lock::new(catalog),
            turn: Turn::default(),
            told: AtomicU64::new(0),
        }
    }

    #[must_use]
    pub fn label(&self) -> Label {
        self.label.lock().clone()
    }

    #[must_use]
    pub fn catalog(&self) -> Catalog {
        self.catalog.lock().clone()
    }

    /// Writes the labels anew, with a higher epoch, the drives that failed marked as such: a drive
    /// that missed it is known by its lower epoch.
    ///
    /// # Errors
    /// `Failed` when so many drives are lost that the pool cannot be opened from the rest.
    pub async fn write_labels(&self, state: PoolState) -> Result<()> {
        let _turn = self.turn.hold().await;
        self.put_labels(state).await
    }

    async fn put_labels(&self, state: PoolState) -> Result<()> {
        // Again, if a drive fails on this.
        loop {
            let told = self.drives.changes();
            let mut label = self.label.lock().clone();
            label.epoch += 1;
            label.state = state;
            for (index, drive) in self.drives.indices().zip(&mut label.drives) {
                if self.drives.state(index) == DriveState::Failed {
                    drive.set_mark(DriveMark::Failed, label.epoch);
                }
            }
            let lost = label.drives.iter().filter(|drive| drive.is_out()).count();
            if lost > usize::from(label.layout.parity) {
                // Should they come back, they have all that was acknowledged: no label may say that
                // they do not.
                let context = format!("{lost} drives failed, more than the redundancy bears");
                return Err(Error::new(Kind::Failed, context));
            }
            *self.label.lock() = label.clone();
            self.put(What::Label(&label)).await?;
            self.told.store(told, Ordering::Release);
            if self.drives.changes() == told {
                return Ok(());
            }
        }
    }

    /// Makes sure that the labels tell of every drive that failed: before that, nothing written
    /// without it counts as durable.
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels).
    pub async fn tell_failures(&self) -> Result<()> {
        if self.told.load(Ordering::Acquire) == self.drives.changes() {
            return Ok(());
        }
        let _turn = self.turn.hold().await;
        if self.told.load(Ordering::Acquire) == self.drives.changes() {
            return Ok(());
        }
        self.put_labels(PoolState::Active).await
    }

    /// Writes a shard's root; durable on every drive that can be used when this returns.
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels).
    pub async fn write_root(&self, root: &Root) -> Result<()> {
        self.put(What::Root(root)).await?;
        self.tell_failures().await
    }

    /// Changes the catalog, for good when this returns.
    ///
    /// # Errors
    /// What `change` refuses, and as [`write_labels`](Self::write_labels).
    pub async fn change_catalog<R>(
        &self,
        change: impl FnOnce(&mut Catalog) -> Result<R>,
    ) -> Result<R> {
        let turn = self.turn.hold().await;
        let mut changed = self.catalog();
        let result = change(&mut changed)?;
        changed.generation += 1;
        let pool = self.label.lock().pool;
        self.put(What::Catalog(pool, &changed)).await?;
        *self.catalog.lock() = changed;
        drop(turn);
        self.tell_failures().await?;
        Ok(result)
    }

    async fn put(&self, what: What<'_>) -> Result<()> {
        let mut written = 0;
        let (mut failure, mut full) = (None, None);
        for index in self.drives.indices() {
            let Some(drive) = self.drives.drive(index).cloned() else { continue };
            let done = match what {
                What::Label(label) => {
                    let label = Label { drive: index, ..label.clone() };
                    area::write_label(&drive, &label).await
                }
                What::Root(root) => area::write_root(&drive, root).await,
                What::Catalog(pool, catalog) => area::write_catalog(&drive, pool, catalog).await,
            };
            match done {
                Ok(()) => written += 1,
                // What the drive has is whole: it may be tried again.
                Err(error) if matches!(error.kind, Kind::Full | Kind::Busy) => full = Some(error),
                Err(error) => {
                    self.drives.fail(index);
                    failure = Some(error);
                }
            }
        }
        if let Some(error) = full {
            return Err(error);
        }
        let needed = self.drives.len() - usize::from(self.label.lock().layout.parity);
        if written >= needed {
            return Ok(());
        }
        let context = format!("only {written} of {} drives can be written", self.drives.len());
        Err(match failure {
            Some(cause) => Error::caused(Kind::Failed, context, cause),
            None => Error::new(Kind::Failed, context),
        })
    }
}
