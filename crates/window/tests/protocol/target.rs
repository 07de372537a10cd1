//! What a target does, its end anywhere, and power cuts.

use stdx::num::{u64_of, usize64};
use window::record::HEADER;
use window::{Look, Phase, Reader};

use crate::checks::Violation;
use crate::memory::{Files, LINE, LINES, Line, RECORD, RING, Word, offset_of, op_of};
use crate::model::{
    Entry, HostStep, Memory, Model, Op, Ops, Rule, State, Steps, TargetStep, Then, epoch_of,
};

impl Steps<'_> {
    pub fn target(&mut self) {
        let model = self.model;
        self.word_is_seen();
        let target = &self.from.target;
        let is_fenced = target.buffer.is_empty();
        match target.step {
            TargetStep::Dead => self.opens(),
            TargetStep::Idle => self.begins_something(),
            TargetStep::Look(then) => self.looks_at_ring(then),
            TargetStep::Copy(then, op) => self.copies(then, op),
            TargetStep::Publish(then) => {
                if is_fenced || !model.keeps(Rule::TakenFenced) {
                    self.step("target gives credit", 0, |s| {
                        if model.keeps(Rule::TakenFenced) {
                            s.fence(model);
                        }
                        s.give_credit(model, then);
                        s.target.step = TargetStep::Look(then);
                        Ok(())
                    });
                }
            }
            TargetStep::Serve(op) => {
                self.step("target does a command", usize::from(op), |s| s.serve(model, op));
            }
            TargetStep::Ending => {
                if is_fenced || !model.keeps(Rule::PhaseFenced) {
                    self.step("target has the phase fenced", 0, |s| {
                        if model.keeps(Rule::PhaseFenced) {
                            s.fence(model);
                        }
                        s.target.step = TargetStep::Look(Then::End);
                        Ok(())
                    });
                }
            }
            TargetStep::Closing => self.step("target ends the window", 0, |s| s.close(model)),
            TargetStep::Ended => {
                if is_fenced || !model.keeps(Rule::EndedFenced) {
                    self.step("target has ended the window", 0, |s| s.has_ended(model));
                }
            }
        }
    }

    fn word_is_seen(&mut self) {
        let model = self.model;
        let target = &self.from.target;
        let Some((files, word, to)) = target.buffer.first().copied() else { return };
        let what = match word {
            Word::Phase => "target's phase is seen",
            Word::Taken => "target's taken is seen",
            Word::Credit => "target's credit is seen",
        };
        self.step(what, files, |s| {
            let _ = s.target.buffer.remove(0);
            s.files[files].set_word(word, to, model.memory == Memory::Bbu);
            Ok(())
        });
    }

    fn begins_something(&mut self) {
        let model = self.model;
        let window = self.from.target.window;
        for op in (0..model.ops()).filter(|op| self.from.asked.has(*op)) {
            let takes = window.is_some() && model.keeps(Rule::TakeBeforeCommand);
            let next =
                if takes { TargetStep::Look(Then::Serve(op)) } else { TargetStep::Serve(op) };
            self.step("target has a command", usize::from(op), |s| {
                s.target.step = next;
                Ok(())
            });
        }
        if window.is_some() {
            if self.from.look(model) != Look::Nothing {
                self.step("target takes at leisure", 0, |s| {
                    s.target.step = TargetStep::Look(Then::Rest);
                    Ok(())
                });
            }
            self.with_or_without_copies("target begins to end the window", |s| {
                s.begin_end(model, model.keeps(Rule::PhaseBeforeTake));
                Ok(())
            });
        } else {
            self.forgets_or_grants();
        }
    }

    /// The catalog may forget a window long after its end.
    fn forgets_or_grants(&mut self) {
        let model = self.model;
        if let Some(window) = self.from.catalog.iter().position(|is_there| *is_there) {
            self.step("catalog forgets the window", window, |s| {
                s.catalog[window] = false;
                Ok(())
            });
        } else if model.writes[1] > 0 && self.from.hosts[1].step == HostStep::NoWindow {
            self.step("target grants another window", 1, |s| {
                s.catalog[1] = true;
                s.target.window = Some(1);
                s.target.reader = Reader::new(epoch_of(1), RING, 0);
                (s.target.taken, s.target.credit) = (0, RING);
                s.target.buffer.clear();
                s.files[model.copies_of(1).start] = Files::new();
                s.hosts[1].step = HostStep::Idle;
                Ok(())
            });
        }
    }

    fn looks_at_ring(&mut self, then: Then) {
        let model = self.model;
        match self.from.look(model) {
            Look::Nothing => self.step("target sees nothing", 0, |s| {
                s.has_taken_all(model, then);
                Ok(())
            }),
            Look::Pad => self.step("target sees padding", 0, |s| {
                s.target.reader.advance(&Look::Pad);
                Ok(())
            }),
            Look::Write { data_crc, .. } => {
                let op = op_of(data_crc);
                self.step("target sees a header", usize::from(op), |s| {
                    let end = s.target.reader.position() + RECORD;
                    if !model.keeps(Rule::AppendBeforeTaken) {
                        s.store(model, Word::Taken, end);
                        s.target.taken = end;
                    }
                    if !model.keeps(Rule::AppendBeforeCredit) {
                        s.store(model, Word::Credit, end + RING);
                        s.target.credit = end + RING;
                    }
                    s.target.step = TargetStep::Copy(then, op);
                    Ok(())
                });
            }
            Look::Bad(_) => self.step("target sees a bad record", 0, |s| s.is_bad(model, then)),
        }
    }

    /// Copies data, checks it, and appends it to the log. Then *taken* is stored, or the next record looked at first.
    fn copies(&mut self, then: Then, op: Op) {
        let model = self.model;
        let target = &self.from.target;
        let at = target.reader.at() + u64_of(HEADER);
        let ring = &self.from.files[self.from.files_in_use(model)].seen.ring;
        if !matches!(ring[usize64(at) / LINE], Line::Data { op: there, .. } if there == op) {
            return self.step("target sees bad data", 0, |s| s.is_bad(model, then));
        }
        let append = |s: &mut State| {
            s.keep_record(model);
            let (offset, data_crc) = (offset_of(op), u32::from(op));
            s.target.reader.advance(&Look::Write { at, offset, length: LINE, data_crc });
            s.append(Entry { op, is_direct: true })
        };
        self.step("target appends, and looks on", usize::from(op), |s| {
            s.target.step = TargetStep::Look(then);
            append(s)
        });
        if then != Then::End || model.keeps(Rule::TakenBeforeEnded) {
            self.step("target appends, and stores taken", usize::from(op), |s| {
                append(s)?;
                s.publish(model, then);
                Ok(())
            });
        }
    }

    /// An opening: windows that the catalog has are ended before anything else is done.
    fn opens(&mut self) {
        let model = self.model;
        let Some(window) = self.from.catalog.iter().position(|is_there| *is_there) else {
            return self.step("target opens", 0, |s| {
                s.target.step = TargetStep::Idle;
                Ok(())
            });
        };
        self.with_or_without_copies("target opens, and ends a window", |s| {
            s.target.window = Some(window);
            let copies = s.copies_in_use(model);
            let pages = || copies.iter().map(|files| s.files[*files].seen.page);
            let by_all = model.keeps(Rule::OpeningBehindAllTaken);
            let taken = pages().take(if by_all { 2 } else { 1 }).map(|page| page.taken).max();
            let (taken, credit) = (taken.unwrap_or(0), pages().map(|page| page.credit).max());
            let credit = credit.filter(|_| !model.keeps(Rule::OpeningTakesAll));
            s.target.reader = Reader::new(epoch_of(window), RING, taken);
            s.target.taken = taken;
            s.target.credit = credit.unwrap_or(taken + RING);
            let has_ended = |files: &usize| s.files[*files].seen.page.phase() == Phase::Ended;
            if copies.iter().any(has_ended) && model.keeps(Rule::OpeningLeavesEnded) {
                s.store(model, Word::Phase, Phase::Ended.word());
                s.target.step = TargetStep::Ended;
                return Ok(());
            }

            s.begin_end(
                model,
                model.keeps(Rule::OpeningEnds) && model.keeps(Rule::PhaseBeforeTake),
            );
            Ok(())
        });
    }

    /// A copy may be lost, and be why the window is ended.
    fn with_or_without_copies(
        &mut self,
        what: &'static str,
        change: impl Fn(&mut State) -> Result<(), Violation>,
    ) {
        self.step(what, 0, &change);
        if self.model.copies == 2 && self.from.lost.is_none() {
            for files in 0..2 {
                self.step("target loses a copy, and ends the window", files, |s| {
                    s.lost = Some(files);
                    change(s)
                });
            }
        }
    }

    /// What it did not store yet is never stored; what it stored and is not seen yet may as well have been seen before.
    pub fn target_ends(&mut self) {
        if self.from.crashes > 0 && self.from.target.step != TargetStep::Dead {
            self.step("target is killed", 0, |s| {
                s.crashes -= 1;
                s.target_is_gone();
                Ok(())
            });
        }
    }

    pub fn power_cut(&mut self) {
        if self.from.power_cuts == 0 {
            return;
        }
        let model = self.model;
        for first in self.from.files[0].after_power_cut() {
            for second in self.from.files[1].after_power_cut() {
                self.step("power is cut", 0, |s| {
                    s.power_cuts -= 1;
                    s.files = [first.clone(), second];
                    s.target_is_gone();
                    // What was asked for has no outcome; a record in place of a command that was not done is as good.
                    s.asked = Ops::default();
                    s.forget_not_taken(model);
                    for host in &mut s.hosts {
                        host.step = HostStep::Dead;
                        host.buffer.clear();
                    }
                    Ok(())
                });
            }
        }
    }
}

