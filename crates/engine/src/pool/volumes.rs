//! Volumes coming, changing and going.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use reactor::sync::Held;

use super::Pool;
use crate::address::{BLOCK, View};
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{Catalog, VolumeRecord};
use crate::format::check_name;
use crate::limits::{VOLUME_BYTES_MAX, VOLUMES_MAX};
use crate::shard::Shard;
use crate::volume::{State, Volume};

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    pub name: String,
    /// What identifies it for ever; drawn at random.
    pub id: [u8; 16],
    /// Size in bytes, a multiple of 4096. Takes no space.
    pub bytes: u64,
    /// The logical block hosts see: 512 or 4096 bytes.
    pub block_size: u32,
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
}

fn check_size(bytes: u64) -> Result<()> {
    let block = stdx::num::u64_of(BLOCK);
    if bytes == 0 || !bytes.is_multiple_of(block) || bytes > VOLUME_BYTES_MAX {
        return Err(invalid(format!(
            "a volume has a multiple of {block} bytes, at most {VOLUME_BYTES_MAX}; not {bytes}"
        )));
    }
    Ok(())
}

fn find<'a>(catalog: &'a mut Catalog, name: &str) -> Result<&'a mut VolumeRecord> {
    let mut volumes = catalog.volumes.iter_mut();
    let found = volumes.find(|volume| volume.name == name && !volume.deleted);
    found.ok_or_else(|| Error::new(Kind::NotFound, format!("no volume is called {name}")))
}

fn check_new_name(catalog: &Catalog, name: &str) -> Result<()> {
    check_name(name).map_err(invalid)?;
    if catalog.volumes.iter().any(|volume| volume.name == name) {
        return Err(Error::new(Kind::Exists, format!("a volume is called {name} already")));
    }
    Ok(())
}

impl Pool {
    fn check_open(&self) -> Result<()> {
        if self.0.closed.get() {
            return Err(Error::new(Kind::Gone, "the pool was closed"));
        }
        Ok(())
    }

