//! Records that were acknowledged and are damaged on every device: what is left of them.
//!
//! A record whose header is whole tells which blocks it has: those of them that are damaged are lost,
//! and known to be. Where the header is damaged nobody can tell what the record was about. Then the
//! log opens only for whoever accepts that, and goes on with the next record there is.

use super::device::{Store, commit_len};
use super::expected::{Expected, expected};
use super::limits::ALIGN;
use super::record::{HEADER, Kind, Record};
use super::ring::{Mark, Ring};
use crate::address::{BLOCK, Key, Version};
use crate::error::{Error, Kind as ErrorKind, Result};
use stdx::num::{u64_of, usize64};

/// The newest record that another one on these bytes of a ring knows as durable.
pub(super) fn newest_settled(bytes: &[u8], ring: u64) -> u64 {
    let headers = bytes.chunks_exact(HEADER).filter(|b| Record::is_likely(b));
    let own = headers.filter_map(Record::decode).filter(|r| r.ring == ring);
    own.map(|record| record.settled).max().unwrap_or(0)
}

/// What was found to be lost while a log is opened.
#[derive(Default)]
pub(super) struct Losses {
    /// The newest record known as durable; and whether all devices were looked through for it.
    settled: Option<(u64, bool)>,
    /// Damaged blocks that records have, and where the log has them.
    pub blocks: Vec<(Key, u64)>,
    /// The record after the last damaged one.
    pub through: u64,
}

impl Losses {
    /// Whether the record missing at the ring's head was acknowledged: the control block or a later one
    /// knows it as durable. What lies on any device counts, or with `all_devices` unset what was read of them.
    pub async fn prove(&mut self, ring: &Ring, store: &Store, all_devices: bool) -> Result<bool> {
        let all = all_devices || store.is_memory();
        let known = self.settled.filter(|(_, thorough)| *thorough || !all);
        let settled = match known {
            Some((settled, _)) => settled,
            None => look_through(ring, store, all).await?,
        };
        self.settled = Some((settled, all));
        Ok(settled.max(ring.control.settled) >= ring.head.sequence)
    }

    /// Takes what is left of the damaged record at the ring's head, which was acknowledged, into the
    /// image. With `accept`, records that say nothing any more are skipped.
    ///
    /// # Errors
    /// `Loss` for such records, if that is not accepted.
    pub async fn take(
        &mut self,
        ring: &Ring,
        epoch: u32,
        store: &Store,
        accept: bool,
    ) -> Result<()> {
        self.through = ring.head.sequence;
        if self.keep_what_is_whole(ring, epoch, store).await? {
            return Ok(());
        }
        let search = Search::new(ring, epoch);
        let next = search.next(store).await?;
        match next {
            Some(next) if accept => {
                self.through = next.record.sequence - 1;
                skip(ring, epoch, &next, store)
            }
            // The control block alone knows of it, and will not any more: the log ends here.
            None if accept && self.settled.is_some_and(|(newest, _)| newest < self.through) => {
                Ok(())
            }
            next => Err(search.unnamed(next.as_ref())),
        }
    }

