//! Free space: which allocation units of which drive belong to no segment.

use std::collections::BTreeSet;

use stdx::num::{u32_of, usize32};

use crate::address::{SEGMENTS_END, SegmentId};
use crate::segment::Member;

/// The allocation units of one drive.
#[derive(Debug)]
struct Units {
    /// One bit each: set when it belongs to a segment.
    taken: Vec<u64>,
    count: u32,
    free: u32,
    /// Where the search for a free one begins.
    hint: usize,
    /// Free ones whose contents the drive still keeps.
    dirty: BTreeSet<u32>,
    /// Units that are held while the drive is told of them: nobody's, and soon free.
    held: u32,
}

impl Units {
    fn new(count: u32) -> Self {
        let mut taken = vec![0; usize32(count).div_ceil(64)];
        // Units beyond the last are never free.
        if let (Some(last), rest @ 1..) = (taken.last_mut(), count % 64) {
            *last = u64::MAX << rest;
        }
        Self { taken, count, free: count, hint: 0, dirty: BTreeSet::new(), held: 0 }
    }

    fn take_any(&mut self) -> Option<u32> {
        let words = self.taken.len();
        let at =
            (0..words).map(|i| (self.hint + i) % words).find(|&w| self.taken[w] != u64::MAX)?;
        let bit = self.taken[at].trailing_ones();
        assert!(self.free > 0, "what is taken was free");
        self.taken[at] |= 1 << bit;
        self.hint = at;
        self.free -= 1;
        let au = u32_of(at) * 64 + bit;
        assert!(au < self.count, "a drive has the units that it gives");
        self.dirty.remove(&au);
        Some(au)
    }

    fn bit(&self, au: u32) -> Option<(usize, u64)> {
        (au < self.count).then(|| (usize32(au / 64), 1 << (au % 64)))
    }

    /// False when there is no such unit, or it is taken.
    fn take(&mut self, au: u32) -> bool {
        let Some((at, bit)) = self.bit(au) else { return false };
        let was_free = self.taken[at] & bit == 0;
        self.taken[at] |= bit;
        self.free -= u32::from(was_free);
        self.dirty.remove(&au);
        was_free
    }

    fn give_back(&mut self, au: u32) {
        let (at, bit) = self.bit(au).expect("only units that were taken come back");
        assert!(self.taken[at] & bit != 0, "an allocation unit is given back once");
        self.taken[at] &= !bit;
        self.free += 1;
        assert!(self.free <= self.count, "no more is free than there is");
    }
}

/// The free space of a pool. One for all its shards.
#[derive(Debug)]
pub struct Allocator {
    drives: Vec<Units>,
    /// Drives that take new segments.
    online: Vec<bool>,
    /// Places that nothing is to come to, however scarce space is.
    closed: Vec<bool>,
    /// Drives that are being emptied: nothing more comes to one that is empty.
    leaving: Vec<bool>,
    /// Drives that are slower than the others: whoever writes there waits for them.
    slow: Vec<bool>,
    /// Drives that are told of the units that become free.
    told: Vec<bool>,
    /// Numbers of the segments there are.
    numbers: BTreeSet<u32>,
    /// The number of the next one. None is used twice: the map may speak late of what lay in a
    /// segment that is long gone, and must not be heard as speaking of another.
    next: u32,
    width: usize,
    /// With space for fewer segments than this on the drives that are online, that of the others is used
    /// too.
    scarce: u64,
    /// While drives are being emptied: segments that the others keep for metadata, and those that are enough to go on.
    kept: u64,
    room: u64,
}

impl Allocator {
    /// All space of drives with so many allocation units each is free. Segments have `width`
    /// members.
    #[must_use]
    pub fn new(units: &[u32], width: usize) -> Self {
        Self {
            drives: units.iter().map(|&count| Units::new(count)).collect(),
            online: vec![true; units.len()],
            closed: vec![false; units.len()],
            leaving: vec![false; units.len()],
            slow: vec![false; units.len()],
            told: vec![false; units.len()],
            numbers: BTreeSet::new(),
            next: 0,
            width,
            scarce: 0,
            kept: 0,
            room: 0,
        }
    }

