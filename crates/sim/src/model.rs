//! What each block may hold: everything that follows from what was asked, answered and seen.
//!
//! A block is a register. A write takes effect at some moment between its beginning and its answer;
//! a read shows what the block held at some moment between its own. So a read may show any version
//! that is not surely older than another one: `x` is, once a `w` that began after `x` had ended has
//! itself ended before the read began. What a read has shown was there at that moment, as if it had
//! been written then: later reads may not go back behind it.
//!
//! Acknowledged means durable. A crash ends every write under way with an open fate: it may be there
//! or not, but stays what it was first seen to be.
//!
//! When bits rot beyond what the redundancy gives back, what was written before may be lost: a read
//! says so. What is damaged in the log may be on its way to the drives, and be found there later; a read
//! never shows anything else.

use crate::contents::{BLOCK, Found, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use stdx::num::u64_of;

/// Counts events of the run: every beginning and end has its own.
type Moment = u64;

/// Contents: what a write put into a block, which may have been copied since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    stamp: Stamp,
    volume: Serial,
    block: u64,
}

impl Origin {
    const ZERO: Self = Self { stamp: Stamp::ZERO, volume: 0, block: 0 };
    const LOST: Self = Self { stamp: Stamp(u64::MAX), volume: u64::MAX, block: u64::MAX };

    fn new(stamp: Stamp, volume: Serial, block: u64) -> Self {
        if stamp == Stamp::ZERO { Self::ZERO } else { Self { stamp, volume, block } }
    }

