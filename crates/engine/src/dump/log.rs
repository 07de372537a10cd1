//! The commit log of a shard.

use super::report::{Finding, LogSeen, ShardSeen, Structure};
use super::{Look, advice, needs_log};
use crate::address::BLOCK;
use crate::format::label::LogKind;
use crate::log::{Inspection, RecordSeen, RecordWhat, SlotSeen, inspect};
use crate::pool::{LogSpec, device, ring};
use stdx::num::{u64_of, usize64};

/// A device of the log: its name, and where this shard's part begins.
fn named(look: &Look<'_>, shard: u16, device: usize) -> (String, u64) {
    let skip = u64::from(shard).saturating_mul(look.label.log_bytes);
    if look.label.log == LogKind::Drives {
        let members = look.label.current_members().filter_map(|member| member.drive);
        let mut zones = members.filter(|index| look.set.is_online(*index));
        let name = zones.nth(device).map_or_else(|| "the log".into(), |n| look.name(n));
        return (name, look.label.catalog.end().saturating_add(skip));
    }
    let name = look.spec.log_names.get(device).cloned();
    (name.unwrap_or_else(|| format!("log device {device}")), skip)
}

/// Looks at a shard's log. Gives the last stripe that it counts as durable; 0 for the log of a
/// pool closed in order, which is empty; `None` when that is not known.
pub(super) async fn check(look: &Look<'_>, shard: u16, seen: &mut ShardSeen) -> Option<u64> {
    let on_drives = LogSpec::Drives;
    let given = match look.label.log {
        LogKind::Drives => Some(&on_drives),
        LogKind::Pmem | LogKind::Bbu | LogKind::Remote => look.spec.log.as_ref(),
    };
    // What other targets have is not looked at: the memory beside it has as much.
    let beside = given.filter(|_| look.label.log == LogKind::Remote);
    let beside = beside.map(|log| LogSpec::Remote(log.devices()));
    let given = beside.as_ref().or(given);
    let Some(log) = given.filter(|log| log.kind() == look.label.log) else {
        if needs_log(&look.label) {
            let kind = match look.label.log {
                LogKind::Pmem => "pmem",
                LogKind::Remote => "namespaces of other targets, and memory beside them",
                LogKind::Bbu | LogKind::Drives => "bbu",
            };
            let what = format!("the commit log ({kind}) was not given");
            look.add(Finding::warning(Structure::LogControl, what).shard(shard).advise(
                "name it with --log: it has what was acknowledged last, and the pool does not \
                 open without it",
            ));
            look.not_checked("the commit log, and what was written since the last checkpoint");
        }
        return look.label.closed.then_some(0);
    };
    let bytes = look.label.log_bytes;
    let fits = u64::from(shard).checked_mul(bytes).is_some_and(|skip| skip < u64::MAX >> 1);
    let list = look.spec.log_records;
    let inspected = match fits {
        true => {
            let device = device(&look.label, log, &look.set, shard);
            let current: Vec<_> = look.label.current_members().map(|member| member.id).collect();
            inspect(device, bytes, ring(&look.label, shard), &current, list).await
        }
        false => Err(crate::Error::new(crate::Kind::Invalid, "its length cannot be")),
    };
    match inspected {
        Ok(found) => tell(look, shard, found, seen),
        Err(error) => {
            let what = format!("the commit log cannot be looked at: {error}");
            look.add(lost(look, what).shard(shard));
            None
        }
    }
}

/// What is lost with a log: something, if the pool is in use.
fn lost(look: &Look<'_>, what: String) -> Finding {
    if look.label.closed {
        return Finding::note(Structure::LogControl, what).advise(
            "a pool that was closed in order has nothing in its log, and opens with a new one",
        );
    }
    Finding::error(Structure::LogControl, what).advise(
        "what was acknowledged last may be lost: give the log's other devices, if there are any, not old copies. With \
         records in it the pool opens for whoever accepts that (`pool import --accept-loss`)",
    )
}

