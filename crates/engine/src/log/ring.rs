//! The log's decisions: where records go, what is durable, what is still needed. All synchronous.

use super::control::Control;
use super::device::Store;
use super::index::{Blocks, Stretch, StretchOf, Stretches};
use super::limits::{ALIGN, BLOCKS_AHEAD, PAGE, RECORD_BLOCKS_MAX, RECORDS_AHEAD, REFERENCES_MAX};
use super::record::{CrcList, HEADER, Kind, Record, list_bytes, reference_at};
use super::refer::Referred;
use super::versions::Versions;
use super::{Data, Found, Item, Reference, What};
use crate::address::{BLOCK, Key, Version, View};
use crate::canary::{self, Step};
use crate::error::{Error, Kind as ErrorKind, Result};
use std::collections::{BTreeMap, VecDeque};
use stdx::crc32c;
use stdx::num::{low32, u32_of, u64_of, usize64};

/// A place in the log: a record's sequence, and where it begins in bytes since the log's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub sequence: u64,
    pub position: u64,
}

/// tail <= handed <= settled <= head.
pub(super) struct Ring {
    pub control: Control,
    /// The next record to be stored.
    pub head: Mark,
    /// The first record that is not durable yet.
    pub settled: Mark,
    /// The first record destage has not been given.
    pub handed: Mark,
    /// Where each batch that was handed out ends, but for those that are forgotten.
    batches: VecDeque<Mark>,
    /// The first record that is still needed.
    pub tail: Mark,
    pub blocks: Blocks,
    pub stretches: Stretches,
    /// Records of stretches stored and not durable yet.
    pub stretches_pending: usize,
    /// The shared blocks that records refer to, those not durable yet included, and records to come.
    pub referred: Referred,
    /// A range behind the head is filled: nobody else moves the head.
    pub reserved: bool,
    /// Which versions its records are of.
    pub versions: Versions,
    /// The record behind the last one that recovery found of each version of a view.
    recovered: BTreeMap<(View, Version), u64>,
    /// Of the blocks in that range.
    pub list: CrcList,
    /// Of those of a record that is read again.
    list_read: CrcList,
    ahead: Vec<(Mark, Record)>,
}

impl Ring {
    /// A ring without records, from what its control block says.
    pub fn new(control: Control) -> Self {
        let first = Mark { sequence: control.trimmed + 1, position: control.position };
        Self {
            head: first,
            settled: first,
            handed: first,
            batches: VecDeque::new(),
            tail: first,
            blocks: Blocks::new(control.ring_bytes, control.ring),
            stretches: Stretches::new(),
            stretches_pending: 0,
            referred: Referred::default(),
            reserved: false,
            versions: Versions::default(),
            recovered: BTreeMap::new(),
            list: CrcList::new(),
            list_read: CrcList::new(),
            ahead: Vec::with_capacity(RECORDS_AHEAD),
            control,
        }
    }

    /// Blocks, and stretches of holes and references, that can be looked up.
    pub const fn indexed(&self) -> usize {
        self.blocks.len() + self.stretches.len()
    }

    pub const fn used(&self) -> u64 {
        self.head.position - self.tail.position
    }

    /// Records destage was not given yet.
    pub const fn pending(&self) -> u64 {
        self.settled.sequence - self.handed.sequence
    }

    /// A position's place in the ring.
    pub const fn at(&self, position: u64) -> u64 {
        position % self.control.ring_bytes
    }

    /// Bytes from a position to the ring's end.
    pub const fn to_end(&self, position: u64) -> u64 {
        self.control.ring_bytes - self.at(position)
    }

    /// Whether there is room for a record now.
    pub fn has_room(&self, kind: Kind, store: &Store) -> bool {
        let bytes = kind.bytes();
        let end = self.to_end(self.head.position);
        let skipped = if bytes > end { end } else { 0 };
        // A commit to drives pads to the page's end.
        let padded = if store.is_memory() { 0 } else { PAGE };
        let references = if let Kind::Refer { blocks, .. } = kind { blocks } else { 0 };
        self.used() + skipped + bytes + padded <= self.control.ring_bytes
            && (!kind.is_stretch() || self.stretches.has_room(self.stretches_pending + 1))
            && (references == 0 || self.referred.in_records() + references <= REFERENCES_MAX)
    }

