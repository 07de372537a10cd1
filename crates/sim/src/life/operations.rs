//! What hosts ask of the pool, told to the model before and after.

use super::answer::Answer;
use super::windows::Command;
use super::{Life, PATIENCE};
use crate::contents::{self, Found, Stamp, recognize_all};
use crate::model::{Begun, Serial, Target, Violation};
use crate::store::Refusal;
use reactor::{now, random};
use std::ops::Range;
use std::time::Duration;
use stdx::num::{u64_of, usize64};

/// Of so many writes by windows, one is written over by a command at once.
const OVERWRITES: u64 = 16;

/// What was found, in few words.
struct Summary<'a>(&'a [Found]);

impl std::fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rest = self.0;
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|found| *found == first).count();
            write!(f, "{same} x {first}; ")?;
            rest = &rest[same..];
        }
        Ok(())
    }
}

impl Life {
    pub async fn write(&self, v: &Target, first: u64, count: u64, patience: Option<Duration>) {
        self.write_stamped(v, (first, count), patience, None).await;
    }

    /// Calls `in_order`, for one that follows others, with what names the write, before it begins. Tells whether it was done.
    pub(super) async fn write_stamped(
        &self,
        v: &Target,
        (first, count): (u64, u64),
        patience: Option<Duration>,
        in_order: Option<&dyn Fn(Stamp)>,
    ) -> bool {
        let stamp = self.run.model.borrow_mut().stamp();
        in_order.inspect(|note| note(stamp));
        let mut data = vec![0; usize64(count) * v.unit];
        for (block, out) in (first..).zip(data.chunks_exact_mut(v.unit)) {
            contents::fill(out, stamp, v.serial, block);
        }
        let begun = self.begin_write(v, first, count, stamp);
        let what = format!("{stamp}: {count} at {first} of {}", v.name);
        self.note(format_args!("{what}"));
        let mut command = (data, begun);
        let mut again = false;
        let is_patient = patience.is_none();
        if is_patient && let Some(held) = self.window_for(v, in_order.is_some()).await {
            command = match self.write_directly(&held, (v, first, &what), command).await {
                Err(command) => {
                    again = in_order.is_none() && !held.is_usable();
                    command
                }
                Ok(done) => {
                    self.count(|c| c.writes += 1);
                    if done && in_order.is_none() && random().is_multiple_of(OVERWRITES) {
                        self.write_over(v, first, count).await;
                    }
                    return done;
                }
            };
        }
        let done = self.write_as_command((v, count, &what), command, patience).await;
        if done && again {
            self.write_over(v, first, count).await;
        }
        done
    }

    /// Writes by a command over what may be in the ring of a window: that must not come to light over this.
    async fn write_over(&self, v: &Target, first: u64, count: u64) {
        // It may have another name, or size, since.
        let present = self.run.model.borrow().present();
        let v = present.into_iter().find(|other| other.serial == v.serial);
        if let Some(v) = v.filter(|v| first + count <= v.size) {
            Box::pin(self.write_stamped(&v, (first, count), Some(PATIENCE), None)).await;
            self.strike_soon();
        }
    }

    /// Writes by a command what was begun. Tells whether it was done.
    pub(super) async fn write_as_command(
        &self,
        (v, count, what): (&Target, u64, &str),
        (data, begun): Command,
        patience: Option<Duration>,
    ) -> bool {
        let first = begun.blocks().start;
        let thick = self.store.thick(&v.name);
        let (held, asked) = (self.store.holds_back(), now());
        let write = self.store.write(&v.name, first, data, patience.is_none());
        let answer = self.settled_within(what, write, patience).await;
        self.check_in_time(what, asked);
        if matches!(answer, Answer::Refused(Refusal::Full)) {
            self.check_full(what, count).await;
            self.check_thick(what, v, thick).await;
        }
        if matches!(answer, Answer::Refused(Refusal::Quota)) && self.store.lacks_quota(&v.name) {
            self.violate(Violation(format!("{what}: refused for a quota that {} has not", v.name)));
        }
        // Parts of blocks are read first.
        let answer = match self.waits_for_log(v, &answer).await {
            true => Answer::Refused(Refusal::Full),
            false => answer,
        };
        let done = matches!(answer, Answer::Done(()));
        self.check_held(what, held, &answer);
        self.end_write(what, &begun, answer);
        self.count(|c| c.writes += 1);
        done
    }

