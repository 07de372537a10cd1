//! Members that come back or are new, and how they get what they have not.

use std::rc::Rc;
use std::time::Duration;

use initiator::Fua;
use reactor::{join_all, now_exact, sleep};
use stdx::num::usize32;

use crate::Error;
#[cfg(test)]
use crate::canary::Canary;
use crate::create::{forget, prepare};
use crate::format::Health;
use crate::inner::Inner;
use crate::inspect::{Found, inspect, suits};
use crate::layout::Slots;
use crate::limits::{PROGRESS_STRIPES, SWEEP_STRIPES};
use crate::member::Member;
use crate::set::Set;
use crate::work::to_its_end;

/// Where a member went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    pub slot: usize,
    /// It needs only what it missed.
    pub partial: bool,
}

/// What a member that was in the set before is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Returning {
    /// What it missed.
    Partial,
    /// Everything.
    Whole,
    /// The same, and what it says of itself is discarded: it was used without the others.
    Discarded,
}

/// A member that nothing keeps from joining.
struct Ready {
    slot: usize,
    id: [u8; 16],
    /// It needs only what it missed.
    partial: bool,
    /// The page of its newer superblock.
    newer: u64,
}

/// How far a rebuild has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub slot: usize,
    /// Stripes done or in no need of it.
    pub done: u64,
    pub stripes: u64,
}

impl Set {
    /// Takes a member in for one that is missing: the same one, or a blank one, of the identity `id` then, in the
    /// first place that is free. It has to be [rebuilt](Self::rebuild).
    ///
    /// # Errors
    /// When nothing is missing, or the member does not suit, is not blank (unless `force`d) or was used without
    /// the others.
    pub async fn join(&self, member: Member, id: [u8; 16], force: bool) -> Result<Joined, Error> {
        let inner = Rc::clone(&self.inner);
        to_its_end(async move { inner.join(member, id, force).await }).await?
    }

    /// Gives the member in `slot` what it has not, `rate` bytes a second at most, beside all other work.
    /// `progress` hears of it. Dropped, or after a crash, it goes on where it was when it is called again.
    ///
    /// # Errors
    /// When the member fails, or what it needs cannot be read.
    pub async fn rebuild(
        &self,
        slot: usize,
        rate: Option<u64>,
        mut progress: impl FnMut(Progress),
    ) -> Result<(), Error> {
        let inner = &self.inner;
        let stripes = inner.layout.stripes;
        let _one = inner.sweep.hold(1).await;
        let begins = Rc::clone(inner);
        to_its_end(async move { begins.make_history().await }).await??;
        let mut told = inner.frontier(slot)?;
        loop {
            let begin = now_exact();
            let frontier = inner.frontier(slot)?;
            let from = inner.next_to_rebuild(slot, frontier);
            if from >= stripes {
                break;
            }
            let to = (from + SWEEP_STRIPES).min(stripes);
            let tell = to - told >= PROGRESS_STRIPES;
            let some = Rc::clone(inner);
            to_its_end(async move {
                some.rebuild_some(slot, from..to).await?;
                if tell {
                    some.store_progress().await;
                }
                Ok::<(), Error>(())
            })
            .await??;
            if tell {
                told = to;
            }
            progress(Progress { slot, done: to, stripes });
            hold_back(rate, (to - from) * u64::from(inner.layout.chunk), begin).await;
        }
        let ends = Rc::clone(inner);
        to_its_end(async move { ends.finish(slot).await }).await??;
        progress(Progress { slot, done: stripes, stripes });
        Ok(())
    }

    /// Slots whose members are there and need a rebuild.
    #[must_use]
    pub fn to_rebuild(&self) -> Vec<usize> {
        let book = self.inner.book.borrow();
        let rebuilding =
            |slot: &usize| matches!(book.seats[*slot].health, Health::Rebuilding { .. });
        self.inner.present().iter().filter(rebuilding).collect()
    }

    /// Members that were lost since the set was put together, by slot: worth trying again.
    #[must_use]
    pub fn lost_members(&self) -> Vec<(usize, Member)> {
        let away = self.inner.away.borrow();
        (0..)
            .zip(away.iter())
            .filter_map(|(slot, m)| Some((slot, (**m.as_ref()?).clone())))
            .collect()
    }

