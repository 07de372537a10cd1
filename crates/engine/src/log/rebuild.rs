//! A log whose control block is damaged on every device: nothing tells which of its records are
//! needed still.
//!
//! Those that are lie in the ring whole, and before them others that are not needed any more and were
//! not written over yet. All were appended one after the other, so taking up more of them than are
//! needed changes nothing: what is newest of each block is among them. Only references may be to what
//! is gone by now: so records count from the one after the last of those.

use super::control::{COUNTERS_END, Control};
use super::device::{Store, commit_len};
use super::place::Site;
use super::record::{HEADER, Kind, Record};
use super::{Log, ring_of};
use crate::error::{Error, Kind as ErrorKind, Result};
use std::collections::BTreeMap;
use stdx::num::u64_of;

/// Control blocks made anew have generations from here on.
const GENERATION: u64 = 1 << 40;

/// Control blocks written while the pool's labels have one epoch, by far not as many as this.
const GENERATIONS_OF_EPOCH: u64 = 1 << 38;

/// Epochs that can be told apart: no counter goes beyond its bounds.
const EPOCHS: u64 = 1 << 23;

/// The generation of a control block made anew under this epoch of the pool's labels: beyond any that
/// a device which is away now may come back with, one of a block made anew before included. No pool
/// is opened without a new epoch.
fn generation_of(epoch: u64) -> u64 {
    GENERATION + epoch.min(EPOCHS) * GENERATIONS_OF_EPOCH
}

const _: () = assert!(GENERATION + (EPOCHS + 1) * GENERATIONS_OF_EPOCH < COUNTERS_END);

/// A record's header, found somewhere in the ring.
#[derive(Clone, Copy, Debug)]
struct Seen {
    sequence: u64,
    settled: u64,
    epoch: u32,
    /// Where in the ring it lies, and where the next one begins.
    at: u64,
    next: u64,
    refers: bool,
}

impl Seen {
    fn new(record: &Record, at: u64, ring_bytes: u64) -> Self {
        Self {
            sequence: record.sequence,
            settled: record.settled,
            epoch: record.epoch,
            at,
            next: (at + record.kind.bytes()) % ring_bytes,
            refers: matches!(record.kind, Kind::Refer { .. }),
        }
    }

    /// Whether this record may be the one before `next`.
    const fn leads_to(&self, next: &Self) -> bool {
        self.sequence + 1 == next.sequence && self.next == next.at && self.epoch <= next.epoch
    }
}

/// Records by sequence; torn tails of earlier openings may have left several of one.
#[derive(Default)]
struct Headers(BTreeMap<u64, Vec<Seen>>);

impl Headers {
    /// All records of `ring` that any device has the header of.
    async fn find(store: &Store, ring_bytes: u64, ring: u64) -> Result<Self> {
        let mut found = Self::default();
        for device in 0..store.devices() {
            let mut at = 0;
            while at < ring_bytes {
                let len = commit_len(at, ring_bytes - at, ring_bytes);
                let bytes = store.read_copy(device, at, len).await?.unwrap_or_default();
                let lines = (0_u64..).step_by(HEADER).zip(bytes.chunks_exact(HEADER));
                for (offset, line) in lines.filter(|(_, line)| Record::is_likely(line)) {
                    if let Some(record) = Record::decode(line).filter(|r| r.ring == ring) {
                        found.add(Seen::new(&record, at + offset, ring_bytes));
                    }
                }
                at += u64_of(len);
            }
        }
        Ok(found)
    }

    fn add(&mut self, seen: Seen) {
        let same = self.0.entry(seen.sequence).or_default();
        if !same.iter().any(|other| other.at == seen.at && other.epoch == seen.epoch) {
            same.push(seen);
        }
    }

    fn all(&self) -> impl Iterator<Item = &Seen> {
        self.0.values().flatten()
    }

