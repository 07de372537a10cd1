//! What lost associations may still change, and which commands have to wait for that (decision record 0009).
//!
//! An association that was lost with commands in flight that change something is a *doubt* until its controller
//! executes nothing any more. Each of those commands tells which blocks it changes; until all have, nobody knows,
//! and every change waits. Then only those wait that overlap such blocks. A command in doubt may be sent again
//! itself meanwhile: when its old copy comes late, it writes what is there.

use std::cell::{Cell, RefCell};

use nvme::opcode::io;
use nvme::sqe::Sqe;
use reactor::Nanos;
use stdx::num::low16;

/// Blocks that a command may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    first: u64,
    /// Behind the last one.
    end: u64,
}

impl Extent {
    /// What an I/O command changes, if it changes anything; all there is when its entry does not say.
    pub fn of(sqe: &Sqe) -> Self {
        match sqe.opcode {
            io::WRITE | io::WRITE_ZEROES => {
                let first = u64::from(sqe.cdw11.get()) << 32 | u64::from(sqe.cdw10.get());
                let blocks = u64::from(low16(sqe.cdw12.get().into())) + 1;
                Self { first, end: first.saturating_add(blocks) }
            }
            _ => Self { first: 0, end: u64::MAX },
        }
    }

    const fn overlaps(self, other: Self) -> bool {
        self.first < other.end && other.first < self.end
    }
}

/// A command that was in doubt, over all associations that it was lost with.
pub type Ticket = u64;

/// A lost association.
struct Doubt {
    association: u64,
    /// When it is over at the latest.
    until: Nanos,
    /// Commands that have not told what they change: forgotten ones never do.
    silent: usize,
    told: Vec<(Ticket, Extent)>,
}

impl Doubt {
    fn permits(&self, extent: Extent, own: Option<Ticket>) -> bool {
        let apart =
            |&(ticket, other): &(Ticket, Extent)| own == Some(ticket) || !other.overlaps(extent);
        self.silent == 0 && self.told.iter().all(apart)
    }
}

/// The doubts of a namespace.
#[derive(Default)]
pub struct Fence {
    doubts: RefCell<Vec<Doubt>>,
    last_ticket: Cell<Ticket>,
}

impl Fence {
    /// Whether a change of these blocks may be sent. `own` is the command's ticket, if it was in doubt itself.
    pub fn permits(&self, extent: impl FnOnce() -> Extent, own: Option<Ticket>) -> bool {
        let doubts = self.doubts.borrow();
        if doubts.is_empty() {
            return true;
        }
        let extent = extent();
        doubts.iter().all(|doubt| doubt.permits(extent, own))
    }

    /// An association was lost with so many commands in flight that change something. It executes nothing any
    /// more from `until` on.
    pub fn close(&self, association: u64, lost: usize, until: Nanos) {
        if lost > 0 {
            let doubt = Doubt { association, until, silent: lost, told: Vec::new() };
            self.doubts.borrow_mut().push(doubt);
        }
    }

    /// One of those commands says what it changes. Gives its ticket.
    pub fn tell(&self, association: u64, extent: Extent, own: Option<Ticket>) -> Ticket {
        let ticket = own.unwrap_or_else(|| {
            self.last_ticket.set(self.last_ticket.get() + 1);
            self.last_ticket.get()
        });
        let mut doubts = self.doubts.borrow_mut();
        if let Some(doubt) = doubts.iter_mut().find(|doubt| doubt.association == association) {
            doubt.silent = doubt.silent.saturating_sub(1);
            doubt.told.push((ticket, extent));
        }
        ticket
    }

    /// Whether an association is in doubt.
    pub fn doubts(&self, association: u64) -> bool {
        self.doubts.borrow().iter().any(|doubt| doubt.association == association)
    }

    /// The association executes nothing any more.
    pub fn settle(&self, association: u64) {
        self.doubts.borrow_mut().retain(|doubt| doubt.association != association);
    }

    /// When the next doubt is over.
    pub fn next(&self) -> Option<Nanos> {
        self.doubts.borrow().iter().map(|doubt| doubt.until).min()
    }

    /// Forgets the doubts that are over.
    pub fn expire(&self, now: Nanos) {
        self.doubts.borrow_mut().retain(|doubt| doubt.until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(first: u32, blocks: u32) -> Extent {
        let mut sqe = Sqe::new(io::WRITE, 0, 1);
        sqe.cdw10 = first.into();
        sqe.cdw12 = (blocks - 1).into();
        Extent::of(&sqe)
    }

    fn anything() -> Extent {
        Extent::of(&Sqe::new(io::COPY, 0, 1))
    }

    #[test]
    fn everything_waits_until_each_lost_command_has_told() {
        let fence = Fence::default();
        assert!(fence.permits(anything, None));
        fence.close(7, 2, 9);
        assert!(!fence.permits(|| write(100, 1), None));
        let first = fence.tell(7, write(0, 8), None);
        assert!(!fence.permits(|| write(100, 1), None));
        let second = fence.tell(7, write(4, 8), None);
        assert_ne!(first, second);
        assert!(fence.permits(|| write(12, 1), None));
        for taken in [0, 7, 11] {
            assert!(!fence.permits(|| write(taken, 1), None), "{taken}");
        }
        assert!(!fence.permits(anything, None));
    }

    #[test]
    fn a_command_in_doubt_waits_for_others_only() {
        let fence = Fence::default();
        fence.close(1, 1, 9);
        let own = fence.tell(1, write(0, 8), None);
        assert!(fence.permits(|| write(0, 8), Some(own)));
        // Lost once more, with another that overlaps it.
        fence.close(2, 2, 9);
        assert_eq!(fence.tell(2, write(0, 8), Some(own)), own);
        let other = fence.tell(2, write(7, 2), None);
        assert!(!fence.permits(|| write(0, 8), Some(own)));
        assert!(!fence.permits(|| write(7, 2), Some(other)));
        fence.settle(2);
        assert!(fence.permits(|| write(0, 8), Some(own)));
        assert!(!fence.permits(|| write(7, 2), Some(other)));
        fence.settle(1);
        assert!(fence.permits(anything, None));
    }

    #[test]
    fn doubts_end_in_their_time() {
        let fence = Fence::default();
        assert_eq!(fence.next(), None);
        fence.close(1, 1, 30);
        fence.close(2, 1, 20);
        fence.close(3, 0, 10);
        assert!(fence.doubts(1) && fence.doubts(2) && !fence.doubts(3));
        assert_eq!(fence.next(), Some(20));
        fence.expire(19);
        assert!(fence.doubts(2));
        fence.expire(20);
        assert!(!fence.doubts(2) && fence.doubts(1));
        fence.expire(30);
        assert!(fence.permits(anything, None));
    }
}
