//! Buffers of one shard's segments. They are apart from the reactor's own, because commands wait for
//! the log with buffers of that in their hands, and the log waits for stripes to be written.

use crate::address::BLOCK;
use crate::limits::{READ_BYTES, RECOVER_BYTES, STRIPES_IN_MEMORY};
use raid::Geometry;
use reactor::BUFFER_MAX;
use reactor::buffer::{Buffer, Pool};
use reactor::sync::{Semaphore, Signal};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use stdx::num::usize32;

pub(super) struct Memory {
    geometry: Geometry,
    stripes: Pool,
    /// Whole stripes: one that has begun never waits for the rest of its buffers.
    stripe_permits: Semaphore,
    /// For reads of drives that cannot read to where the bytes are wanted. A reader has one buffer
    /// at a time.
    pub(super) reads: Pool,
    recover: Pool,
    /// Bytes of `recover`, taken for all buffers of one recovery at once.
    recover_permits: Semaphore,
    /// Repairs being written.
    repairs: Cell<usize>,
    repaired: Signal,
}

/// What a buffer of `len` bytes takes of its pool.
const fn footprint(len: usize) -> usize {
    len.next_power_of_two()
}

/// Leave to have a stripe in memory.
pub(super) struct StripePermit {
    memory: Rc<Memory>,
}

impl Drop for StripePermit {
    fn drop(&mut self) {
        self.memory.stripe_permits.release(1);
    }
}

impl Memory {
    pub(super) fn new(geometry: Geometry) -> io::Result<Self> {
        let stripe = footprint(usize32(geometry.unit_blocks()) * BLOCK) * geometry.width();
        let stripes = (stripe * STRIPES_IN_MEMORY).next_multiple_of(BUFFER_MAX);
        // Whoever reads goes around drives that hang, which keep the buffers of what they were asked for.
        let kept = geometry.parity() * reactor::FILE_BYTES_KEPT;
        Ok(Self {
            geometry,
            stripes: Pool::new(stripes)?,
            stripe_permits: Semaphore::new(STRIPES_IN_MEMORY),
            reads: Pool::new(READ_BYTES + kept)?,
            recover: Pool::new(RECOVER_BYTES + kept)?,
            recover_permits: Semaphore::new(RECOVER_BYTES),
            repairs: Cell::new(0),
            repaired: Signal::new(),
        })
    }

    /// Buffers for all units of a stripe, what is in them left over.
    pub(super) async fn stripe(self: &Rc<Self>, geometry: Geometry) -> (Vec<Buffer>, StripePermit) {
        let small = geometry.unit_blocks() <= self.geometry.unit_blocks();
        assert!(
            small && geometry.width() <= self.geometry.width(),
            "a geometry beyond the largest"
        );
        self.stripe_permits.acquire(1).await;
        let permit = StripePermit { memory: Rc::clone(self) };
        let mut units = Vec::with_capacity(geometry.width());
        for _ in 0..geometry.width() {
            units.push(self.stripes.alloc(usize32(geometry.unit_blocks()) * BLOCK).await);
        }
        (units, permit)
    }

    /// Waits until no repair is being written.
    pub(super) async fn repaired(&self) {
        self.repaired.until(|| self.repairs.get() == 0).await;
    }

    /// Whether a further stripe can begin without waiting.
    pub(super) fn has_room(&self) -> bool {
        self.stripe_permits.available() > 0
    }

    /// Leave to take `count` buffers of `len` bytes with [`Workspace::buffer`].
    pub(super) async fn workspace(self: &Rc<Self>, count: usize, len: usize) -> Workspace {
        let bytes = footprint(len) * count;
        assert!(bytes <= RECOVER_BYTES, "a recovery needs no more memory than there is");
        self.recover_permits.acquire(bytes).await;
        Workspace { memory: Rc::clone(self), bytes, len }
    }
}

/// A repair being written.
pub(super) struct Repair(Rc<Memory>);

impl Repair {
    pub(super) fn new(memory: &Rc<Memory>) -> Self {
        memory.repairs.set(memory.repairs.get() + 1);
        Self(Rc::clone(memory))
    }
}

impl Drop for Repair {
    fn drop(&mut self) {
        assert!(self.0.repairs.get() > 0, "a repair under way is counted");
        self.0.repairs.set(self.0.repairs.get() - 1);
        self.0.repaired.raise();
    }
}

/// Memory of one recovery.
pub(super) struct Workspace {
    memory: Rc<Memory>,
    bytes: usize,
    len: usize,
}

impl Workspace {
    pub(super) fn pool(&self) -> Pool {
        self.memory.recover.clone()
    }

    pub(super) async fn buffer(&self) -> Buffer {
        self.memory.recover.alloc(self.len).await
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.memory.recover_permits.release(self.bytes);
    }
}
