//! The window of one namespace, as the cores share it: one thing at a time is asked of what grants it.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::Arc;

use reactor::cross_core::Watch;

use super::pace::Pace;
use super::{Association, Granted, Refused, Wanted, Windows};
use crate::limits::WINDOW_END_PAUSE;
use crate::reservation::HostId;

/// One per namespace.
#[derive(Debug, Default)]
pub struct Shared(Watch<State>);

/// A host, by one of its controllers.
#[derive(Clone, Debug)]
pub struct Who {
    pub host: HostId,
    pub association: Arc<Association>,
}

/// A window that was granted.
#[derive(Clone, Debug)]
struct Held {
    who: Who,
    windows: Arc<dyn Windows>,
    volume: [u8; 16],
    number: u32,
}

impl Held {
    /// Whether it is of this host. Those without an identifier are told apart by their associations.
    fn is_of(&self, who: &Who) -> bool {
        let is_named = who.host != HostId([0; 16]);
        Arc::ptr_eq(&self.who.association, &who.association)
            || is_named && self.who.host == who.host
    }

    fn may_stand(&self) -> bool {
        self.windows.may_stand(self.volume, self.number)
    }
}

/// What is being asked of what grants.
#[derive(Debug)]
enum UnderWay {
    /// A window for this association.
    Grant(Arc<Association>),
    End,
}

/// Who waits until there is no window: it is dropped then.
struct Leaver(#[expect(dead_code, reason = "dropped, and with that told")] Box<dyn Any + Send>);

impl fmt::Debug for Leaver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leaver")
    }
}

#[derive(Debug, Default)]
struct State {
    held: Option<Held>,
    under_way: Option<UnderWay>,
    /// How many want that there is none for a while.
    barred: usize,
    /// The namespace is gone: there never is one again.
    closed: bool,
    /// What there is, or is being granted, is to be ended.
    to_end: bool,
    leavers: Vec<Leaver>,
    /// How often a window could not be ended.
    failures: u64,
    /// Somebody waits to try that again.
    tries_again: bool,
    pace: Pace,
}

impl State {
    const fn is_clear(&self) -> bool {
        self.held.is_none() && self.under_way.is_none()
    }

    const fn refuses(&self) -> bool {
        self.barred > 0 || self.closed || self.to_end
    }

    /// The window that is to be ended now, if there is one.
    fn due(&self) -> Option<&Held> {
        let held = self.held.as_ref().filter(|_| self.under_way.is_none())?;
        (self.refuses() || held.who.association.is_over()).then_some(held)
    }

    fn belongs_to(&self, association: &Arc<Association>) -> bool {
        let is_its = |other: &Arc<Association>| Arc::ptr_eq(other, association);
        let is_coming = matches!(&self.under_way, Some(UnderWay::Grant(asking)) if is_its(asking));
        is_coming || self.held.as_ref().is_some_and(|held| is_its(&held.who.association))
    }
}

/// Who asks for a window, and for what.
#[derive(Clone, Debug)]
pub struct Asker {
    pub who: Who,
    pub windows: Arc<dyn Windows>,
    pub volume: [u8; 16],
    pub wanted: Wanted,
}

/// A window could not be ended. Another attempt may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a direct write window could not be ended")]
pub struct NotEnded;