    /// A pool that says it is full must not be far from it.
    async fn check_full(&self, what: &str, count: u64) {
        // Counting takes a while, and pools that are full say so often.
        let refused = self.run.counts.borrow().refused_full;
        if !refused.is_power_of_two() || self.run.world.is_scarce() || self.is_unreadable().await {
            return;
        }
        let (_, most) = self.run.model.borrow().population();
        let others = u64::from(self.run.plan.hosts) * self.run.plan.longest;
        // Space is set aside for what hosts may store in windows, and kept for what they reserved.
        let others = others + self.store.set_aside_for_windows() + self.store.kept().await;
        let capacity = self.store.capacity().await;
        if most + count + others < capacity / 10 * 9 {
            self.note(format_args!("{}", self.store.describe().await));
            let text = format!("{what}: full, with {most} blocks of {capacity} at most");
            self.violate(Violation(text));
        }
    }

    /// A volume all of whose size is reserved, and was when the write began, is never full.
    async fn check_thick(&self, what: &str, v: &Target, thick: Option<u64>) {
        if thick.is_none() || thick != self.store.thick(&v.name) {
            return;
        }
        let is_excused = self.run.world.is_scarce() || self.run.world.is_broken();
        if is_excused || self.is_unreadable().await || self.store.lacks_reserved().await {
            return;
        }
        self.note(format_args!("{}", self.store.describe().await));
        self.violate(Violation(format!("{what}: full, and all of {} is reserved", v.name)));
    }

    fn begin_write(&self, v: &Target, first: u64, count: u64, stamp: Stamp) -> Begun {
        self.run.model.borrow_mut().begin_write(v.serial, first, count, stamp)
    }

    pub async fn zero(
        &self,
        v: &Target,
        range: Range<u64>,
        deallocate: bool,
        patience: Option<Duration>,
    ) {
        let (first, count) = (range.start, range.end - range.start);
        let verb = if deallocate { "deallocate" } else { "zero" };
        let what = format!("{verb} {count} at {first} of {}", v.name);
        self.note(format_args!("{what}"));
        // Parts of blocks stay what they are when they are deallocated.
        let ratio = if deallocate { u64_of(contents::BLOCK / v.unit) } else { 1 };
        let (from, to) = (range.start.next_multiple_of(ratio), range.end / ratio * ratio);
        let begun = self.begin_write(v, from, to.saturating_sub(from), Stamp::ZERO);
        let held = self.store.holds_back().filter(|_| from < to);
        let zero = self.store.zero(&v.name, first, count, deallocate, patience.is_none());
        let answer = self.settled_within(&what, zero, patience).await;
        let answer = match self.waits_for_log(v, &answer).await {
            true => Answer::Refused(Refusal::Full),
            false => answer,
        };
        self.check_held(&what, held, &answer);
        self.end_write(&what, &begun, answer);
        self.count(|c| c.others += 1);
    }

    /// Copies `count` blocks from `from` of one volume to `to` of another, or of the same.
    pub async fn copy(
        &self,
        (source, from): (&Target, u64),
        (target, to): (&Target, u64),
        count: u64,
        patience: Option<Duration>,
    ) {
        let what = format!("copy {count} at {from} of {} to {to} of {}", source.name, target.name);
        self.note(format_args!("{what}"));
        let begun = {
            let mut model = self.run.model.borrow_mut();
            model.begin_copy((source.serial, from), (target.serial, to), count)
        };
        let (from, to) = ((source.name.as_str(), from), (target.name.as_str(), to));
        let held = self.store.holds_back();
        let copy = self.store.copy(from, to, count, patience.is_none());
        let answer = self.settled_within(&what, copy, patience).await;
        // There is no space for it either.
        let waits =
            self.waits_for_log(source, &answer).await || self.waits_for_log(target, &answer).await;
        let answer = if waits { Answer::Refused(Refusal::Full) } else { answer };
        self.check_held(&what, held, &answer);
        self.end_write(&what, &begun, answer);
        self.count(|c| c.copies += 1);
    }

    /// Nothing is acknowledged that one side alone has, where writes are to wait for the other: not while the labels go on
    /// saying so.
    fn check_held(&self, what: &str, held: Option<u64>, answer: &Answer<()>) {
        if held.is_none() {
            return;
        }
        self.count(|c| c.held += 1);
        if matches!(answer, Answer::Done(())) && held == self.store.holds_back() {
            let text = format!("{what}: acknowledged, and one side alone of the log has it");
            self.violate(Violation(text));
        }
    }