    /// Has segments begin degraded, on drives that are not online, when there is space for fewer than
    /// so many on those that are: rather that than nothing going on any more.
    pub const fn degrade_below(&mut self, segments: u64) {
        self.scarce = segments;
    }

    /// While drives are being emptied, new segments go there only where the others have space for no more than `kept`,
    /// which is for metadata; and for what is there they [have room](Self::has_room_to_empty) with `room` or more.
    pub const fn keep_while_emptying(&mut self, kept: u64, room: u64) {
        (self.kept, self.room) = (kept, room);
    }

    /// The number the next segment gets.
    #[must_use]
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// Numbers below `next` were used before.
    pub fn skip_to(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// Whether new segments may lie on a drive.
    pub fn set_online(&mut self, drive: usize, online: bool) {
        self.online[drive] = online;
    }

    /// One drive more, with so many units, which takes nothing as yet. The last one makes room for it if it never came.
    pub fn add_drive(&mut self, drive: usize, units: u32) {
        assert!(drive <= self.drives.len(), "places are added one behind another");
        let is_free = |units: &Units| units.free == units.count;
        assert!(self.drives[drive..].iter().all(is_free), "nothing lies where nothing came");
        self.drives.truncate(drive);
        self.drives.push(Units::new(units));
        self.online.resize(drive + 1, false);
        self.closed.resize(drive + 1, true);
        self.leaving.resize(drive + 1, false);
        self.slow.resize(drive + 1, false);
        self.told.resize(drive + 1, false);
    }

    /// All units of a drive seem free, whatever they belong to: a bug that is planted.
    pub fn forget(&mut self, drive: usize) {
        self.drives[drive] = Units::new(self.drives[drive].count);
    }

    /// Whether nothing is to come to a drive any more, however scarce space is.
    pub fn set_closed(&mut self, drive: usize, closed: bool) {
        self.closed[drive] = closed;
    }

    /// Whether a drive is being emptied: nothing new is to lie there while there is enough space elsewhere, and nothing
    /// at all once it is [empty](Self::is_empty).
    pub fn set_leaving(&mut self, drive: usize, leaving: bool) {
        self.leaving[drive] = leaving;
    }

    /// Whether a drive is slower than the others: new segments lie elsewhere as long as that costs no space.
    pub fn set_slow(&mut self, drive: usize, slow: bool) {
        self.slow[drive] = slow;
    }

    /// Whether no segment has anything on a drive.
    #[must_use]
    pub fn is_empty(&self, drive: usize) -> bool {
        self.drives[drive].free == self.drives[drive].count
    }

    /// Marks a segment found in a manifest.
    ///
    /// # Errors
    /// What of it belongs to another segment already, or does not exist.
    pub fn claim(&mut self, id: SegmentId, members: &[Member]) -> Result<(), &'static str> {
        let number = id.get();
        if !self.numbers.insert(number) {
            return Err("two segments of one number");
        }
        self.skip_to(number.saturating_add(1));
        for member in members {
            let drive = self.drives.get_mut(usize::from(member.drive));
            if !drive.is_some_and(|units| units.take(member.au)) {
                return Err("an allocation unit of two segments, or of none");
            }
        }
        Ok(())
    }

    /// Free units of the drives that are online and stay.
    fn free_units(&self) -> Vec<u32> {
        let drives = self.drives.iter().enumerate();
        drives.map(|(drive, units)| if self.stays(drive) { units.free } else { 0 }).collect()
    }

    /// Whether a drive is online, and not being emptied.
    fn stays(&self, drive: usize) -> bool {
        self.online[drive] && !self.leaving[drive]
    }

    /// Free units of all drives, those that are not online included.
    fn all_units(&self) -> Vec<u32> {
        let drives = self.drives.iter().enumerate();
        drives.map(|(drive, units)| if self.may_take(drive) { units.free } else { 0 }).collect()
    }

