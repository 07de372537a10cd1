//! What several volumes are together: snapshots and clones of groups are there as a whole or not at all, and of one instant.
//!
//! One instant is looked for by writes that a host sends one after another to volumes of the group by turns, each once the
//! one before was answered. Where a copy of one volume has the n-th of them, the copy of another one has what that volume
//! had by the one before, or something later.

use super::register::Origin;
use super::volumes::Presence;
use super::{Model, Serial, Violation, index};
use crate::contents::Stamp;
use std::collections::BTreeMap;

/// So many instants are looked at again after a crash, the newest ones.
const INSTANTS: usize = 16;

/// A copy of a volume, a snapshot or a clone, and where in it the writes are.
#[derive(Clone, Debug)]
pub struct Copied {
    pub copy: Serial,
    pub of: Serial,
    pub block: u64,
}

/// Copies of several volumes at one instant, and what was written to these one after another about that time.
#[derive(Clone, Debug)]
pub struct Instant {
    pub number: u64,
    pub copies: Vec<Copied>,
    /// The writes in their order, each with the number of its volume.
    writes: Vec<(usize, Stamp)>,
    /// Something of that was copied elsewhere, and back: what is older may be there later.
    muddled: bool,
}

impl Instant {
    /// Whether copies that have these of the writes may be of one instant; `None` for one that has something else, of which
    /// nothing is known.
    ///
    /// # Errors
    /// Why they are not.
    pub fn check(&self, found: &[Option<Stamp>]) -> Result<(), Violation> {
        if self.muddled {
            return Ok(());
        }
        let nth = |(number, found): (usize, &Option<Stamp>)| {
            let is_it =
                |(volume, stamp): &(usize, Stamp)| *volume == number && Some(*stamp) == *found;
            self.writes.iter().position(is_it).map(|nth| (number, nth))
        };
        let seen: Vec<(usize, usize)> = found.iter().enumerate().filter_map(nth).collect();
        let Some((newest, last)) = seen.iter().max_by_key(|(_, nth)| *nth) else { return Ok(()) };
        for (number, nth) in &seen {
            let mut between = self.writes[nth + 1..(*last).max(nth + 1)].iter();
            if let Some((_, missing)) = between.find(|(volume, _)| volume == number) {
                let (of, other) = (self.copies[*number].copy, self.copies[*newest].copy);
                return Err(Violation(format!(
                    "copies are not of one instant: {other} has {}, and {of} not {missing}, which was answered before",
                    self.writes[*last].1
                )));
            }
        }
        Ok(())
    }
}

impl Model {
    /// What is being made, or deleted, as a whole.
    pub fn begin_together(&mut self, all: Vec<Serial>) {
        self.together.push(all);
    }

    /// That is done, or was refused.
    pub fn end_together(&mut self, all: &[Serial]) {
        self.together.retain(|other| other != all);
    }

    /// Copies of volumes are being made, while somebody writes to these one after another. Gives its number.
    pub fn begin_instant(&mut self, copies: Vec<Copied>) -> u64 {
        let number = self.tick();
        self.instants.push(Instant { number, copies, writes: Vec::new(), muddled: false });
        let beyond = self.instants.len().saturating_sub(INSTANTS);
        self.instants.drain(..beyond);
        number
    }

    /// The next write begins, to this one of the volumes: all before were answered.
    pub fn note_in_order(&mut self, instant: u64, volume: usize, stamp: Stamp) {
        let of = self.instants.iter_mut().filter(|of| of.number == instant);
        of.for_each(|of| of.writes.push((volume, stamp)));
    }

    /// A block gets contents by a copy, or may: its own of some time ago, perhaps.
    pub(super) fn note_return(&mut self, volume: Serial, block: u64, origins: &[Origin]) {
        let is_own = |origin: &&Origin| origin.volume == volume && origin.block == block;
        if !origins.iter().any(|origin| is_own(&origin)) {
            return;
        }
        let is_of = |of: &Copied| of.of == volume && of.block == block;
        let of = self.instants.iter_mut().filter(|instant| instant.copies.iter().any(is_of));
        for instant in of {
            let has = |origin: &&Origin| {
                is_own(origin) && instant.writes.iter().any(|(_, stamp)| *stamp == origin.stamp)
            };
            instant.muddled |= origins.iter().any(|origin| has(&origin));
        }
    }

    /// Copies of these are made, each at the same place: they are of the same instant.
    pub fn copy_instant(&mut self, of: &[Serial], copies: &[Serial]) {
        let made_of =
            |instant: &&Instant| instant.copies.iter().map(|c| c.copy).eq(of.iter().copied());
        let Some(mut instant) = self.instants.iter().find(made_of).cloned() else { return };
        instant.number = self.tick();
        for (copied, copy) in instant.copies.iter_mut().zip(copies) {
            copied.copy = *copy;
        }
        self.instants.push(instant);
    }

    /// The instants of which all copies are there, each with the names of these and the bytes of their blocks.
    pub fn instants(&self) -> Vec<(Instant, Vec<(String, usize)>)> {
        let named = |of: &Copied| {
            let copy = &self.volumes[index(of.copy)];
            (copy.presence == Presence::Present).then(|| (copy.name.clone(), copy.unit))
        };
        let names =
            |instant: &Instant| instant.copies.iter().map(named).collect::<Option<Vec<_>>>();
        let each = self.instants.iter();
        each.filter_map(|instant| Some((instant.clone(), names(instant)?))).collect()
    }

    /// What was being made, or deleted, as a whole is there as a whole or not at all, by what a pool just opened says.
    pub(super) fn settle_together(
        &mut self,
        listed: &BTreeMap<String, u64>,
    ) -> Result<(), Violation> {
        for all in std::mem::take(&mut self.together) {
            let open = all.iter().map(|serial| &self.volumes[index(*serial)]);
            let open: Vec<_> = open.filter(|of| of.presence == Presence::Open).collect();
            let there = open.iter().filter(|of| listed.contains_key(&of.name)).count();
            if there != 0 && there != open.len() {
                let names: Vec<_> = open.iter().map(|of| &of.name).collect();
                return Err(Violation(format!(
                    "{there} of {names:?} are there: all should, or none"
                )));
            }
        }
        Ok(())
    }
}