    /// Stores the header and list, or references, of the record at the head, and moves the head past
    /// it.
    pub fn store_header(
        &mut self,
        kind: Kind,
        version: Version,
        body: &[u8],
        store: &Store,
    ) -> Result<Mark> {
        let mark = self.head;
        let data_crc = match kind {
            Kind::Write { .. } => self.list.data_crc(),
            Kind::Refer { .. } => crc32c(body),
            Kind::Hole { .. } | Kind::Pad { .. } | Kind::Lost { .. } => 0,
        };
        let record = Record {
            ring: self.control.ring,
            sequence: mark.sequence,
            settled: self.settled.sequence - 1,
            epoch: self.control.epoch,
            kind,
            version,
            data_crc,
        };
        let at = self.at(mark.position);
        let is_within = at + kind.bytes() <= self.control.ring_bytes;
        assert!(is_within, "no record goes beyond the ring's end");
        store.put(at, &record.encode())?;
        let list = if let Kind::Write { .. } = kind { self.list.list() } else { body };
        if !list.is_empty() {
            store.put(at + u64_of(HEADER), list)?;
        }
        self.head.sequence += 1;
        self.head.position += kind.bytes();
        assert!(
            self.used() <= self.control.ring_bytes,
            "a record takes no place of one that is needed"
        );
        Ok(mark)
    }

    /// This is what the control block says from now on, on all devices.
    pub fn keep_control(&mut self, control: Control) {
        let before = &self.control;
        let is_next = control.generation == before.generation + 1;
        assert!(is_next, "control blocks are written one by one");
        let is_same = control.ring == before.ring && control.ring_bytes == before.ring_bytes;
        assert!(is_same && control.epoch >= before.epoch, "a log stays the log it is");
        self.control = control;
    }

    /// Skips bytes of the ring.
    pub fn pad(&mut self, bytes: u64, store: &Store) -> Result<()> {
        self.store_header(Kind::Pad { bytes }, Version::FIRST, &[], store)?;
        Ok(())
    }

    /// Fills the page at the head, so that the next record begins another.
    pub fn pad_page(&mut self, store: &Store) -> Result<()> {
        assert!(!self.reserved, "nobody moves the head while a range is reserved");
        let over = self.head.position % PAGE;
        if over == 0 { Ok(()) } else { self.pad(PAGE - over, store) }
    }

    /// As [`pad_page`](Self::pad_page), durable when this returns: on memory.
    pub fn pad_page_durably(&mut self, store: &Store) -> Result<()> {
        self.pad_page(store)?;
        if !canary::skips(Step::PadFence) {
            store.fence();
        }
        self.settle(self.head.position, store)
    }

    /// Lets lookups find the record just stored, whose checksums are in the list.
    pub fn publish(&mut self, mark: Mark, kind: Kind, version: Version) {
        self.versions.note(mark.position, kind, version);
        match kind {
            Kind::Write { key, blocks } => {
                assert_eq!(self.list.len(), blocks, "what is looked up has its checksum");
                let data = mark.position + u64_of(HEADER) + list_bytes(blocks);
                for n in 0..blocks {
                    let position = data + u64_of(n * BLOCK);
                    self.blocks.insert(forward(key, u64_of(n)), position, self.list.get(n));
                }
            }
            Kind::Hole { key, count } => self.add_stretch(mark, key, count, StretchOf::Holes),
            Kind::Refer { key, blocks } => {
                let of = StretchOf::References { from: key.block };
                self.add_stretch(mark, key, u64_of(blocks), of);
            }
            Kind::Lost { key, blocks, .. } => {
                self.add_stretch(mark, key, u64_of(blocks), StretchOf::Lost);
            }
            Kind::Pad { .. } => {}
        }
    }

    fn add_stretch(&mut self, mark: Mark, key: Key, count: u64, of: StretchOf) {
        let (first, end) = (key.block, key.block + count);
        let position = mark.position;
        self.stretches.insert(Stretch { view: key.view, first, end, position, of });
    }