impl Shared {
    /// Changes the state, begins what is due by that, and lets go of whoever waited for there to be no window.
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, due, left) = self.0.change(|state| {
            let result = change(state);
            let due = state.due().cloned();
            if due.is_some() {
                state.under_way = Some(UnderWay::End);
            }
            let mut left = Vec::new();
            if state.is_clear() {
                state.to_end = false;
                left = mem::take(&mut state.leavers);
            }
            (result, due, left)
        });
        drop(left);
        if let Some(Held { windows, volume, number, .. }) = due {
            windows.end(volume, number, Ending(Some(Arc::clone(self))));
        }
        result
    }

    /// Has what is still to be ended then be tried again after a pause: who waits for it may ask for nothing.
    fn try_again_later(self: Arc<Self>) {
        if self.0.change(|state| mem::replace(&mut state.tries_again, true)) {
            return;
        }
        reactor::spawn(async move {
            reactor::sleep(WINDOW_END_PAUSE).await;
            self.change(|state| state.tries_again = false);
        });
    }

    /// Asks for a window. A host that has it is given another in its place. `check` looks once more whether the asker
    /// may have it, when whoever changes that either has changed it, or will end what is granted. One that is asked for
    /// again and again is granted at a pace; what was granted before stands meanwhile.
    ///
    /// # Errors
    /// `E` as `check` says, or made of why there is none.
    pub async fn grant<E: From<Refused>>(
        self: &Arc<Self>,
        asker: Asker,
        check: impl FnOnce() -> Result<(), E>,
    ) -> Result<window::Grant, E> {
        let turn = self.0.until(|state| state.turn(&asker)).await;
        if turn.is_err() {
            // One that could not be ended before is tried again.
            self.change(|_| ());
        }
        let held = turn?;
        // A turn is nobody else's from here on; nothing waits before it is given on or up. Noted before it is checked: who
        // changes what is checked looks for that afterwards.
        asker.who.association.asks();
        let is_anothers = held.is_some_and(|held| !held.is_of(&asker.who) && held.may_stand());
        let checked = if is_anothers { Err(Refused::Busy.into()) } else { check() };
        let is_due = || self.0.change(|state| state.pace.take(reactor::now()));
        let checked = checked.and_then(|()| is_due().then_some(()).ok_or(E::from(Refused::Busy)));
        if let Err(refused) = checked {
            self.change(|state| state.under_way = None);
            return Err(refused);
        }
        let answer = Arc::<Watch<Option<Granted>>>::default();
        let (windows, volume) = (Arc::clone(&asker.windows), asker.volume);
        let wanted = asker.wanted;
        let granting = Granting(Some(Grantee {
            shared: Arc::clone(self),
            asker,
            answer: Arc::clone(&answer),
        }));
        windows.grant(volume, wanted, granting);
        Ok(answer.until(Option::take).await?)
    }

    /// Ends the window with this number, if this host has it, and waits until it has ended.
    ///
    /// # Errors
    /// `Busy` when another host has it, `Failed` when it could not be ended.
    pub async fn give_back(self: &Arc<Self>, who: &Who, number: u32) -> Result<(), Refused> {
        let before = self.change(|state| {
            match &state.held {
                Some(held) if held.number == number && !held.is_of(who) => {
                    return Err(Refused::Busy);
                }
                Some(held) if held.number == number => state.to_end = true,
                _ => {}
            }
            Ok(state.failures)
        })?;
        let ended = |state: &mut State| match &state.held {
            Some(held) if held.number == number && state.failures == before => None,
            Some(held) if held.number == number => Some(Err(Refused::Failed)),
            _ => Some(Ok(())),
        };
        self.0.until(ended).await
    }

    /// Has there be no window for as long as what is returned lives: none is granted, and the one there is, or that is
    /// being granted, is ended once that is [waited for](Bar::clear).
    pub fn bar(self: &Arc<Self>) -> Bar {
        self.0.change(|state| state.barred += 1);
        Bar(Arc::clone(self))
    }

    /// Ends what an association has, or is being granted. `leaver` is dropped when there is no window.
    pub fn end_of(self: &Arc<Self>, association: &Arc<Association>, leaver: Box<dyn Any + Send>) {
        self.change(|state| {
            if state.belongs_to(association) {
                state.to_end = true;
                state.leavers.push(Leaver(leaver));
            }
        });
    }

    /// Ends the window that there is, or that is being granted. `leaver` is dropped when there is none.
    pub fn end(self: &Arc<Self>, leaver: Box<dyn Any + Send>) {
        self.change(|state| {
            state.to_end = true;
            state.leavers.push(Leaver(leaver));
        });
    }

    /// As [`end`](Self::end), for ever: the namespace is gone.
    pub fn close(self: &Arc<Self>, leaver: Box<dyn Any + Send>) {
        self.change(|state| {
            state.closed = true;
            state.leavers.push(Leaver(leaver));
        });
    }

    /// Whether a window was granted that may still stand.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let held = self.0.change(|state| state.held.clone());
        held.is_some_and(|held| held.may_stand())
    }
}