    /// Whether something may come to a drive, however scarce space is.
    fn may_take(&self, drive: usize) -> bool {
        let is_over = self.leaving[drive] && self.is_empty(drive);
        !self.closed[drive] && !is_over
    }

    /// Whether what is on drives that are being emptied has room on the others.
    #[must_use]
    pub fn has_room_to_empty(&self) -> bool {
        self.takes(&self.free_units(), self.room)
    }

    /// Whether segments lie on the drives that are online, and stay, alone.
    #[must_use]
    pub fn has_room_online(&self) -> bool {
        self.is_enough(&self.free_units())
    }

    /// Whether segments may lie on the drives that are online, and stay, alone, given their free units.
    fn is_enough(&self, online: &[u32]) -> bool {
        let any_leaves = self.leaving.iter().any(|leaves| *leaves);
        self.takes(online, if any_leaves { self.kept + 1 } else { self.scarce })
    }

    /// Whether so many segments lie on drives with these free units, or more, and one at least.
    fn takes(&self, free: &[u32], segments: u64) -> bool {
        let usable = free.iter().filter(|free| **free > 0).count();
        usable >= self.width && raid::placement::segments(free, self.width) >= segments
    }

    /// Where a segment begins for which all these units may be used: among the `better` ones of them as far as possible, so
    /// that no later segment lacks space for it.
    fn choose_better(&self, better: &[u32], all: &[u32], seed: u64) -> Option<Vec<usize>> {
        let left = raid::placement::segments(all, self.width);
        let spares = |drives: &Vec<usize>| {
            let mut after = all.to_vec();
            drives.iter().for_each(|drive| after[*drive] -= 1);
            raid::placement::segments(&after, self.width) + 1 >= left
        };
        let whole = raid::placement::choose(better, self.width, seed).filter(spares);
        whole.or_else(|| raid::placement::choose(all, self.width, seed))
    }

    /// Of these free units, those of drives that are not slow.
    fn fast(&self, free: &[u32]) -> Vec<u32> {
        let drives = free.iter().zip(&self.slow);
        drives.map(|(free, slow)| if *slow { 0 } else { *free }).collect()
    }

    /// Takes the space of a new segment, or `None` when there is not enough. Members lie on drives that are online while
    /// there is enough space on those, and not on slow ones as long as the pool can hold as much all the same. Where there
    /// is not enough, some are taken on drives that are not online: nothing is written there, and the segment begins its
    /// life degraded, as all others with members there are.
    pub fn allocate(&mut self) -> Option<(SegmentId, Vec<Member>)> {
        let number = self.next;
        let next = number.checked_add(1).filter(|next| *next <= SEGMENTS_END)?;
        let online = self.free_units();
        let seed = u64::from(number);
        let drives = match self.is_enough(&online) {
            true if self.slow.contains(&true) => {
                self.choose_better(&self.fast(&online), &online, seed)?
            }
            true => raid::placement::choose(&online, self.width, seed)?,
            false => self.choose_better(&online, &self.all_units(), seed)?,
        };
        let members = drives.into_iter().map(|drive| {
            let au = self.drives[drive].take_any().expect("a chosen drive has free units");
            Member { drive: stdx::num::u16_of(drive), au }
        });
        let members: Vec<Member> = members.collect();
        let drives: BTreeSet<u16> = members.iter().map(|member| member.drive).collect();
        assert_eq!(drives.len(), self.width, "each member of a segment is on a drive of its own");
        assert!(self.numbers.insert(number), "a number is one segment's");
        self.next = next;
        Some((SegmentId::new(number), members))
    }

    /// Gives a segment's space back.
    ///
    /// # Panics
    /// When it was not taken: two owners of one place would destroy each other.
    pub fn free(&mut self, id: SegmentId, members: &[Member]) {
        assert!(self.numbers.remove(&id.get()), "a segment is freed once");
        assert_eq!(members.len(), self.width, "a segment gives back what it took");
        for member in members {
            let drive = usize::from(member.drive);
            self.drives[drive].give_back(member.au);
            if self.told[drive] {
                self.drives[drive].dirty.insert(member.au);
            }
        }
    }