    fn end_write(&self, what: &str, begun: &Begun, answer: Answer<()>) {
        let mut model = self.run.model.borrow_mut();
        match answer {
            Answer::Done(()) => {
                self.note(format_args!("{what}: done"));
                model.end_write(begun, true);
            }
            Answer::Refused(refusal) => {
                // What is copied by its contents must be there.
                let is_missed = matches!(refusal, Refusal::NotFound | Refusal::OutOfRange)
                    && (model.may_miss(begun) || model.may_miss_source(begun));
                self.count(|c| c.missed += u64::from(is_missed));
                if !matches!(refusal, Refusal::Lost(_)) && !is_missed {
                    self.only_full(what, &refusal);
                }
                model.end_write(begun, false);
            }
            Answer::GivenUp | Answer::Lost => model.give_up_write(begun),
        }
    }

    pub async fn read(&self, v: &Target, first: u64, count: u64, patience: Option<Duration>) {
        let begun = self.run.model.borrow_mut().begin_read(v.serial, first, count);
        let what = format!("read {count} at {first} of {}", v.name);
        let read = self.store.read(&v.name, first, count, patience.is_none());
        let answer = self.settled_within(&what, read, patience).await;
        self.count(|c| c.reads += 1);
        if let Answer::Refused(Refusal::NotFound | Refusal::OutOfRange) = answer
            && self.run.model.borrow().may_miss(&begun)
        {
            self.count(|c| c.missed += 1);
            return self.run.model.borrow_mut().fail_read(&begun);
        }
        if self.waits_for_log(v, &answer).await {
            return self.run.model.borrow_mut().fail_read(&begun);
        }
        if let Answer::Refused(Refusal::Lost(_)) = answer {
            return self.lost(v, &begun, &what, patience).await;
        }
        let Some(bytes) = self.expect(&what, answer) else {
            return self.run.model.borrow_mut().fail_read(&begun);
        };
        let found = recognize_all(&bytes, v.unit, v.serial, first);
        self.note(format_args!("{what}: {}", Summary(&found)));
        let mut model = self.run.model.borrow_mut();
        if model.is_gone(v.serial) {
            return model.fail_read(&begun);
        }
        let seen = model.end_read(&begun, &found);
        drop(model);
        if let Err(violation) = seen {
            self.violate(Violation(format!("{what}: {violation}")));
        }
    }

    /// Whether a snapshot, or what a clone began with, cannot be read because something of it is in the log, which nothing
    /// leaves.
    pub(super) async fn waits_for_log<T>(&self, v: &Target, answer: &Answer<T>) -> bool {
        (v.parent.is_some() || v.inherits)
            && matches!(answer, Answer::Refused(Refusal::Busy(_)))
            && (self.run.world.is_scarce() || self.is_unreadable().await)
    }

    /// A read said that something of it is lost: then each of its blocks is there, or lost.
    async fn lost(&self, v: &Target, read: &Begun, what: &str, patience: Option<Duration>) {
        self.count(|c| c.lost += 1);
        // Nothing is said of what was deleted beside the read.
        if self.run.model.borrow().is_gone(v.serial) {
            return self.run.model.borrow_mut().fail_read(read);
        }
        let blocks = read.blocks();
        if blocks.end - blocks.start == 1 {
            let seen = self.run.model.borrow_mut().end_read(read, &[Found::Lost]);
            return seen.unwrap_or_else(|why| self.violate(Violation(format!("{what}: {why}"))));
        }
        let may_be = {
            let mut model = self.run.model.borrow_mut();
            model.fail_read(read);
            model.may_be_lost(read)
        };
        if !may_be {
            self.violate(Violation(format!("{what}: said to be lost, and nothing of it can be")));
        }
        for block in blocks {
            Box::pin(self.read(v, block, 1, patience)).await;
        }
    }

    pub async fn flush(&self, v: &Target) {
        let what = format!("flush {}", v.name);
        let begun = self.run.model.borrow_mut().begin_read(v.serial, 0, 0);
        let flush = async { self.store.flush(&v.name) };
        let answer = self.settled(&what, flush).await;
        self.run.model.borrow_mut().fail_read(&begun);
        let missed = matches!(answer, Answer::Refused(Refusal::NotFound));
        if !missed || !self.run.model.borrow().may_miss(&begun) {
            self.expect(&what, answer);
        }
        self.count(|c| c.others += 1);
    }