impl State {
    /// The turn to grant a window, with the one there is; none while something else is asked.
    fn turn(&mut self, asker: &Asker) -> Option<Result<Option<Held>, Refused>> {
        if self.refuses() || asker.who.association.is_over() {
            return Some(Err(Refused::Busy));
        }
        if self.under_way.is_some() {
            return None;
        }
        self.under_way = Some(UnderWay::Grant(Arc::clone(&asker.who.association)));
        Some(Ok(self.held.clone()))
    }
}

/// While it lives, no window is granted.
#[derive(Debug)]
pub struct Bar(Arc<Shared>);

impl Bar {
    /// Whether there is no window, nor any to come.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.0.0.change(|state| state.is_clear())
    }

    /// Ends the window that there is, and waits until there is none.
    ///
    /// # Errors
    /// It could not be ended.
    pub async fn clear(&self) -> Result<(), NotEnded> {
        let before = Shared::change(&self.0, |state| state.failures);
        let clear = |state: &mut State| match (state.is_clear(), state.failures == before) {
            (true, _) => Some(Ok(())),
            (false, true) => None,
            (false, false) => Some(Err(NotEnded)),
        };
        self.0.0.until(clear).await
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.0.change(|state| state.barred -= 1);
    }
}

#[derive(Debug)]
struct Grantee {
    shared: Arc<Shared>,
    asker: Asker,
    answer: Arc<Watch<Option<Granted>>>,
}

/// A window that is being granted, to be told what came of it; dropped, it was none.
#[derive(Debug)]
#[must_use = "a window that is being granted holds off all others"]
pub struct Granting(Option<Grantee>);

impl Granting {
    pub fn done(mut self, granted: Granted) {
        self.tell(granted);
    }

    fn tell(&mut self, granted: Granted) {
        let Some(Grantee { shared, asker, answer }) = self.0.take() else { return };
        let number = granted.as_ref().ok().map(|grant| grant.number);
        // Whether a window was ended before another could not be had, what grants them says.
        let left = shared.0.change(|state| state.held.clone()).filter(Held::may_stand);
        let held = number.map(|number| {
            let Asker { who, windows, volume, .. } = asker;
            Held { who, windows, volume, number }
        });
        // Told first: the window may be ended at once.
        answer.change(|answer| *answer = Some(granted));
        shared.change(|state| {
            state.under_way = None;
            state.held = held.or(left);
        });
    }
}

impl Drop for Granting {
    fn drop(&mut self) {
        self.tell(Err(Refused::Failed));
    }
}

/// A window that is being ended, to be told when it has; dropped, it may still stand.
#[derive(Debug)]
#[must_use = "whoever waits for the end of a window waits for this"]
pub struct Ending(Option<Arc<Shared>>);

impl Ending {
    /// It has ended, or not. To be called on a reactor.
    pub fn done(mut self, ended: Result<(), NotEnded>) {
        let shared = self.0.clone().filter(|_| ended.is_err());
        self.tell(ended);
        if let Some(shared) = shared {
            shared.try_again_later();
        }
    }

    fn tell(&mut self, ended: Result<(), NotEnded>) {
        let Some(shared) = self.0.take() else { return };
        match ended {
            Ok(()) => shared.change(|state| (state.under_way, state.held) = (None, None)),
            // Not tried again at once: whoever wants it to end next does, or it is after a pause.
            Err(NotEnded) => shared.0.change(|state| {
                state.under_way = None;
                state.failures += 1;
            }),
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.tell(Err(NotEnded));
    }
}