    /// Takes lost members in again as soon as they answer, and rebuilds whatever needs it, looking every
    /// `pause`. Runs until the set is of no more use.
    pub async fn tend(&self, pause: Duration, rate: Option<u64>) {
        while self.inner.usable().is_ok() {
            for (slot, member) in self.lost_members() {
                match self.join(member, [0; 16], false).await {
                    Ok(joined) => {
                        tracing::info!("member {slot} is back (partial: {})", joined.partial);
                    }
                    Err(error) => tracing::debug!("member {slot} is not back: {error}"),
                }
            }
            for slot in self.to_rebuild() {
                if let Err(error) = self.rebuild(slot, rate, |_| {}).await {
                    tracing::warn!("the rebuild of member {slot} stopped: {error}");
                }
            }
            sleep(pause).await;
        }
    }
}

/// Waits until `bytes`, begun with at `begin`, have taken the time that `rate` bytes a second take.
pub async fn hold_back(rate: Option<u64>, bytes: u64, begin: reactor::Nanos) {
    let Some(rate) = rate else { return };
    let due = bytes.saturating_mul(1_000_000_000) / rate.max(1);
    let taken = now_exact().saturating_sub(begin);
    sleep(Duration::from_nanos(due.saturating_sub(taken))).await;
}

fn lost() -> Error {
    Error::Set(initiator::Error::Lost("the member was lost while it was rebuilt"))
}

impl Inner {
    /// As [`Set::join`].
    async fn join(&self, member: Member, id: [u8; 16], force: bool) -> Result<Joined, Error> {
        let inner = self;
        inner.usable()?;
        suits(0, &member, &inner.layout)?;
        let _one = inner.sweep.hold(1).await;
        inner.look_at(&member, force).await?;
        let member = Rc::new(member);
        let had = inner.away.borrow().iter().flatten().any(|away| away.is(&member));
        if let Some(held) = inner.held.get() {
            held.take_one(&member, had).await?;
        }
        // Who had it until now may have changed it since.
        let ready = inner.make_ready(&member, id, force).await;
        if let (Err(_), Some(held), false) = (&ready, inner.held.get(), had) {
            held.release(std::slice::from_ref(&member)).await;
        }
        let Ready { slot, id, partial, newer } = ready?;
        {
            // From here on it is written to, wherever it is in sync; who writes now may not know that.
            for stripes in inner.locks.written() {
                inner.bitmap.add(inner.regions(&stripes));
            }
            let mut book = inner.book.borrow_mut();
            book.todo[slot] = partial.then(|| inner.bitmap.bits());
            book.newer[slot] = newer;
            book.events += 1;
            let seat = &mut book.seats[slot];
            (seat.member, seat.health) = (id, Health::Rebuilding { frontier: 0, partial });
            inner.members.borrow_mut()[slot] = Some(member);
            inner.away.borrow_mut()[slot] = None;
        }
        inner.bitmap.put_on(inner, slot).await;
        inner.settle().await?;
        inner.changed.raise();
        Ok(Joined { slot, partial })
    }

    /// Has a member that joins hold nothing that does not count here.
    async fn make_ready(&self, member: &Member, id: [u8; 16], force: bool) -> Result<Ready, Error> {
        self.usable()?;
        let (slot, returning, newer) = self.look_at(member, force).await?;
        match returning {
            // Its superblocks may be newer than any to come here, and its records be done again: both go before it counts.
            Some(Returning::Discarded) => forget(0, member, self.layout).await?,
            Some(Returning::Partial | Returning::Whole) => {}
            None => prepare(0, member, self.layout).await?,
        }
        self.usable()?;
        let id = if returning.is_some() { self.book.borrow().seats[slot].member } else { id };
        Ok(Ready { slot, id, partial: returning == Some(Returning::Partial), newer })
    }

    /// Which place a member that joins takes, whether it was there before, and the page of its newer superblock.
    async fn look_at(
        &self,
        member: &Member,
        force: bool,
    ) -> Result<(usize, Option<Returning>, u64), Error> {
        // What was under way when it left may be there to be read and not be durable.
        member.flush().await.map_err(Error::member(0))?;
        let found = inspect(0, member).await?;
        let newer = if let Found::Member { page, .. } = &found { *page } else { 0 };
        let (slot, returning) = self.place(&found, force)?;
        Ok((slot, returning, newer))
    }

