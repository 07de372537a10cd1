//! Pools as documents of the management API.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::v1::{
    CapacityBreakdown, Drive, DriveCounters, DriveHardware, DriveRejoin, Kind, LogPolicy, Pool,
    PoolHealth, PoolLog, PoolSpace, PoolStatus, Rebuild, Scrub, SegmentCounts, Spread, WindowLog,
};
use api::value::Name;
use engine::drives::DriveState;
use engine::format::label::{LogKind, StaysOut};
use uuid::Uuid;

use super::lives::{Clock, Life, Seen, health_of_drive, state_of};
use super::outlook::{Doing, Outlook};
use super::{
    Condition, Known, OpenPool, PausedRebuild, PoolDef, Pools, RejoinPace, ScrubRecord, no_pool,
    scrub, waits_for,
};
use crate::limits::STATUS_PATIENCE;
use crate::{Error, Result};

/// A pool as it is to be shown. To make the document asks an open one, which the owner of the node does not wait for.
#[derive(Debug)]
pub struct Shown {
    pool: Pool,
    open: Option<Arc<OpenPool>>,
    space: PoolSpace,
    paused: Option<PausedRebuild>,
    /// What is remembered of it, and is going to be done about drives that it lacks.
    def: PoolDef,
    outlooks: BTreeMap<u16, Outlook>,
    /// Direct write windows of its volumes, and what is set aside for them; none where the node grants none.
    windows: Option<(u64, WindowLog)>,
    /// What becomes of drives that are slow, in words.
    slow: BTreeMap<u16, &'static str>,
}

impl Pools {
    /// All pools, by name.
    pub fn shown(&self) -> Vec<Shown> {
        self.known.iter().map(|(name, known)| self.show_known(name, known)).collect()
    }

    /// One pool.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn show(&self, name: &Name) -> Result<Shown> {
        Ok(self.show_known(name, self.known.get(name).ok_or_else(|| no_pool(name))?))
    }

    fn show_known(&self, name: &Name, known: &Known) -> Shown {
        let path = |path: &std::path::PathBuf| path.display().to_string();
        let (health, problem) = match &known.condition {
            Condition::Open(_) => (PoolHealth::Online, None),
            Condition::Opening { before, progress } => {
                let problem = waits_for(progress).or_else(|| before.clone());
                (PoolHealth::Opening, problem)
            }
            Condition::Closed(problem) => (PoolHealth::Unavailable, Some(problem.clone())),
        };
        let pool = Pool {
            name: name.clone(),
            id: known.def.id,
            health,
            problem,
            paths: known.def.drives.iter().map(path).collect(),
            log_places: known.def.log.clone(),
            scrub: self.scrub_document(&known.def.scrub),
            spares: self.spares(name),
            spares_used_up: self.has_used_spares_up(name),
            status: None,
        };
        let paused = known.def.paused.clone();
        let windows = self.windows.as_ref().map(|windows| windows.of(known.def.id));
        let (open, space) = (known.pool().cloned(), self.space(name));
        let slow = self.slow.get(name).into_iter().flatten();
        let slow = slow.map(|(index, of)| (*index, of.words())).collect();
        let (def, outlooks) = (known.def.clone(), known.outlooks.clone());
        Shown { pool, open, space, paused, def, outlooks, windows, slow }
    }

    fn scrub_document(&self, record: &ScrubRecord) -> Scrub {
        Scrub { due_ms: record.due_ms(self.scrub_every), ..record.scrub.clone() }
    }

    /// How fast drives of a pool are made whole.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn rejoin_pace(&self, name: &Name) -> Result<RejoinPace> {
        Ok(self.known.get(name).ok_or_else(|| no_pool(name))?.def.rejoin)
    }

    /// Open pools that lack redundancy, whose drives wait to be made whole.
    pub fn paused_rejoins(&self) -> impl Iterator<Item = &Name> {
        self.known.iter().filter_map(|(name, known)| {
            let lacks = self.watches.get(name).is_some_and(super::Watch::is_degraded);
            known.pool().filter(|_| lacks && known.def.rejoin.paused).map(|_| name)
        })
    }

    /// The pools that are open.
    pub fn open_pools(&self) -> impl Iterator<Item = &Arc<OpenPool>> {
        self.known.values().filter_map(Known::pool)
    }
}

