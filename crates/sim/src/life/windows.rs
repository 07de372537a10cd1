//! What hosts write by direct write windows: a step at a time, told to the model before and after.

use super::answer::Answer;
use super::{Life, Run};
use crate::contents;
use crate::model::{Begun, Target, Violation};
use crate::plan::Windows as Plan;
use crate::windows::malice::Malice;
use crate::windows::{Held, Pending};
use initiator::{Ring, Step, Written};
use reactor::{Task, now, random, sleep, spawn, yield_now};
use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{u64_of, usize64};
use window::Bad;

/// Of so many operations of a host that has none, one asks for a window.
const ASKS: u64 = 2;

/// Of so many writes of a host that will not obey, one does not.
const DEEDS: u64 = 24;

/// Writes of a process that finds its target silent, at most.
const ALONE: u64 = 24;

/// Between two looks of the node at windows that are to be ended.
const LOOKS: Duration = Duration::from_millis(4);

/// What came of a write by a window.
enum Direct {
    Written(Written),
    /// Its process died.
    Died,
    /// It did something else.
    Strayed,
}

/// What is to go as a command: the data, and what the model calls it.
pub(super) type Command = (Vec<u8>, Begun);

impl Run {
    /// A writer stands still.
    async fn pause(&self, plan: &Plan, prng: &mut Prng) {
        match prng.below(plan.pauses + 2) {
            0 => sleep(Duration::from_nanos(prng.below(1 << plan.pause))).await,
            1 => yield_now().await,
            _ => {}
        }
        if !self.world.is_on() {
            std::future::pending::<()>().await;
        }
    }

    /// Takes the steps of a write that was begun.
    async fn write_on(&self, held: &Held, plan: &Plan) -> Direct {
        let mut prng = Prng::new(random());
        let strays = held.malice.filter(|_| prng.below(DEEDS) == 0);
        if let Some(malice) = strays {
            let pending = held.pending.borrow();
            if pending.as_ref().is_some_and(|pending| malice.act(held, pending, &mut prng)) {
                return Direct::Strayed;
            }
        }
        let mut waits = None;
        loop {
            if prng.below(10_000) < plan.deaths {
                die(held, &mut prng);
                return Direct::Died;
            }
            if let Some(written) = held.step() {
                return Direct::Written(written);
            }
            if held.next() == Some(Step::AwaitEnd) {
                if waits.is_none() && prng.below(100) < plan.strikes {
                    self.strike(Duration::from_nanos(prng.below(1 << 19)));
                }
                let since = *waits.get_or_insert_with(now);
                if !Ring::may_wait(Duration::from_nanos(now() - since), &held.standing) {
                    return Direct::Written(Written::Unknown);
                }
                sleep(Duration::from_nanos(1000 + prng.below(100_000))).await;
            }
            self.pause(plan, &mut prng).await;
        }
    }

    /// It is complete, as its host is told.
    fn end_directly(&self, held: &Held, pending: Pending) {
        let Pending { what, begun, ring, writing, .. } = pending;
        self.note(format_args!("{what}: done by window {}", held.number));
        self.counts.borrow_mut().direct += 1;
        match held.malice {
            Some(_) => held.unsure.borrow_mut().push_back((ring, writing.place().end, begun)),
            None => self.model.borrow_mut().end_write(&begun, true),
        }
    }

    /// Processes that outlived their target go on, until they have seen the end of their windows. What is to go as a command
    /// goes when the pool is open.
    pub(super) fn outlive(self: &Rc<Self>, opened: &Rc<OnceCell<Rc<Life>>>) -> Vec<Task<()>> {
        let Some(plan) = self.plan.windows else { return Vec::new() };
        let go_on = |held: Rc<Held>| {
            let (run, opened) = (Rc::clone(self), Rc::clone(opened));
            spawn(async move { run.go_on(&held, &plan, &opened).await })
        };
        self.windows.all().into_iter().map(go_on).collect()
    }

