//! What must never be.

use crate::memory::Line;
use crate::model::{Entry, Model, Op, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A write that was reported complete is not in the log, and will not be: for what began after it, or for all.
    Lost,
    /// Something that began after a write was complete is before it in the log, so that the older of two stays.
    OutOfOrder,
    /// A record was taken twice, with something else between.
    TakenTwice,
    /// A write that went as a command because its record was not taken was taken.
    DoneTwice,
    /// A record was overwritten that an opening would want.
    Overwritten,
    /// A host that obeys is said not to, or its ring to be damaged.
    Blamed,
}

impl State {
    pub fn append(&mut self, entry: Entry) -> Result<(), Violation> {
        self.log.push(entry);
        if entry.is_direct && self.not_taken.has(entry.op) {
            return Err(Violation::DoneTwice);
        }
        Ok(())
    }

    /// A write that goes as a command after it was stored must not be in the log.
    pub fn is_not_done(&self, op: Op) -> Result<(), Violation> {
        if self.last(op).is_some() { Err(Violation::DoneTwice) } else { Ok(()) }
    }

    fn last(&self, op: Op) -> Option<usize> {
        self.log.iter().rposition(|entry| entry.op == op)
    }

    /// Once a window is over, all that its host was told is complete is in the log.
    pub fn nothing_is_lost(&self, model: &Model) -> Result<(), Violation> {
        for window in (0..2).filter(|window| self.is_over[*window]) {
            let mut ops = model.ops_of(window);
            if ops.any(|op| self.complete.has(op) && self.last(op).is_none()) {
                return Err(Violation::Lost);
            }
        }
        self.is_in_order(model)
    }

    /// As of now, with all taken that was to be: whatever was complete before something in the log began is there, and
    /// before it. Of what was taken again after a target's end, the last counts: nobody saw the others.
    pub fn is_in_order(&self, model: &Model) -> Result<(), Violation> {
        for op in 0..model.ops() {
            let Some(at) = self.last(op) else { continue };
            let before = self.before[usize::from(op)];
            for earlier in (0..model.ops()).filter(|earlier| before.has(*earlier)) {
                match self.last(earlier) {
                    None => return Err(Violation::Lost),
                    Some(earlier) if earlier > at => return Err(Violation::OutOfOrder),
                    Some(_) => {}
                }
            }
            let first = self.log.iter().position(|entry| entry.op == op).unwrap_or(at);
            let window = (0..2).find(|window| model.ops_of(*window).contains(&op));
            let is_same = |entry: &Entry| {
                entry.is_direct && window.is_some_and(|own| model.ops_of(own).contains(&entry.op))
            };
            if first != at && !self.log[first..=at].iter().all(is_same) {
                return Err(Violation::TakenTwice);
            }
        }
        Ok(())
    }
}

impl State {
    /// What is in a line must be in the log, and *taken* must say so even after a power cut.
    pub fn may_be_overwritten(
        &self,
        model: &Model,
        files: usize,
        line: usize,
        to: Line,
    ) -> Result<(), Violation> {
        let is_lost = self.lost == Some(files);
        let files = &self.files[files];
        let there = files.seen.ring[line];
        let is_other = !is_lost && there != to;
        let is_wanted =
            is_other && there.wanted_until().is_some_and(|until| until > files.kept.page.taken);
        if is_wanted && !model.only_outcomes { Err(Violation::Overwritten) } else { Ok(()) }
    }
}

impl Model {
    pub fn is_blamed(&self) -> Result<(), Violation> {
        if self.only_outcomes { Ok(()) } else { Err(Violation::Blamed) }
    }
}
