//! Writes that need not wait, as the log takes them as they come. Done in a call, without a future, which would
//! cost as much as all the rest of such a request. Whatever else comes up, the other way sees to it, from the beginning.

use stdx::num::u64_of;

use super::read::is_whole;
use super::{Shard, count};
use crate::address::{BLOCK, Key, View};
use crate::log::{Append, RECORD_BLOCKS_MAX};
use crate::volume::{BLOCK_BYTES, State};

impl Shard {
    /// As [`write_bytes`](Self::write_bytes), if nothing has to be waited for; tells whether it did.
    #[must_use]
    pub fn write_bytes_at_once(&self, volume: &State, offset: u64, data: &[u8]) -> bool {
        // Among users of smaller blocks there are turns to be waited for.
        let fits = is_whole(offset, data.len())
            && !volume.has_small_blocks()
            && volume.check(offset, u64_of(data.len())).is_ok();
        fits && self.write_at_once(volume.view, offset / BLOCK_BYTES, data)
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
