//! Pools as documents of the management API.

use api::v1::{
    Drive, DriveCounters, DriveHealth, Pool, PoolHealth, PoolLog, PoolSpace, PoolStatus,
    SegmentCounts,
};
use api::value::Name;
use engine::segment::DriveState;
use uuid::Uuid;

use super::{Known, OpenPool, Pools, no_pool};
use crate::Result;

impl Pools {
    /// All pools, by name.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn documents(&self) -> Result<Vec<Pool>> {
        self.known.iter().map(|(name, known)| self.document_of(name, known)).collect()
    }

    /// One pool.
    ///
    /// # Errors
    /// `NotFound`, `Stopping`.
    pub fn document(&self, name: &Name) -> Result<Pool> {
        self.document_of(name, self.known.get(name).ok_or_else(|| no_pool(name))?)
    }

    fn document_of(&self, name: &Name, known: &Known) -> Result<Pool> {
        document(name, known, self.space(name))
    }

    /// The pools that are open.
    pub fn open_pools(&self) -> impl Iterator<Item = &OpenPool> {
        self.known.values().filter_map(|known| known.open.as_ref().ok())
    }
}

fn document(name: &Name, known: &Known, space: PoolSpace) -> Result<Pool> {
    let path = |path: &std::path::PathBuf| path.display().to_string();
    let mut pool = Pool {
        name: name.clone(),
        id: known.def.id,
        health: PoolHealth::Unavailable,
        problem: None,
        paths: known.def.drives.iter().map(path).collect(),
        log_places: known.def.log.clone(),
        status: None,
    };
    match &known.open {
        Err(problem) => pool.problem = Some(problem.clone()),
        Ok(open) => {
            let status = open.status()?;
            pool.problem = problem(&status);
            pool.health =
                if pool.problem.is_some() { PoolHealth::Degraded } else { PoolHealth::Online };
            pool.log_places = open.places().to_vec();
            pool.status = Some(document_of_status(open, &status, space));
        }
    }
    Ok(pool)
}

/// What an open pool has lost, in words.
pub fn problem(status: &engine::PoolStatus) -> Option<String> {
    let drives = status.drives.iter().enumerate();
    let log = &status.log;
    let lost: Vec<_> = drives
        .map(|(index, drive)| (index, health(drive.state)))
        .filter(|(_, health)| *health != DriveHealth::Online)
        .map(|(index, health)| format!("drive {index} is {}", health.name()))
        .chain(
            (log.failed_devices > 0)
                .then(|| format!("{} of {} log devices failed", log.failed_devices, log.devices)),
        )
        .collect();
    (!lost.is_empty()).then(|| lost.join(", "))
}

const fn health(state: DriveState) -> DriveHealth {
    match state {
        DriveState::Online => DriveHealth::Online,
        DriveState::Missing => DriveHealth::Missing,
        DriveState::Failed => DriveHealth::Failed,
    }
}

fn document_of_status(
    open: &OpenPool,
    status: &engine::PoolStatus,
    space: PoolSpace,
) -> PoolStatus {
    let [free, reserved, filling, sealed] = status.segments;
    let drives = status.drives.iter().enumerate();
    PoolStatus {
        data: status.layout.data,
        parity: status.layout.parity,
        shards: status.shards,
        capacity: status.capacity,
        used: status.used,
        space,
        provisioned: status.volumes.iter().map(|volume| volume.bytes).sum(),
        metadata: status.metadata,
        segments: SegmentCounts { free, reserved, open: filling, sealed },
        log: PoolLog {
            kind: match status.log.kind {
                engine::format::label::LogKind::Pmem => "pmem",
                engine::format::label::LogKind::Bbu => "bbu",
                engine::format::label::LogKind::Drives => "drives",
            }
            .to_owned(),
            protection: status.log.protection.to_owned(),
            size: status.log.bytes,
            used: status.log.used,
            devices: status.log.devices,
            failed_devices: status.log.failed_devices,
        },
        drives: drives.map(|(index, drive)| drive_document(open, index, drive)).collect(),
        volumes: status.volumes.len(),
        written: status.written,
        drive_written: status.drive_written,
        write_amplification: amplification(status.written, status.drive_written),
        moved: status.moved,
        segments_reclaimed: status.segments_reclaimed,
        lost_blocks: status.lost_blocks,
    }
}

#[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
fn amplification(written: u64, drive_written: u64) -> Option<f64> {
    (written > 0).then(|| drive_written as f64 / written as f64)
}

fn drive_document(open: &OpenPool, index: usize, drive: &engine::DriveStatus) -> Drive {
    let counters = drive.counters;
    let path = open.paths().get(index).and_then(Option::as_ref);
    Drive {
        pool: open.name().clone(),
        index,
        id: Uuid::from_bytes(drive.id),
        path: path.map(|path| path.display().to_string()),
        health: health(drive.state),
        size: drive.bytes,
        counters: DriveCounters {
            reads: counters.reads,
            writes: counters.writes,
            bytes_read: counters.bytes_read,
            bytes_written: counters.bytes_written,
            read_errors: counters.read_errors,
            write_errors: counters.write_errors,
            corrupt: counters.corrupt,
            reconstructed: counters.reconstructed,
            repaired: counters.repaired,
        },
    }
}
