//! A node that has its pool scrubbed beside everything else: at a limit or not, paused and gone on with, also from where
//! an earlier life was when its node wrote that down last.

use super::{Media, Seen};
use crate::rough::moment;
use engine::{Kind, Pool, Scrub, ScrubPosition};
use reactor::{sleep, spawn};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use stdx::Prng;
use stdx::num::u64_of;

/// Pauses between two things it does, as doublings of some microseconds.
const PAUSE: u64 = 17;

/// Of so many pauses without a scrub, one ends with the next.
const REST: u64 = 4;

/// What outlives a life of a scrub.
#[derive(Default)]
pub(super) struct Scrubs {
    /// Where the node wrote down last that it was.
    position: Rc<RefCell<ScrubPosition>>,
    /// Damage was planted, some of it perhaps where no scrub has to look as yet.
    pub is_marred: Cell<bool>,
    /// Who scrubs now.
    now: RefCell<Option<Rc<Cell<Stage>>>>,
}

/// How far the scrubs of a life are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Scrubs,
    /// No more are begun.
    Ends,
    Ended,
}

struct Scrubber {
    pool: Pool,
    position: Rc<RefCell<ScrubPosition>>,
    stage: Rc<Cell<Stage>>,
    prng: Prng,
    /// Nothing was ever wrong with the drives, nor planted there: there is nothing to find.
    is_sound: bool,
    said: Rc<RefCell<Vec<String>>>,
    seen: Rc<Cell<Seen>>,
}

/// What is so of every scrub, wherever it is. `is_sound` where nothing was ever wrong with the drives.
pub(super) fn check(scrub: &Scrub, is_sound: bool) {
    let ScrubPosition { done, damaged, repaired, lost, unchecked, .. } = scrub.position;
    assert!(done <= scrub.bytes, "a scrub has checked more than there is: {scrub:?}");
    assert!(repaired <= damaged, "a scrub put right what was not damaged: {scrub:?}");
    if scrub.is_complete {
        assert!(!scrub.is_under_way, "a scrub that came to its end goes on: {scrub:?}");
        assert_eq!(done, scrub.bytes, "a scrub came to its end and left something out: {scrub:?}");
    }
    assert!(
        !is_sound || (damaged, lost, unchecked) == (0, 0, 0),
        "a scrub found something, and nothing was ever wrong: {scrub:?}"
    );
}

/// A limit in bytes a second, or none.
pub(super) fn limit(prng: &mut Prng) -> u64 {
    if prng.below(2) == 0 { 0 } else { 1 << (24 + prng.below(8)) }
}

impl Scrubs {
    /// Ends the scrubs of this life where they are.
    pub async fn end(&self) {
        let Some(stage) = self.now.borrow_mut().take() else { return };
        if stage.get() == Stage::Scrubs {
            stage.set(Stage::Ends);
        }
        while stage.get() == Stage::Ends {
            sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

impl Media {
    /// From now on it is scrubbed now and then, if it is in this run.
    pub(super) fn scrub_now_and_then(&self, life: usize, pool: &Pool) {
        if !self.plan.scrubs {
            return;
        }
        let stage = Rc::new(Cell::new(Stage::Scrubs));
        self.scrubs.now.replace(Some(Rc::clone(&stage)));
        let scrubber = Scrubber {
            pool: pool.clone(),
            position: Rc::clone(&self.scrubs.position),
            stage,
            prng: Prng::new(self.plan.seed ^ 0x5eed_05c2_0b00_0002 ^ u64_of(life) << 48),
            is_sound: self.plan.is_sound() && !self.scrubs.is_marred.get(),
            said: Rc::clone(&self.said),
            seen: Rc::clone(&self.seen),
        };
        drop(spawn(scrubber.scrub()));
    }
}

impl Scrubber {
    /// Until the pool is closed, or it is told to end.
    async fn scrub(mut self) {
        let mut is_looked_at = true;
        loop {
            sleep(moment(&mut self.prng, PAUSE)).await;
            if self.stage.get() == Stage::Ends {
                self.pool.end_scrub().await;
            }
            let Ok(status) = self.pool.status().await else { break };
            if let Some(scrub) = &status.scrub {
                check(scrub, self.is_sound);
                if !is_looked_at && !scrub.is_under_way {
                    is_looked_at = true;
                    self.end(scrub);
                }
            }
            if self.stage.get() != Stage::Scrubs {
                break;
            }
            match status.scrub.filter(|scrub| scrub.is_under_way) {
                Some(scrub) => self.meddle(&scrub).await,
                None if self.prng.below(REST) == 0 => is_looked_at &= !self.begin().await,
                None => {}
            }
        }
        self.stage.set(Stage::Ended);
    }

    async fn begin(&mut self) -> bool {
        let (from, limit) = (self.position.borrow().clone(), limit(&mut self.prng));
        let begun = self.pool.scrub(&from, limit).await;
        if let Err(error) = &begun {
            assert_eq!(error.kind, Kind::Gone, "a scrub is refused: {error}");
        }
        self.note(format!("a scrub from {from:?}, {limit} bytes a second: {}", begun.is_ok()));
        begun.is_ok()
    }

    async fn meddle(&mut self, scrub: &Scrub) {
        match self.prng.below(8) {
            0 => {
                let limit = limit(&mut self.prng);
                // It may be over by now.
                let _ = self.pool.limit_scrub(limit);
            }
            1 => self.pool.end_scrub().await,
            2 | 3 => *self.position.borrow_mut() = scrub.position.clone(),
            _ => {}
        }
    }

    /// One is over: another goes on where it was, or begins anew.
    fn end(&mut self, scrub: &Scrub) {
        self.note(format!("the scrub ends: {scrub:?}"));
        let mut seen = self.seen.get();
        seen.scrubs += u64::from(scrub.is_complete);
        seen.mended += scrub.position.repaired;
        self.seen.set(seen);
        *self.position.borrow_mut() = match scrub.is_complete {
            true => ScrubPosition::default(),
            false => scrub.position.clone(),
        };
    }

    fn note(&self, what: String) {
        self.said.borrow_mut().push(what);
    }
}
