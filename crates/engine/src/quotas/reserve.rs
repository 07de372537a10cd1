//! Reservations: space that is kept for what a volume's hosts have yet to write (decision 0034).
//!
//! What is kept was taken from the pool's free space as a shard takes a portion of it: nobody else can have it, and other
//! writers ask no more than before. Writers of the volume draw from it what is new, once the pool has no other space.
//! What is known of its contents is never more than there is, so that what is kept is never too little: a count says it
//! anew, and whatever takes it away is deducted at once.

use reactor::cross_core::{Lock, Watch};

use crate::format::catalog::Reservation;
use crate::space::Space;
use crate::volume::state::BLOCK_BYTES;

/// What is kept for a volume. All in blocks.
#[derive(Debug)]
pub struct Reserve {
    inside: Lock<Inside>,
    /// Snapshots of it that are being taken, and the like: nobody draws meanwhile.
    pauses: Watch<u32>,
}

#[derive(Debug)]
struct Inside {
    of: Reservation,
    /// So many blocks of its own the volume can have, however full the pool is.
    wanted: u64,
    /// What is kept for those it does not have.
    kept: u64,
    shares: Box<[Share]>,
    /// Grows when something becomes of the contents that no shard sees: what was counted before does not hold.
    epoch: u64,
    paused: u32,
    /// Ranges that are being given back: whatever is counted meanwhile may have what is gone then.
    lowerings: u32,
    has_ended: bool,
}

/// What a shard knows of a volume.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Blocks that only hosts see, and nobody shares, at least; `None` before they were counted.
    alone: Option<u64>,
    /// Blocks of all ranges that were given back, ever.
    lowered: u64,
}

/// What was so when a count began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveMark {
    epoch: u64,
    lowered: u64,
}

/// What became of a wish to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    Yes,
    /// A snapshot is being taken: soon.
    Paused,
    /// Nobody knows yet what the volume has.
    Uncounted,
    /// Something else is shared since they were looked up.
    Outdated,
    /// So much is not kept any more.
    Beyond,
    /// It is, and the pool does not have it.
    Overdrawn,
}

/// Space that is missing, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    pub needed: u64,
    pub free: u64,
}

/// A reservation, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationStatus {
    pub of: Reservation,
    /// What hosts can have, however full the pool is.
    pub bytes: u64,
    /// What of it is kept for what they have yet to write.
    pub kept: u64,
}

/// What is kept for all volumes of a pool together, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    /// What the hosts of those that have one can have.
    pub bytes: u64,
    /// What of it is kept for what they have yet to write.
    pub kept: u64,
    /// What of that the pool does not have, since it lost drives: writes may be refused although space was reserved.
    pub missing: u64,
    /// What all of them have was counted: before, what is kept is more than it has to be.
    pub is_counted: bool,
}

impl Inside {
    /// What the volume has at least; nothing before that was counted.
    fn alone(&self) -> Option<u64> {
        self.shares.iter().map(|share| share.alone).sum()
    }

    /// What is to be kept.
    fn due(&self) -> u64 {
        let alone = if self.lowerings > 0 { None } else { self.alone() };
        self.wanted.saturating_sub(alone.unwrap_or(0))
    }

    /// Gives back what is kept beyond that.
    fn settle(&mut self, space: &Space) {
        let due = self.due();
        if self.kept > due && self.paused == 0 {
            space.give_back(self.kept - due);
            self.kept = due;
        }
    }

    fn keep(&mut self, needed: u64, space: &Space) -> Result<(), Lacking> {
        space
            .take_exactly(needed)
            .map_err(|free| Lacking { needed: needed * BLOCK_BYTES, free: free * BLOCK_BYTES })?;
        self.kept += needed;
        Ok(())
    }

    /// Keeps all, whether there is space for it or not.
    fn claim(&mut self, space: &Space) {
        let needed = self.wanted.saturating_sub(self.kept);
        space.claim(needed);
        self.kept += needed;
    }
}

impl Reserve {
    /// That of a volume which has no contents, for which nothing is kept yet.
    #[must_use]
    pub fn of_empty(of: Reservation, shards: u16) -> Self {
        let share = Share { alone: Some(0), lowered: 0 };
        Self::new(of, vec![share; usize::from(shards)].into())
    }

    /// That of a volume of which nobody knows what it has, for which nothing is kept yet.
    #[must_use]
    pub fn of_uncounted(of: Reservation, shards: u16) -> Self {
        Self::new(of, vec![Share::default(); usize::from(shards)].into())
    }

    fn new(of: Reservation, shares: Box<[Share]>) -> Self {
        let (wanted, kept, epoch, paused, lowerings, has_ended) = (0, 0, 0, 0, 0, false);
        let inside = Inside { of, wanted, kept, shares, epoch, paused, lowerings, has_ended };
        Self { inside: Lock::new(inside), pauses: Watch::new(0) }
    }