    async fn go_on(&self, held: &Held, plan: &Plan, opened: &OnceCell<Rc<Life>>) {
        let mut prng = Prng::new(random());
        let mut alone = prng.below(ALONE);
        loop {
            // Sometime it sees that nobody answers.
            if prng.below(8) == 0 || opened.get().is_some() {
                held.standing.lose();
            }
            if held.pending.borrow().is_none() {
                if alone == 0 || opened.get().is_some() || !self.begin_alone(held, &mut prng) {
                    break;
                }
                alone -= 1;
            }
            let direct = self.write_on(held, plan).await;
            let Some(pending) = held.take() else { break };
            match direct {
                Direct::Written(Written::Done) => {
                    self.counts.borrow_mut().survived += 1;
                    self.end_directly(held, pending);
                }
                Direct::Written(_) => {
                    self.note(format_args!("{}: not by window {}", pending.what, held.number));
                    let life = loop {
                        match opened.get() {
                            Some(life) => break life,
                            None => sleep(Duration::from_micros(10)).await,
                        }
                    };
                    life.command(pending).await;
                    break;
                }
                Direct::Died | Direct::Strayed => {
                    self.model.borrow_mut().end_write(&pending.begun, false);
                    break;
                }
            }
        }
        if let Some(serial) = self.windows.serial_of(held) {
            self.windows.drop_of(serial, held.number);
        }
    }

    /// Begins a write of a process whose target may be gone.
    fn begin_alone(&self, held: &Held, prng: &mut Prng) -> bool {
        let Some(serial) = self.windows.serial_of(held) else { return false };
        let present = self.model.borrow().present();
        let Some(v) = present.into_iter().find(|v| v.serial == serial) else { return false };
        let blocks = held.grant.volume_bytes / u64_of(v.unit);
        if v.size != blocks || !held.is_usable() {
            return false;
        }
        let first = prng.below(blocks);
        let (mut model, count) = (self.model.borrow_mut(), 1);
        let stamp = model.stamp();
        let mut data = vec![0; v.unit];
        contents::fill(&mut data, stamp, v.serial, first);
        let begun = model.begin_write(v.serial, first, count, stamp);
        let what = format!("{stamp}: {count} at {first} of {}, alone", v.name);
        drop(model);
        self.note(format_args!("{what}"));
        let refused = held.begin(data, (first * u64_of(v.unit), &what, &v), begun).err();
        if let Some((_, begun)) = &refused {
            self.model.borrow_mut().end_write(begun, false);
        }
        refused.is_none()
    }

    /// The target was killed: some of the processes that had windows live on, with what they were about.
    pub(super) fn outlives(&self, prng: &mut Prng) {
        let Some(plan) = self.plan.windows else { return };
        self.windows.end_life();
        let lives = |_: &u64, held: &mut Rc<Held>| {
            held.unsure.borrow_mut().clear();
            held.malice.is_none() && prng.below(100) < plan.survivors_percent
        };
        for held in self.windows.keep(lives) {
            if let Some(pending) = &*held.pending.borrow() {
                self.model.borrow_mut().resume(&pending.begun);
            }
        }
    }
}

impl Run {
    /// Nobody has a window any more.
    pub fn end_hosts(&self) {
        drop(self.windows.keep(|_, _| false));
        self.windows.end_life();
    }
}

/// A writer is killed, in the midst of its next store perhaps.
fn die(held: &Held, prng: &mut Prng) {
    let pending = held.pending.borrow();
    let Some(pending) = pending.as_ref() else { return };
    let copies = &held.memory[pending.ring];
    if let Step::Header(copy) = pending.writing.next()
        && let Some(copy) = copies.get(copy)
    {
        let part = 8 * usize64(prng.below(8));
        let header = &pending.writing.header()[..part];
        // What cannot be stored is not there.
        held.act(|| drop(copy.ring.write(pending.writing.place().at, header)));
    }
}

impl Life {
    /// In some worlds the target's end comes soon.
    pub(super) fn strike_soon(&self) {
        if let Some(plan) = self.windows()
            && random() % 100 < plan.strikes
        {
            self.run.strike(Duration::from_nanos(random() % (1 << 16)));
        }
    }