    /// Takes note of what a record refers to.
    pub fn refer(&mut self, kind: Kind, body: &[u8]) {
        let Kind::Refer { blocks, .. } = kind else { return };
        let references = (0..blocks).filter_map(|n| reference_at(body, n));
        self.referred.add_record(references.map(|(_, stored)| stored.location));
    }

    /// What block `n` of the references whose record is at `position` refers to, and whose it was.
    pub fn reference(&self, position: u64, n: usize, store: &Store) -> Result<Reference> {
        let mark = Mark { position, ..Mark::default() };
        let at = self.at(position);
        let refers = |header: &[u8]| {
            Record::decode(header).filter(|record| matches!(record.kind, Kind::Refer { .. }))
        };
        let record = store.find(at, HEADER, refers)?.ok_or_else(|| corrupt(mark))?;
        let whole = |body: &[u8]| record.is_whole(body).then(|| reference_at(body, n)).flatten();
        let found = store.find(at + u64_of(HEADER), usize64(record.body_bytes()), whole)?;
        let (source, stored) = found.ok_or_else(|| corrupt(mark))?;
        Ok(Reference { source, stored })
    }

    /// The record at a mark that was stored here.
    fn record(&self, mark: Mark, store: &Store) -> Result<Record> {
        let at = self.at(mark.position);
        let is_it = |r: &Record| r.sequence == mark.sequence && r.ring == self.control.ring;
        let found = store.find(at, HEADER, |header| Record::decode(header).filter(is_it))?;
        found.ok_or_else(|| corrupt(mark))
    }

    /// Has every device of memory have the record at a mark as it was stored, as far as any of them has it; gives the mark
    /// after it.
    pub fn mend(&self, mark: Mark, store: &Store) -> Result<Mark> {
        let record = self.record(mark, store)?;
        let at = self.at(mark.position) + u64_of(HEADER);
        let whole = |body: &[u8]| record.is_whole(body).then_some(());
        let next = Self::after(mark, record.kind);
        if store.find(at, usize64(record.body_bytes()), whole)?.is_some() {
            return Ok(next);
        }
        // Not all of it on any one of them.
        let Kind::Write { blocks, .. } = record.kind else { return Ok(next) };
        let bytes = usize64(list_bytes(blocks));
        let list = |list: &[u8]| {
            let is_good = blocks == 1 || crc32c(list) == record.data_crc;
            is_good.then(|| list.to_vec())
        };
        let Some(list) = store.find(at, bytes, list)? else { return Ok(next) };
        for n in 0..blocks {
            let block = at + u64_of(bytes + n * BLOCK);
            let crc = record.block_crc(&list, n);
            let _ = store.find(block, BLOCK, |block| (crc32c(block) == crc).then_some(()))?;
        }
        Ok(next)
    }

    /// The mark of the record after this one.
    pub const fn after(mark: Mark, kind: Kind) -> Mark {
        Mark { sequence: mark.sequence + 1, position: mark.position + kind.bytes() }
    }

    /// What the records are about that lookups do not find yet, as far as the ring gives them.
    pub fn unsettled(&self, store: &Store) -> Vec<(Key, u64)> {
        let (mut mark, mut about) = (self.settled, Vec::new());
        while mark.position < self.head.position
            && let Ok(record) = self.record(mark, store)
        {
            about.extend(match record.kind {
                Kind::Write { key, blocks } | Kind::Refer { key, blocks } => {
                    Some((key, u64_of(blocks)))
                }
                Kind::Hole { key, count } => Some((key, count)),
                Kind::Lost { .. } | Kind::Pad { .. } => None,
            });
            mark = Self::after(mark, record.kind);
        }
        about
    }

    /// The checksum of a block of a record.
    fn crc_of(&self, record: &Record, mark: Mark, n: usize, store: &Store) -> Result<u32> {
        let Kind::Write { blocks, .. } = record.kind else { return Ok(0) };
        let len = usize64(list_bytes(blocks));
        let at = self.at(mark.position) + u64_of(HEADER);
        store.with(at, len, |list| record.block_crc(list, n))
    }