impl State {
    /// The copies that the target can reach.
    fn copies_in_use(&self, model: &Model) -> Vec<usize> {
        let window = self.target.window.expect("there is a window");
        model.copies_of(window).filter(|files| self.lost != Some(*files)).collect()
    }

    /// The one that it takes from.
    fn files_in_use(&self, model: &Model) -> usize {
        self.copies_in_use(model)[0]
    }

    /// What the target sees at its position.
    fn look(&self, model: &Model) -> Look {
        let ring = &self.files[self.files_in_use(model)].seen.ring;
        let header = ring[usize64(self.target.reader.at()) / LINE].bytes();
        self.target.reader.look(&header, self.target.credit)
    }

    /// A full fence of the target, with a flush of what it stored.
    fn fence(&mut self, model: &Model) {
        debug_assert!(self.target.buffer.is_empty());
        for files in self.copies_in_use(model) {
            self.files[files].kept.page = self.files[files].seen.page;
        }
    }

    fn store(&mut self, model: &Model, word: Word, to: u64) {
        let copies = self.copies_in_use(model);
        self.target.buffer.extend(copies.into_iter().map(|files| (files, word, to)));
    }

    /// The record at the position is what an opening will find there, whatever happens: flushed, and in all copies.
    fn keep_record(&mut self, model: &Model) {
        let from = self.files_in_use(model);
        let header = usize64(self.target.reader.at()) / LINE;
        for files in self.copies_in_use(model) {
            for line in [header + 1, header] {
                if model.keeps(Rule::InAllCopies) {
                    let to = self.files[from].seen.ring[line];
                    self.files[files].set_line(line, to, model.memory == Memory::Bbu);
                }
                if model.keeps(Rule::HeaderKept) {
                    self.files[files].kept.ring[line] = self.files[files].seen.ring[line];
                }
            }
        }
    }