    /// So many blocks are kept from now on, or those that the volume does not have of them, if there is space.
    ///
    /// # Errors
    /// What is missing: then all is as it was.
    pub fn want(&self, of: Reservation, size: u64, space: &Space) -> Result<(), Lacking> {
        let mut inside = self.inside.lock();
        let wanted = of.of(size) / BLOCK_BYTES;
        let before = std::mem::replace(&mut inside.wanted, wanted);
        // What was drawn since the last count is not to be kept again.
        let needed = inside.due().saturating_sub(inside.kept).min(wanted.saturating_sub(before));
        if let Err(lacking) = inside.keep(needed, space) {
            inside.wanted = before;
            return Err(lacking);
        }
        inside.of = of;
        inside.settle(space);
        Ok(())
    }

    /// As [`want`](Self::want) when a pool is opened: what the volume has counts twice until that was counted.
    pub fn claim(&self, of: Reservation, size: u64, space: &Space) {
        let mut inside = self.inside.lock();
        inside.wanted = of.of(size) / BLOCK_BYTES;
        inside.claim(space);
    }

    /// The volume is gone, or its reservation.
    pub fn end(&self, space: &Space) {
        let mut inside = self.inside.lock();
        (inside.wanted, inside.has_ended) = (0, true);
        space.give_back(std::mem::take(&mut inside.kept));
    }