    /// What was found in a block of a volume, unless it is garbage.
    fn of(found: Found, at: Serial, number: u64) -> Option<Self> {
        match found {
            Found::Stamp(stamp) => Some(Self::new(stamp, at, number)),
            Found::Elsewhere { stamp, volume, block } => Some(Self::new(stamp, volume, block)),
            Found::Lost => Some(Self::LOST),
            Found::Garbage { .. } => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Version {
    /// What it is: one of several for a copy, of whatever its source had meanwhile.
    origins: Vec<Origin>,
    begun: Moment,
    /// `None` while it is under way.
    ended: Option<Moment>,
    /// It surely happened. A write that failed or was cut off may not have.
    certain: bool,
    kind: Kind,
}

/// How a version is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Written,
    /// A read showed it.
    Seen,
    /// A write whose host did not wait for the answer: it may come to light later, but not over a
    /// write that began after that.
    GivenUp,
}

/// The versions a block may still show, oldest first by beginning.
#[derive(Clone, Debug)]
struct Register {
    versions: Vec<Version>,
    /// It was copied, from or to: it may share its contents.
    copied: bool,
}

impl Register {
    /// Zeroes from the beginning.
    fn new() -> Self {
        let zeroes = Version {
            origins: vec![Origin::ZERO],
            begun: 0,
            ended: Some(0),
            certain: true,
            kind: Kind::Written,
        };
        Self { versions: vec![zeroes], copied: false }
    }

    /// Whether a read begun at `reading` can no longer show `old`.
    fn superseded(&self, old: &Version, reading: Moment) -> bool {
        let Some(ended) = old.ended else { return false };
        let newer = |w: &Version| {
            let counts = old.kind != Kind::GivenUp || w.kind == Kind::Written;
            counts && w.begun > ended && w.ended.is_some_and(|end| end < reading)
        };
        self.versions.iter().any(|w| w.certain && newer(w))
    }

    /// What it is known to be when a read shows `origin`, if it may: that, or lost already where it
    /// came out of memory.
    fn shows(&self, origin: Origin, reading: Moment) -> Option<Vec<Origin>> {
        let possible = |v: &&Version| v.origins.contains(&origin) && !self.superseded(v, reading);
        let mut possible = self.versions.iter().filter(possible).peekable();
        possible.peek()?;
        let lost = possible.any(|v| v.origins.contains(&Origin::LOST));
        Some([origin].into_iter().chain(lost.then_some(Origin::LOST)).collect())
    }

    fn may_be_lost(&self, reading: Moment) -> bool {
        self.allowed(reading).contains(&Origin::LOST)
    }

    fn allowed(&self, reading: Moment) -> Vec<Origin> {
        let possible = self.versions.iter().filter(|v| !self.superseded(v, reading));
        let mut allowed: Vec<Origin> = possible.flat_map(|v| v.origins.iter().copied()).collect();
        allowed.sort_unstable();
        allowed.dedup();
        allowed
    }

    fn end(&mut self, begun: Moment, now: Moment, certain: bool) {
        if let Some(version) = self.versions.iter_mut().find(|v| v.begun == begun) {
            version.ended = Some(now);
            version.certain = certain;
        }
    }

    fn give_up(&mut self, begun: Moment, now: Moment) {
        if let Some(version) = self.versions.iter_mut().find(|v| v.begun == begun) {
            (version.ended, version.kind) = (Some(now), Kind::GivenUp);
        }
    }

    /// Forgets what no read that runs or will run can show.
    fn prune(&mut self, oldest_read: Moment) {
        let all = self.clone();
        self.versions.retain(|v| !all.superseded(v, oldest_read));
    }
}

/// Something the model did not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A volume's place in the model: never used twice.
pub type Serial = u64;

/// A volume a host works on.
#[derive(Clone, Debug)]
pub struct Target {
    pub serial: Serial,
    pub name: String,
    /// In its blocks.
    pub size: u64,
    /// Bytes of a block.
    pub unit: usize,
}

/// Whether a volume is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Present,
    /// A creation or deletion whose fate is open.
    Open,
    Gone,
}

#[derive(Clone, Debug)]
struct Volume {
    name: String,
    /// The other name it may have: a renaming is open.
    renaming: Option<String>,
    presence: Presence,
    /// The sizes it may have, in blocks; one unless a resize is open.
    sizes: Vec<u64>,
    /// Bytes of a block.
    unit: usize,
    /// Blocks never written are not listed: zeroes.
    blocks: BTreeMap<u64, Register>,
}

/// A read or write under way.
#[derive(Debug)]
#[must_use = "what was begun must be ended"]
pub struct Begun {
    volume: Serial,
    first: u64,
    count: u64,
    at: Moment,
}

impl Begun {
    /// Those it is about.
    pub const fn blocks(&self) -> Range<u64> {
        self.first..self.first + self.count
    }
}

/// A copy under way.
#[derive(Clone, Debug)]
struct Copying {
    source: Serial,
    from: u64,
    target: Serial,
    to: u64,
    count: u64,
    at: Moment,
}

/// All volumes of a pool, as the outside knows them.
#[derive(Clone, Debug, Default)]
pub struct Model {
    now: Moment,
    stamps: u64,
    volumes: Vec<Volume>,
    /// When the reads under way began.
    reads: Vec<Moment>,
    copies: Vec<Copying>,
    rotted: bool,
}

fn index(serial: Serial) -> usize {
    stdx::num::usize64(serial)
}

impl Model {
    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    fn volume(&mut self, serial: Serial) -> &mut Volume {
        &mut self.volumes[index(serial)]
    }

    /// A stamp no write has had.
    pub fn stamp(&mut self) -> Stamp {
        self.stamps += 1;
        Stamp(self.stamps)
    }

    /// A write of `count` blocks begins. [`Stamp::ZERO`] for zeroes and deallocation.
    pub fn begin_write(&mut self, volume: Serial, first: u64, count: u64, stamp: Stamp) -> Begun {
        let at = self.tick();
        for block in first..first + count {
            let origins = vec![Origin::new(stamp, volume, block)];
            self.begin_version(volume, block, at, origins.clone());
            self.spread(volume, block, origins);
        }
        Begun { volume, first, count, at }
    }

    fn register(&mut self, volume: Serial, block: u64) -> &mut Register {
        self.volume(volume).blocks.entry(block).or_insert_with(Register::new)
    }

