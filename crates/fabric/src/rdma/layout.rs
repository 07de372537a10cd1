//! How a connection's own memory is laid out, and how large its queues are.

use nvme::cqe::Cqe;
use nvme::sqe::Sqe;
use stdx::num::usize32;
use verbs::{Place, Sizes};

use crate::limits::{QUEUE_DEPTH, RDMA_IN_CAPSULE_BYTES, RDMA_SPARE_RESPONSES};

/// The largest capsule.
pub const CAPSULE_BYTES: usize = size_of::<Sqe>() + usize32(RDMA_IN_CAPSULE_BYTES);

/// Receives beside those of the commands that a host may have out.
const SPARE_RECEIVES: u16 = 2;

/// Slots to receive capsules into, and behind them one for each response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    commands: u16,
}

impl Layout {
    /// Of a queue whose host has so many commands out at once.
    #[must_use]
    pub const fn of(commands: u16) -> Self {
        Self { commands }
    }

    /// Slots to receive into.
    #[must_use]
    pub const fn receives(self) -> u16 {
        self.commands.saturating_add(SPARE_RECEIVES)
    }

    /// Responses under way at once.
    #[must_use]
    pub const fn responses(self) -> u16 {
        self.commands.saturating_add(RDMA_SPARE_RESPONSES)
    }

    /// Where a slot is.
    #[must_use]
    pub fn receive(self, slot: u16) -> Place {
        Place { offset: usize::from(slot) * CAPSULE_BYTES, length: CAPSULE_BYTES }
    }

    /// Where a response is.
    #[must_use]
    pub fn response(self, index: u16) -> Place {
        let length = size_of::<Cqe>();
        let first = usize::from(self.receives()) * CAPSULE_BYTES;
        Place { offset: first + usize::from(index) * length, length }
    }

    /// Bytes of all of it.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.response(self.responses()).offset.next_multiple_of(4096)
    }

    /// Each command brings its data or is answered, with data and a response.
    #[must_use]
    pub fn sizes(self) -> Sizes {
        let sends = u32::from(self.commands) + 2 * u32::from(self.responses());
        Sizes { sends, receives: u32::from(self.receives()), memory: self.bytes() }
    }
}

const _: () = assert!(CAPSULE_BYTES.is_multiple_of(size_of::<Cqe>()));
const _: () = assert!(QUEUE_DEPTH < u16::MAX - SPARE_RECEIVES - RDMA_SPARE_RESPONSES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap() {
        for commands in [1, 32, 128, QUEUE_DEPTH] {
            let layout = Layout::of(commands);
            let receives = (0..layout.receives()).map(|slot| layout.receive(slot));
            let responses = (0..layout.responses()).map(|index| layout.response(index));
            let mut end = 0;
            for place in receives.chain(responses) {
                assert_eq!(place.offset, end);
                end += place.length;
            }
            assert!(end <= layout.bytes() && layout.bytes() - end < 4096);
        }
    }
}
