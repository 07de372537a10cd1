//! How a pool is doing.

use std::ops::Range;
use std::rc::Rc;

use reactor::Nanos;

use super::{Breakdown, Pool, Rebuild, Rejoin, Scrub};
use crate::address::BLOCK;
use crate::drives::{Cause, DriveCounters, DriveState};
use crate::error::Result;
use crate::format::label::{DriveMark, Label, Layout, LogKind, StaysOut};
use crate::log;
use crate::quotas::{QuotaStatus, ReservationStatus, Reservations};
use crate::shard::{Shard, WritesRefused};
use crate::shard_handle::ShardHandle;
use crate::volume::state::BLOCK_BYTES;

/// A pool, for people and metrics.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    pub name: String,
    pub id: [u8; 16],
    pub layout: Layout,
    pub shards: u16,
    pub epoch: u64,
    /// Bytes of contents the pool can hold.
    pub capacity: u64,
    /// What the bytes of its drives are for.
    pub breakdown: Breakdown,
    /// Bytes of contents it holds, those nobody sees any more included where that is not known yet.
    pub used: u64,
    /// Of those, what clones see of volumes that were deleted or rolled back, and nobody else; `None` before it was counted.
    pub held_by_clones: Option<u64>,
    /// What is kept of it for volumes, together.
    pub reservations: Reservations,
    /// Bytes of metadata.
    pub metadata: u64,
    /// Segments free, reserved, open and sealed, and bytes of contents that one has room for.
    pub segments: [u64; 4],
    pub segment_bytes: u64,
    pub log: LogStatus,
    pub drives: Vec<DriveStatus>,
    pub volumes: Vec<VolumeStatus>,
    /// Bytes hosts wrote since the pool was opened, and bytes the drives wrote.
    pub written: u64,
    pub drive_written: u64,
    /// Bytes reclaim moved, and segments it emptied.
    pub moved: u64,
    pub segments_reclaimed: u64,
    /// Blocks that turned out, when reclaim came to move them, to be damaged beyond what the redundancy
    /// gives back. Reads of them fail until they are written.
    pub lost_blocks: u64,
    /// Reads since the pool was opened that found blocks which nothing gives.
    pub unreadable_reads: u64,
    /// Bytes of free space the drives were told of since the pool was opened.
    pub discarded_bytes: u64,
    /// Why writes are refused although the pool is not full, if they are.
    pub refuses: Option<WritesRefused>,
    /// Why more is lost than the redundancy bears, if so: nothing more is acknowledged until the pool is opened again.
    pub beyond: Option<String>,
    /// How drives are being emptied, if any are, or were since the pool was opened.
    pub rebuild: Option<Rebuild>,
    /// What is to be moved so that all space of its drives can be used, if something is.
    pub spread: Option<Spread>,
    /// How it is being scrubbed, if it is, or was since it was opened.
    pub scrub: Option<Scrub>,
}

/// Drives came, or came back, when the others were filled: what is there is being spread over all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Bytes of contents that the pool can hold once that is done.
    pub capacity: u64,
    /// Room for bytes of contents that is written anew until then, at least.
    pub bytes: u64,
}

/// The commit logs of all shards together.
#[derive(Clone, Debug)]
pub struct LogStatus {
    /// What its devices are known by: another one since the pool was opened with a new log.
    pub id: [u8; 16],
    pub kind: LogKind,
    /// What an operator must know of how safe it is.
    pub protection: &'static str,
    pub bytes: u64,
    pub used: u64,
    /// Bytes that each of its devices has to have.
    pub device_bytes: u64,
    /// Copies that there are to be, and how many are missing or not current.
    pub devices: usize,
    pub failed_devices: usize,
    /// The drives that have it.
    pub drives: Vec<u16>,
    /// Files and namespaces of other targets that are to have it and have not all of it, and why, in words.
    pub away: Vec<String>,
    /// Nothing is acknowledged while it has fewer copies than it is to have.
    pub waits: bool,
    /// Grows whenever a device of the log or a drive stops being current.
    pub term: u64,
    /// As far as the drives are known to have it.
    pub durable_term: u64,
}

#[derive(Clone, Debug)]
pub struct DriveStatus {
    pub id: [u8; 16],
    pub state: DriveState,
    /// The labels say that it is out: what it has is old, whatever its state.
    pub out: bool,
    /// It is not taken back before an operator says so: why.
    pub stays_out: Option<StaysOut>,
    /// Why it is out of use, if it was taken out since the pool was opened.
    pub cause: Option<Cause>,
    /// When its state was changed last, on the reactors' clock; `None` where it is as the pool was opened.
    pub changed: Option<Nanos>,
    /// Nothing of the pool lies on it.
    pub vacant: bool,
    /// What it has is moved to the others, or is to be.
    pub leaving: bool,
    /// It is slower than the others: reads go around it where that is what is slow.
    pub slow: bool,
    /// Bytes of its allocation units.
    pub bytes: u64,
    pub counters: DriveCounters,
    /// How often its labels were gone, and were written anew.
    pub labels_rewritten: u64,
    /// How it is doing since it was taken back last, if it was away.
    pub rejoin: Option<Rejoin>,
}

