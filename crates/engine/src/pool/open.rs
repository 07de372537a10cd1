//! Opening a pool from what its drives say.

use std::sync::Arc;

use media::Drive;
use reactor::Handle;
use stdx::Prng;

use super::assemble::{Begin, Frame, drive_set, erase_log, is_log_lost};
use super::create::random_id;
use super::{LogSpec, Pool};
use crate::area;
use crate::error::{Error, Kind, Result};
use crate::format::Bad;
use crate::format::catalog::Catalog;
use crate::format::label::{DriveMark, Label, LogKind, PoolState};
use crate::segment::DriveSet;

/// How a pool is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Opens with as many drives missing as the redundancy bears. Those count as failed from then
    /// on: what they hold is old.
    pub degraded: bool,
    /// Opens a pool that was exported.
    pub import: bool,
    /// Opens without records of the log that were acknowledged and are damaged so that nothing tells
    /// which blocks they were of: those are as they were before. Where nothing tells which records
    /// are needed, with those that can be. Where the log is blank on every device, with what the
    /// drives have, and a new log.
    pub accept_loss: bool,
}

fn missing(what: impl Into<String>) -> Error {
    Error::new(Kind::Missing, what)
}

fn hex(id: [u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Drives sorted into their places by what their labels say.
struct Sorted {
    label: Label,
    drives: Vec<Option<Arc<Drive>>>,
}

/// The label of a drive, from which on what is read of it lasts: a process that was killed in the midst of a
/// write of labels, roots or catalog may have left it in the drive's cache, where power takes it away.
async fn lasting_label(drive: &Drive) -> Result<std::result::Result<Label, Bad>> {
    if drive.has_volatile_cache() {
        drive.flush().await?;
    }
    area::read_label(drive).await
}

/// Reads the labels of these drives. With `degraded`, a drive whose label cannot be read is as good
/// as missing.
async fn labels(given: Vec<Arc<Drive>>, degraded: bool) -> Result<Vec<(Label, Arc<Drive>)>> {
    let mut labels = Vec::new();
    for (n, drive) in given.into_iter().enumerate() {
        match lasting_label(&drive).await {
            Ok(Ok(label)) => labels.push((label, drive)),
            Ok(Err(Bad::Blank)) => {
                let what =
                    format!("drive {n} of those given carries no pool's label: leave it out");
                return Err(missing(what));
            }
            Ok(Err(_)) | Err(_) if degraded => {}
            Ok(Err(bad)) => {
                let context = format!("the label of drive {n} of those given");
                return Err(Error::caused(Kind::Corrupt, context, bad));
            }
            Err(error) => {
                let context = format!("drive {n} of those given cannot be read");
                return Err(Error::caused(Kind::Missing, context, error));
            }
        }
    }
    Ok(labels)
}

async fn sort(given: Vec<Arc<Drive>>, options: OpenOptions) -> Result<Sorted> {
    let labels = labels(given, options.degraded).await?;
    let newest = labels.iter().map(|(label, _)| label).max_by_key(|label| label.epoch);
    let newest = newest.ok_or_else(|| Error::new(Kind::Invalid, "a pool needs drives"))?.clone();
    let mut drives: Vec<Option<Arc<Drive>>> = vec![None; newest.drives.len()];
    for (n, (label, drive)) in labels.into_iter().enumerate() {
        if label.pool != newest.pool {
            let (one, other) = (&label.name, &newest.name);
            let context =
                format!("drive {n} of those given is of pool {one}, others of pool {other}");
            return Err(Error::new(Kind::Invalid, context));
        }
        let index = usize::from(label.drive);
        if index >= drives.len() || drives[index].replace(drive).is_some() {
            let context = format!("drive {n} of those given is there twice, or a copy of another");
            return Err(Error::new(Kind::Invalid, context));
        }
    }
    // One that failed holds what was there before: it is as good as missing.
    for (drive, record) in drives.iter_mut().zip(&newest.drives) {
        if record.is_out() {
            *drive = None;
        }
    }
    Ok(Sorted { label: newest, drives })
}

impl Sorted {
    fn check(&self, options: OpenOptions) -> Result<()> {
        let name = &self.label.name;
        if self.label.state == PoolState::Exported && !options.import {
            let context = format!("pool {name} was exported: import it");
            return Err(Error::new(Kind::Invalid, context));
        }
        let lost = self.drives.iter().filter(|drive| drive.is_none()).count();
        if lost > usize::from(self.label.layout.parity) {
            let bears = self.label.layout.parity;
            return Err(missing(format!(
                "pool {name} lacks {lost} drives, and bears the loss of {bears}"
            )));
        }
        let known = self.label.drives.iter().filter(|record| record.is_out()).count();
        if lost > known && !options.degraded {
            let absent = self.drives.iter().zip(&self.label.drives).enumerate();
            let absent = absent.filter(|(_, (drive, record))| drive.is_none() && !record.is_out());
            let ids: Vec<_> =
                absent.map(|(n, (_, record))| format!("{n} ({})", hex(record.id))).collect();
            return Err(missing(format!(
                "pool {name} lacks drive {}: give it, or open the pool degraded",
                ids.join(", ")
            )));
        }
        Ok(())
    }
}

async fn newest_catalog(drives: &DriveSet, pool: [u8; 16]) -> Result<Catalog> {
    let mut newest: Option<Catalog> = None;
    let mut unread = None;
    for index in drives.indices() {
        let Some(drive) = drives.drive(index).cloned() else { continue };
        // A drive that cannot be read, or carries a damaged catalog, is outvoted by the others.
        match area::read_catalog(&drive, pool).await {
            Ok(Ok(catalog))
                if newest.as_ref().is_none_or(|n| n.generation < catalog.generation) =>
            {
                newest = Some(catalog);
            }
            Ok(_) => {}
            Err(error) => unread = Some(error),
        }
    }
    let what = "no drive has the pool's catalog";
    newest.ok_or_else(|| match unread {
        Some(error) => Error::caused(Kind::Failed, what, error),
        None => Error::new(Kind::Corrupt, what),
    })
}

impl Pool {
    /// Opens the pool that these drives make, with the log it was created with. Its shards live on
    /// the reactors `on` by turns, or on this one if there are none.
    ///
    /// # Errors
    /// `Missing` when drives or the log are missing, blank or too old; `Invalid` when they are not of
    /// one pool, or it was exported; `Corrupt` when what they say is damaged beyond the redundancy; `Loss` when
    /// that is acknowledged contents nobody can name, and `options` do not accept it.
    pub async fn open(
        drives: Vec<Arc<Drive>>,
        log: LogSpec,
        options: OpenOptions,
        on: &[Handle],
    ) -> Result<Self> {
        let sorted = sort(drives, options).await?;
        sorted.check(options)?;
        let Sorted { mut label, drives } = sorted;
        if label.log != log.kind() {
            let context =
                format!("the log of pool {} is kept in {}", label.name, name_of(label.log));
            return Err(missing(context));
        }
        // Whoever is absent now misses what is written from now on.
        for (drive, record) in drives.iter().zip(&mut label.drives) {
            if drive.is_none() && !record.is_out() {
                record.set_mark(DriveMark::Failed, label.epoch + 1);
            }
        }
        let imported = label.state == PoolState::Exported;
        if imported {
            label.log_id = next_log_id(&label);
        }
        let set = drive_set(&label, drives);
        let catalog = newest_catalog(&set, label.pool).await?;
        let state = label.state;
        let accept_loss = options.accept_loss;
        let mut begin = if imported { Begin::Imported } else { Begin::Found { accept_loss } };
        if !imported && accept_loss && is_log_lost(&label, &log, &set).await? {
            erase_log(&label, &log, &set).await?;
            // What comes to light of the old log is not taken for the new one's.
            label.log_id = next_log_id(&label);
            begin = Begin::LogLost;
        }
        let frame = Frame::new(label.clone(), log.clone(), catalog, set)?;
        let common = Arc::clone(&frame.common);
        common.superblock.write_labels(state).await?;
        let pool = match Self::assemble(frame, on, begin).await {
            Err(error) if error.kind == Kind::Missing => {
                let lost = is_log_lost(&label, &log, &common.superblock.drives).await?;
                return Err(if lost { log_lost(&label, error) } else { error });
            }
            done => done?,
        };
        pool.0.log_lost.set(begin == Begin::LogLost);
        if imported {
            // Not before it has a log: an import that is cut short is made again.
            let written = pool.0.common.superblock.write_labels(PoolState::Active).await;
            pool.or_stop(written).await?;
        }
        if accept_loss {
            pool.or_stop(pool.free_strays().await).await?;
        }
        pool.or_stop(pool.adopt_volumes().await).await?;
        Ok(pool)
    }
}

fn log_lost(label: &Label, source: Error) -> Error {
    let context = format!(
        "the commit log of pool {} is blank on every device: what was acknowledged and not on the \
         drives yet was in there, and is lost should it not be found again",
        label.name
    );
    Error::caused(Kind::Loss, context, source)
}

/// What the log of an imported pool is known by: another number than before, so that the records the old one left
/// are not taken for the new one's.
fn next_log_id(label: &Label) -> [u8; 16] {
    let (half, _) = label.log_id.split_first_chunk().expect("an id has 16 bytes");
    random_id(&mut Prng::new(u64::from_le_bytes(*half) ^ label.epoch))
}

const fn name_of(log: LogKind) -> &'static str {
    match log {
        LogKind::Pmem => "persistent memory",
        LogKind::Bbu => "protected memory",
        LogKind::Drives => "its drives",
    }
}