    fn windows(&self) -> Option<Plan> {
        self.run.plan.windows.filter(|_| !self.windows_over.get())
    }

    /// The window that a write of this volume is to go by, if any is. Some hosts ask for one now.
    pub(super) async fn window_for(&self, v: &Target, is_in_order: bool) -> Option<Rc<Held>> {
        let plan = self.windows()?;
        let mut prng = Prng::new(random());
        if prng.below(100) >= plan.percent {
            return None;
        }
        let has = self.run.windows.of(v.serial).is_some_and(|held| held.is_usable());
        if (!has && prng.below(ASKS) == 0) || prng.below(10_000) < plan.ends {
            self.ask(v, &plan, &mut prng).await;
        } else if has && prng.below(10_000) < plan.ends {
            self.end_window(v).await;
        }
        let held = self.run.windows.of(v.serial)?;
        // Of what a host that will not obey has written nobody knows when it was complete.
        (held.is_usable() && !(is_in_order && held.malice.is_some())).then_some(held)
    }

    async fn ask(&self, v: &Target, plan: &Plan, prng: &mut Prng) {
        let what = format!("a window of {}", v.name);
        self.note(format_args!("{what}"));
        let (epoch, number) = (random(), stdx::num::low32(random()));
        let grant = self.store.grant_window(&v.name, plan.ring_bytes, epoch, number);
        let Answer::Done(Some((id, granted))) = self.settled(&what, grant).await else { return };
        self.note(format_args!("{what}: {}", granted.number));
        let malice = (prng.below(100) < plan.malice_percent).then(|| Malice::any(prng));
        self.count(|c| c.windows += 1);
        self.run.windows.put(v, id, &granted, malice);
    }

    /// A host gives its window back.
    async fn end_window(&self, v: &Target) {
        let Some(held) = self.run.windows.of(v.serial) else { return };
        self.note(format_args!("end window {} of {}", held.number, v.name));
        let end = self.store.end_window(held.id, held.number);
        let answer = self.settled("end a window", end).await;
        self.note(format_args!("window {} has ended", held.number));
        if !matches!(answer, Answer::Refused(_)) || self.run.world.is_broken() {
            return;
        }
        self.expect("end a window", answer);
    }

    /// Writes by a window, as far as that goes. Tells whether it was done.
    ///
    /// # Errors
    /// What is to go as a command.
    pub(super) async fn write_directly(
        &self,
        held: &Rc<Held>,
        (v, first, what): (&Target, u64, &str),
        (data, begun): Command,
    ) -> Result<bool, Command> {
        let Some(plan) = self.windows() else { return Err((data, begun)) };
        held.begin(data, (first * u64_of(v.unit), what, v), begun)?;
        let direct = self.run.write_on(held, &plan).await;
        let Some(pending) = held.take() else { return Ok(false) };
        match direct {
            Direct::Written(Written::Done) => {
                self.run.end_directly(held, pending);
                return Ok(true);
            }
            Direct::Written(written) => {
                self.note(format_args!("{what}: by window {} {written:?}", held.number));
                self.count(|c| c.direct_ends += 1);
                self.run.windows.drop_of(v.serial, held.number);
                return Err((pending.data, pending.begun));
            }
            Direct::Strayed => {
                self.note(format_args!("{what}: {:?} in window {}", held.malice, held.number));
                self.count(|c| c.strayed += 1);
                match held.malice.filter(|m| m.destroys() || m.ends_with().is_some()) {
                    Some(malice) => self.run.windows.stray(v.serial, malice),
                    None => return Err((pending.data, pending.begun)),
                }
            }
            Direct::Died => {
                self.note(format_args!("{what}: the process of window {} died", held.number));
                self.count(|c| c.died += 1);
            }
        }
        self.run.model.borrow_mut().end_write(&pending.begun, false);
        self.run.windows.drop_of(v.serial, held.number);
        self.miss(held);
        Ok(false)
    }