    fn publish(&mut self, model: &Model, then: Then) {
        let position = self.target.reader.position();
        if !model.keeps(Rule::TakenBeforeCredit) {
            self.give_credit(model, then);
        }
        self.store(model, Word::Taken, position);
        self.target.taken = position;
        self.target.step = TargetStep::Publish(then);
    }

    fn give_credit(&mut self, model: &Model, then: Then) {
        let credit = self.target.taken.max(self.target.reader.position()) + RING;
        if then != Then::End && credit > self.target.credit {
            self.store(model, Word::Credit, credit);
            self.target.credit = credit;
        }
    }

    fn has_taken_all(&mut self, model: &Model, then: Then) {
        let is_published = self.target.taken >= self.target.reader.position();
        let is_last = then == Then::End && !model.keeps(Rule::TakenBeforeEnded);
        if !is_published && !is_last {
            return self.publish(model, then);
        }
        self.target.step = match then {
            Then::Rest => TargetStep::Idle,
            Then::Serve(op) => TargetStep::Serve(op),
            Then::End => TargetStep::Closing,
        };
    }

    fn begin_end(&mut self, model: &Model, phase_first: bool) {
        self.target.step = TargetStep::Look(Then::End);
        if phase_first {
            self.store(model, Word::Phase, Phase::Ending.word());
            self.target.step = TargetStep::Ending;
        }
    }

