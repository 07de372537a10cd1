//! Volumes of the model: those there are, their names and sizes, and how much they hold.

use super::register::{Origin, Register, Version};
use super::{Begun, Model, Moment, Serial, Target, Violation, index};
use crate::contents::BLOCK;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use stdx::num::u64_of;

/// Whether a volume is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Present,
    /// A creation or deletion whose fate is open.
    Open,
    Gone,
}

#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub name: String,
    /// The other name it may have: a renaming is open.
    pub renaming: Option<String>,
    pub presence: Presence,
    /// The sizes it may have, in blocks; one unless a resize is open.
    pub sizes: Vec<u64>,
    /// A smaller size on its way, and since when.
    pub cutting: Option<(Moment, u64)>,
    /// When it was last made something else than it was: what began before may be refused.
    pub changed: Moment,
    /// Bytes of a block.
    pub unit: usize,
    /// What it is a snapshot of.
    pub parent: Option<Serial>,
    /// The snapshot that it was made of, if it is a clone, or its volume is, or went back to, perhaps: what that sees stays,
    /// seen or not.
    pub keeps: Vec<Serial>,
    /// It may have got what it began with as its own.
    pub detached: bool,
    /// Blocks never written are not listed: zeroes.
    pub blocks: BTreeMap<u64, Register>,
}

impl Model {
    /// A volume of blocks of `unit` bytes is being created.
    pub fn begin_create(&mut self, name: &str, size: u64, unit: usize) -> Serial {
        let presence = Presence::Open;
        let (name, blocks) = (name.to_owned(), BTreeMap::new());
        let (sizes, renaming) = (vec![size], None);
        let (cutting, changed) = (None, self.tick());
        self.volumes.push(Volume {
            name,
            renaming,
            presence,
            sizes,
            cutting,
            changed,
            unit,
            parent: None,
            keeps: Vec::new(),
            detached: false,
            blocks,
        });
        u64_of(self.volumes.len() - 1)
    }

    pub fn end_create(&mut self, volume: Serial) {
        self.volume(volume).presence = Presence::Present;
    }

    pub fn begin_delete(&mut self, volume: Serial) {
        self.volume(volume).presence = Presence::Open;
    }

    /// Whether nobody knows if it is there: its creation or deletion failed, or is under way.
    pub fn is_open(&self, volume: Serial) -> bool {
        self.volumes[index(volume)].presence == Presence::Open
    }

    /// It is gone, or was never made.
    pub fn end_delete(&mut self, volume: Serial) {
        self.change(volume);
        self.volume(volume).presence = Presence::Gone;
        self.forget();
    }

    /// What is gone, and kept for no clone, is forgotten.
    fn forget(&mut self) {
        for serial in (0..self.volumes.len()).rev() {
            let volume = &self.volumes[serial];
            if volume.presence != Presence::Gone || volume.blocks.is_empty() {
                continue;
            }
            let is_kept = self.volumes.iter().any(|v| {
                let is_there = v.presence != Presence::Gone || !v.blocks.is_empty();
                is_there && v.keeps.contains(&u64_of(serial))
            });
            if !is_kept {
                self.volumes[serial].blocks.clear();
            }
        }
    }

    fn change(&mut self, volume: Serial) {
        let now = self.tick();
        self.volume(volume).changed = now;
    }

    /// A deletion or renaming was refused: nothing of it was done.
    pub fn refuse_change(&mut self, volume: Serial) {
        self.change(volume);
        let volume = self.volume(volume);
        volume.presence = Presence::Present;
        volume.renaming = None;
    }

    /// Whether something under way may be refused because its volume is being changed, or was since it began.
    pub fn may_miss(&self, begun: &Begun) -> bool {
        let volume = &self.volumes[index(begun.volume)];
        let is_open = volume.presence != Presence::Present
            || volume.renaming.is_some()
            || volume.sizes.len() > 1;
        let is_cut = volume.sizes.iter().any(|size| *size < begun.first + begun.count);
        is_open || is_cut || volume.changed > begun.at
    }