    /// The records one after the other about the newest that others know as durable.
    fn chain(&self) -> Vec<Seen> {
        let settled = self.all().map(|seen| seen.settled).max().unwrap_or(0);
        let known = self.0.range(..=settled).next_back().or_else(|| self.0.iter().next());
        let newest = known.and_then(|(_, same)| same.iter().max_by_key(|seen| seen.epoch));
        let Some(middle) = newest.copied() else { return Vec::new() };
        let at = |sequence: u64| self.0.get(&sequence).into_iter().flatten();
        let mut chain = vec![middle];
        let mut first = middle;
        while let Some(before) = at(first.sequence - 1).find(|seen| seen.leads_to(&first)) {
            chain.push(*before);
            first = *before;
        }
        chain.reverse();
        let mut last = middle;
        while let Some(next) = at(last.sequence + 1).find(|seen| last.leads_to(seen)) {
            chain.push(*next);
            last = *next;
        }
        chain
    }
}

/// The control block that the records found make likely; none without records.
fn control_of(headers: &Headers, rebuilt: &Rebuilt, ring_bytes: u64, ring: u64) -> Option<Control> {
    let chain = headers.chain();
    let after = chain.iter().rposition(|seen| seen.refers).map_or(0, |n| n + 1);
    let (trimmed, position) = match chain.get(after) {
        Some(first) => (first.sequence - 1, first.at),
        None => chain.last().map(|last| (last.sequence, last.next))?,
    };
    let new = Control::of_empty(ring, ring_bytes);
    Some(Control {
        generation: generation_of(rebuilt.epoch),
        durable_stripe: rebuilt.durable_stripe,
        epoch: headers.all().map(|seen| seen.epoch).max().unwrap_or(new.epoch),
        position,
        trimmed,
        settled: trimmed,
        ..new
    })
}

/// What those who have a control block made anew know.
#[derive(Clone, Copy, Debug)]
pub struct Rebuilt {
    /// The stripes of the shard that are whole and durable: those up to this one.
    pub durable_stripe: u64,
    /// That of the pool's labels, higher than when the log was last opened or made anew.
    pub epoch: u64,
}

/// What is said of a log without a control block; `Missing`, as its reader found it, where it has no
/// record either: that may be any device.
pub(super) async fn without_control(
    store: &Store,
    ring_bytes: u64,
    ring: u64,
    wrong: Error,
) -> Error {
    match Headers::find(store, ring_bytes, ring).await {
        Ok(found) if !found.0.is_empty() => {
            let context = "the control block of the commit log is damaged on every device: nothing \
                           tells which of its records are needed still, so what was acknowledged \
                           last may be lost";
            Error::caused(ErrorKind::Loss, context, wrong)
        }
        Ok(_) => wrong,
        Err(error) => error,
    }
}

impl Log {
    /// Makes an empty log in place of one that is lost, for a shard that goes on with what its drives
    /// have.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn replace(
        site: impl Into<Site>,
        bytes: u64,
        ring: u64,
        rebuilt: Rebuilt,
    ) -> Result<Self> {
        let new = Control {
            generation: generation_of(rebuilt.epoch),
            durable_stripe: rebuilt.durable_stripe,
            ..Control::of_empty(ring, ring_of(bytes)?)
        };
        Self::create_as(site.into(), bytes, new).await
    }
}

/// Whether a log has records of this ring, and no control block on any device.
pub(super) async fn lacks_control(store: &Store, ring_bytes: u64, ring: u64) -> Result<bool> {
    if !store.read_controls().await.0.is_empty() {
        return Ok(false);
    }
    Ok(!Headers::find(store, ring_bytes, ring).await?.0.is_empty())
}

/// A control block by the records there are, to be written once the log is opened. References, and records
/// before the last of them, do not count any more: the blocks of those that were needed are as they were before.
pub(super) async fn control_rebuilt(
    store: &Store,
    ring_bytes: u64,
    ring: u64,
    rebuilt: Rebuilt,
) -> Result<Control> {
    let headers = Headers::find(store, ring_bytes, ring).await?;
    let missing = || Error::new(ErrorKind::Missing, "there is no commit log");
    control_of(&headers, &rebuilt, ring_bytes, ring).ok_or_else(missing)
}

/// Whether there are records of this ring.
pub(super) async fn has_records(store: &Store, ring_bytes: u64, ring: u64) -> Result<bool> {
    Ok(!Headers::find(store, ring_bytes, ring).await?.0.is_empty())
}