    /// Makes a volume of `size` blocks of `unit` bytes.
    pub async fn create(&self, name: &str, size: u64, unit: usize) {
        let what = format!("create {name} of {size}");
        self.note(format_args!("{what}"));
        let serial = self.run.model.borrow_mut().begin_create(name, size, unit);
        let create = self.store.create(name, size, unit);
        match self.settled(&what, create).await {
            Answer::Done(()) => self.run.model.borrow_mut().end_create(serial),
            Answer::Refused(refusal) => {
                self.only_full(&what, &refusal);
                self.run.model.borrow_mut().end_delete(serial);
            }
            Answer::GivenUp | Answer::Lost => {}
        }
    }

    /// Takes a snapshot of a volume, under a name that no other has. Gives it, if it is there.
    pub async fn take_snapshot(&self, v: &Target, name: &str) -> Option<Target> {
        let what = format!("snapshot {} as {name}", v.name);
        self.note(format_args!("{what}"));
        let (serial, begun) = self.run.model.borrow_mut().begin_snapshot(v, name);
        let answer = self.settled(&what, self.store.take_snapshot(&v.name, name)).await;
        self.count(|c| c.others += 1);
        match answer {
            Answer::Done(()) => {
                self.note(format_args!("{what}: done"));
                let mut model = self.run.model.borrow_mut();
                model.end_write(&begun, true);
                model.end_create(serial);
                let (name, parent) = (name.to_owned(), Some(v.serial));
                Some(Target { serial, name, parent, ..v.clone() })
            }
            Answer::Refused(refusal) => {
                self.refuse_whole(&what, &refusal, serial, &begun);
                None
            }
            Answer::GivenUp | Answer::Lost => None,
        }
    }

    pub(super) fn refuse_whole(
        &self,
        what: &str,
        refusal: &Refusal,
        serial: Serial,
        begun: &Begun,
    ) {
        self.only_full(what, refusal);
        self.run.model.borrow_mut().end_write(begun, false);
        // With too many drives away nobody knows which of them have it.
        if !self.run.world.is_broken() {
            self.run.model.borrow_mut().end_delete(serial);
        }
    }

    /// Makes a clone of a snapshot, of this size. Gives it, if it is there.
    pub async fn clone_volume(&self, v: &Target, name: &str, size: u64) -> Option<Target> {
        let what = format!("clone {} as {name} of {size}", v.name);
        self.note(format_args!("{what}"));
        let (serial, begun) = self.run.model.borrow_mut().begin_clone(v, name, size);
        let answer = self.settled(&what, self.store.clone_volume(&v.name, name, size)).await;
        let answer = match self.waits_for_log(v, &answer).await {
            true => Answer::Refused(Refusal::Full),
            false => answer,
        };
        self.count(|c| c.others += 1);
        match answer {
            Answer::Done(()) => {
                self.note(format_args!("{what}: done"));
                let mut model = self.run.model.borrow_mut();
                model.end_write(&begun, true);
                model.end_create(serial);
                let name = name.to_owned();
                Some(Target { serial, name, size, parent: None, inherits: true, ..v.clone() })
            }
            Answer::Refused(refusal) => {
                self.refuse_whole(&what, &refusal, serial, &begun);
                None
            }
            Answer::GivenUp | Answer::Lost => None,
        }
    }

    /// Takes a volume that nobody else uses back to a snapshot of it, and keeps one of this name. Gives whether that is
    /// done, and what was kept.
    pub async fn roll_back(
        &self,
        v: &Target,
        to: &Target,
        keep: Option<&str>,
    ) -> (bool, Option<Target>) {
        let what = format!("roll {} back to {}, keeping {keep:?}", v.name, to.name);
        self.note(format_args!("{what}"));
        let (kept, begun) = {
            let mut model = self.run.model.borrow_mut();
            let kept = keep.map(|name| (name, model.begin_snapshot(v, name)));
            let keeps = kept.as_ref().map(|(_, (_, begun))| begun);
            let begun = model.begin_rollback(v.serial, to, keeps);
            (kept, begun)
        };
        let answer = self.settled(&what, self.store.roll_back(&to.name, keep)).await;
        let answer = match self.waits_for_log(to, &answer).await {
            true => Answer::Refused(Refusal::Full),
            false => answer,
        };
        self.count(|c| c.others += 1);
        match answer {
            Answer::Done(()) => {
                self.note(format_args!("{what}: done"));
                let mut model = self.run.model.borrow_mut();
                model.end_rollback(&begun, to);
                let kept = kept.map(|(name, (serial, begun))| {
                    model.end_write(&begun, true);
                    model.end_create(serial);
                    let (name, parent) = (name.to_owned(), Some(v.serial));
                    Target { serial, name, parent, ..v.clone() }
                });
                (true, kept)
            }
            Answer::Refused(refusal) => {
                if let Some((_, (serial, begun))) = kept {
                    self.refuse_whole(&what, &refusal, serial, &begun);
                } else {
                    self.only_full(&what, &refusal);
                }
                // With too many drives away nobody knows which of them have it.
                if !self.run.world.is_broken() {
                    self.run.model.borrow_mut().refuse_rollback(&begun);
                }
                (false, None)
            }
            Answer::GivenUp | Answer::Lost => (false, None),
        }
    }