    /// Takes note that all before `position` is durable, and lets lookups find it.
    pub fn settle(&mut self, position: u64, store: &Store) -> Result<()> {
        while self.settled.position < position {
            let mark = self.settled;
            let record = self.record(mark, store)?;
            let next = Self::after(mark, record.kind);
            if next.position > position {
                return Ok(());
            }
            self.publish_stored(mark, &record, store)?;
            if record.kind.is_stretch() {
                assert!(self.stretches_pending > 0, "a stretch is settled once");
                self.stretches_pending -= 1;
            }
            self.settled = next;
        }
        assert!(self.settled.position <= self.head.position, "what is durable was stored");
        assert!(self.settled.sequence <= self.head.sequence, "what is durable was stored");
        Ok(())
    }

    /// Lets lookups find a record that is in the ring.
    fn publish_stored(&mut self, mark: Mark, record: &Record, store: &Store) -> Result<()> {
        if let Kind::Write { blocks, .. } = record.kind {
            self.list_read.clear();
            for n in 0..blocks {
                let crc = self.crc_of(record, mark, n, store)?;
                self.list_read.push(crc);
            }
        }
        // That of what is being filled is not touched.
        std::mem::swap(&mut self.list, &mut self.list_read);
        self.publish(mark, record.kind, record.version);
        std::mem::swap(&mut self.list, &mut self.list_read);
        Ok(())
    }

    /// Takes in a record found at the head by recovery.
    pub fn recover(&mut self, record: &Record, store: &Store) -> Result<()> {
        assert!(self.handed == self.tail, "nothing is handed out before the log is opened");
        assert!(self.settled == self.head, "what was found counts as durable");
        self.publish_stored(self.head, record, store)?;
        let at = self.at(self.head.position) + u64_of(HEADER);
        let len = usize64(record.body_bytes());
        if let Kind::Refer { .. } = record.kind {
            let body = store.with(at, len, <[u8]>::to_vec)?;
            self.refer(record.kind, &body);
        }
        self.head = Self::after(self.head, record.kind);
        self.settled = self.head;
        if let Some(view) = record.kind.view() {
            self.recovered.insert((view, record.version), self.head.sequence);
        }
        Ok(())
    }

    /// The record before which recovery found all that this view has up to a version; 0 where it found nothing.
    pub fn recovered_before(&self, view: View, version: Version) -> u64 {
        let of_view = self.recovered.range((view, Version::FIRST)..=(view, version));
        of_view.map(|(_, before)| *before).max().unwrap_or(0)
    }

    /// The position whose low 32 bits, in lines, an index entry has.
    fn whole(&self, lines: u32) -> u64 {
        let tail = self.tail.position / ALIGN;
        (tail + u64::from(lines.wrapping_sub(low32(tail)))) * ALIGN
    }

    fn data(&self, key: Key) -> Option<u64> {
        self.blocks.get(key).map(|lines| self.whole(lines))
    }

    /// What is newest at a block, and for how many of `count` blocks the same can be said.
    pub fn lookup(&self, key: Key, count: u64) -> (Found, u64) {
        let stretch = self.stretches.next(key.view, key.block);
        let covering = stretch.filter(|h| h.first <= key.block);
        let newer = |key: Key| self.data(key).filter(|p| covering.is_none_or(|h| h.position < *p));
        if let Some(position) = newer(key) {
            return (Found::Data(Data { position, crc: self.blocks.crc(position) }), 1);
        }
        let limit = match (covering, stretch) {
            (Some(covering), _) => covering.end,
            (None, Some(next)) => next.first,
            (None, None) => u64::MAX,
        };
        let count = count.min(limit - key.block);
        let found = match covering {
            None => Found::Nothing,
            Some(Stretch { of: StretchOf::Holes, .. }) => Found::Hole,
            Some(Stretch { of: StretchOf::Lost, .. }) => Found::Lost,
            Some(Stretch { of: StretchOf::References { from }, position, .. }) => {
                Found::Refers { position: *position, index: usize64(key.block - from) }
            }
        };
        if self.blocks.len() == 0 {
            return (found, count);
        }
        let same = (1..count).find(|n| newer(forward(key, *n)).is_some()).unwrap_or(count);
        (found, same)
    }

