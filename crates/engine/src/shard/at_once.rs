//! What need not wait: reads of what is in memory, writes that the log takes as they come. Done in a
//! call, without a future, which would cost as much as all the rest of such a request. Whatever else
//! comes up, the other way sees to it, from the beginning.

use stdx::num::{u32_of, u64_of, usize32, usize64};

use super::{Shard, count};
use crate::address::{BLOCK, Key, Location, Name, View};
use crate::lent::{LENT_BLOCKS_MAX, Lent};
use crate::log::{Append, Found, RECORD_BLOCKS_MAX};
use crate::map::Contents;
use crate::volume::{BLOCK_BYTES, State};

/// Whether bytes are whole blocks.
const fn is_whole(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(BLOCK_BYTES) && len.is_multiple_of(BLOCK)
}

/// Blocks read, by where they were.
#[derive(Default)]
struct Sources {
    log: u64,
    segments: u64,
    holes: u64,
}

impl Shard {
    /// As [`read_bytes`](Self::read_bytes), if nothing has to be waited for; tells whether it did.
    #[must_use]
    pub fn read_bytes_at_once(&self, volume: &State, offset: u64, out: &mut [u8]) -> bool {
        let fits = is_whole(offset, out.len()) && volume.check(offset, u64_of(out.len())).is_ok();
        fits && self.read_at_once(volume.view, offset / BLOCK_BYTES, out)
    }

    /// Lends bytes of a volume that lie whole in a drive in memory; `None` for all others.
    #[must_use]
    pub fn lend(&self, volume: &State, offset: u64, len: usize) -> Option<Lent> {
        let (view, first, blocks) = (volume.view, offset / BLOCK_BYTES, len / BLOCK);
        let fits = is_whole(offset, len) && (1..=LENT_BLOCKS_MAX).contains(&blocks);
        if !fits || !self.writer.segments.lends() || volume.check(offset, u64_of(len)).is_err() {
            return None;
        }
        let (found, run) = self.log.lookup(Key::new(view, first), u64_of(blocks));
        if !matches!(found, Found::Nothing) || run < u64_of(blocks) {
            return None;
        }
        let mut spare = self.spare_extents.borrow_mut();
        let mut extents = spare.pop().unwrap_or_default();
        let known = self.map.lookup_at_once(view, first, u32_of(blocks), &mut extents);
        let lent = match extents.iter().next().map(|extent| extent.state) {
            Some(Contents::Data { location, crcs }) if known && crcs.len() == blocks => {
                self.lend_segment(location, crcs)
            }
            _ => None,
        };
        spare.push(extents);
        if lent.is_some() {
            count(&self.counters.read_segments, u64_of(blocks));
        }
        lent
    }

    fn lend_segment(&self, at: Location, crcs: &[u32]) -> Option<Lent> {
        let table = self.table();
        let at = at.name().map_or(at, Name::birth);
        self.writer.segments.lend(table.info(at)?, at.slot(), crcs, self.grace.enter())
    }

    /// As [`write_bytes`](Self::write_bytes), if nothing has to be waited for; tells whether it did.
    #[must_use]
    pub fn write_bytes_at_once(&self, volume: &State, offset: u64, data: &[u8]) -> bool {
        // Among users of smaller blocks there are turns to be waited for.
        let fits = is_whole(offset, data.len())
            && !volume.has_small_blocks()
            && volume.check(offset, u64_of(data.len())).is_ok();
        fits && self.write_at_once(volume.view, offset / BLOCK_BYTES, data)
    }

    fn read_at_once(&self, view: View, first: u64, out: &mut [u8]) -> bool {
        let blocks = out.len() / BLOCK;
        let mut sources = Sources::default();
        let mut at = 0;
        while at < blocks {
            let left = u64_of(blocks - at);
            let (found, run) = self.log.lookup(Key::new(view, first + u64_of(at)), left);
            let run = usize64(run.min(left));
            let piece = &mut out[at * BLOCK..(at + run) * BLOCK];
            let done = match found {
                Found::Data(data) => {
                    sources.log += 1;
                    self.log.copy_out(data, piece).is_ok()
                }
                Found::Hole => {
                    piece.fill(0);
                    sources.holes += u64_of(run);
                    true
                }
                Found::Refers { .. } | Found::Lost => false,
                Found::Nothing => {
                    self.read_settled_at_once(view, first + u64_of(at), piece, &mut sources)
                }
            };
            if !done {
                return false;
            }
            at += run;
        }
        count(&self.counters.read_log, sources.log);
        count(&self.counters.read_segments, sources.segments);
        count(&self.counters.read_holes, sources.holes);
        true
    }

    /// Reads blocks that the log does not have. Nothing moves them meanwhile: nobody else runs.
    fn read_settled_at_once(
        &self,
        view: View,
        first: u64,
        out: &mut [u8],
        sources: &mut Sources,
    ) -> bool {
        if !self.writer.segments.drives().are_in_memory() {
            return false;
        }
        let mut spare = self.spare_extents.borrow_mut();
        let mut extents = spare.pop().unwrap_or_default();
        let mut done =
            self.map.lookup_at_once(view, first, u32_of(out.len() / BLOCK), &mut extents);
        let mut rest = out;
        for extent in extents.iter() {
            if !done {
                break;
            }
            let (piece, after) = rest.split_at_mut(usize32(extent.count) * BLOCK);
            rest = after;
            match extent.state {
                Contents::Hole => {
                    piece.fill(0);
                    sources.holes += u64::from(extent.count);
                }
                Contents::Data { location, crcs } => {
                    sources.segments += u64::from(extent.count);
                    done = self.read_segment_at_once(location, crcs, piece);
                }
            }
        }
        spare.push(extents);
        done
    }

    fn read_segment_at_once(&self, at: Location, crcs: &[u32], out: &mut [u8]) -> bool {
        let table = self.table();
        // Shared blocks lie where they were born until their segment is given back.
        let at = at.name().map_or(at, Name::birth);
        let Some(info) = table.info(at) else { return false };
        self.writer.segments.read_at_once(info, at.slot(), crcs, out)
    }

    fn write_at_once(&self, view: View, first: u64, data: &[u8]) -> bool {
        let blocks = data.len() / BLOCK;
        if !(1..=RECORD_BLOCKS_MAX).contains(&blocks) || self.writer.check().is_err() {
            return false;
        }
        let Some(mut promise) = self.promise(u64_of(blocks)) else { return false };
        self.look_at_log();
        let record = Append::Write { key: Key::new(view, first), data: &[data] };
        let done = self.log.append_at_once(&record).is_some();
        if done {
            promise.kept(u64_of(blocks));
            self.note_change();
            count(&self.counters.written, u64_of(blocks));
        }
        done
    }
}