    fn is_bad(&mut self, model: &Model, then: Then) -> Result<(), Violation> {
        model.is_blamed()?;
        if then == Then::End {
            self.has_taken_all(model, then);
        } else {
            self.begin_end(model, model.keeps(Rule::PhaseBeforeTake));
        }
        Ok(())
    }

    fn close(&mut self, model: &Model) -> Result<(), Violation> {
        self.see_damage(model)?;
        self.store(model, Word::Phase, Phase::Ended.word());
        if !model.keeps(Rule::TakenBeforeEnded) {
            self.store(model, Word::Taken, self.target.reader.position());
        }
        self.target.step = TargetStep::Ended;
        Ok(())
    }

    /// Hosts that obey leave none, whenever they end.
    fn see_damage(&self, model: &Model) -> Result<(), Violation> {
        let ring = &self.files[self.files_in_use(model)].seen.ring;
        let reader = &self.target.reader;
        let shows = |line: usize| reader.shows_damage(&ring[line].bytes(), u64_of(line * LINE));
        let looks_again = model.keeps(Rule::LookAgain);
        if (0..LINES).any(shows) && !(looks_again && self.look(model) != Look::Nothing) {
            model.is_blamed()?;
        }
        Ok(())
    }

    fn has_ended(&mut self, model: &Model) -> Result<(), Violation> {
        if model.keeps(Rule::EndedFenced) {
            self.fence(model);
        }
        let window = self.target.window.take().expect("there is a window to end");
        self.is_over[window] = true;
        self.target.step = TargetStep::Idle;
        self.nothing_is_lost(model)
    }

    fn serve(&mut self, model: &Model, op: Op) -> Result<(), Violation> {
        self.append(Entry { op, is_direct: false })?;
        self.is_answered(model, op);
        self.target.step = TargetStep::Idle;
        self.is_in_order(model)
    }

    fn forget_not_taken(&mut self, model: &Model) {
        for op in (0..model.ops()).filter(|op| !self.complete.has(*op)) {
            self.not_taken.remove(op);
        }
    }

    fn target_is_gone(&mut self) {
        self.target.step = TargetStep::Dead;
        self.target.window = None;
        self.target.buffer.clear();
        // Nothing of it is known any more: so states are the same that differ in it only.
        self.target.reader = Reader::new(0, RING, 0);
        (self.target.taken, self.target.credit) = (0, 0);
    }
}