    /// Takes in a record whose header is whole; false when there is none.
    async fn keep_what_is_whole(&mut self, ring: &Ring, epoch: u32, store: &Store) -> Result<bool> {
        let expected = expected(ring, epoch);
        let at = ring.at(ring.head.position);
        let mut copies: Vec<(Record, Vec<u8>)> = Vec::new();
        for n in 0..store.devices() {
            let Some(header) = store.read_copy(n, at, HEADER).await? else { continue };
            let Some(record) = Record::decode(&header).filter(|r| expected.matches(r)) else {
                continue;
            };
            let body = usize64(record.body_bytes());
            if let Some(body) = store.read_copy(n, at + u64_of(HEADER), body).await?
                && copies.first().is_none_or(|(first, _)| *first == record)
            {
                copies.push((record, body));
            }
        }
        let Some((record, _)) = copies.first().cloned() else { return Ok(false) };
        let has_list = |(record, body): &(Record, Vec<u8>)| record.damaged_blocks(body).is_some();
        match (record.kind, copies.iter().position(has_list)) {
            (Kind::Write { key, .. }, Some(best)) => {
                let mut body = copies.swap_remove(best).1;
                let lost = mend(&record, &mut body, &copies);
                store.amend(at, &record.encode())?;
                store.amend(at + u64_of(HEADER), &body)?;
                let data = ring.head.position + record.kind.bytes();
                let end = body.len();
                let place = |n: usize| data - u64_of(end - start_of(end, &record, n));
                let lost = lost.into_iter();
                self.blocks.extend(lost.map(|n| (super::ring::forward(key, u64_of(n)), place(n))));
            }
            (Kind::Write { key, blocks } | Kind::Refer { key, blocks }, _) => {
                let kind = Kind::Lost { key, blocks, bytes: record.kind.bytes() };
                store.amend(at, &Record { kind, ..record }.encode())?;
                let keys = (0..u64_of(blocks)).map(|n| super::ring::forward(key, n));
                self.blocks.extend(keys.map(|key| (key, ring.head.position)));
            }
            // Those are whole with their header.
            (Kind::Hole { .. } | Kind::Pad { .. } | Kind::Lost { .. }, _) => {
                store.amend(at, &record.encode())?;
            }
        }
        Ok(true)
    }
}

/// Where block `n` of a write begins in what follows its header, `len` bytes.
const fn start_of(len: usize, record: &Record, n: usize) -> usize {
    let Kind::Write { blocks, .. } = record.kind else { return len };
    len - (blocks - n) * BLOCK
}

/// Puts blocks that another copy has whole into `body`; gives those that none has.
fn mend(record: &Record, body: &mut [u8], copies: &[(Record, Vec<u8>)]) -> Vec<usize> {
    let damaged = |body: &[u8]| -> Vec<usize> {
        record.damaged_blocks(body).map_or_else(Vec::new, Iterator::collect)
    };
    let mut lost = damaged(body);
    for (_, copy) in copies {
        for n in std::mem::take(&mut lost) {
            let from = start_of(copy.len(), record, n);
            let old = body[from..from + BLOCK].to_vec();
            body[from..from + BLOCK].copy_from_slice(&copy[from..from + BLOCK]);
            if damaged(body).contains(&n) {
                body[from..from + BLOCK].copy_from_slice(&old);
                lost.push(n);
            }
        }
    }
    lost
}

/// The newest record that any on the devices, or in the image, knows as durable.
async fn look_through(ring: &Ring, store: &Store, all_devices: bool) -> Result<u64> {
    let ring_bytes = ring.control.ring_bytes;
    let look = |bytes: &[u8]| newest_settled(bytes, ring.control.ring);
    let devices = if all_devices { store.devices() } else { 0 };
    let (mut at, mut newest) = (0, 0);
    while at < ring_bytes {
        let len = commit_len(at, ring_bytes - at, ring_bytes);
        newest = newest.max(store.with(at, len, look)?);
        for n in 1..devices {
            let copy = store.read_copy(n, at, len).await?;
            newest = newest.max(copy.map_or(0, |bytes| look(&bytes)));
        }
        at += u64_of(len);
    }
    Ok(newest)
}

/// A record that is there after one that says nothing any more.
#[derive(Clone, Copy)]
pub(super) struct Next {
    pub record: Record,
    /// Where it is, in bytes since the log's beginning.
    pub position: u64,
}

/// A search for where the records go on.
pub(super) struct Search {
    /// The damaged record, and where it began.
    missing: Mark,
    expected: Expected,
    ring_bytes: u64,
}

impl Search {
    fn new(ring: &Ring, epoch: u32) -> Self {
        Self::from(ring.head, expected(ring, epoch), ring.control.ring_bytes)
    }

