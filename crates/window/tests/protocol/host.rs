//! What hosts do: the one that has a window, and the one that has none.

use window::Phase;

use crate::checks::Violation;
use crate::memory::{Files, LINE, Line, Pending, may_be_seen, offset_of};
use crate::model::{Host, HostStep, Memory, Model, Op, Rule, State, Steps, epoch_of};
use stdx::num::usize64;

impl Steps<'_> {
    /// Of the host that has a window.
    pub fn host(&mut self, window: usize) {
        let host = &self.from.hosts[window];
        self.stores_are_seen(window, host);
        match host.step {
            HostStep::Idle if self.model.ops_of(window).contains(&host.op) => {
                self.begins_to_write(window, host.op);
            }
            HostStep::Stored { end } => self.looks(window, host, end),
            HostStep::Flushing { end, stands } => self.has_flushed(window, end, stands),
            HostStep::WaitsForEnd { end } => self.waits_for_end(window, host.op, end),
            _ => {}
        }
    }

    /// What the host stores is at once in its buffer: that it stores some of it later is as if that was seen later.
    fn begins_to_write(&mut self, window: usize, op: Op) {
        let model = self.model;
        let page = &self.from.files[model.copies_of(window).start].seen.page;
        let writer = self.from.hosts[window].writer;
        let Some(place) = writer.place(LINE, page.credit) else {
            return self.step("host writes by command: no credit", window, |s| {
                s.begin(op);
                s.asked.add(op);
                s.hosts[window].step = HostStep::Command;
                Ok(())
            });
        };
        let what = if place.pad.is_some() { "host stores with padding" } else { "host stores" };
        self.step(what, window, |s| {
            s.begin(op);
            let host = &mut s.hosts[window];
            let store = |buffer: &mut Vec<Pending>, at: u64, to: Line| {
                let line = usize64(at) / LINE;
                let copies = model.copies_of(window);
                buffer.extend(copies.map(|files| Pending::Store { files, line, to }));
            };
            if let Some(at) = place.pad {
                store(&mut host.buffer, at, Line::of(&writer.pad()));
            }
            let data = Line::Data { epoch: epoch_of(window), position: place.position, op };
            store(&mut host.buffer, place.at + 64, data);
            if model.keeps(Rule::HeaderBehindData) {
                host.buffer.push(Pending::Fence);
            }
            let header = writer.record(&place, offset_of(op), 64, u32::from(op));
            store(&mut host.buffer, place.at, Line::of(&header));
            host.writer.advance(&place);
            host.step = HostStep::Stored { end: place.end };
            Ok(())
        });
    }

    fn stores_are_seen(&mut self, window: usize, host: &Host) {
        let model = self.model;
        for at in (0..host.buffer.len()).filter(|at| may_be_seen(&host.buffer, *at)) {
            let Pending::Store { files, line, to } = host.buffer[at].clone() else { continue };
            let what = match to {
                Line::Header { .. } => "host's header is seen",
                Line::Pad { .. } => "host's padding is seen",
                _ => "host's data is seen",
            };
            self.step(what, window, |s| {
                let buffer = &mut s.hosts[window].buffer;
                let _ = buffer.remove(at);
                let is_behind_fence = at > 0 && buffer[0] == Pending::Fence;
                if is_behind_fence {
                    let _ = buffer.remove(0);
                }
                if is_behind_fence {
                    s.fence_ring(model, window);
                }
                s.may_be_overwritten(model, files, line, to)?;
                s.files[files].set_line(line, to, model.memory == Memory::Bbu);
                Ok(())
            });
        }
    }

    /// The full fence, and the look at the phase. Nothing is between them that others could tell: what was fenced is
    /// seen, and kept. It reports at once, which binds the others the most.
    fn looks(&mut self, window: usize, host: &Host, end: u64) {
        let model = self.model;
        let fences = model.keeps(Rule::FenceBeforeLook);
        if fences && !host.buffer.is_empty() {
            return;
        }
        let mut copies = model.copies_of(window);
        if !model.keeps(Rule::LookAtAllCopies) {
            copies = copies.start..copies.start + 1;
        }
        let stands = |files: &Files| files.seen.page.phase() == Phase::Stands;
        let stands = self.from.files[copies].iter().all(stands);
        if model.looks_before_flush {
            return self.step("host looks, and has not flushed", window, |s| {
                s.hosts[window].step = HostStep::Flushing { end, stands };
                Ok(())
            });
        }
        let fence = |s: &mut State| {
            if fences {
                s.fence_ring(model, window);
            }
        };
        if stands || !model.keeps(Rule::Look) {
            self.step("host's write is complete: the window stands", window, |s| {
                fence(s);
                s.is_complete(model, window)
            });
        } else if model.keeps(Rule::WaitForEnd) {
            self.step("host waits for the window's end", window, |s| {
                fence(s);
                s.hosts[window].step = HostStep::WaitsForEnd { end };
                Ok(())
            });
        } else {
            self.step("host writes by command: the window ends", window, |s| {
                fence(s);
                s.goes_as_command(window)
            });
        }
    }

    /// The flush has been carried out, as the look has before it: both have to be.
    fn has_flushed(&mut self, window: usize, end: u64, stands: bool) {
        let model = self.model;
        let what = if stands {
            "host's write is complete: it is flushed, and the window stood"
        } else {
            "host has flushed, and waits for the window's end"
        };
        self.step(what, window, |s| {
            if model.keeps(Rule::Flush) {
                s.fence_ring(model, window);
            }
            if stands {
                return s.is_complete(model, window);
            }
            s.hosts[window].step = HostStep::WaitsForEnd { end };
            Ok(())
        });
    }

    fn waits_for_end(&mut self, window: usize, op: Op, end: u64) {
        let model = self.model;
        debug_assert_eq!(self.from.hosts[window].op, op);
        let copies = &self.from.files[model.copies_of(window)];
        let has_ended = |files: &&Files| files.seen.page.phase() == Phase::Ended;
        let ended: Vec<&Files> = copies.iter().filter(has_ended).collect();
        if ended.is_empty() || model.keeps(Rule::WaitForAllCopies) && ended.len() < copies.len() {
            return;
        }
        let is_taken = |files: &&Files| files.seen.page.taken >= end;
        let by_any = model.keeps(Rule::TakenOfAnyCopy);
        if if by_any { ended.iter().any(is_taken) } else { is_taken(&ended[0]) } {
            self.step("host's write is complete: taken", window, |s| s.is_complete(model, window));
        } else {
            self.step("host writes by command: not taken", window, |s| s.goes_as_command(window));
        }
    }

    /// Of the host that has no window.
    pub fn other_host(&mut self) {
        let op = self.from.next_command;
        let is_idle = op == self.model.first_command() || !self.from.asked.has(op - 1);
        if is_idle && op < self.model.ops() {
            self.step("other host begins a command", usize::from(op), |s| {
                s.begin(op);
                s.asked.add(op);
                s.next_command += 1;
                Ok(())
            });
        }
    }
}

impl State {
    /// What was stored is seen: now it is kept as well.
    fn fence_ring(&mut self, model: &Model, window: usize) {
        for files in &mut self.files[model.copies_of(window)] {
            files.kept.ring = files.seen.ring;
        }
    }

    fn is_complete(&mut self, model: &Model, window: usize) -> Result<(), Violation> {
        let host = &mut self.hosts[window];
        self.complete.add(host.op);
        host.op += 1;
        host.step = HostStep::Idle;
        self.nothing_is_lost(model)
    }

    fn goes_as_command(&mut self, window: usize) -> Result<(), Violation> {
        let op = self.hosts[window].op;
        self.hosts[window].step = HostStep::Command;
        self.asked.add(op);
        self.not_taken.add(op);
        self.is_not_done(op)
    }

    /// A command was answered.
    pub fn is_answered(&mut self, model: &Model, op: Op) {
        self.asked.remove(op);
        self.complete.add(op);
        if let Some(window) = (0..2).find(|window| model.ops_of(*window).contains(&op)) {
            self.hosts[window].op += 1;
            self.hosts[window].step = HostStep::Idle;
        }
    }
}
