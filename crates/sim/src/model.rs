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
//!
//! When the commit log is lost as a whole, what was answered before the drives were known to have
//! everything is still there: that is known where it was asked for, which takes a checkpoint, and whenever
//! the log's records of that time are gone from it, which takes none. Of each block any version since then
//! may be what is left, one that was seen or not, and that is what it stays.

mod instants;
mod register;
mod volumes;

use crate::contents::{BLOCK, Found, Stamp};
pub use instants::Copied;
use instants::Instant;
use register::{Kind, Origin, Register, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use stdx::num::u64_of;
use volumes::Volume;

/// Counts events of the run: every beginning and end has its own.
type Moment = u64;

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
    /// What it is a snapshot of.
    pub parent: Option<Serial>,
    /// It is a clone, or a snapshot of one.
    pub inherits: bool,
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

/// What was answered by then is being carried to the drives.
#[derive(Debug)]
pub struct Settling(Moment);

/// A copy under way.
#[derive(Clone, Debug)]
struct Copying {
    source: Serial,
    from: u64,
    target: Serial,
    to: u64,
    count: u64,
    at: Moment,
    /// It is a snapshot: also of what was never written before.
    whole: bool,
}

impl Copying {
    /// Whether it copies this block.
    fn gives(&self, volume: Serial, block: u64) -> bool {
        self.source == volume && (self.from..self.from + self.count).contains(&block)
    }
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
    /// Made, or deleted, as a whole.
    together: Vec<Vec<Serial>>,
    instants: Vec<Instant>,
    rotted: bool,
    /// The log is lost at some time, perhaps.
    log_may_be_lost: bool,
}

fn index(serial: Serial) -> usize {
    stdx::num::usize64(serial)
}

impl Model {
    /// Of a pool whose log may be lost, or not.
    pub fn new(log_may_be_lost: bool) -> Self {
        Self { log_may_be_lost, ..Self::default() }
    }

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
        let written = |block| (block, vec![Origin::new(stamp, volume, block)]);
        let blocks = (first..first + count).map(written);
        for (block, origins) in blocks.clone() {
            self.begin_version(volume, block, at, origins);
        }
        self.spread(volume, blocks);
        Begun { volume, first, count, at }
    }

    fn register(&mut self, volume: Serial, block: u64) -> &mut Register {
        let may_be_lost = self.log_may_be_lost;
        let volume = self.volume(volume);
        let cutting = volume.cutting;
        volume.blocks.entry(block).or_insert_with(|| {
            let mut register = Register::new(may_be_lost);
            // A smaller size on its way cuts off what is written meanwhile, too.
            if let Some((begun, _)) = cutting.filter(|(_, size)| block >= *size) {
                register.versions.push(Version::zeroes(begun));
            }
            register
        })
    }

    fn begin_version(&mut self, volume: Serial, block: u64, at: Moment, origins: Vec<Origin>) {
        let version =
            Version { origins, begun: at, ended: None, certain: false, kind: Kind::Written };
        self.register(volume, block).versions.push(version);
    }

    /// Copies under way may give on what blocks may have from now on. What comes to a block is taken together: where copies
    /// go round, it comes in many pieces.
    fn spread(&mut self, volume: Serial, blocks: impl Iterator<Item = (u64, Vec<Origin>)>) {
        let mut open: BTreeMap<(Serial, u64), Vec<Origin>> =
            blocks.map(|(block, origins)| ((volume, block), origins)).collect();
        open.retain(|(volume, block), _| self.copies.iter().any(|c| c.gives(*volume, *block)));
        while let Some(((volume, block), mut origins)) = open.pop_first() {
            origins.sort();
            origins.dedup();
            let from_here = self.copies.iter().filter(|copy| copy.gives(volume, block));
            let copies: Vec<Copying> = from_here.cloned().collect();
            self.register(volume, block).copied = true;
            for copy in copies {
                let to = copy.to + (block - copy.from);
                let register = self.register(copy.target, to);
                if copy.whole && register.versions.iter().all(|v| v.begun != copy.at) {
                    register.versions.push(Version::zeroes(copy.at));
                    register.copied = true;
                }
                let version = register.versions.iter_mut().find(|v| v.begun == copy.at);
                let Some(version) = version else { continue };
                let new = version.add(&origins);
                self.note_return(copy.target, to, &new);
                if !new.is_empty() {
                    open.entry((copy.target, to)).or_default().extend(new);
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
        self.copies.push(Copying { source, from, target, to, count, at, whole: false });
        for (block, origins) in (to..).zip(&had) {
            self.begin_version(target, block, at, origins.clone());
            self.register(target, block).copied = true;
            self.note_return(target, block, origins);
        }
        // Only now: what goes round through other copies comes back to this one.
        self.spread(target, (to..).zip(had));
        Begun { volume: target, first: to, count, at }
    }

    /// A snapshot of a volume begins, under a name of its own: a copy of all that it has at some moment until that is
    /// answered.
    pub fn begin_snapshot(&mut self, source: &Target, name: &str) -> (Serial, Begun) {
        let target = self.begin_create(name, source.size, source.unit);
        let keeps = self.volume(source.serial).keeps.clone();
        self.volume(target).parent = Some(source.serial);
        self.volume(target).keeps = keeps;
        self.begin_whole(source, target)
    }

    /// A clone of a snapshot begins, of this size.
    pub fn begin_clone(&mut self, source: &Target, name: &str, size: u64) -> (Serial, Begun) {
        let target = self.begin_create(name, size, source.unit);
        self.volume(target).keeps = vec![source.serial];
        self.begin_whole(source, target)
    }

    fn begin_whole(&mut self, source: &Target, target: Serial) -> (Serial, Begun) {
        let (source, count, at) = (source.serial, source.size, self.tick());
        let blocks = self.volume(source).blocks.range(..count);
        let blocks: Vec<u64> = blocks.map(|(block, _)| *block).collect();
        self.copies.push(Copying { source, from: 0, target, to: 0, count, at, whole: true });
        for block in blocks {
            let register = self.register(source, block);
            register.copied = true;
            let had = register.allowed(at);
            self.begin_version(target, block, at, had);
            self.register(target, block).copied = true;
        }
        (target, Begun { volume: target, first: 0, count, at })
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

    /// Whether the volume is there no more, or may be so.
    pub fn is_gone(&self, volume: Serial) -> bool {
        self.volumes[index(volume)].presence != volumes::Presence::Present
    }

    /// As [`may_miss`](Self::may_miss), of the source of a copy.
    pub fn may_miss_source(&self, copy: &Begun) -> bool {
        let copying = self.copies.iter().find(|copying| copying.at == copy.at);
        copying.is_some_and(|c| {
            self.may_miss(&Begun { volume: c.source, first: c.from, count: c.count, at: c.at })
        })
    }

    /// Whether a read may have failed because a block of it is lost.
    pub fn may_be_lost(&mut self, read: &Begun) -> bool {
        let blocks = &self.volume(read.volume).blocks;
        let mut range = blocks.range(read.first..read.first + read.count);
        range.any(|(_, register)| register.may_be_lost(read.at))
    }

    /// Bits rotted, beyond what the redundancy gives back perhaps.
    pub fn rot(&mut self) {
        self.registers().for_each(Register::rot);
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
            register.know_left(origins[0]);
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

    /// The pool begins to carry everything to its drives that was answered so far, or is watched doing so.
    pub fn begin_settle(&mut self) -> Settling {
        Settling(self.tick())
    }

    /// It has.
    pub fn end_settle(&mut self, settling: &Settling) {
        let since = settling.0;
        if !self.log_may_be_lost {
            return;
        }
        for volume in &mut self.volumes {
            // Who writes a part of what the pool keeps as one block writes the others anew.
            let ratio = u64_of(BLOCK / volume.unit);
            // Most have been at rest since the last time: this is asked for often.
            let open = volume.blocks.iter_mut().filter(|(_, register)| !register.is_settled(since));
            let open: Vec<_> = open.collect();
            let overwritten: BTreeSet<u64> = open
                .iter()
                .filter(|(_, register)| register.is_overwritten(since))
                .map(|(block, _)| *block / ratio)
                .collect();
            for (block, register) in open {
                if !overwritten.contains(&(block / ratio)) {
                    register.settle(since);
                }
            }
        }
    }

    /// The log is lost after a crash, with all that the drives were not known to have.
    pub fn lose_log(&mut self) {
        let now = self.tick();
        self.registers().for_each(|register| register.lose_log(now));
    }

    fn registers(&mut self) -> impl Iterator<Item = &mut Register> {
        self.volumes.iter_mut().flat_map(|volume| volume.blocks.values_mut())
    }

    /// A write that was cut off is under way again: whoever does it goes on.
    pub fn resume(&mut self, write: &Begun) {
        for block in write.blocks() {
            self.register(write.volume, block).resume(write.at);
        }
    }

    /// Everything under way is cut off; what was given up has a fate from now on.
    pub fn crash(&mut self) {
        let now = self.tick();
        self.reads.clear();
        self.copies.clear();
        self.registers().for_each(|register| register.cut_off(now));
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