    fn begin_version(&mut self, volume: Serial, block: u64, at: Moment, origins: Vec<Origin>) {
        let version =
            Version { origins, begun: at, ended: None, certain: false, kind: Kind::Written };
        self.register(volume, block).versions.push(version);
    }

    /// Copies under way may give on what a block may have from now on.
    fn spread(&mut self, volume: Serial, block: u64, origins: Vec<Origin>) {
        let mut open = vec![(volume, block, origins)];
        while let Some((volume, block, origins)) = open.pop() {
            let from_here =
                |c: &&Copying| c.source == volume && (c.from..c.from + c.count).contains(&block);
            let copies: Vec<Copying> = self.copies.iter().filter(from_here).cloned().collect();
            for copy in copies {
                let to = copy.to + (block - copy.from);
                let register = self.register(copy.target, to);
                let version = register.versions.iter_mut().find(|v| v.begun == copy.at);
                let Some(version) = version else { continue };
                let mut new = origins.clone();
                new.retain(|origin| !version.origins.contains(origin));
                version.origins.extend_from_slice(&new);
                if !new.is_empty() {
                    open.push((copy.target, to, new));
                }
            }
        }
    }

    /// A copy of `count` blocks begins: what the source has, or may have until it is answered.
    pub fn begin_copy(
        &mut self,
        source: (Serial, u64),
        target: (Serial, u64),
        count: u64,
    ) -> Begun {
        let at = self.tick();
        let ((source, from), (target, to)) = (source, target);
        let mut had = Vec::new();
        for block in from..from + count {
            let register = self.register(source, block);
            register.copied = true;
            had.push(register.allowed(at));
        }
        self.copies.push(Copying { source, from, target, to, count, at });
        for (block, origins) in (to..).zip(&had) {
            self.begin_version(target, block, at, origins.clone());
            self.register(target, block).copied = true;
        }
        // Only now: what goes round through other copies comes back to this one.
        for (block, origins) in (to..).zip(had) {
            self.spread(target, block, origins);
        }
        Begun { volume: target, first: to, count, at }
    }

    /// The write was answered; `certain` when with success.
    pub fn end_write(&mut self, write: &Begun, certain: bool) {
        let now = self.tick();
        self.copies.retain(|copy| copy.at != write.at);
        let oldest = self.reads.iter().copied().min().unwrap_or(Moment::MAX);
        let range = write.first..write.first + write.count;
        for (_, register) in self.volume(write.volume).blocks.range_mut(range) {
            register.end(write.at, now, certain);
            register.prune(oldest);
        }
    }

    /// The host went away before the write was answered.
    pub fn give_up_write(&mut self, write: &Begun) {
        let now = self.tick();
        self.copies.retain(|copy| copy.at != write.at);
        let range = write.first..write.first + write.count;
        for (_, register) in self.volume(write.volume).blocks.range_mut(range) {
            register.give_up(write.at, now);
        }
    }

    pub fn begin_read(&mut self, volume: Serial, first: u64, count: u64) -> Begun {
        let at = self.tick();
        self.reads.push(at);
        Begun { volume, first, count, at }
    }

    /// The read failed: it showed nothing.
    pub fn fail_read(&mut self, read: &Begun) {
        self.reads.retain(|&at| at != read.at);
    }

    /// Whether a read may have failed because a block of it is lost.
    pub fn may_be_lost(&mut self, read: &Begun) -> bool {
        let blocks = &self.volume(read.volume).blocks;
        let mut range = blocks.range(read.first..read.first + read.count);
        range.any(|(_, register)| register.may_be_lost(read.at))
    }

    /// Bits rotted, beyond what the redundancy gives back perhaps.
    pub fn rot(&mut self) {
        let registers = self.volumes.iter_mut().flat_map(|volume| volume.blocks.values_mut());
        for version in registers.flat_map(|register| &mut register.versions) {
            // Zeroes are holes.
            if version.origins.iter().any(|origin| *origin != Origin::ZERO) {
                version.origins.push(Origin::LOST);
            }
        }
        self.rotted = true;
    }