    /// Whether a drive is to be told, from now on, of the units that become free.
    pub fn tell(&mut self, drive: usize, told: bool) {
        self.told[drive] = told;
        if !told {
            self.drives[drive].dirty.clear();
        }
    }

    /// Whether there are free units that their drive was not told of.
    #[must_use]
    pub fn has_dirty(&self) -> bool {
        let mut drives = self.drives.iter().enumerate();
        drives.any(|(drive, units)| self.stays(drive) && !units.dirty.is_empty())
    }

    /// One of those, which nobody gets until it is [given back](Self::discarded).
    pub fn take_dirty(&mut self) -> Option<Member> {
        let has_some = |n: &usize| self.stays(*n) && !self.drives[*n].dirty.is_empty();
        let drive = (0..self.drives.len()).find(has_some)?;
        let units = &mut self.drives[drive];
        let au = units.dirty.pop_first()?;
        assert!(units.take(au), "what a drive is told of was free");
        units.held += 1;
        Some(Member { drive: stdx::num::u16_of(drive), au })
    }

    /// A drive was told of a unit.
    pub fn discarded(&mut self, member: Member) {
        let units = &mut self.drives[usize::from(member.drive)];
        assert!(units.held > 0, "a unit that its drive was told of was held");
        units.give_back(member.au);
        units.held -= 1;
        assert!(units.held <= units.count - units.free, "what is held is not free");
    }

    /// Segments there are.
    fn placed(&self) -> u64 {
        stdx::num::u64_of(self.numbers.len())
    }

    /// How many segments can be placed in all, those there are included: what is free on one drive is of no use where
    /// the others have nothing. Neither less than before when one comes, nor when one goes; more once segments were
    /// [spread](Self::uneven) over drives that came.
    #[must_use]
    pub fn placeable(&self) -> u64 {
        self.placed()
            + raid::placement::segments(&self.soon_free(|drive| self.may_take(drive)), self.width)
    }

    /// Where there is space that nobody can have before segments were moved there. Nowhere while drives are lost, or
    /// are being emptied: what is moved for that comes first, and goes there by itself.
    #[must_use]
    pub fn uneven(&self) -> Option<raid::placement::Uneven> {
        let is_whole = (0..self.drives.len()).all(|drive| self.closed[drive] || self.stays(drive));
        let left = self.capacity_online().saturating_sub(self.placed());
        let free = self.soon_free(|drive| self.stays(drive));
        is_whole.then(|| raid::placement::uneven(&free, self.width, left)).flatten()
    }

    /// Units of these drives that are free, or soon.
    fn soon_free(&self, is_meant: impl Fn(usize) -> bool) -> Vec<u32> {
        let drives = self.drives.iter().enumerate();
        let free =
            |(n, units): (usize, &Units)| if is_meant(n) { units.free + units.held } else { 0 };
        drives.map(free).collect()
    }

    /// How many more segments there is space for.
    #[must_use]
    pub fn available(&self) -> u64 {
        let online = self.free_units();
        let units = if self.is_enough(&online) { online } else { self.all_units() };
        raid::placement::segments(&units, self.width)
    }

    /// Units that belong to a segment, over all drives.
    #[must_use]
    pub fn taken(&self) -> u64 {
        let taken = |units: &Units| u64::from(units.count - units.free - units.held);
        self.drives.iter().map(taken).sum()
    }