/// The documents of pools. The open ones are asked side by side; of one that does not answer in time
/// it is said that it does not.
///
/// # Errors
/// `Stopping`.
pub fn documents(shown: Vec<Shown>) -> Result<Vec<Pool>> {
    let calls = shown.iter().filter_map(|shown| shown.open.as_ref()).map(|open| open.look(false));
    let mut answers = reactor::wait_for(calls.collect(), STATUS_PATIENCE).into_iter();
    let documents = shown.into_iter().map(|shown| match shown.open {
        Some(_) => shown.document(answers.next().flatten()),
        None => Ok(shown.pool),
    });
    documents.collect()
}

impl Shown {
    /// The document, with what the pool answered.
    fn document(
        self,
        answer: Option<std::result::Result<Option<engine::PoolStatus>, reactor::Gone>>,
    ) -> Result<Pool> {
        let Self { mut pool, open, space, paused, def, outlooks, windows, slow } = self;
        let Some(open) = open else { return Ok(pool) };
        let Some(answer) = answer else {
            pool.problem = Some(format!(
                "it did not say in {} s how it is: a reactor is stuck",
                STATUS_PATIENCE.as_secs()
            ));
            pool.log_places = open.places();
            return Ok(pool);
        };
        let answer = answer.map_err(|_| Error::new(Kind::Stopping, "the reactors have stopped"))?;
        // Closed meanwhile, it is not open.
        if let Some(status) = answer {
            pool.problem = problem(&status);
            pool.health = health_of(&status);
            pool.log_places = open.places();
            if let Some(how) = status.scrub.as_ref().filter(|how| how.is_under_way) {
                scrub::note(&mut pool.scrub, how);
            }
            let asked = status;
            let mut status = document_of_status(&open, &asked, space);
            if let Some((count, log)) = windows {
                let has_memory = matches!(asked.log.kind, LogKind::Pmem | LogKind::Bbu);
                (status.windows, status.window_log) = (count, has_memory.then_some(log));
            }
            status.drives = drive_documents(&open, &asked, &def, &outlooks);
            if let Some(paused) = paused {
                status.rebuild = Some(paused.rebuild);
            }
            for (index, words) in slow {
                let drive = status.drives.get_mut(usize::from(index));
                if let Some(drive) = drive.filter(|drive| drive.state == api::v1::DriveState::Slow)
                {
                    drive.doing = Some(format!("reads go around it; {words}"));
                }
            }
            pool.status = Some(status);
        }
        Ok(pool)
    }
}

/// Whether a pool lacks what this drive has, or some of it.
fn lacks(drive: &engine::DriveStatus) -> bool {
    drive.state != DriveState::Online && !drive.vacant
}

/// Drives that an open pool may lose, beside those that it lacks, without loss of contents. Its log is as exposed as
/// they are where it lies on them; devices of its own that it has lost leave nothing once there is one left.
pub fn redundancy_left(status: &engine::PoolStatus) -> u8 {
    let lost = status.drives.iter().filter(|drive| lacks(drive)).count();
    let left = status.layout.parity.saturating_sub(u8::try_from(lost).unwrap_or(u8::MAX));
    let log = &status.log;
    let copies = log.devices.saturating_sub(log.failed_devices);
    if log.kind == LogKind::Drives || log.failed_devices > 0 && copies <= 1 {
        left.min(u8::try_from(copies.saturating_sub(1)).unwrap_or(u8::MAX))
    } else {
        left
    }
}

