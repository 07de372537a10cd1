//! The map's pages: metadata blocks in segments.

use std::cell::Cell;
use std::rc::Rc;

use stdx::num::usize32;

use crate::address::{BLOCK, Encoding, Entry, Location, Version, View};
use crate::canary::{self, Canary, Step};
use crate::error::{Error, Kind, Result};
use crate::map;
use crate::segment::SegmentInfo;
use crate::stripe_writer::Writer;

/// Where a shard's map keeps its pages.
pub struct Pages {
    writer: Rc<Writer>,
    /// Only for people who read dumps: tells the blocks of one shard's metadata apart.
    number: Cell<u64>,
    reads: Cell<u64>,
    dropped: Cell<u64>,
}

impl Pages {
    #[must_use]
    pub const fn new(writer: Rc<Writer>) -> Self {
        Self { writer, number: Cell::new(0), reads: Cell::new(0), dropped: Cell::new(0) }
    }

    /// References that were superseded so far.
    #[must_use]
    pub const fn references_dropped(&self) -> u64 {
        self.dropped.get()
    }

    /// So many shared blocks may be referred to no more.
    pub fn unreferred(&self, blocks: u64) {
        self.dropped.set(self.dropped.get() + blocks);
    }

    /// Pages read from drives so far.
    #[must_use]
    pub const fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// Reads metadata blocks in adjacent slots, wherever they are by now.
    async fn read_blocks(&self, first: Location, crcs: &[u32], out: &mut [u8]) -> Result<()> {
        assert_eq!(out.len(), crcs.len() * BLOCK, "a checksum for each page");
        let info: Option<Rc<SegmentInfo>> = self.writer.table().info(first).map(Rc::clone);
        let nowhere = || {
            Error::new(Kind::Corrupt, format!("metadata is said to be at {first:?}, of no segment"))
        };
        let info = info.ok_or_else(nowhere)?;
        let count = stdx::num::u32_of(crcs.len());
        let mut at = 0;
        while at < count {
            // A stripe is in memory or on its drives as a whole, but the blocks may be of several,
            // and those may be written in any order.
            let place = usize32(at) * BLOCK;
            if let Some(pending) = self.writer.pending(first.offset(at)) {
                out[place..place + BLOCK].copy_from_slice(&pending);
                at += 1;
                continue;
            }
            let on_drives = |n: &u32| self.writer.pending(first.offset(*n)).is_none();
            let end = (at..count).find(|n| !on_drives(n)).unwrap_or(count);
            let range = usize32(at)..usize32(end);
            let out = &mut out[range.start * BLOCK..range.end * BLOCK];
            self.reads.set(self.reads.get() + 1);
            let slot = first.offset(at).slot();
            self.writer.segments().read(&info, slot, &crcs[range], out).await?;
            at = end;
        }
        Ok(())
    }

    /// Appends one metadata block.
    ///
    /// # Errors
    /// As [`Writer::append_metadata`].
    pub async fn append_block(&self, block: &[u8]) -> Result<Entry> {
        let number = self.number.get();
        self.number.set((number + 1) % (1 << crate::address::BLOCK_BITS));
        self.writer.append_metadata(number, block).await
    }
}

impl map::Pages for Rc<Pages> {
    async fn read(&self, first: Location, crcs: &[u32], out: &mut [u8]) -> Result<()> {
        self.read_blocks(first, crcs, out).await
    }

    async fn append(&self, page: &[u8; BLOCK]) -> Result<Entry> {
        self.append_block(page).await
    }

    fn superseded(&self, at: Location, _: Encoding, blocks: u32) {
        match at.name() {
            None => {
                let times = if canary::has(Canary::CountsDownTwice) { 2 } else { 1 };
                let is_there = self.writer.table_mut().drop_live(at, times * blocks);
                // An old version that was moved, and whose segment was given back: nothing else has its name perhaps.
                if !is_there {
                    self.unreferred(u64::from(blocks));
                }
            }
            // What it referred to may have no other reference.
            Some(_) => self.unreferred(u64::from(blocks)),
        }
    }

    fn is_needed(&self, view: View, written: Version, replaced: Version) -> bool {
        self.writer.common.snapshots.is_needed(view, written, replaced)
    }

    fn seen(&self, view: View, out: &mut Vec<Version>) {
        self.writer.common.snapshots.seen(view, out);
    }

    fn seen_changes(&self) -> u64 {
        self.writer.common.snapshots.changes()
    }

    fn keeps_holes(&self, view: View) -> bool {
        self.writer.common.snapshots.is_clone(view) && !canary::skips(Step::CloneHoles)
    }
}
