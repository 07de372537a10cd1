//! What a crash left: records of the journal that were complete, copies that differ.

use std::collections::BTreeMap;

use initiator::{Deallocate, Fua};
use reactor::join_all;
use stdx::crc32c;
use stdx::num::usize32;

use crate::Error;
use crate::format::{Change, Record};
use crate::inner::Inner;
use crate::layout::Slots;
use crate::limits::PAGE;
use crate::member::is_medium;

/// What a member has of a record.
enum Part {
    /// All of it: its contents.
    Whole(Vec<u8>),
    /// Not all of it: so nothing was changed in place.
    Torn,
    /// It cannot be read.
    Unknown,
}

/// Records, by number and slot, and places of the journal that cannot be read.
type Records = BTreeMap<u64, BTreeMap<usize, Record>>;

/// Does again what complete records say, in order, and goes on behind all of them.
pub async fn replay(inner: &Inner) -> Result<(), Error> {
    let (records, unreadable) = read(inner).await?;
    let tail = inner.stored_tail();
    let last = records.keys().last().copied().unwrap_or(0);
    for (&number, parts) in records.range(tail..) {
        one(inner, number, parts, &unreadable).await?;
    }
    // Beyond whatever was begun, torn or not: no place holds a number that comes again.
    inner.journal.go_on_from(last.max(tail) + inner.layout.records + 1);
    inner.checkpoint(tail).await?;
    Ok(())
}

/// Reads every descriptor there is.
async fn read(inner: &Inner) -> Result<(Records, Vec<Slots>), Error> {
    let layout = &inner.layout;
    let mut records = Records::new();
    let mut unreadable = Vec::new();
    for place in 0..layout.records {
        let at = layout.record_end(place) - u64::from(PAGE);
        let mut bad = Slots::default();
        let reads = inner
            .present()
            .iter()
            .map(|slot| async move { (slot, inner.read_page(slot, at).await) });
        for (slot, page) in join_all(reads).await {
            let Some(page) = page else {
                bad.add(slot);
                continue;
            };
            let record = Record::get(&page, layout).ok();
            let own = record.filter(|record| record.set == inner.id && record.slot == slot);
            if let Some(record) = own
                && record.number % layout.records == place
            {
                records.entry(record.number).or_default().insert(slot, record);
            }
        }
        unreadable.push(bad);
    }
    inner.settle().await?;
    Ok((records, unreadable))
}

/// Does one record again, if it is complete.
async fn one(
    inner: &Inner,
    number: u64,
    parts: &BTreeMap<usize, Record>,
    unreadable: &[Slots],
) -> Result<(), Error> {
    let Some(any) = parts.values().next().copied() else { return Ok(()) };
    let stripes = match any.change {
        Change::Unit { .. } => any.stripe..any.stripe + 1,
        Change::Zeroes { stripes } => any.stripe..any.stripe + stripes,
    };
    let live = |slot: &usize| stripes.clone().any(|stripe| inner.live(stripe).has(*slot));
    let needed: Vec<usize> = any.members.iter().filter(live).collect();
    let place = stdx::num::usize64(number % inner.layout.records);
    let mut whole = Vec::new();
    let mut unknown = Vec::new();
    for &slot in &needed {
        let part = match parts.get(&slot) {
            Some(record) => contents(inner, record).await,
            None if unreadable[place].has(slot) => Part::Unknown,
            None => Part::Torn,
        };
        match part {
            Part::Whole(bytes) => whole.push((slot, bytes)),
            Part::Unknown => unknown.push(slot),
            Part::Torn => return Ok(()),
        }
    }
    inner.settle().await?;
    if unknown.len() + inner.layout.width() - inner.live(any.stripe).count() > inner.layout.parity()
    {
        return Err(Error::refused(
            format!("record {number} of the journal cannot be read on members {unknown:?}"),
            "too many are missing besides: give the others, too",
        ));
    }
    tracing::debug!(
        "record {number}: {} stripes from {} on again",
        stripes.end - stripes.start,
        stripes.start
    );
    let _held = inner.locks.lock(stripes.clone(), true).await;
    inner.mark_missed(stripes.clone()).await?;
    match any.change {
        Change::Unit { .. } => put_units(inner, &any, parts, whole, unknown).await,
        Change::Zeroes { .. } => {
            for slot in inner.present().iter() {
                let zeroed = inner.zero_member(slot, &stripes, Deallocate::No, Fua::Yes).await;
                if let Err(error) = zeroed {
                    inner.lose(slot, &error);
                }
            }
            Ok(inner.settle().await?)
        }
    }
}

/// What lies before a descriptor, if it is what that says.
async fn contents(inner: &Inner, record: &Record) -> Part {
    let Change::Unit { len, crc, .. } = record.change else { return Part::Whole(Vec::new()) };
    let Some(member) = inner.member(record.slot) else { return Part::Unknown };
    let permit = inner.work.permit(1, usize32(len)).await;
    let mut buffer = permit.buffer(usize32(len)).await;
    let at = inner.layout.record_end(record.number) - u64::from(PAGE + len);
    match member.read(at, len, &mut buffer).await {
        Ok(()) if crc32c(&buffer) == crc => Part::Whole(buffer.to_vec()),
        Ok(()) => Part::Torn,
        Err(error) => {
            if !is_medium(&error) {
                inner.lose(record.slot, &error);
            }
            Part::Unknown
        }
    }
}

async fn put_units(
    inner: &Inner,
    any: &Record,
    parts: &BTreeMap<usize, Record>,
    whole: Vec<(usize, Vec<u8>)>,
    unknown: Vec<usize>,
) -> Result<(), Error> {
    for (slot, bytes) in whole {
        let (Some(member), Some(record)) = (inner.member(slot), parts.get(&slot)) else { continue };
        let Change::Unit { at, len, .. } = record.change else { continue };
        let permit = inner.work.permit(1, bytes.len()).await;
        let mut buffer = permit.buffer(bytes.len()).await;
        buffer.copy_from_slice(&bytes);
        let at = inner.layout.member_at(any.stripe, at);
        if let Err(error) = member.write(at, len, &mut buffer, Fua::Yes).await {
            inner.lose(slot, &error);
        }
    }
    inner.settle().await?;
    let bad: Slots = unknown.iter().map(|&slot| inner.layout.unit(any.stripe, slot)).collect();
    if bad.count() > 0 {
        // The others have what is new; theirs follows from that.
        let room = usize32(any.hull.1);
        let permit = inner.work.permit(inner.layout.width(), room).await;
        inner.fetch_but(&permit, any.stripe, any.hull, (bad, bad), room).await?;
    }
    Ok(inner.settle().await?)
}

/// Makes the copies of a mirror equal where they may differ.
pub async fn resync(inner: &Inner) -> Result<(), Error> {
    #[cfg(test)]
    if inner.has_canary(crate::canary::Canary::SkipResync) {
        return Ok(());
    }
    let bits = inner.bitmap.bits();
    for region in bits.iter().take_while(|&region| region < inner.layout.regions()) {
        let from = region * inner.layout.region_stripes;
        let to = (from + inner.layout.region_stripes).min(inner.layout.stripes);
        for stripe in from..to {
            let stripes = stripe..stripe + 1;
            let _held = inner.locks.lock(stripes.clone(), true).await;
            inner.level_copies(&stripes).await?;
        }
    }
    Ok(inner.forget_if_in_sync().await?)
}