    /// The volume is being given another name.
    pub fn begin_rename(&mut self, volume: Serial, to: &str) {
        self.volume(volume).renaming = Some(to.to_owned());
    }

    pub fn end_rename(&mut self, volume: Serial) {
        self.change(volume);
        let volume = self.volume(volume);
        volume.name = volume.renaming.take().unwrap_or_default();
    }

    /// A resize begins. What a smaller size cuts off is zeroes, or still what it was, until the
    /// resize has ended.
    pub fn begin_resize(&mut self, volume: Serial, size: u64) -> Begun {
        let at = self.tick();
        let volume_ = self.volume(volume);
        volume_.sizes.push(size);
        volume_.cutting = Some((at, size));
        for (_, register) in volume_.blocks.range_mut(size..) {
            register.versions.push(Version::zeroes(at));
        }
        Begun { volume, first: size, count: u64::MAX - size, at }
    }

    /// The resize was answered with success.
    pub fn end_resize(&mut self, resize: &Begun) {
        let now = self.tick();
        let volume = self.volume(resize.volume);
        volume.sizes = vec![resize.first];
        (volume.cutting, volume.changed) = (None, now);
        for (_, register) in volume.blocks.range_mut(resize.first..) {
            register.end(resize.at, now, true);
        }
    }

    /// A volume that nobody writes to goes back to what a snapshot of it has; what it has until then may be copied by this
    /// one, which keeps it.
    pub fn begin_rollback(&mut self, volume: Serial, to: &Target, keep: Option<&Begun>) -> Begun {
        // What that has is what there was before.
        self.copies.retain(|copy| keep.is_none_or(|keep| copy.at != keep.at));
        let at = self.tick();
        let had = self.volume(to.serial).blocks.range(..to.size).map(|(block, _)| *block);
        let mut blocks: BTreeSet<u64> = had.collect();
        blocks.extend(self.volume(volume).blocks.keys());
        let mut given = Vec::new();
        for block in blocks {
            let has = block < to.size && self.volume(to.serial).blocks.contains_key(&block);
            let origins = match has {
                true => {
                    let register = self.register(to.serial, block);
                    register.copied = true;
                    register.allowed(at)
                }
                false => vec![Origin::ZERO],
            };
            self.begin_version(volume, block, at, origins.clone());
            self.register(volume, block).copied = true;
            given.push((block, origins));
        }
        self.spread(volume, given.into_iter());
        let of = self.volume(volume);
        of.sizes.push(to.size);
        of.keeps.push(to.serial);
        Begun { volume, first: 0, count: u64::MAX, at }
    }

    /// The rollback to a snapshot of this size was answered with success.
    pub fn end_rollback(&mut self, rollback: &Begun, to: &Target) {
        let now = self.tick();
        let volume = self.volume(rollback.volume);
        (volume.sizes, volume.keeps, volume.changed) = (vec![to.size], vec![to.serial], now);
        for register in volume.blocks.values_mut() {
            register.end(rollback.at, now, true);
        }
        self.forget();
    }

    /// The rollback was refused: nothing of it was done.
    pub fn refuse_rollback(&mut self, rollback: &Begun) {
        let now = self.tick();
        let volume = self.volume(rollback.volume);
        volume.sizes.truncate(1);
        volume.keeps.pop();
        volume.changed = now;
        for register in volume.blocks.values_mut() {
            register.versions.retain(|version| version.begun != rollback.at);
        }
    }

    /// The resize was refused: nothing of it was done.
    pub fn refuse_resize(&mut self, resize: &Begun) {
        let now = self.tick();
        let volume = self.volume(resize.volume);
        volume.sizes.truncate(1);
        (volume.cutting, volume.changed) = (None, now);
        for (_, register) in volume.blocks.range_mut(resize.first..) {
            register.versions.retain(|version| version.begun != resize.at);
        }
    }

