//! A log that goes to devices of another kind: what records go through changes between two of them.

use super::device::commit_len;
use super::limits::{JOIN_STEP, PAGE};
use super::record::Kind;
use super::{Claim, Log, Shared, Turn, commit};
use crate::canary::{self, Canary, Step};
use crate::error::Result;
use reactor::{spawn_late, yield_now};
use std::rc::Rc;
use stdx::Counted;
use stdx::num::u64_of;

impl Log {
    /// Has records gather in an image of the ring, from which group commit writes them: zones can [join](Self::join)
    /// the devices of memory then.
    ///
    /// # Errors
    /// `Failed` when the log does, or there is no memory.
    pub async fn gather(&self) -> Result<()> {
        let shared = &self.shared;
        if !shared.store.is_memory() {
            return Ok(());
        }
        shared.store.begin_image(shared.ring.borrow().control.ring_bytes)?;
        shared.fill_image().await?;
        shared.gate.acquire(1).await;
        let _turn = Turn(&shared.gate);
        // Commits begin with pages, as zones are written.
        let page = Kind::Pad { bytes: PAGE };
        if !shared.ring.borrow().has_room(page, &shared.store) {
            let _full = Counted::new(&shared.full);
            shared.wait_for_room(&page, Claim::New).await?;
        }
        // The page shows what comes before it.
        if !canary::skips(Step::GatherSettles) {
            self.settle().await?;
        }
        shared.ring.borrow_mut().pad_page_durably(&shared.store)?;
        let head = shared.ring.borrow().head.position;
        assert!(head.is_multiple_of(PAGE), "what gathers begins with a page");
        shared.store.go_behind();
        if !shared.commits.is_running() {
            spawn_late(commit::run(Rc::clone(shared)));
        }
        Ok(())
    }

    /// Has records go straight to the devices, which are all memory by now.
    ///
    /// # Errors
    /// `Failed` when the log does.
    pub async fn go_straight(&self) -> Result<()> {
        let shared = &self.shared;
        if shared.store.is_memory() {
            // Or was to gather, and did not.
            shared.store.go_direct();
            return Ok(());
        }
        // Nothing is stored meanwhile: all there is is committed then.
        shared.gate.acquire(1).await;
        let _turn = Turn(&shared.gate);
        if !canary::skips(Step::StraightSettles) {
            self.settle().await?;
        }
        // A control block is being written through the image until then.
        shared.trimming.acquire(1).await;
        let _trims = Turn(&shared.trimming);
        let is_settled = {
            let ring = shared.ring.borrow();
            ring.settled == ring.head
        };
        let is_early = canary::has(Canary::AcknowledgesEarly);
        let is_sure = is_settled || is_early || canary::skips(Step::StraightSettles);
        assert!(is_sure, "nothing is left in the image that no device has");
        shared.store.go_direct();
        shared.commits.look();
        Ok(())
    }

    /// Lets go of the devices that are the log's no more.
    pub fn drop_retired(&self) {
        self.shared.store.drop_retired();
    }
}

impl Shared {
    /// Copies what is in the ring into its image. What is appended meanwhile goes there by itself.
    async fn fill_image(&self) -> Result<()> {
        self.mend_ring().await?;
        let (end, mut position) = {
            let ring = self.ring.borrow();
            (ring.head.position, ring.tail.position)
        };
        while position < end {
            {
                let ring = self.ring.borrow();
                position = position.max(ring.tail.position);
                if position >= end {
                    return Ok(());
                }
                let at = ring.at(position);
                let len = commit_len(at, (end - position).min(JOIN_STEP), ring.control.ring_bytes);
                self.store.copy_to_image(at, len)?;
                position += u64_of(len);
            }
            yield_now().await;
        }
        Ok(())
    }
}