    /// Finds the records from `mark` on and before `end`, some of them. What the index has of them, and where those
    /// after them are likely to begin, is on its way to the processor then.
    fn look_ahead(&mut self, mut mark: Mark, end: u64, store: &Store) -> Result<()> {
        self.ahead.clear();
        let mut blocks_ahead = 0;
        while mark.sequence < end && self.ahead.len() < RECORDS_AHEAD && blocks_ahead < BLOCKS_AHEAD
        {
            let record = self.record(mark, store)?;
            if let Kind::Write { key, blocks } = record.kind {
                self.blocks.prefetch(key, u64_of(blocks));
                blocks_ahead += blocks;
            }
            // Records beside each other are often of one length.
            let later = mark.position + u64_of(RECORDS_AHEAD) * record.kind.bytes();
            store.with(self.at(later), HEADER, media::memory::prefetch)?;
            self.ahead.push((mark, record));
            mark = Self::after(mark, record.kind);
        }
        Ok(())
    }

    /// Gives destage the records from `handed` on, those of `max` blocks at most.
    pub fn hand_out(&mut self, max: usize, out: &mut Vec<Item>, store: &Store) -> Result<u64> {
        let mut blocks_out = 0;
        while self.handed.sequence < self.settled.sequence {
            self.look_ahead(self.handed, self.settled.sequence, store)?;
            for n in 0..self.ahead.len() {
                let (mark, record) = self.ahead[n];
                blocks_out += match record.kind {
                    Kind::Write { blocks, .. }
                    | Kind::Refer { blocks, .. }
                    | Kind::Lost { blocks, .. } => blocks,
                    Kind::Hole { .. } | Kind::Pad { .. } => 0,
                };
                if blocks_out > max || out.len() >= max {
                    return Ok(self.end_batch());
                }
                self.hand_out_record(mark, &record, out, store)?;
                self.handed = Self::after(mark, record.kind);
            }
        }
        Ok(self.end_batch())
    }

    /// The last record that was handed out, which the log is told of when it may forget it.
    fn end_batch(&mut self) -> u64 {
        assert!(self.handed.sequence <= self.settled.sequence, "what is handed out is durable");
        assert!(self.tail.sequence <= self.handed.sequence, "nothing is forgotten unseen");
        if self.batches.back().is_none_or(|last| last.sequence < self.handed.sequence) {
            self.batches.push_back(self.handed);
        }
        self.handed.sequence - 1
    }

    /// All records before this one are forgotten.
    pub fn trimmed(&mut self, tail: Mark) {
        let was_handed = self.tail.sequence <= tail.sequence
            && tail.sequence <= self.handed.sequence
            && tail.position <= self.handed.position;
        assert!(was_handed, "what is forgotten was handed out");
        let is_durable =
            self.control.trimmed + 1 == tail.sequence && self.control.position == tail.position;
        assert!(is_durable, "what is forgotten is forgotten on media");
        self.tail = tail;
        while self.batches.front().is_some_and(|batch| batch.sequence <= tail.sequence) {
            self.batches.pop_front();
        }
        self.versions.trimmed(tail.position);
    }

    /// Where the newest is that a block has.
    fn newest(&self, key: Key) -> Option<u64> {
        let stretch = self.stretches.next(key.view, key.block);
        let covering = stretch.filter(|h| h.first <= key.block).map(|h| h.position);
        self.data(key).max(covering)
    }

    /// Whether a block is handed out that a record of `version` has at `position`: the newest is, and what a later version
    /// covers, which a snapshot may see.
    fn is_handed_out(&self, key: Key, position: u64, version: Version) -> bool {
        let is_later = |newest| self.versions.is_later(key.view, newest, version);
        self.newest(key).is_some_and(|newest| newest == position || is_later(newest))
    }