    pub const fn from(missing: Mark, expected: Expected, ring_bytes: u64) -> Self {
        Self { missing, expected, ring_bytes }
    }

    /// The record `bytes` at `at` of the ring begin with, if records can go on with it.
    fn candidate(&self, at: u64, bytes: &[u8]) -> Option<Next> {
        let record = Record::decode(bytes)?;
        let distance =
            (at + self.ring_bytes - self.missing.position % self.ring_bytes) % self.ring_bytes;
        let skipped = record.sequence.checked_sub(self.missing.sequence)?;
        let wraps = distance > self.expected.to_end;
        // Each record took a line at least, and none crosses the ring's end.
        let room = if wraps { distance - self.expected.to_end } else { distance };
        let records = skipped.checked_sub(u64::from(wraps))?;
        let fits = records > 0 && records <= room / ALIGN;
        let is_later = record.ring == self.expected.ring
            && (self.expected.epoch_from..=self.expected.epoch_to).contains(&record.epoch);
        let bytes = record.kind.bytes();
        let ends =
            bytes <= self.ring_bytes - at && distance.checked_add(bytes)? <= self.expected.free;
        let position = self.missing.position.checked_add(distance)?;
        (fits && is_later && ends).then_some(Next { record, position })
    }

    /// The first record after the damage, as far as headers tell.
    pub async fn next(&self, store: &Store) -> Result<Option<Next>> {
        let mut best: Option<Next> = None;
        let order = |next: &Next| (next.record.sequence, u32::MAX - next.record.epoch);
        for n in 0..store.devices() {
            let mut at = 0;
            while at < self.ring_bytes {
                let len = commit_len(at, self.ring_bytes - at, self.ring_bytes);
                let bytes = store.read_copy(n, at, len).await?.unwrap_or_default();
                let lines = bytes.chunks_exact(HEADER).enumerate();
                let likely = lines.filter(|(_, line)| Record::is_likely(line));
                let found =
                    likely.filter_map(|(n, line)| self.candidate(at + u64_of(n * HEADER), line));
                best = best.into_iter().chain(found).min_by_key(order);
                at += u64_of(len);
            }
        }
        Ok(best)
    }

    /// What is said of records that say nothing any more.
    fn unnamed(&self, next: Option<&Next>) -> Error {
        Error::new(ErrorKind::Loss, self.describe(next))
    }

    /// As that, for people.
    pub fn describe(&self, next: Option<&Next>) -> String {
        let first = self.missing.sequence;
        let Some(next) = next else {
            return format!("commit log record {first} and all after it are damaged");
        };
        let (last, bytes) = (next.record.sequence - 1, next.position - self.missing.position);
        let which = match last - first {
            0 => format!("commit log record {first} is"),
            _ => format!("commit log records {first} to {last} are"),
        };
        format!(
            "{which} damaged, and nothing tells which blocks they are of: {bytes} bytes of what \
             was acknowledged, at most, are lost"
        )
    }
}

/// Puts padding in the place of the records from the ring's head up to the next there is.
fn skip(ring: &Ring, epoch: u32, next: &Next, store: &Store) -> Result<()> {
    let mut mark = ring.head;
    while mark.sequence < next.record.sequence {
        let rest = next.position - mark.position;
        let to_end = ring.control.ring_bytes - ring.at(mark.position);
        let is_last = mark.sequence + 1 == next.record.sequence;
        let bytes = match (rest > to_end, is_last) {
            (true, _) => to_end,
            (false, true) => rest,
            (false, false) => ALIGN,
        };
        let record = Record {
            ring: ring.control.ring,
            sequence: mark.sequence,
            settled: ring.head.sequence - 1,
            epoch: epoch.max(1),
            kind: Kind::Pad { bytes },
            version: Version::FIRST,
            data_crc: 0,
        };
        store.amend(ring.at(mark.position), &record.encode())?;
        mark = Mark { sequence: mark.sequence + 1, position: mark.position + bytes };
    }
    Ok(())
}