    /// Changes with what snapshots see, and others share: what somebody looked up before does not hold.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.inside.lock().epoch
    }

    /// Takes so many blocks for what is new, as a look found that began at that epoch, where the pool has room for as many
    /// of what is kept.
    #[must_use]
    pub fn draw(&self, blocks: u64, epoch: u64, room: u64) -> Drawn {
        let mut inside = self.inside.lock();
        if inside.paused > 0 {
            return Drawn::Paused;
        }
        if inside.epoch != epoch {
            return Drawn::Outdated;
        }
        match (inside.alone(), inside.kept.checked_sub(blocks)) {
            (None, _) => Drawn::Uncounted,
            (_, None) => Drawn::Beyond,
            _ if blocks > room => Drawn::Overdrawn,
            (_, Some(left)) => {
                inside.kept = left;
                Drawn::Yes
            }
        }
    }

    /// So many that were drawn were not written.
    pub fn put_back(&self, blocks: u64, space: &Space) {
        let mut inside = self.inside.lock();
        match inside.has_ended {
            true => space.give_back(blocks),
            false => inside.kept += blocks,
        }
    }

    /// Blocks are about to be looked up, and given back. Tells whether all of the reservation is kept already.
    #[must_use]
    pub fn begin_lowering(&self) -> bool {
        let mut inside = self.inside.lock();
        inside.lowerings += 1;
        inside.kept >= inside.wanted
    }

    /// They are, or are not.
    pub fn end_lowering(&self, space: &Space) {
        let mut inside = self.inside.lock();
        assert!(inside.lowerings > 0, "what ends was begun");
        inside.lowerings -= 1;
        inside.settle(space);
    }

    /// A range of a shard's part of the volume was given back, in which it had so many blocks of its own. Gives how many
    /// more are kept for that, which the shard is to let go of.
    #[must_use]
    pub fn lower(&self, shard: u16, blocks: u64, range: u64) -> u64 {
        let mut inside = self.inside.lock();
        assert!(blocks <= range, "no more is kept again than was given back");
        let share = &mut inside.shares[usize::from(shard)];
        // A count may have found more in it than the look before: others write there.
        share.lowered += range;
        share.alone = share.alone.map(|alone| alone.saturating_sub(range));
        let more = blocks.min(inside.wanted.saturating_sub(inside.kept));
        inside.kept += more;
        more
    }

    /// Nobody knows any more what the volume has: all of the reservation is kept, whether there is space or not, until it
    /// was counted.
    pub fn forget(&self, space: &Space) {
        let mut inside = self.inside.lock();
        inside.epoch += 1;
        inside.shares.iter_mut().for_each(|share| share.alone = None);
        inside.claim(space);
    }

    /// What a count that begins now has to know.
    #[must_use]
    pub fn mark(&self, shard: u16) -> ReserveMark {
        let inside = self.inside.lock();
        ReserveMark { epoch: inside.epoch, lowered: inside.shares[usize::from(shard)].lowered }
    }

    /// A count that began at that mark found so many blocks of a shard that only hosts see, and nobody shares.
    pub fn note_counted(&self, shard: u16, mark: ReserveMark, alone: u64, space: &Space) {
        let mut inside = self.inside.lock();
        if inside.epoch != mark.epoch {
            return;
        }
        let share = &mut inside.shares[usize::from(shard)];
        assert!(mark.lowered <= share.lowered, "a count knows of what was given back before it");
        // It may have seen that they were gone.
        share.alone = Some(alone.saturating_sub(share.lowered - mark.lowered));
        inside.settle(space);
    }

    /// Nothing that was counted so far holds: what is counted from now on does.
    pub fn count_anew(&self) {
        let mut inside = self.inside.lock();
        inside.epoch += 1;
        inside.shares.iter_mut().for_each(|share| share.alone = None);
    }

    /// Whether it is known what the volume has.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.inside.lock().alone().is_some()
    }

    /// Keeps all of the reservation, and has nobody draw, until [`go_on`](Self::go_on): all that hosts have may be shared
    /// then.
    ///
    /// # Errors
    /// What is missing: then all is as it was.
    pub fn pause(&self, least: u64, space: &Space) -> Result<(), Lacking> {
        let mut inside = self.inside.lock();
        let due = inside.wanted.max(least / BLOCK_BYTES);
        let needed = due.saturating_sub(inside.kept);
        inside.keep(needed, space)?;
        inside.paused += 1;
        drop(inside);
        self.pauses.change(|pauses| *pauses += 1);
        Ok(())
    }

    /// All that hosts had is shared by now, of a volume that has that size, or it is as it was.
    pub fn go_on(&self, shared: Option<u64>, space: &Space) {
        {
            let mut inside = self.inside.lock();
            assert!(inside.paused > 0, "who goes on was paused");
            inside.paused -= 1;
            if let Some(size) = shared.filter(|_| !inside.has_ended) {
                inside.wanted = inside.of.of(size) / BLOCK_BYTES;
                inside.epoch += 1;
                inside.shares.iter_mut().for_each(|share| share.alone = Some(0));
            }
            inside.settle(space);
        }
        self.pauses.change(|pauses| *pauses -= 1);
    }

    /// Waits until somebody may draw.
    pub async fn goes_on(&self) {
        self.pauses.until(|pauses| (*pauses == 0).then_some(())).await;
    }

    /// Whether a count may find that something is kept too much.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.inside.lock().kept > 0
    }

    #[must_use]
    pub fn status(&self) -> ReservationStatus {
        let inside = self.inside.lock();
        let (bytes, kept) = (inside.wanted * BLOCK_BYTES, inside.kept * BLOCK_BYTES);
        ReservationStatus { of: inside.of, bytes, kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a volume that has nothing, with a pool that has no more.
    fn reserve(blocks: u64) -> (Reserve, Space) {
        let (space, of) = (Space::new(blocks, 1), Reservation::Bytes(blocks * BLOCK_BYTES));
        let reserve = Reserve::of_empty(of, 1);
        reserve.want(of, u64::MAX, &space).unwrap();
        assert_eq!(space.take(1), None);
        (reserve, space)
    }

    fn kept(reserve: &Reserve) -> u64 {
        reserve.status().kept / BLOCK_BYTES
    }

    fn counted(reserve: &Reserve, alone: u64, space: &Space) {
        reserve.note_counted(0, reserve.mark(0), alone, space);
    }

    #[test]
    fn what_was_drawn_is_not_asked_for_again() {
        let (reserve, space) = reserve(100);
        assert_eq!(reserve.draw(40, reserve.epoch(), u64::MAX), Drawn::Yes);
        let want = |blocks: u64| {
            let of = Reservation::Bytes(blocks * BLOCK_BYTES);
            reserve.want(of, u64::MAX, &space).map(|()| kept(&reserve))
        };
        // Only what is beyond a smaller one is given back.
        assert_eq!((want(100), want(90), want(50)), (Ok(60), Ok(60), Ok(50)));
        let lacking = Lacking { needed: 50 * BLOCK_BYTES, free: 10 * BLOCK_BYTES };
        assert_eq!(want(100), Err(lacking));
        assert_eq!(want(60), Ok(60));
    }

    #[test]
    fn what_a_count_finds_of_what_is_given_back_meanwhile_stays_kept() {
        let (reserve, space) = reserve(100);
        // A look finds 10 of 20 blocks; somebody else writes the others, which are counted.
        counted(&reserve, 30, &space);
        assert_eq!(kept(&reserve), 70);
        assert!(!reserve.begin_lowering());
        counted(&reserve, 40, &space);
        let before = reserve.mark(0);
        assert_eq!((kept(&reserve), reserve.lower(0, 10, 20)), (70, 10));
        reserve.note_counted(0, before, 40, &space);
        assert_eq!(kept(&reserve), 80);
        reserve.end_lowering(&space);
        assert_eq!(kept(&reserve), 80);
        counted(&reserve, 21, &space);
        assert_eq!(kept(&reserve), 79);
    }

    #[test]
    fn nobody_draws_by_what_was_seen_before_a_snapshot_nor_what_the_pool_has_not() {
        let (reserve, space) = reserve(100);
        let seen = reserve.epoch();
        reserve.pause(0, &space).unwrap();
        assert_eq!(reserve.draw(0, seen, u64::MAX), Drawn::Paused);
        reserve.go_on(Some(u64::MAX), &space);
        assert_eq!(reserve.draw(0, seen, u64::MAX), Drawn::Outdated);
        let now = reserve.epoch();
        assert_eq!(reserve.draw(6, now, 5), Drawn::Overdrawn);
        assert_eq!((reserve.draw(5, now, 5), kept(&reserve)), (Drawn::Yes, 95));
        assert_eq!(reserve.draw(96, now, u64::MAX), Drawn::Beyond);
    }
}