/// How an open pool is.
pub fn health_of(status: &engine::PoolStatus) -> PoolHealth {
    let is_whole = !status.drives.iter().any(lacks) && status.log.failed_devices == 0;
    match redundancy_left(status) {
        _ if status.beyond.is_some() => PoolHealth::BeyondRedundancy,
        _ if is_whole => PoolHealth::Online,
        0 => PoolHealth::NoRedundancy,
        _ => PoolHealth::Degraded,
    }
}

/// What an open pool has lost, in words.
pub fn problem(status: &engine::PoolStatus) -> Option<String> {
    let drives = status.drives.iter().enumerate();
    let log = &status.log;
    let lost: Vec<_> = drives
        .filter(|(_, drive)| lacks(drive))
        .map(|(index, drive)| match drive.stays_out {
            Some(StaysOut::Operator) => format!("drive {index} was taken out by an operator"),
            Some(why) => format!("drive {index} is {}: {why}", state_of(drive).name()),
            None => format!("drive {index} is {}", state_of(drive).name()),
        })
        .chain((log.failed_devices > 0).then(|| {
            let has = log.devices - log.failed_devices;
            let waits = if log.waits { ", writes wait for the others" } else { "" };
            let away = log.away.iter().map(|why| format!(" ({why})")).collect::<String>();
            format!("its log has {has} of {} copies{waits}{away}", log.devices)
        }))
        .collect();
    let lost = lost.join(", ");
    match &status.beyond {
        Some(why) => Some(format!(
            "beyond redundancy, writes wait, and reads of what it lacks: {why}; {lost}"
        )),
        None => (!lost.is_empty()).then_some(lost),
    }
}

/// How a pool is with such a problem, in words.
pub fn condition(name: &Name, problem: &str, health: PoolHealth) -> String {
    match health {
        PoolHealth::BeyondRedundancy => format!("pool {name} is {problem}"),
        PoolHealth::NoRedundancy => {
            format!("pool {name} has no redundancy left, another loss costs data: {problem}")
        }
        _ => format!("pool {name} is degraded: {problem}"),
    }
}

fn document_of_status(
    open: &OpenPool,
    status: &engine::PoolStatus,
    space: PoolSpace,
) -> PoolStatus {
    let [free, reserved, filling, sealed] = status.segments;
    PoolStatus {
        data: status.layout.data,
        parity: status.layout.parity,
        redundancy_left: redundancy_left(status),
        shards: status.shards,
        capacity: status.capacity,
        breakdown: breakdown_document(status.breakdown),
        used: status.used,
        held_by_clones: status.held_by_clones,
        reserved: status.reservations.bytes,
        reserved_kept: status.reservations.kept,
        reserved_missing: status.reservations.missing,
        space,
        provisioned: status.volumes.iter().map(|volume| volume.bytes).sum(),
        metadata: status.metadata,
        segments: SegmentCounts { free, reserved, open: filling, sealed },
        log: PoolLog {
            kind: log_kind(status.log.kind).to_owned(),
            protection: status.log.protection.to_owned(),
            size: status.log.bytes,
            used: status.log.used,
            devices: status.log.devices,
            failed_devices: status.log.failed_devices,
            made_anew: open.has_new_log(),
            lost: open.has_lost_log(),
            policy: if status.log.waits { LogPolicy::Wait } else { LogPolicy::Continue },
            away: status.log.away.clone(),
        },
        drives: Vec::new(),
        volumes: status.volumes.len(),
        written: status.written,
        drive_written: status.drive_written,
        write_amplification: amplification(status.written, status.drive_written),
        moved: status.moved,
        segments_reclaimed: status.segments_reclaimed,
        lost_blocks: status.lost_blocks,
        windows: 0,
        window_log: None,
        rebuild: status.rebuild.as_ref().map(rebuild_document),
        spread: status.spread.map(|engine::Spread { capacity, bytes }| Spread { capacity, bytes }),
    }
}

/// What a pool's bytes are for, as the management API has it.
pub fn breakdown_document(of: engine::Breakdown) -> CapacityBreakdown {
    let engine::Breakdown { raw, capacity, parity, log, labels, reserve, unused } = of;
    CapacityBreakdown { raw, usable: capacity, parity, log, labels, reserve, unused }
}