    /// Has a clone get what it inherits as its own, or leaves it as it is by then. Nothing that hosts see changes by that.
    pub async fn detach(&self, v: &Target, leave: bool) {
        let what = format!("{} {}", if leave { "leave" } else { "detach" }, v.name);
        self.run.model.borrow_mut().begin_detach(v.serial);
        self.note(format_args!("{what}"));
        let answer = self.settled(&what, self.store.detach(&v.name, leave)).await;
        self.count(|c| c.others += 1);
        match answer {
            Answer::Done(()) => self.note(format_args!("{what}: done")),
            // It is still being left.
            Answer::Refused(Refusal::Busy(_)) | Answer::GivenUp | Answer::Lost => {}
            Answer::Refused(refusal) => self.only_full(&what, &refusal),
        }
    }

    /// Whether a change of a volume was refused because there is no space: then nothing of it was done.
    pub(super) fn lacks_space<T>(&self, answer: &Answer<T>) -> bool {
        matches!(answer, Answer::Refused(Refusal::Full)) && self.run.world.is_scarce()
    }

    /// Whether a volume is not there to be changed because a deletion that failed was done nevertheless.
    fn is_gone<T>(answer: &Answer<T>, was_open: bool) -> bool {
        was_open && matches!(answer, Answer::Refused(Refusal::NotFound))
    }

    /// Tells whether it was done.
    pub async fn delete(&self, v: &Target) -> bool {
        let what = format!("delete {}", v.name);
        self.note(format_args!("{what}"));
        let was_open = self.run.model.borrow().is_open(v.serial);
        self.run.model.borrow_mut().begin_delete(v.serial);
        let answer = self.settled(&what, self.store.delete(&v.name)).await;
        if Self::is_gone(&answer, was_open) {
            return false;
        }
        if self.lacks_space(&answer) {
            self.run.model.borrow_mut().refuse_change(v.serial);
            return false;
        }
        let done = self.expect(&what, answer).is_some();
        if done {
            self.run.model.borrow_mut().end_delete(v.serial);
        }
        done
    }

    /// Tells whether it was done.
    pub async fn resize(&self, v: &Target, size: u64) -> bool {
        let what = format!("resize {} to {size}", v.name);
        self.note(format_args!("{what}"));
        let begun = self.run.model.borrow_mut().begin_resize(v.serial, size);
        let answer = self.settled(&what, self.store.resize(&v.name, size)).await;
        let is_gone = Self::is_gone(&answer, self.run.model.borrow().is_open(v.serial));
        // There is no room for what a larger one has reserved.
        let is_reserved =
            self.store.thick(&v.name).is_some() && matches!(answer, Answer::Refused(Refusal::Full));
        if is_gone || is_reserved || self.lacks_space(&answer) {
            self.run.model.borrow_mut().refuse_resize(&begun);
            return false;
        }
        let done = self.expect(&what, answer).is_some();
        if done {
            self.run.model.borrow_mut().end_resize(&begun);
        }
        done
    }

    /// Tells whether it was done.
    pub async fn rename(&self, v: &Target, to: &str) -> bool {
        let what = format!("rename {} to {to}", v.name);
        self.note(format_args!("{what}"));
        self.run.model.borrow_mut().begin_rename(v.serial, to);
        let answer = self.settled(&what, self.store.rename(&v.name, to)).await;
        if Self::is_gone(&answer, self.run.model.borrow().is_open(v.serial)) {
            return false;
        }
        if self.lacks_space(&answer) {
            self.run.model.borrow_mut().refuse_change(v.serial);
            return false;
        }
        let done = self.expect(&what, answer).is_some();
        if done {
            self.run.model.borrow_mut().end_rename(v.serial);
        }
        done
    }
}
