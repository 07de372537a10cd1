//! How a pool is doing.

use super::Pool;
use crate::address::BLOCK;
use crate::format::label::{Layout, LogKind};
use crate::log;
use crate::segment::{DriveCounters, DriveState};

/// A pool, for people and metrics.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    pub name: String,
    pub id: [u8; 16],
    pub layout: Layout,
    pub epoch: u64,
    /// Bytes of contents the pool can hold.
    pub capacity: u64,
    /// Bytes of contents it holds, those nobody sees any more included where that is not known yet.
    pub used: u64,
    /// Bytes of metadata.
    pub metadata: u64,
    /// Segments free, reserved, open and sealed.
    pub segments: [u64; 4],
    pub log: LogStatus,
    pub drives: Vec<DriveStatus>,
    pub volumes: Vec<VolumeStatus>,
    /// Bytes hosts wrote since the pool was opened, and bytes the drives wrote.
    pub written: u64,
    pub drive_written: u64,
    /// Bytes reclaim moved, and segments it emptied.
    pub moved: u64,
    pub segments_reclaimed: u64,
}

/// The commit logs of all shards together.
#[derive(Clone, Debug)]
pub struct LogStatus {
    pub kind: LogKind,
    /// What an operator must know of how safe it is.
    pub protection: &'static str,
    pub bytes: u64,
    pub used: u64,
    pub devices: usize,
    pub failed_devices: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct DriveStatus {
    pub id: [u8; 16],
    pub state: DriveState,
    /// Bytes of its allocation units.
    pub bytes: u64,
    pub counters: DriveCounters,
}

#[derive(Clone, Debug)]
pub struct VolumeStatus {
    pub name: String,
    pub id: [u8; 16],
    pub bytes: u64,
    pub block_size: u32,
}

impl Pool {
    /// How the pool is doing now.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        let inner = &self.0;
        let label = inner.superblock.label();
        let block = stdx::num::u64_of(BLOCK);
        let sum = |of: &dyn Fn(&crate::shard::Shard) -> u64| -> u64 {
            inner.shards.iter().map(|shard| of(shard)).sum()
        };
        let mut segments = [inner.allocator.borrow().available(), 0, 0, 0];
        for shard in inner.shards.iter() {
            for (total, n) in segments[1..].iter_mut().zip(shard.table().counts()) {
                *total += n;
            }
        }
        let drives: Vec<DriveStatus> = self.drives();
        PoolStatus {
            name: label.name.clone(),
            id: label.pool,
            layout: label.layout,
            epoch: label.epoch,
            capacity: sum(&|shard| shard.capacity) * block,
            used: sum(&|shard| shard.held()) * block,
            metadata: sum(&|shard| shard.table().live_metadata()) * block,
            segments,
            log: self.log_status(label.log),
            volumes: self.volume_statuses(),
            written: sum(&|shard| shard.counters.written.get()) * block,
            drive_written: drives.iter().map(|drive| drive.counters.bytes_written).sum(),
            moved: sum(&|shard| shard.counters.moved.get()) * block,
            segments_reclaimed: sum(&|shard| shard.counters.segments_reclaimed.get()),
            drives,
        }
    }

    fn drives(&self) -> Vec<DriveStatus> {
        let superblock = &self.0.superblock;
        let label = superblock.label();
        let each = superblock.drives.indices().zip(&label.drives);
        each.map(|(index, record)| DriveStatus {
            id: record.id,
            state: superblock.drives.state(index),
            bytes: u64::from(record.au_count) * label.layout.au_bytes,
            counters: superblock.drives.counters(index),
        })
        .collect()
    }

    fn log_status(&self, kind: LogKind) -> LogStatus {
        let all: Vec<log::Status> = self.0.shards.iter().map(|shard| shard.log.status()).collect();
        LogStatus {
            kind,
            protection: all.first().map_or("", |status| status.protection),
            bytes: all.iter().map(|status| status.bytes).sum(),
            used: all.iter().map(|status| status.used).sum(),
            devices: all.first().map_or(0, |status| status.devices),
            failed_devices: all.iter().map(|status| status.failed_devices).max().unwrap_or(0),
        }
    }

    fn volume_statuses(&self) -> Vec<VolumeStatus> {
        let volumes = self.0.volumes.borrow();
        let each = volumes.iter().map(|(name, state)| VolumeStatus {
            name: name.clone(),
            id: state.id,
            bytes: state.bytes.get(),
            block_size: state.block_size,
        });
        each.collect()
    }
}