#[derive(Clone, Debug)]
pub struct VolumeStatus {
    pub name: String,
    pub id: [u8; 16],
    pub bytes: u64,
    pub block_size: u32,
    /// As [`Volume::used`](crate::Volume::used).
    pub used: Option<u64>,
    /// Bytes looked through while it is [detached](Pool::detach_volume).
    pub detaching: Option<u64>,
    pub quota: Option<QuotaStatus>,
    pub reservation: Option<ReservationStatus>,
}

/// What the space of a pool adds up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceAudit {
    /// Blocks of data that volumes have, as the map says.
    pub live: u64,
    /// Allocation units taken, and those of the segments there are: the same, or some are lost.
    pub taken: u64,
    pub owned: u64,
}

/// What one shard adds to that.
struct Part {
    segments: [u64; 3],
    held: u64,
    metadata: u64,
    written: u64,
    unreadable: u64,
    moved: u64,
    segments_reclaimed: u64,
    lost: u64,
    discarded: u64,
    refuses: Option<WritesRefused>,
    log: log::Status,
    /// By drive.
    drives: Vec<DriveCounters>,
}

impl Part {
    fn of(shard: &Shard) -> Self {
        let base = &shard.base;
        let drives = base.writer.segments().drives();
        let counters = shard.counters();
        Self {
            segments: base.table().counts(),
            held: base.held(),
            metadata: base.table().live_metadata(),
            written: counters.written,
            unreadable: counters.unreadable,
            moved: counters.moved,
            segments_reclaimed: counters.segments_reclaimed,
            lost: counters.lost,
            discarded: counters.discarded,
            refuses: base.refuses(),
            log: base.log.status(),
            drives: drives.indices().map(|index| drives.counters(index)).collect(),
        }
    }
}

impl Pool {
    /// Finds out what nobody sees any more, and how the space adds up then. Costs reading the map;
    /// exact when nobody writes meanwhile and nothing is moved.
    ///
    /// # Errors
    /// `Gone` when the pool was closed.
    pub async fn audit_space(&self) -> Result<SpaceAudit> {
        let count = |shard: Rc<Shard>| async move {
            shard.search.find().await;
            let look = || {
                let table = shard.base.table();
                let members = table.iter().map(|s| stdx::num::u64_of(s.info.members.len()));
                (table.live_data(), members.sum::<u64>())
            };
            // No segment is between the free ones and those of the shard.
            Ok(shard.checkpoints.between(look).await)
        };
        let mut audit = SpaceAudit::default();
        for (live, owned) in self.each(count).await? {
            (audit.live, audit.owned) = (audit.live + live, audit.owned + owned);
        }
        audit.taken = self.0.common.allocator.lock().taken();
        Ok(audit)
    }

    /// Waits until what volumes use is known as of now, or later; false where it cannot be counted.
    ///
    /// # Errors
    /// `Gone` when the pool was closed.
    pub async fn counted(&self) -> Result<bool> {
        let all = self.each(|shard| async move { Ok(shard.counting.counted().await) }).await?;
        Ok(all.into_iter().all(|counted| counted))
    }

    /// The records of each shard's log that are not on the drives yet, by sequence: the first, and the one after
    /// the last. What was answered before is on the drives, or was overwritten, once the first is beyond what
    /// was the last. `None` while a shard is on another reactor, or closed.
    #[must_use]
    pub fn undestaged(&self) -> Option<Vec<Range<u64>>> {
        self.0.handles.iter().map(ShardHandle::undestaged).collect()
    }

