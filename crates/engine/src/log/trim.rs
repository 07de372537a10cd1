//! Trimming: the log forgets what is durable elsewhere.

use super::control::Control;
use super::limits::TRIM_STEP;
use super::ring::Mark;
use super::{Shared, Turn};
use crate::canary::{self, Step};
use crate::error::Result;
use reactor::yield_now;

impl Shared {
    pub(super) async fn trim(&self, through: u64, durable_stripe: u64) -> Result<()> {
        self.trimming.acquire(1).await;
        let _turn = Turn(&self.trimming);
        let (next, control) = {
            let ring = self.ring.borrow();
            assert!(through < ring.handed.sequence, "what is trimmed was handed out");
            if through < ring.tail.sequence {
                return Ok(());
            }
            let next = ring.mark_after(through, &self.store)?;
            let (position, settled) = (next.position, ring.settled.sequence - 1);
            (next, ring.control.after_trim(through, position, durable_stripe, settled))
        };
        // Durable first: only then may the records be overwritten.
        if !canary::skips(Step::TrimControl) {
            self.store.write_control(&control).await?;
        }
        self.keep_control(control);
        self.forget(through).await?;
        self.ring.borrow_mut().trimmed(next);
        self.room.notify();
        Ok(())
    }

    /// Notes that all records there are by now are durable: one that is damaged from then on is known as lost. The last one
    /// would be taken for one that was never complete, for nothing behind it says that it was.
    pub(super) async fn note_durable(&self) -> Result<()> {
        self.trimming.acquire(1).await;
        let _turn = Turn(&self.trimming);
        let control = {
            let ring = self.ring.borrow();
            let settled = ring.settled.sequence - 1;
            if ring.control.settled >= settled || canary::skips(Step::NoteDurable) {
                return Ok(());
            }
            ring.control.after_settling(settled)
        };
        self.store.write_control(&control).await?;
        self.keep_control(control);
        Ok(())
    }

    /// Has each device say once more whose it is.
    pub(super) async fn sign(&self) -> Result<()> {
        self.trimming.acquire(1).await;
        let _turn = Turn(&self.trimming);
        let control = self.ring.borrow().control.again();
        self.store.write_control(&control).await?;
        self.keep_control(control);
        Ok(())
    }

    /// The control block says this from now on: whoever changes it has the turn of trims.
    pub(super) fn keep_control(&self, control: Control) {
        assert_eq!(self.trimming.available(), 0, "one control block is written at a time");
        self.ring.borrow_mut().keep_control(control);
    }

    /// Drops the index entries of records up to `through`, a few at a time: in the order of the records, data and
    /// stretches alike. Without the newer of two that have a block, lookups would find the older one.
    async fn forget(&self, through: u64) -> Result<()> {
        assert_eq!(self.trimming.available(), 0, "one forgets records at a time");
        let mut mark: Mark = self.ring.borrow().tail;
        loop {
            mark = self.ring.borrow_mut().forget(mark, through, TRIM_STEP, &self.store)?;
            self.ring.borrow_mut().stretches.trim(mark.position);
            if mark.sequence > through {
                return Ok(());
            }
            yield_now().await;
        }
    }
}