    /// How many segments the pool has space for in all.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let used = self.drives.iter().zip(&self.closed).filter(|(_, closed)| !**closed);
        let all: Vec<u32> = used.map(|(units, _)| units.count).collect();
        raid::placement::segments(&all, self.width)
    }

    /// How many it has space for on the drives that are online without these, by their bits; 0 where they are too few.
    #[must_use]
    pub fn capacity_without(&self, drives: u64) -> u64 {
        let stays = |place: usize| self.stays(place) && drives & (1 << place) == 0;
        let units = self.drives.iter().enumerate().filter(|(place, _)| stays(*place));
        let units: Vec<u32> = units.map(|(_, units)| units.count).collect();
        match units.len() >= self.width {
            true => raid::placement::segments(&units, self.width),
            false => 0,
        }
    }

    /// How many it has space for on the drives that are online, if those are enough for any; on all
    /// drives otherwise: then each is degraded.
    #[must_use]
    pub fn capacity_online(&self) -> u64 {
        let drives = self.drives.iter().enumerate().filter(|(place, _)| self.stays(*place));
        let online: Vec<u32> = drives.map(|(_, units)| units.count).collect();
        match online.len() >= self.width {
            true => raid::placement::segments(&online, self.width),
            false => self.capacity(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_taken_once_and_comes_back() {
        let mut allocator = Allocator::new(&[70, 70, 70, 130], 3);
        let capacity = allocator.capacity();
        let mut held: Vec<_> = std::iter::from_fn(|| allocator.allocate()).collect();
        assert_eq!(held.len() as u64, capacity);
        let mut seen = BTreeSet::new();
        for (id, members) in &held {
            for member in members {
                assert!(seen.insert((member.drive, member.au)), "{id:?}");
            }
        }
        while let Some((id, members)) = held.pop() {
            allocator.free(id, &members);
        }
        assert_eq!(allocator.available(), capacity);
    }

    #[test]
    fn what_is_free_is_discarded_once_and_nobody_gets_it_meanwhile() {
        let mut allocator = Allocator::new(&[4, 4], 2);
        allocator.tell(0, true);
        let (id, members) = allocator.allocate().unwrap();
        assert!(!allocator.has_dirty());
        allocator.free(id, &members);
        let held = allocator.take_dirty().unwrap();
        assert_eq!((held.drive, allocator.taken(), allocator.has_dirty()), (0, 0, false));
        let others = std::iter::from_fn(|| allocator.allocate()).count();
        assert_eq!(others, 3, "the fourth unit is held");
        allocator.discarded(held);
        let (id, members) = allocator.allocate().unwrap();
        assert!(members.contains(&held));
        allocator.free(id, &members);
        // Taken again before its drive was told: it must not be any more.
        assert!(allocator.allocate().is_some() && allocator.take_dirty().is_none());
    }

    #[test]
    fn a_drive_that_is_emptied_takes_what_others_have_no_space_for_until_it_is_empty() {
        let mut allocator = Allocator::new(&[3, 3, 3], 2);
        allocator.keep_while_emptying(1, 2);
        let (id, members) = allocator.allocate().unwrap();
        let leaving = usize::from(members[0].drive);
        allocator.set_leaving(leaving, true);
        let mut held = Vec::new();
        while allocator.has_room_to_empty() {
            let (id, members) = allocator.allocate().unwrap();
            assert!(members.iter().all(|member| usize::from(member.drive) != leaving));
            held.push((id, members));
        }
        assert!(allocator.available() > 0);
        held.extend(std::iter::from_fn(|| allocator.allocate()));
        assert!(
            held.iter().any(|(_, members)| members.iter().any(|m| usize::from(m.drive) == leaving))
        );
        held.push((id, members));
        held.drain(..).for_each(|(id, members)| allocator.free(id, &members));
        assert!(allocator.is_empty(leaving));
        let after = std::iter::from_fn(|| allocator.allocate()).flat_map(|(_, members)| members);
        assert!(after.collect::<Vec<_>>().iter().all(|m| usize::from(m.drive) != leaving));
    }

    /// Each destage waited for the slow drive, though others had room.
    #[test]
    fn a_slow_drive_takes_what_no_other_has_space_for_and_the_pool_holds_as_much() {
        for slow in 0..4 {
            let mut allocator = Allocator::new(&[30; 4], 3);
            let all = (allocator.capacity(), allocator.placeable());
            allocator.set_slow(slow, true);
            let is_there = |(_, members): &(SegmentId, Vec<Member>)| {
                members.iter().any(|member| usize::from(member.drive) == slow)
            };
            let first: Vec<_> = (0..10).map_while(|_| allocator.allocate()).collect();
            assert!(!first.iter().any(is_there), "{slow}");
            assert_eq!((allocator.capacity(), allocator.placeable()), all, "{slow}");
            let rest: Vec<_> = std::iter::from_fn(|| allocator.allocate()).collect();
            assert_eq!(first.len() as u64 + rest.len() as u64, all.1, "{slow}");
            assert!(rest.iter().any(is_there), "{slow}");
        }
    }

    #[test]
    fn where_a_stripe_is_over_all_drives_or_too_many_are_slow_it_is_over_slow_ones_too() {
        let mut allocator = Allocator::new(&[8, 8, 8], 3);
        allocator.set_slow(1, true);
        assert_eq!(std::iter::from_fn(|| allocator.allocate()).count(), 8);
        let mut allocator = Allocator::new(&[8, 8, 8, 8], 3);
        (0..3).for_each(|drive| allocator.set_slow(drive, true));
        assert_eq!(std::iter::from_fn(|| allocator.allocate()).count(), 10);
    }

    #[test]
    fn segments_found_are_not_given_out_again() {
        let mut allocator = Allocator::new(&[8, 8], 2);
        let members = [Member { drive: 0, au: 3 }, Member { drive: 1, au: 7 }];
        allocator.claim(SegmentId::new(5), &members).unwrap();
        assert!(allocator.claim(SegmentId::new(5), &[]).is_err());
        assert!(allocator.claim(SegmentId::new(6), &members).is_err());
        assert!(allocator.claim(SegmentId::new(7), &[Member { drive: 0, au: 8 }]).is_err());
        let all: Vec<_> = std::iter::from_fn(|| allocator.allocate()).collect();
        assert_eq!(all.len(), 7);
        assert!(all.iter().all(|(id, _)| id.get() != 5));
    }

    #[test]
    fn a_drive_offline_takes_nothing() {
        let mut allocator = Allocator::new(&[8, 8, 8], 2);
        allocator.set_online(1, false);
        let all: Vec<_> = std::iter::from_fn(|| allocator.allocate()).collect();
        assert_eq!(all.len(), 8);
        assert!(all.iter().flat_map(|(_, m)| m).all(|m| m.drive != 1));
    }

    #[test]
    fn with_too_few_drives_segments_begin_degraded() {
        let mut allocator = Allocator::new(&[8, 8, 8], 3);
        allocator.set_online(1, false);
        let (_, members) = allocator.allocate().unwrap();
        assert_eq!(members.len(), 3);
        assert_eq!(members.iter().filter(|m| m.drive == 1).count(), 1);
        assert_eq!(allocator.available(), 7);
    }

    /// Once new segments took the last units of the drives that were left, and those of the lost one
    /// were of no use: a pool that had been nearly full had no space to work with.
    #[test]
    fn where_space_is_scarce_that_of_a_lost_drive_is_used_too() {
        let mut allocator = Allocator::new(&[20, 20, 20, 20], 2);
        let mut held: Vec<_> = (0..28).map_while(|_| allocator.allocate()).collect();
        allocator.degrade_below(6);
        allocator.set_online(3, false);
        assert_eq!((allocator.capacity(), allocator.capacity_online()), (40, 30));
        let more: Vec<_> = std::iter::from_fn(|| allocator.allocate()).collect();
        assert_eq!(more.len() + held.len(), 40, "as much as before the loss");
        let is_degraded = |members: &[Member]| members.iter().any(|m| m.drive == 3);
        assert!(!is_degraded(&more[0].1), "while there is space, none is degraded");
        assert!(more.iter().all(|(_, m)| m.iter().any(|m| m.drive != 3)));
        held.extend(more);
        held.iter().for_each(|(id, members)| allocator.free(*id, members));
        assert_eq!(allocator.available(), 30);
    }
}
