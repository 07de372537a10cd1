//! How a host's connection lays out its own memory.

use nvme::cqe::Cqe;
use nvme::sqe::Sqe;
use stdx::num::usize32;
use verbs::{Place, Sizes};

/// Receives beside those of the commands that are out.
const SPARE_RECEIVES: u16 = 2;

/// Capsules are at multiples of this: a cache line.
const ALIGNED: usize = 64;

/// A capsule for each command identifier, and behind them slots to receive responses into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    commands: u16,
    in_capsule: u32,
}

impl Layout {
    /// Of a queue with so many commands, each with so much data in its capsule at most.
    #[must_use]
    pub const fn of(commands: u16, in_capsule: u32) -> Self {
        Self { commands, in_capsule }
    }

    /// Slots to receive into.
    #[must_use]
    pub const fn receives(self) -> u16 {
        self.commands.saturating_add(SPARE_RECEIVES)
    }

    fn stride(self) -> usize {
        (size_of::<Sqe>() + usize32(self.in_capsule)).next_multiple_of(ALIGNED)
    }

    /// Where the capsule of a command is, with so much data in it.
    #[must_use]
    pub fn capsule(self, cid: u16, in_capsule: u32) -> Place {
        assert!(in_capsule <= self.in_capsule, "more data than a capsule has room for");
        let length = size_of::<Sqe>() + usize32(in_capsule);
        Place { offset: usize::from(cid) * self.stride(), length }
    }

    /// Where a slot is.
    #[must_use]
    pub fn receive(self, slot: u16) -> Place {
        let length = size_of::<Cqe>();
        let first = usize::from(self.commands) * self.stride();
        Place { offset: first + usize::from(slot) * length, length }
    }

    /// Each command is sent once, and answered once.
    #[must_use]
    pub fn sizes(self) -> Sizes {
        let memory = self.receive(self.receives()).offset.next_multiple_of(4096);
        let (sends, receives) = (u32::from(self.commands), u32::from(self.receives()));
        Sizes { sends, receives, memory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap() {
        for (commands, in_capsule) in [(1, 0), (32, 0), (128, 4096), (1024, 8191)] {
            let layout = Layout::of(commands, in_capsule);
            let capsules = (0..commands).map(|cid| layout.capsule(cid, in_capsule));
            let receives = (0..layout.receives()).map(|slot| layout.receive(slot));
            let mut end = 0;
            for place in capsules.chain(receives) {
                assert!(place.offset >= end, "{place:?}");
                end = place.offset + place.length;
            }
            assert!(end <= layout.sizes().memory);
        }
    }
}