    /// Compares with what a pool just opened says it has: names and sizes in blocks. What was open
    /// is decided by that.
    ///
    /// # Errors
    /// A volume missing, one too many, or of a size it cannot have.
    pub fn settle_volumes(&mut self, listed: &BTreeMap<String, u64>) -> Result<(), Violation> {
        let mut known = 0;
        self.settle_together(listed)?;
        for volume in &mut self.volumes {
            let renamed = volume.renaming.take_if(|to| listed.contains_key(to));
            (volume.renaming, volume.cutting) = (None, None);
            volume.name = renamed.unwrap_or(std::mem::take(&mut volume.name));
            let size = listed.get(&volume.name).copied();
            match (volume.presence, size) {
                (Presence::Gone, _) => continue,
                (Presence::Present, None) => {
                    return Err(Violation(format!("volume `{}` is missing", volume.name)));
                }
                (Presence::Open, None) => volume.presence = Presence::Gone,
                (Presence::Present | Presence::Open, Some(size)) => {
                    if !volume.sizes.contains(&size) {
                        let (name, may) = (&volume.name, &volume.sizes);
                        let text = format!("volume `{name}` has {size} blocks; allowed: {may:?}");
                        return Err(Violation(text));
                    }
                    known += 1;
                    volume.presence = Presence::Present;
                    volume.sizes = vec![size];
                }
            }
        }
        self.forget();
        if known == listed.len() {
            return Ok(());
        }
        Err(Violation(format!("there are volumes nobody made: {:?}", listed.keys())))
    }

    /// Volumes that are there.
    pub fn present(&self) -> Vec<Target> {
        let all = (0..).zip(&self.volumes);
        let present = all.filter(|(_, v)| v.presence == Presence::Present);
        let target = |(serial, v): (Serial, &Volume)| Target {
            serial,
            name: v.name.clone(),
            size: v.sizes[0],
            unit: v.unit,
            parent: v.parent,
            inherits: !v.keeps.is_empty(),
        };
        present.map(target).collect()
    }

