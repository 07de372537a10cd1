//! Members that come back or are new, and how they get what they have not.

use std::time::Duration;

use initiator::Fua;
use reactor::{join_all, now_exact, sleep};
use stdx::num::usize32;

use crate::Error;
use crate::create::prepare;
use crate::format::Health;
use crate::inspect::{Found, inspect, suits};
use crate::layout::Slots;
use crate::limits::{PROGRESS_STRIPES, SWEEP_STRIPES};
use crate::member::Member;
use crate::set::{Inner, Set};

/// Where a member went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    pub slot: usize,
    /// It needs only what it missed.
    pub partial: bool,
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
        let inner = &self.inner;
        inner.usable()?;
        let layout = inner.layout;
        suits(0, &member, &layout)?;
        let found = inspect(0, &member).await?;
        let _one = inner.sweep.hold(1).await;
        let (slot, returning) = inner.place(&found, force)?;
        let id = match returning {
            Some(_) => inner.book.borrow().seats[slot].member,
            None => {
                prepare(0, &member, layout).await?;
                id
            }
        };
        let partial = returning == Some(true);
        {
            // From here on it is written to, wherever it is in sync; who writes now may not know that.
            for stripes in inner.locks.written() {
                inner.bitmap.add(inner.regions(&stripes));
            }
            let mut book = inner.book.borrow_mut();
            book.todo[slot] = partial.then(|| inner.bitmap.bits());
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
        let mut told = inner.frontier(slot)?;
        loop {
            let begin = now_exact();
            let frontier = inner.frontier(slot)?;
            let from = inner.next_to_rebuild(slot, frontier);
            if from >= stripes {
                break;
            }
            let to = (from + SWEEP_STRIPES).min(stripes);
            inner.rebuild_some(slot, from..to).await?;
            progress(Progress { slot, done: to, stripes });
            if to - told >= PROGRESS_STRIPES {
                told = to;
                let _turn = inner.meta.hold(1).await;
                inner.store_books(inner.stored_tail()).await;
            }
            hold_back(rate, (to - from) * u64::from(inner.layout.chunk), begin).await;
        }
        if !inner.finish(slot) {
            inner.settle().await?;
            return Err(lost());
        }
        inner.settle().await?;
        inner.forget_if_in_sync().await?;
        inner.changed.raise();
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
        (0..).zip(away.iter()).filter_map(|(slot, m)| Some((slot, m.clone()?))).collect()
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
    /// Which place a member that joins takes; whether it was there before, and needs only what it missed.
    fn place(&self, found: &Found, force: bool) -> Result<(usize, Option<bool>), Error> {
        let book = self.book.borrow();
        if self.layout.parity() == 0 {
            return Err(Error::refused("a stripe set has nothing to rebuild from", "restore it"));
        }
        let free = |slot: usize| book.seats[slot].health == Health::Missing;
        if let Found::Member(says) = found
            && says.set == self.id
            && book.seats[says.slot].member == says.seats[says.slot].member
        {
            if !free(says.slot) {
                let what = format!("that member is in place {} already", says.slot);
                return Err(Error::refused(what, "give one that is missing"));
            }
            if says.events >= book.seats[says.slot].left {
                if !force {
                    return Err(Error::refused(
                        "that member was used without the others meanwhile",
                        "--force discards what it holds and rebuilds all of it",
                    ));
                }
                return Ok((says.slot, Some(false)));
            }
            let seat = &book.seats[says.slot];
            let partial = (seat.seen..seat.left).contains(&says.events);
            return Ok((says.slot, Some(partial)));
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
    fn finish(&self, slot: usize) -> bool {
        let mut book = self.book.borrow_mut();
        if !matches!(book.seats[slot].health, Health::Rebuilding { .. }) {
            return false;
        }
        book.events += 1;
        book.todo[slot] = None;
        book.seats[slot].health = Health::InSync;
        true
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
        let mut units = self.fetch_but(&permit, stripe, (0, chunk), (one, one), room).await?;
        let (Some(member), Some(buffer)) = (self.member(slot), units[unit].as_mut()) else {
            return Err(lost());
        };
        let at = self.layout.member_at(stripe, 0);
        if let Err(error) = member.write(at, chunk, buffer, Fua::Yes).await {
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