    fn hand_out_record(
        &self,
        mark: Mark,
        record: &Record,
        out: &mut Vec<Item>,
        store: &Store,
    ) -> Result<()> {
        let (sequence, version) = (mark.sequence, record.version);
        match record.kind {
            Kind::Write { key, blocks } => {
                let data = mark.position + u64_of(HEADER) + list_bytes(blocks);
                for n in 0..blocks {
                    let (key, position) = (forward(key, u64_of(n)), data + u64_of(n * BLOCK));
                    if self.is_handed_out(key, position, version) {
                        let data = Data { position, crc: self.blocks.crc(position) };
                        out.push(Item { sequence, key, version, what: What::Data(data) });
                    }
                }
            }
            Kind::Hole { key, count } => {
                out.push(Item { sequence, key, version, what: What::Hole { count } });
            }
            // Also those that were overwritten since: later references may be to what these name.
            Kind::Refer { key, blocks } => {
                for n in 0..blocks {
                    let reference = self.reference(mark.position, n, store)?;
                    let key = forward(key, u64_of(n));
                    out.push(Item { sequence, key, version, what: What::Refers(reference) });
                }
            }
            Kind::Lost { key, blocks, .. } => {
                let lost = (0..u64_of(blocks)).map(|n| forward(key, n));
                let lost = lost.filter(|key| self.is_handed_out(*key, mark.position, version));
                out.extend(lost.map(|key| Item { sequence, key, version, what: What::Lost }));
            }
            Kind::Pad { .. } => {}
        }
        Ok(())
    }

    /// Drops index entries of the records from `from` on that still point there, until `most` blocks or records without
    /// any were dropped; gives the mark reached, at `through` + 1 at last.
    pub fn forget(&mut self, from: Mark, through: u64, most: usize, store: &Store) -> Result<Mark> {
        let (mut mark, mut dropped) = (from, 0);
        while mark.sequence <= through {
            self.look_ahead(mark, through + 1, store)?;
            for n in 0..self.ahead.len() {
                if dropped >= most {
                    return Ok(mark);
                }
                assert!(mark.sequence <= through, "nothing is forgotten that is still needed");
                let (at, record) = self.ahead[n];
                dropped += self.forget_record(at, &record, store)?.max(1);
                mark = Self::after(at, record.kind);
            }
        }
        Ok(mark)
    }

    /// Gives how many blocks it had.
    fn forget_record(&mut self, mark: Mark, record: &Record, store: &Store) -> Result<usize> {
        match record.kind {
            Kind::Write { key, blocks } => {
                let data = mark.position + u64_of(HEADER) + list_bytes(blocks);
                for n in 0..u64_of(blocks) {
                    self.blocks.remove(forward(key, n), data + n * u64_of(BLOCK));
                }
                Ok(blocks)
            }
            Kind::Refer { blocks, .. } => {
                for n in 0..blocks {
                    let reference = self.reference(mark.position, n, store)?;
                    self.referred.drop_record(reference.stored.location);
                }
                Ok(blocks)
            }
            Kind::Hole { .. } | Kind::Lost { .. } | Kind::Pad { .. } => Ok(0),
        }
    }

    /// The mark of the record after `through`, which is durable: known where records were handed out up to there.
    pub fn mark_after(&self, through: u64, store: &Store) -> Result<Mark> {
        if let Some(mark) = self.batches.iter().find(|mark| mark.sequence == through + 1) {
            return Ok(*mark);
        }
        let mut mark = self.tail;
        while mark.sequence <= through {
            mark = Self::after(mark, self.record(mark, store)?.kind);
        }
        assert_eq!(mark.sequence, through + 1, "a mark is sought in what the log has");
        Ok(mark)
    }

    /// Whether data at this position is still in the ring.
    pub const fn holds(&self, position: u64) -> bool {
        position >= self.tail.position && position < self.head.position
    }
}

/// The key `blocks` further on.
pub(super) const fn forward(key: Key, blocks: u64) -> Key {
    Key::new(key.view, key.block + blocks)
}

pub(super) fn corrupt(mark: Mark) -> Error {
    let context = format!("commit log record {} is damaged", mark.sequence);
    Error::new(ErrorKind::Corrupt, context)
}

const _: () = assert!(u32_of(RECORD_BLOCKS_MAX) == 256);