/// The name of what keeps a log.
pub const fn log_kind(kind: LogKind) -> &'static str {
    match kind {
        LogKind::Pmem => "pmem",
        LogKind::Bbu => "bbu",
        LogKind::Drives => "drives",
        LogKind::Remote => "remote",
    }
}

#[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
fn amplification(written: u64, drive_written: u64) -> Option<f64> {
    (written > 0).then(|| drive_written as f64 / written as f64)
}

/// How a pool's drives are emptied, as the management API has it.
pub fn rebuild_document(rebuild: &engine::Rebuild) -> Rebuild {
    Rebuild {
        drives: rebuild.drives.clone(),
        running: rebuild.is_under_way,
        paused: false,
        bytes: rebuild.bytes,
        done: rebuild.done,
        limit: rebuild.limit,
        waits: rebuild.waits,
        failure: rebuild.failure.clone(),
    }
}

/// The drives of an open pool, as it is asked just now.
fn drive_documents(
    open: &OpenPool,
    status: &engine::PoolStatus,
    def: &PoolDef,
    outlooks: &BTreeMap<u16, Outlook>,
) -> Vec<Drive> {
    let clock = Clock::read();
    let document = |(index, drive): (u16, &engine::DriveStatus)| {
        // What became of it since it was looked at last is seen now.
        let life = Life::see(def.lives.get(&index), &Seen::of(drive, clock), clock.now_ms);
        let (pool, outlook) = (open.name(), outlooks.get(&index));
        let doing = Doing { pool, def, status, outlook, clock }.words(index, drive);
        let returns = u32::try_from(life.returns(clock.now_ms)).unwrap_or(u32::MAX);
        Drive {
            since_ms: life.since_ms,
            cause: life.cause,
            doing,
            returns,
            ..drive_document(open, usize::from(index), drive, status.layout.au_bytes)
        }
    };
    (0..).zip(&status.drives).map(document).collect()
}

/// What the pool itself says of a drive.
fn drive_document(
    open: &OpenPool,
    index: usize,
    drive: &engine::DriveStatus,
    au_bytes: u64,
) -> Drive {
    // Each of them, or this does not compile.
    let engine::drives::DriveCounters {
        reads,
        writes,
        bytes_read,
        bytes_written,
        read_errors,
        write_errors,
        corrupt,
        reconstructed,
        repaired,
        timeouts,
        slow,
    } = drive.counters;
    let path = open.paths().get_mut(index).and_then(Option::take);
    Drive {
        pool: open.name().clone(),
        index,
        id: Uuid::from_bytes(drive.id),
        path: path.map(|path| path.display().to_string()),
        health: health_of_drive(drive),
        state: state_of(drive),
        since_ms: None,
        cause: None,
        doing: None,
        stays_out: drive.stays_out.map(|why| match why {
            StaysOut::Operator => api::v1::StaysOut::Operator,
            StaysOut::Faults => api::v1::StaysOut::Faults,
            StaysOut::Returns => api::v1::StaysOut::Returns,
        }),
        returns: 0,
        retired: drive.stays_out == Some(StaysOut::Operator),
        leaving: drive.leaving,
        slow: drive.slow && drive.state == DriveState::Online,
        rejoin: drive.rejoin.as_ref().map(|rejoin| DriveRejoin {
            units: rejoin.units,
            done: rejoin.done,
            unit_bytes: au_bytes,
            lost_blocks: rejoin.lost,
            failure: rejoin.failure.clone(),
        }),
        size: drive.bytes,
        counters: DriveCounters {
            reads,
            writes,
            bytes_read,
            bytes_written,
            read_errors,
            write_errors,
            corrupt,
            reconstructed,
            repaired,
            timeouts,
            slow,
        },
        // Not the pool's to say.
        hardware: DriveHardware::default(),
    }
}