    /// The turn of one change of the volumes.
    async fn turn(&self) -> Result<Held<'_>> {
        self.check_open()?;
        let turn = self.0.changing.hold(1).await;
        // It may have been closed meanwhile.
        self.check_open()?;
        Ok(turn)
    }

    fn end_of(bytes: u64) -> u64 {
        bytes / stdx::num::u64_of(BLOCK)
    }

    /// Makes holes of a view's blocks in all shards, for good.
    async fn take_away(&self, view: View, first: u64, end: u64) -> Result<()> {
        // A shard has no blocks of the others, so a hole over theirs does nothing there.
        let take =
            move |shard: Rc<Shard>| async move { shard.take_away(view, first, end - first).await };
        self.each(take).await.map(drop)
    }

    /// Gives back what no volume has any more: the log that took it away may be lost, and the catalog
    /// has forgotten those volumes, or how large they were.
    pub(super) async fn free_strays(&self) -> Result<()> {
        let volumes = self.0.common.superblock.catalog().volumes.into_iter();
        let ends = volumes.filter(|v| !v.deleted).map(|v| (v.view, Self::end_of(v.bytes)));
        let ends: Arc<BTreeMap<View, u64>> = Arc::new(ends.collect());
        let free = move |shard: Rc<Shard>| {
            let ends = Arc::clone(&ends);
            async move {
                for view in shard.strays(&ends).await? {
                    let first = ends.get(&view).copied().unwrap_or(0);
                    shard.take_away(view, first, Self::end_of(VOLUME_BYTES_MAX) - first).await?;
                }
                Ok(())
            }
        };
        self.each(free).await.map(drop)
    }

    /// Takes over the volumes the catalog has, and ends what was begun with them before a crash.
    pub(super) async fn adopt_volumes(&self) -> Result<()> {
        let catalog = self.0.common.superblock.catalog();
        for record in &catalog.volumes {
            if record.deleted {
                self.finish_delete(record.view, record.bytes.max(record.shrunk_from)).await?;
                continue;
            }
            let state = Arc::new(State::new(record));
            self.0.common.used.add(Arc::clone(&state));
            self.0.volumes.borrow_mut().insert(record.name.clone(), state);
            if record.shrunk_from > record.bytes {
                self.finish_shrink(&record.name).await?;
            }
        }
        Ok(())
    }

    /// The names of all volumes, in order.
    #[must_use]
    pub fn volumes(&self) -> Vec<String> {
        self.0.volumes.borrow().keys().cloned().collect()
    }

    /// An open volume.
    ///
    /// # Errors
    /// `NotFound`; `Gone` when the pool was closed.
    pub fn volume(&self, name: &str) -> Result<Volume> {
        self.check_open()?;
        let volumes = self.0.volumes.borrow();
        let none = || Error::new(Kind::NotFound, format!("no volume is called {name}"));
        let state = Arc::clone(volumes.get(name).ok_or_else(none)?);
        Ok(Volume::new(Arc::clone(&self.0.handles), state, &self.0.common))
    }

    /// Makes a volume, which takes no space until it is written to.
    ///
    /// # Errors
    /// `Invalid` for a name or size that cannot be, `Exists`, `Full` when there are too many volumes,
    /// `Failed` when too many drives failed.
    pub async fn create_volume(&self, spec: VolumeSpec) -> Result<Volume> {
        check_size(spec.bytes)?;
        if !matches!(spec.block_size, 512 | 4096) {
            return Err(invalid("a volume's block has 512 or 4096 bytes"));
        }
        let _turn = self.turn().await?;
        let add = |catalog: &mut Catalog| {
            check_new_name(catalog, &spec.name)?;
            if catalog.volumes.len() >= VOLUMES_MAX {
                return Err(Error::new(
                    Kind::Full,
                    format!("a pool has at most {VOLUMES_MAX} volumes"),
                ));
            }
            if View::new(catalog.next_view).is_shared() {
                return Err(Error::new(Kind::Full, "the pool had as many volumes as it ever can"));
            }
            let record = VolumeRecord {
                view: View::new(catalog.next_view),
                name: spec.name.clone(),
                id: spec.id,
                bytes: spec.bytes,
                block_size: spec.block_size,
                deleted: false,
                shrunk_from: spec.bytes,
            };
            catalog.next_view += 1;
            catalog.volumes.push(record.clone());
            Ok(record)
        };
        let record = self.0.common.superblock.change_catalog(add).await?;
        let state = Arc::new(State::new(&record));
        state.set_used(0);
        self.0.common.used.add(Arc::clone(&state));
        self.0.volumes.borrow_mut().insert(record.name, state);
        self.volume(&spec.name)
    }

    /// Deletes a volume. Its space comes back behind that.
    ///
    /// # Errors
    /// `NotFound`, and `Failed` when the log or too many drives failed.
    pub async fn delete_volume(&self, name: &str) -> Result<()> {
        let _turn = self.turn().await?;
        let mark = |catalog: &mut Catalog| {
            let record = find(catalog, name)?;
            record.deleted = true;
            Ok((record.view, record.bytes.max(record.shrunk_from)))
        };
        let (view, bytes) = self.0.common.superblock.change_catalog(mark).await?;
        if let Some(state) = self.0.volumes.borrow_mut().remove(name) {
            state.close();
            self.0.common.used.remove(state.view);
        }
        self.finish_delete(view, bytes).await
    }

    async fn finish_delete(&self, view: View, bytes: u64) -> Result<()> {
        // Once the hole is in the log it is durable, and the name can go.
        self.take_away(view, 0, Self::end_of(bytes)).await?;
        let drop = |catalog: &mut Catalog| {
            catalog.volumes.retain(|volume| volume.view != view);
            Ok(())
        };
        self.0.common.superblock.change_catalog(drop).await
    }

    /// Changes a volume's size. What lies beyond a smaller one is gone for good.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for a size that cannot be, `Failed` when the log or too many drives
    /// failed.
    pub async fn resize_volume(&self, name: &str, bytes: u64) -> Result<()> {
        check_size(bytes)?;
        let _turn = self.turn().await?;
        let volume = self.volume(name)?;
        let change = |catalog: &mut Catalog| {
            let record = find(catalog, name)?;
            record.shrunk_from = record.bytes.max(bytes);
            record.bytes = bytes;
            Ok(())
        };
        let before = volume.len();
        if bytes > before {
            // Whatever was still on its way beyond the old size when it was made smaller.
            let (view, from, to) = (volume.state.view, Self::end_of(before), Self::end_of(bytes));
            if !canary::skips(Step::GrowTakesAway) {
                self.take_away(view, from, to).await?;
            }
        }
        // Writers stay inside the smaller size from here on.
        volume.state.set_bytes(before.min(bytes));
        let changed = self.0.common.superblock.change_catalog(change).await;
        volume.state.set_bytes(if changed.is_ok() { bytes } else { before });
        changed?;
        if bytes < before { self.finish_shrink(name).await } else { Ok(()) }
    }

    async fn finish_shrink(&self, name: &str) -> Result<()> {
        let (view, from, to) = {
            let mut catalog = self.0.common.superblock.catalog();
            let record = find(&mut catalog, name)?;
            (record.view, record.bytes, record.shrunk_from)
        };
        self.take_away(view, Self::end_of(from), Self::end_of(to)).await?;
        let done = |catalog: &mut Catalog| {
            let record = find(catalog, name)?;
            record.shrunk_from = record.bytes;
            Ok(())
        };
        self.0.common.superblock.change_catalog(done).await
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Invalid`, and `Failed` when too many drives failed.
    pub async fn rename_volume(&self, name: &str, to: &str) -> Result<()> {
        let _turn = self.turn().await?;
        let change = |catalog: &mut Catalog| {
            check_new_name(catalog, to)?;
            to.clone_into(&mut find(catalog, name)?.name);
            Ok(())
        };
        self.0.common.superblock.change_catalog(change).await?;
        let mut volumes = self.0.volumes.borrow_mut();
        if let Some(state) = volumes.remove(name) {
            to.clone_into(&mut state.name.lock());
            volumes.insert(to.to_owned(), state);
        }
        Ok(())
    }
}
