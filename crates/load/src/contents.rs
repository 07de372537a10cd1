//! What each block of a queue's range must hold, and which blocks are in flight.

use std::collections::HashMap;

use stdx::num::{u64_of, usize64};

/// What a block may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Sequence of the last acknowledged write; 0 for none that is known of.
    pub acked: u32,
    /// Sequence of the last write that may have come through, acknowledged or not.
    pub upto: u32,
}

impl Held {
    /// A block whose last write is acknowledged.
    #[cfg(test)]
    pub fn known(sequence: u32) -> Self {
        Self { acked: sequence, upto: sequence }
    }

    /// Whether the block may hold write `sequence`.
    pub fn allows(self, sequence: u32) -> bool {
        sequence == self.acked || (self.acked..=self.upto).contains(&sequence)
    }

    /// The sequence of the next write; never 0.
    pub fn next(self) -> u32 {
        if self.upto + 1 == BUSY { 1 } else { self.upto + 1 }
    }
}

/// What each block must hold, and which are in flight: no two commands of a verifying job touch one block at a
/// time, as NVMe gives no order between them.
pub struct Contents {
    /// Sequence of the last acknowledged write (0: none), and [`BUSY`].
    blocks: Vec<u32>,
    /// Writes up to this sequence may have come through from a run before, for all this run knows.
    before: u32,
    /// Blocks with a write that was sent and neither acknowledged nor followed by one that was: as many as
    /// were in flight when the target went away, or failed.
    doubtful: HashMap<u64, u32>,
}

const BUSY: u32 = 1 << 31;

impl Contents {
    /// For blocks last acknowledged as `acked`, of which any may hold a write of a run before up to `before`.
    pub fn new(acked: Vec<u32>, before: u32) -> Self {
        Self { blocks: acked, before, doubtful: HashMap::new() }
    }

    /// Takes `blocks` blocks from `first` on for one command; `None` when one of them is taken. Gives the
    /// sequence of a write of them.
    pub fn claim(&mut self, first: u64, blocks: u32) -> Option<u32> {
        let range = first..first + u64::from(blocks);
        let entries = &mut self.blocks[usize64(range.start)..usize64(range.end)];
        if entries.iter().any(|entry| entry & BUSY != 0) {
            return None;
        }
        entries.iter_mut().for_each(|entry| *entry |= BUSY);
        range.map(|block| self.held(block).next()).max()
    }

    /// What a block may hold, whether it is taken or not.
    pub fn held(&self, block: u64) -> Held {
        let acked = self.blocks[usize64(block)] & !BUSY;
        let doubtful = if self.doubtful.is_empty() { None } else { self.doubtful.get(&block) };
        Held { acked, upto: acked.max(self.before).max(doubtful.copied().unwrap_or(0)) }
    }

    fn free(&mut self, block: u64) -> &mut u32 {
        let entry = &mut self.blocks[usize64(block)];
        assert!(*entry & BUSY != 0, "a block is released once");
        *entry &= !BUSY;
        entry
    }

    /// Gives back a block that was read.
    pub fn release(&mut self, block: u64) {
        self.free(block);
    }

    /// Gives back a block whose write `sequence` was acknowledged.
    pub fn settle(&mut self, block: u64, sequence: u32) {
        *self.free(block) = sequence;
        if !self.doubtful.is_empty() {
            self.doubtful.remove(&block);
        }
    }

    /// Gives back a block whose write `sequence` may have come through, or in part, or not.
    pub fn doubt(&mut self, block: u64, sequence: u32) {
        self.free(block);
        self.doubtful.insert(block, sequence);
    }

    /// Blocks with an acknowledged write.
    pub fn count_written(&self) -> u64 {
        u64_of(self.blocks.iter().filter(|&&entry| entry & !BUSY != 0).count())
    }

    /// The first block at or after `from` with an acknowledged write.
    pub fn written(&self, from: u64) -> Option<u64> {
        let from = usize64(from);
        let found = self.blocks.get(from..)?.iter().position(|&entry| entry & !BUSY != 0)?;
        Some(u64_of(from + found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_claimed_once() {
        let mut contents = Contents::new(vec![0; 4], 0);
        assert_eq!(contents.claim(2, 1), Some(1));
        assert_eq!(contents.claim(2, 1), None);
        contents.settle(2, 5);
        assert_eq!((contents.claim(2, 1), contents.held(2)), (Some(6), Held::known(5)));
        contents.settle(2, 6);
        assert_eq!((contents.written(0), contents.count_written()), (Some(2), 1));
        assert_eq!(contents.written(3), None);
        assert_eq!(contents.written(99), None);
        assert_eq!(Held::known(BUSY - 1).next(), 1);
    }

    #[test]
    fn a_command_of_several_blocks_has_all_or_none() {
        let mut contents = Contents::new(vec![0, 8, 0, 3], 0);
        contents.claim(2, 1);
        assert_eq!(contents.claim(0, 4), None);
        // A refusal has taken nothing.
        assert_eq!(contents.claim(0, 2), Some(9));
        contents.settle(0, 9);
        contents.settle(1, 9);
        contents.release(2);
        assert_eq!(contents.claim(0, 4), Some(10));
        assert_eq!((contents.held(2), contents.held(3)), (Held::known(0), Held::known(3)));
    }

    #[test]
    fn a_write_in_doubt_may_be_there_or_not_until_another_is_acknowledged() {
        let mut contents = Contents::new(vec![0; 2], 0);
        contents.claim(0, 1);
        contents.settle(0, 1);
        contents.claim(0, 1);
        contents.doubt(0, 2);
        // The next one is told apart from the one in doubt.
        assert_eq!(contents.claim(0, 1), Some(3));
        let held = contents.held(0);
        assert_eq!(held, Held { acked: 1, upto: 2 });
        assert!(held.allows(1) && held.allows(2) && !held.allows(3) && !held.allows(0));
        contents.settle(0, 3);
        assert_eq!((contents.claim(0, 1), contents.held(0)), (Some(4), Held::known(3)));
        contents.release(0);
        assert_eq!((contents.claim(0, 1), contents.held(0)), (Some(4), Held::known(3)));
    }

    #[test]
    fn blocks_of_a_run_before_may_hold_what_it_did_not_see_acknowledged() {
        let mut contents = Contents::new(vec![3, 0], 9);
        assert_eq!(
            (contents.claim(0, 1), contents.held(0)),
            (Some(10), Held { acked: 3, upto: 9 })
        );
        contents.settle(0, 10);
        assert_eq!((contents.claim(0, 1), contents.held(0)), (Some(11), Held::known(10)));
    }
}