    /// A process is gone: sometime the target misses it, and ends its window.
    fn miss(&self, held: &Rc<Held>) {
        let mut prng = Prng::new(random());
        let after = Duration::from_micros(1 << prng.below(20));
        let (end, run) = (self.store.window_ender(held.id, held.number), Rc::clone(&self.run));
        drop(spawn(async move {
            sleep(after).await;
            if run.world.is_on() {
                // Whoever closes the pool, or takes drives away, ends it as well.
                drop(end.await);
            }
        }));
    }

    /// What a process wanted that had a window, as a command.
    async fn command(&self, pending: Pending) {
        let Pending { what, v, begun, data, .. } = pending;
        let present = self.run.model.borrow().present();
        let Some(v) = present.into_iter().find(|other| other.serial == v.serial) else {
            return self.run.model.borrow_mut().end_write(&begun, false);
        };
        let count = u64_of(data.len() / v.unit);
        self.write_as_command((&v, count, &what), (data, begun), None).await;
    }

    /// The node ends windows of hosts that did what none may, and looks what it is told of.
    pub(super) async fn look_at_windows(&self) {
        let Some(_) = self.windows() else { return };
        let answer = self.settled("end bad windows", self.store.end_bad_windows()).await;
        if !self.run.world.is_broken() {
            self.expect("end bad windows", answer);
        }
        self.check_window_ends();
        self.run.settle_unsure();
    }

    /// Only windows of hosts that strayed are told of, for the reason that there is.
    pub(super) fn check_window_ends(&self) {
        for end in self.store.window_ends() {
            self.note(format_args!("{end:?}"));
            let strayed = self.run.windows.strayed();
            let present = self.run.model.borrow().present();
            let serial = present.into_iter().find(|v| v.name == end.volume).map(|v| v.serial);
            let reasons: Vec<Malice> = strayed
                .iter()
                .filter(|(of, _)| serial.is_none_or(|serial| serial == *of))
                .map(|(_, malice)| *malice)
                .collect();
            let fits = |malice: &Malice| {
                // Of a whole header whose data is not what it says nobody knows what was complete. An opening tells of that, too.
                let loses = malice.ends_with() == Some(Bad::Checksum);
                let is_its = malice.ends_with() == end.bad || loses && end.bad.is_none();
                malice.destroys() || is_its && end.lost == loses
            };
            if !reasons.iter().any(fits) {
                let text = format!("a window is told of, and its host did {reasons:?}: {end:?}");
                self.violate(Violation(text));
            }
        }
    }

    /// No window is used from now on, nor kept.
    pub(super) async fn end_windows(&self) {
        if self.windows().is_none() {
            return;
        }
        let held = self.run.windows.all();
        for held in held {
            let end = self.store.end_window(held.id, held.number);
            let answer = self.settled("end a window", end).await;
            if !self.run.world.is_broken() {
                self.expect("end a window", answer);
            }
        }
        self.look_at_windows().await;
        self.windows_over.set(true);
    }

    /// The node looks at windows, until somebody ends it.
    pub(super) fn look_after_windows(self: &Rc<Self>) {
        if self.windows().is_none() {
            return;
        }
        let life = Rc::clone(self);
        drop(spawn(async move {
            while life.windows().is_some() && !life.is_over() {
                let mut prng = Prng::new(random());
                sleep(LOOKS / 2 + Duration::from_micros(prng.below(4000))).await;
                life.look_at_windows().await;
            }
        }));
    }
}

impl Run {
    /// What hosts that will not obey were told is complete, and was taken, is.
    fn settle_unsure(&self) {
        for held in self.windows.doubtful() {
            let has_ended = held.has_ended();
            let mut unsure = held.unsure.borrow_mut();
            unsure.retain(|(ring, end, begun)| {
                let is_taken = held.taken(*ring) >= *end;
                if is_taken || has_ended {
                    self.model.borrow_mut().end_write(begun, is_taken);
                }
                !is_taken && !has_ended
            });
        }
    }
}
