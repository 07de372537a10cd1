//! A device that is made whole: it gets what is appended at once, and what is in the ring behind that.

use super::device::commit_len;
use super::limits::{CONTROL_BYTES, JOIN_STEP, PAGE};
use super::place::Joining;
use super::{Log, Shared, Turn};
use crate::canary::{self, Canary, Step};
use crate::error::{Error, Result};
use reactor::yield_now;
use stdx::num::u64_of;

impl Log {
    /// Has a device take part; when this returns it has everything there is of this log, and its control block says
    /// that it is the one known by its new name.
    ///
    /// # Errors
    /// When it fails, or the log does.
    pub async fn join(&self, joining: Joining) -> Result<()> {
        if let Some(kind) = self.shared.ended.get() {
            return Err(Error::new(kind, "the commit log has ended: nothing is copied from it"));
        }
        let slot = joining.tenant.slot;
        let bytes = self.shared.ring.borrow().control.ring_bytes + CONTROL_BYTES;
        let control = self.shared.ring.borrow().control;
        self.shared.store.mark(&joining, &control).await?;
        self.shared.store.attach(joining, bytes)?;
        // What was being written when it came is not written to it.
        if !canary::skips(Step::JoinSettles) {
            self.settle().await?;
        }
        self.shared.mend_ring().await?;
        if !canary::has(Canary::JoinsWithoutRing) {
            self.shared.copy_ring(slot).await?;
        }
        self.shared.trimming.acquire(1).await;
        let _turn = Turn(&self.shared.trimming);
        // Both slots: what another attempt left in one is a name that no label has.
        for _ in 0..2 {
            let control = self.shared.ring.borrow().control.again();
            // On memory, the fence behind this makes what was copied durable, too: it was stored before, by the same core.
            // A control block that is there without all of that means nothing, as long as no label names the device.
            self.shared.store.write_control(&control).await?;
            self.shared.keep_control(control);
        }
        Ok(())
    }
}

impl Shared {
    /// Has each device of memory have each record as it was stored, as long as any of them has it: what is copied from one
    /// is all there is once the others are the log's no more.
    pub(super) async fn mend_ring(&self) -> Result<()> {
        let (mut mark, end) = {
            let ring = self.ring.borrow();
            (ring.tail, ring.settled.position)
        };
        let mends = !canary::skips(Step::RingMends);
        while mends && self.store.is_mirrored() && mark.position < end {
            {
                // What is looked at is not trimmed, and written over, meanwhile.
                self.trimming.acquire(1).await;
                let _turn = Turn(&self.trimming);
                let ring = self.ring.borrow();
                if mark.sequence < ring.tail.sequence {
                    mark = ring.tail;
                }
                let until = end.min(mark.position + JOIN_STEP);
                while mark.position < until {
                    mark = ring.mend(mark, &self.store)?;
                }
            }
            yield_now().await;
        }
        Ok(())
    }

    async fn copy_ring(&self, slot: usize) -> Result<()> {
        let (end, mut position) = {
            let ring = self.ring.borrow();
            (ring.settled.position, ring.tail.position / PAGE * PAGE)
        };
        let step = if self.store.is_memory() { JOIN_STEP } else { u64::MAX };
        loop {
            {
                // What is copied is not trimmed, and written over, meanwhile.
                self.trimming.acquire(1).await;
                let _turn = Turn(&self.trimming);
                let (at, len) = {
                    let ring = self.ring.borrow();
                    position = position.max(ring.tail.position / PAGE * PAGE);
                    if position >= end {
                        return Ok(());
                    }
                    let rest = (end - position).min(step);
                    (
                        ring.at(position),
                        commit_len(ring.at(position), rest, ring.control.ring_bytes),
                    )
                };
                self.store.copy_to(slot, at, len).await?;
                position += u64_of(len);
            }
            yield_now().await;
        }
    }
}