    /// Which place a member that joins takes, and whether it was there before.
    fn place(&self, found: &Found, force: bool) -> Result<(usize, Option<Returning>), Error> {
        let book = self.book.borrow();
        if self.layout.parity() == 0 {
            return Err(Error::refused("a stripe set has nothing to rebuild from", "restore it"));
        }
        let free = |slot: usize| book.seats[slot].health == Health::Missing;
        if let Found::Member { says, .. } = found
            && says.set == self.id
            && book.seats[says.slot].member == says.seats[says.slot].member
        {
            if !free(says.slot) {
                let what = format!("that member is in place {} already", says.slot);
                return Err(Error::refused(what, "give one that is missing"));
            }
            let busy = |old: &Rc<Member>| Rc::strong_count(old) > 1;
            if self.away.borrow()[says.slot].as_ref().is_some_and(busy) {
                // Whatever it was asked for before must not happen after it is back.
                let what = "commands to that member are still under way";
                return Err(Error::refused(what, "try again when they have ended"));
            }
            if says.events >= book.seats[says.slot].left {
                if !force {
                    return Err(Error::refused(
                        "that member was used without the others meanwhile",
                        "--force discards what it holds and rebuilds all of it",
                    ));
                }
                return Ok((says.slot, Some(Returning::Discarded)));
            }
            let seat = &book.seats[says.slot];
            let partial = (seat.seen..seat.left).contains(&says.events);
            let returning = if partial { Returning::Partial } else { Returning::Whole };
            return Ok((says.slot, Some(returning)));
        }
        if *found != Found::Blank && !force {
            return Err(Error::refused(
                "that namespace is not blank, and no missing member of this set",
                "--force overwrites what is there",
            ));
        }
        let slot = (0..book.seats.len()).find(|&slot| free(slot));
        let slot = slot.ok_or_else(|| {
            Error::refused(
                "no member is missing",
                "a member can be added in place of a missing one",
            )
        })?;
        Ok((slot, None))
    }

    /// The member has everything; unless it was lost.
    async fn finish(&self, slot: usize) -> Result<(), Error> {
        {
            let mut book = self.book.borrow_mut();
            if !matches!(book.seats[slot].health, Health::Rebuilding { .. }) {
                return Err(lost());
            }
            book.events += 1;
            book.todo[slot] = None;
            book.seats[slot].health = Health::InSync;
        }
        self.settle().await?;
        self.forget_if_in_sync().await?;
        self.changed.raise();
        Ok(())
    }

    fn frontier(&self, slot: usize) -> Result<u64, Error> {
        self.usable()?;
        match self.book.borrow().seats[slot].health {
            Health::Rebuilding { frontier, .. } if self.member(slot).is_some() => Ok(frontier),
            Health::InSync => Ok(self.layout.stripes),
            _ => Err(lost()),
        }
    }

    /// The first stripe from `frontier` on that the member has not.
    fn next_to_rebuild(&self, slot: usize, frontier: u64) -> u64 {
        let book = self.book.borrow();
        let Some(bits) = &book.todo[slot] else { return frontier };
        let region = self.layout.region(frontier);
        if bits.has(region) {
            return frontier;
        }
        let next = bits.iter().find(|&next| next > region);
        next.map_or(self.layout.stripes, |next| next * self.layout.region_stripes)
    }

    /// Rebuilds some stripes, which nobody else uses until the member is known to have them.
    async fn rebuild_some(&self, slot: usize, stripes: std::ops::Range<u64>) -> Result<(), Error> {
        let _held = self.locks.lock(stripes.clone(), true).await;
        self.settle().await?;
        let done = join_all(stripes.clone().map(|stripe| self.rebuild_one(slot, stripe))).await;
        done.into_iter().collect::<Result<(), _>>()?;
        self.settle().await?;
        let mut book = self.book.borrow_mut();
        match &mut book.seats[slot].health {
            Health::Rebuilding { frontier, .. } => *frontier = stripes.end,
            Health::InSync | Health::Missing => return Err(lost()),
        }
        Ok(())
    }

    async fn rebuild_one(&self, slot: usize, stripe: u64) -> Result<(), Error> {
        let (unit, chunk) = (self.layout.unit(stripe, slot), self.layout.chunk);
        let room = usize32(chunk);
        let permit = self.work.permit(self.layout.width(), room).await;
        let one: Slots = [unit].into_iter().collect();
        let mut units = self.fetch(&permit, stripe, (0, chunk), one, room).await?;
        let (Some(member), Some(buffer)) = (self.member(slot), units[unit].as_mut()) else {
            return Err(lost());
        };
        let at = self.layout.member_at(stripe, 0);
        #[cfg(test)]
        let fua = if self.has_canary(Canary::EarlyFrontier) { Fua::No } else { Fua::Yes };
        #[cfg(not(test))]
        let fua = Fua::Yes;
        if let Err(error) = member.write(at, chunk, buffer, fua).await {
            self.lose(slot, &error);
            return Err(error.into());
        }
        Ok(())
    }

    /// Forgets which regions members missed, once none misses any.
    pub async fn forget_if_in_sync(&self) -> Result<(), initiator::Error> {
        if self.all_in_sync() && self.bitmap.bits().count() > 0 {
            self.bitmap.clear(self).await;
        }
        self.settle().await
    }
}