/// Tells of slots of the control block that do not count beside others that do. Says why, where none counts.
fn tell_slots(look: &Look<'_>, shard: u16, found: &Inspection) -> Option<String> {
    let own = ring(&look.label, shard);
    let counts = |slot: &SlotSeen| matches!(slot.ring, Ok(ring) if ring == own);
    let others = found.slots.iter().filter(|slot| !counts(slot));
    let what = |slot: &SlotSeen| match &slot.ring {
        Ok(_) => "a control block is of another log".to_owned(),
        Err(why) => format!("a control block is not whole: {why}"),
    };
    if !found.slots.iter().any(counts) {
        let why = others.map(what).next().map(|what| format!(" ({what})")).unwrap_or_default();
        return Some(format!(
            "no control block of the log counts{why}: where it begins is not known"
        ));
    }
    for slot in others {
        let (name, begins) = named(look, shard, slot.device);
        let finding = Finding::warning(Structure::LogControl, what(slot)).advise(advice::OUTVOTED);
        look.add(finding.shard(shard).on(name).at(begins + slot.slot * u64_of(BLOCK)));
    }
    None
}

fn tell(look: &Look<'_>, shard: u16, found: Inspection, seen: &mut ShardSeen) -> Option<u64> {
    look.count_blocks(usize64(look.label.log_bytes / u64_of(BLOCK)));
    if let Some(what) = tell_slots(look, shard, &found) {
        let (name, begins) = named(look, shard, 0);
        look.add(lost(look, what).shard(shard).on(name).at(begins));
        return look.label.closed.then_some(0);
    }
    let durable = found.durable_stripe();
    let Some(control) = found.control else { return look.label.closed.then_some(0) };
    for device in 0..found.devices {
        let mut lacking = found.lacking.iter().filter(|lacking| lacking.device == device);
        let Some(first) = lacking.next() else { continue };
        let what = format!(
            "{} records are whole on the other device only, from record {} on",
            lacking.count() + 1,
            first.sequence
        );
        let (name, begins) = named(look, shard, device);
        let advice = "nothing is lost: opening the pool copies them from the other device";
        let finding = Finding::warning(Structure::LogRecord, what).advise(advice);
        look.add(finding.shard(shard).on(name).at(begins + first.at));
    }
    for damaged in &found.damaged {
        let (name, begins) = named(look, shard, damaged.device);
        let what = format!(
            "record {} was acknowledged and is damaged: contents of it are lost",
            damaged.sequence
        );
        let finding = Finding::error(Structure::LogRecord, what).advise(
            "the pool opens, and says of what is lost that it is, until it is written again",
        );
        look.add(finding.shard(shard).on(name).at(begins + damaged.at));
    }
    for (first, what) in &found.unnamed {
        let (name, begins) = named(look, shard, first.device);
        let finding = Finding::error(Structure::LogRecord, what.clone()).advise(
            "the pool opens only for whoever accepts that (`pool import --accept-loss`): give the \
             log's other devices, if there are any, not old copies",
        );
        look.add(finding.shard(shard).on(name).at(begins + first.at));
    }
    check_views(look, shard, &found.list);
    seen.log = Some(LogSeen {
        devices: found.devices,
        epoch: control.epoch,
        trimmed: control.trimmed,
        records: found.records,
        bytes: found.bytes,
        ring: control.ring_bytes,
        contents: found.blocks * u64_of(BLOCK),
        list: found.list,
        holes: found.holes,
    });
    durable
}

/// Records are of volumes that there are.
fn check_views(look: &Look<'_>, shard: u16, list: &[RecordSeen]) {
    if look.catalog.get().is_none() {
        return;
    }
    for record in list {
        let key = match record.what {
            RecordWhat::Write { key, .. }
            | RecordWhat::Hole { key, .. }
            | RecordWhat::References { key, .. }
            | RecordWhat::Lost { key, .. } => key,
            RecordWhat::Padding => continue,
        };
        if look.volume(key.view).is_none() {
            let what = format!(
                "record {} is of view {}, of no volume: its volume was deleted",
                record.sequence,
                key.view.get()
            );
            look.add(Finding::note(Structure::LogRecord, what).shard(shard));
        }
    }
}