    /// How the pool is doing now: each shard is asked on its reactor.
    ///
    /// # Errors
    /// `Gone` when the pool was closed.
    pub async fn status(&self) -> Result<PoolStatus> {
        let inner = &self.0;
        let parts = self.each(|shard| async move { Ok(Part::of(&shard)) }).await?;
        let label = inner.common.superblock.label();
        let block = stdx::num::u64_of(BLOCK);
        let sum = |of: &dyn Fn(&Part) -> u64| -> u64 { parts.iter().map(of).sum() };
        let mut segments = [inner.common.allocator.lock().available(), 0, 0, 0];
        for part in &parts {
            for (total, n) in segments[1..].iter_mut().zip(part.segments) {
                *total += n;
            }
        }
        let drives = self.drives(&label, &parts);
        let set = &inner.common.superblock.drives;
        let size = |index| set.drive(index).map(|drive| drive.capacity());
        let sizes = set.indices().map(|index| size(index).unwrap_or(label.drive_bytes(index)));
        let sizes: Vec<u64> = sizes.collect();
        Ok(PoolStatus {
            name: label.name.clone(),
            id: label.pool,
            layout: label.layout,
            shards: label.shards,
            epoch: label.epoch,
            capacity: inner.common.space.capacity() * block,
            breakdown: Breakdown::of(&label, &sizes, inner.common.segment_blocks),
            used: sum(&|part| part.held) * block,
            held_by_clones: inner.common.used.held_by_clones().map(|blocks| blocks * block),
            reservations: inner.common.quotas.reservations(&inner.common.space),
            metadata: sum(&|part| part.metadata) * block,
            segments,
            segment_bytes: inner.common.segment_blocks * block,
            log: self.log_status(&label, &parts),
            volumes: self.volume_statuses(),
            written: sum(&|part| part.written) * block,
            unreadable_reads: sum(&|part| part.unreadable),
            drive_written: drives.iter().map(|drive| drive.counters.bytes_written).sum(),
            moved: sum(&|part| part.moved) * block,
            segments_reclaimed: sum(&|part| part.segments_reclaimed),
            lost_blocks: sum(&|part| part.lost),
            discarded_bytes: sum(&|part| part.discarded),
            refuses: parts.iter().find_map(|part| part.refuses),
            beyond: inner.common.superblock.beyond(),
            rebuild: self.rebuild_status(),
            spread: self.spread_status(),
            scrub: self.scrub_status(),
            drives,
        })
    }

    fn spread_status(&self) -> Option<Spread> {
        let common = &self.0.common;
        let (capacity, segments) = common.to_spread()?;
        let bytes = segments * common.segment_blocks * BLOCK_BYTES;
        Some(Spread { capacity: capacity * BLOCK_BYTES, bytes })
    }

    fn drives(&self, label: &Label, parts: &[Part]) -> Vec<DriveStatus> {
        let drives = &self.0.common.superblock.drives;
        let each = drives.indices().zip(&label.drives).map(|(index, record)| {
            let mut counters = DriveCounters::default();
            for part in parts {
                // One that was added since has done nothing.
                part.drives.get(usize::from(index)).into_iter().for_each(|of| counters.add(of));
            }
            DriveStatus {
                id: record.id,
                state: drives.state(index),
                out: record.is_out(),
                stays_out: record.stays_out,
                cause: drives.cause(index).cloned(),
                changed: drives.changed(index),
                leaving: record.is_leaving,
                // One that comes there counts, and could be lost, once it is online: labels say so a moment earlier.
                vacant: record.mark == DriveMark::Vacant || drives.is_vacant(index),
                slow: drives.is_slow(index),
                bytes: u64::from(record.au_count) * label.layout.au_bytes,
                counters,
                labels_rewritten: self.labels_rewritten(index),
                rejoin: self.rejoin_status(index),
            }
        });
        each.collect()
    }

    fn volume_statuses(&self) -> Vec<VolumeStatus> {
        let volumes = self.0.volumes.borrow();
        let each = volumes.iter().map(|(name, state)| VolumeStatus {
            name: name.clone(),
            id: state.id,
            bytes: state.bytes(),
            block_size: state.block_size,
            used: state.used(),
            detaching: state.detaching(),
            quota: self.0.common.quotas.status(state.view),
            reservation: self.0.common.quotas.reservation(state.view),
        });
        each.collect()
    }

    /// [`LogStatus::durable_term`] as it is now.
    #[must_use]
    pub fn durable_term(&self) -> u64 {
        self.0.common.superblock.durable_term()
    }

    /// [`LogStatus::id`] as it is now.
    #[must_use]
    pub fn log_id(&self) -> [u8; 16] {
        self.0.common.superblock.label().log_id
    }

    fn log_status(&self, label: &Label, parts: &[Part]) -> LogStatus {
        let all = || parts.iter().map(|part| &part.log);
        let current = self.0.common.superblock.members.current();
        let devices = current.max(usize::from(label.log_copies));
        LogStatus {
            id: label.log_id,
            kind: label.log,
            protection: all().next().map_or("", |status| status.protection),
            bytes: all().map(|status| status.bytes).sum(),
            used: all().map(|status| status.used).sum(),
            device_bytes: label.log_bytes * u64::from(label.shards),
            devices,
            failed_devices: devices - current,
            drives: label.current_members().filter_map(|member| member.drive).collect(),
            away: self.away_copies(parts.first().map(|part| &part.log)),
            waits: label.log_waits,
            term: label.term,
            durable_term: self.0.common.superblock.durable_term(),
        }
    }
}