    /// The ranges of a volume that were ever touched, below `size`.
    pub fn touched(&self, volume: Serial, size: u64) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (&block, _) in self.volumes[index(volume)].blocks.range(..size) {
            match ranges.last_mut() {
                Some(last) if last.end == block => last.end += 1,
                _ => ranges.push(block..block + 1),
            }
        }
        ranges
    }

    /// For each volume that is surely there, blocks of 4096 bytes that surely have contents, and those that may.
    pub fn used(&self) -> Vec<(String, u64, u64)> {
        let there = self.volumes.iter().filter(|v| v.presence == Presence::Present);
        let used = |volume: &Volume| {
            let (least, most) = volume.used();
            // What it has not of its own does not count.
            let least = if volume.keeps.is_empty() { least } else { 0 };
            (volume.name.clone(), least, most)
        };
        there.filter(|v| v.renaming.is_none() && v.sizes.len() == 1).map(used).collect()
    }

    /// A clone is being cut loose: what it began with may be its parent's alone from now on.
    pub fn begin_detach(&mut self, volume: Serial) {
        self.volume(volume).detached = true;
    }

    /// For each volume that is surely there, blocks of 4096 bytes that it and its snapshots hold together, at least and at
    /// most: what counts against a quota. Not of those that went back to a snapshot, or are clones.
    pub fn held(&self) -> Vec<(String, u64, u64)> {
        let is_sure = |v: &&Volume| v.presence == Presence::Present && v.renaming.is_none();
        let all = (0..).zip(&self.volumes).filter(|(_, v)| is_sure(v) && v.parent.is_none());
        let bounded = all.filter(|(_, v)| v.keeps.is_empty() && v.sizes.len() == 1);
        let held = |(serial, v): (Serial, &Volume)| {
            let (least, most) = self.held_by(serial, v);
            (v.name.clone(), least, most)
        };
        bounded.map(held).collect()
    }

    fn held_by(&self, serial: Serial, volume: &Volume) -> (u64, u64) {
        let (_, mut most) = volume.used();
        let mut contents: BTreeSet<(u64, Origin)> = volume.sure_contents().collect();
        for (snapshot, of) in (0..).zip(&self.volumes).filter(|(_, v)| v.parent == Some(serial)) {
            most += of.used().1;
            let holds = |clone: &Volume| {
                let is_clone = clone.parent.is_none() && clone.keeps == [snapshot];
                is_clone && clone.presence == Presence::Present && !clone.detached
            };
            if of.presence == Presence::Present || self.volumes.iter().any(holds) {
                contents.extend(of.sure_contents());
            }
        }
        // As often as any part of it was another.
        let ratio = u64_of(BLOCK / volume.unit);
        let mut versions: BTreeMap<u64, u64> = BTreeMap::new();
        let contents: Vec<_> = contents.into_iter().collect();
        for part in contents.chunk_by(|(a, _), (b, _)| a == b) {
            let versions = versions.entry(part[0].0 / ratio).or_default();
            *versions = u64_of(part.len()).max(*versions);
        }
        (versions.into_values().sum(), most)
    }

    /// Blocks of 4096 bytes that surely hold data, and those that may, over all volumes that are
    /// there. Exact when nothing is open and no volume has smaller blocks.
    pub fn population(&self) -> (u64, u64) {
        let (mut least, mut most) = (0, 0);
        // Blocks that share their contents are one.
        let mut shared = BTreeSet::new();
        // What is gone and has blocks is kept for clones, or part of it.
        for volume in &self.volumes {
            let size = volume.sizes.iter().copied().max().unwrap_or(0);
            let ratio = u64_of(BLOCK / volume.unit);
            let (mut sure, mut possible) = (None, None);
            for (&block, register) in volume.blocks.range(..size) {
                let allowed = register.allowed(Moment::MAX);
                let empty = allowed.iter().filter(|&&origin| origin == Origin::ZERO).count();
                let at = Some(block / ratio);
                // Nothing is stored for what is known to be lost.
                let may_be_lost = allowed.contains(&Origin::LOST);
                let is_sure = empty == 0 && !may_be_lost && volume.presence == Presence::Present;
                if is_sure && register.copied {
                    shared.extend((ratio == 1 && allowed.len() == 1).then(|| allowed[0]));
                } else if is_sure && sure != at {
                    let apart = ratio == 1 || !volume.is_copied(block, ratio);
                    (least, sure) = (least + u64::from(apart), at);
                }
                // Zeroes written to a part of a block take as much as anything. An old version that was copied before it
                // became one counts under its name, too.
                if (empty < allowed.len() || ratio > 1) && possible != at {
                    (most, possible) = (most + 1 + u64::from(volume.parent.is_some()), at);
                }
            }
        }
        (least + u64_of(shared.len()), most)
    }
}

impl Volume {
    fn used(&self) -> (u64, u64) {
        let size = self.sizes.iter().copied().max().unwrap_or(0);
        let ratio = u64_of(BLOCK / self.unit);
        let (mut sure, mut possible) = (BTreeSet::new(), BTreeSet::new());
        for (&block, register) in self.blocks.range(..size) {
            let allowed = register.allowed(Moment::MAX);
            let empty = allowed.iter().filter(|&&origin| origin == Origin::ZERO).count();
            if empty == 0 {
                sure.insert(block / ratio);
            }
            // Zeroes written to a part of a block take as much as anything.
            if empty < allowed.len() || ratio > 1 {
                possible.insert(block / ratio);
            }
        }
        (u64_of(sure.len()), u64_of(possible.len()))
    }

    /// What blocks surely have.
    fn sure_contents(&self) -> impl Iterator<Item = (u64, Origin)> {
        let size = self.sizes.iter().copied().max().unwrap_or(0);
        self.blocks.range(..size).filter_map(|(&block, register)| {
            match register.allowed(Moment::MAX)[..] {
                [origin] if ![Origin::ZERO, Origin::LOST].contains(&origin) => {
                    Some((block, origin))
                }
                _ => None,
            }
        })
    }

    /// Whether a part of the block of 4096 bytes that `block` lies in was copied.
    fn is_copied(&self, block: u64, ratio: u64) -> bool {
        let first = block / ratio * ratio;
        self.blocks.range(first..first + ratio).any(|(_, register)| register.copied)
    }
}