    /// Whether bits ever rotted.
    pub const fn has_rotted(&self) -> bool {
        self.rotted
    }

    /// The read showed `found`, block by block.
    ///
    /// # Errors
    /// What it may not show.
    pub fn end_read(&mut self, read: &Begun, found: &[Found]) -> Result<(), Violation> {
        let now = self.tick();
        self.reads.retain(|&at| at != read.at);
        let oldest = self.reads.iter().copied().min().unwrap_or(Moment::MAX);
        let volume = self.volume(read.volume);
        assert_eq!(u64::try_from(found.len()), Ok(read.count), "a read shows all its blocks");
        for (block, &found) in (read.first..).zip(found) {
            let untouched = || found == Found::Stamp(Stamp::ZERO);
            let Some(register) = volume.blocks.get_mut(&block) else {
                if untouched() {
                    continue;
                }
                return Err(violation(volume, read.volume, block, found, &[Origin::ZERO]));
            };
            let origin = Origin::of(found, read.volume, block);
            if origin == Some(Origin::LOST) && register.may_be_lost(read.at) {
                // That tells nothing of what it holds.
                continue;
            }
            let Some(origins) = origin.and_then(|origin| register.shows(origin, read.at)) else {
                let allowed = register.allowed(read.at);
                return Err(violation(volume, read.volume, block, found, &allowed));
            };
            // Seen is as good as written then, and by now.
            let seen = Version {
                origins,
                begun: read.at,
                ended: Some(now),
                certain: true,
                kind: Kind::Seen,
            };
            register.versions.push(seen);
            register.prune(oldest);
        }
        Ok(())
    }

    /// Everything under way is cut off; what was given up has a fate from now on.
    pub fn crash(&mut self) {
        let now = self.tick();
        self.reads.clear();
        self.copies.clear();
        for volume in &mut self.volumes {
            for register in volume.blocks.values_mut() {
                for version in &mut register.versions {
                    version.ended.get_or_insert(now);
                }
                register.prune(Moment::MAX);
                let given_up = register.versions.iter_mut().filter(|v| v.kind == Kind::GivenUp);
                given_up.for_each(|v| (v.ended, v.kind) = (Some(now), Kind::Written));
            }
        }
    }

    /// A volume of blocks of `unit` bytes is being created.
    pub fn begin_create(&mut self, name: &str, size: u64, unit: usize) -> Serial {
        let presence = Presence::Open;
        let (name, blocks) = (name.to_owned(), BTreeMap::new());
        let (sizes, renaming) = (vec![size], None);
        self.volumes.push(Volume { name, renaming, presence, sizes, unit, blocks });
        u64_of(self.volumes.len() - 1)
    }

    pub fn end_create(&mut self, volume: Serial) {
        self.volume(volume).presence = Presence::Present;
    }

    pub fn begin_delete(&mut self, volume: Serial) {
        self.volume(volume).presence = Presence::Open;
    }

    /// It is gone, or was never made.
    pub fn end_delete(&mut self, volume: Serial) {
        let volume = self.volume(volume);
        volume.presence = Presence::Gone;
        volume.blocks.clear();
    }

    /// The volume is being given another name.
    pub fn begin_rename(&mut self, volume: Serial, to: &str) {
        self.volume(volume).renaming = Some(to.to_owned());
    }

    pub fn end_rename(&mut self, volume: Serial) {
        let volume = self.volume(volume);
        volume.name = volume.renaming.take().unwrap_or_default();
    }

    /// A resize begins. What a smaller size cuts off is zeroes, or still what it was, until the
    /// resize has ended.
    pub fn begin_resize(&mut self, volume: Serial, size: u64) -> Begun {
        let at = self.tick();
        let zeroes = Version {
            origins: vec![Origin::ZERO],
            begun: at,
            ended: None,
            certain: false,
            kind: Kind::Written,
        };
        let volume_ = self.volume(volume);
        volume_.sizes.push(size);
        for (_, register) in volume_.blocks.range_mut(size..) {
            register.versions.push(zeroes.clone());
        }
        Begun { volume, first: size, count: u64::MAX - size, at }
    }

    /// The resize was answered with success.
    pub fn end_resize(&mut self, resize: &Begun) {
        let now = self.tick();
        let volume = self.volume(resize.volume);
        volume.sizes = vec![resize.first];
        for (_, register) in volume.blocks.range_mut(resize.first..) {
            register.end(resize.at, now, true);
        }
    }

    /// Compares with what a pool just opened says it has: names and sizes in blocks. What was open
    /// is decided by that.
    ///
    /// # Errors
    /// A volume missing, one too many, or of a size it cannot have.
    pub fn settle_volumes(&mut self, listed: &BTreeMap<String, u64>) -> Result<(), Violation> {
        let mut known = 0;
        for volume in &mut self.volumes {
            let renamed = volume.renaming.take_if(|to| listed.contains_key(to));
            volume.renaming = None;
            volume.name = renamed.unwrap_or(std::mem::take(&mut volume.name));
            let size = listed.get(&volume.name).copied();
            match (volume.presence, size) {
                (Presence::Gone, _) => continue,
                (Presence::Present, None) => {
                    return Err(Violation(format!("volume `{}` is missing", volume.name)));
                }
                (Presence::Open, None) => {
                    volume.presence = Presence::Gone;
                    volume.blocks.clear();
                }
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

    /// Blocks of 4096 bytes that surely hold data, and those that may, over all volumes that are
    /// there. Exact when nothing is open and no volume has smaller blocks.
    pub fn population(&self) -> (u64, u64) {
        let (mut least, mut most) = (0, 0);
        // Blocks that share their contents are one.
        let mut shared = BTreeSet::new();
        for volume in self.volumes.iter().filter(|v| v.presence != Presence::Gone) {
            let size = volume.sizes.iter().copied().max().unwrap_or(0);
            let ratio = u64_of(BLOCK / volume.unit);
            let (mut sure, mut possible) = (None, None);
            for (&block, register) in volume.blocks.range(..size) {
                let allowed = register.allowed(Moment::MAX);
                let empty = allowed.iter().filter(|&&origin| origin == Origin::ZERO).count();
                let at = Some(block / ratio);
                let is_sure = empty == 0 && volume.presence == Presence::Present;
                if is_sure && register.copied {
                    shared.extend((ratio == 1 && allowed.len() == 1).then(|| allowed[0]));
                } else if is_sure && sure != at {
                    let apart = ratio == 1 || !volume.is_copied(block, ratio);
                    (least, sure) = (least + u64::from(apart), at);
                }
                // Zeroes written to a part of a block take as much as anything.
                if (empty < allowed.len() || ratio > 1) && possible != at {
                    (most, possible) = (most + 1, at);
                }
            }
        }
        (least + u64_of(shared.len()), most)
    }
}

impl Volume {
    /// Whether a part of the block of 4096 bytes that `block` lies in was copied.
    fn is_copied(&self, block: u64, ratio: u64) -> bool {
        let first = block / ratio * ratio;
        self.blocks.range(first..first + ratio).any(|(_, register)| register.copied)
    }
}

fn violation(
    volume: &Volume,
    serial: Serial,
    block: u64,
    found: Found,
    allowed: &[Origin],
) -> Violation {
    let tell = |origin: &Origin| match origin {
        Origin { stamp, .. } if *origin == Origin::new(*stamp, serial, block) => stamp.to_string(),
        Origin { stamp, volume, block } => format!("{stamp} of block {block} of volume {volume}"),
    };
    let allowed: Vec<String> = allowed.iter().map(tell).collect();
    let name = &volume.name;
    Violation(format!("block {block} of `{name}` holds {found}; allowed: {}", allowed.join(", ")))
}

#[cfg(test)]
mod tests;
