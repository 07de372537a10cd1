//! Some of a pool's drives are given to another machine, which is told to open it without the others and with a log of its
//! own; they come back. Nobody here can know of that before they are seen. Then either what they did is the pool's, or,
//! where the others went on here meanwhile, both are refused together. Never is anything opened that is a bit of both. On
//! copies, so that the pool goes on as if nobody had done that.

use super::Media;
use super::operator::newest_label;
use super::starts::{check, memory_of, open};
use crate::contents::{BLOCK, Stamp, fill};
use crate::model::Model;
use engine::format::label::LogKind;
use engine::{Kind, LogSpec, OpenOptions, Pool, VolumeSpec};
use media::{Pmem, Simulated};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use stdx::Prng;
use stdx::num::{u64_of, usize64};

/// Blocks that each writes of its own.
const BLOCKS: u64 = 16;

/// Openings once drives have come back.
const LOOKS: u64 = 4;

/// Who went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Here,
    There,
}

impl Line {
    /// Of the volume that it makes.
    const fn name(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::There => "there",
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Here => 1,
            Self::There => 2,
        }
    }

    /// What it has written last, and whether it was closed then.
    const fn of(self, fork: &Fork) -> &Cell<Written> {
        match self {
            Self::Here => &fork.here,
            Self::There => &fork.there,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Written {
    version: u64,
    closed: bool,
}

/// A pool of which some drives go elsewhere.
pub struct Fork {
    drives: Vec<Arc<Simulated>>,
    /// Drives that are elsewhere for a while.
    away: BTreeSet<usize>,
    stay: BTreeSet<usize>,
    kind: LogKind,
    memory: Vec<Arc<Pmem>>,
    /// Devices of those that have the log by the labels.
    current: usize,
    /// That of the other machine.
    blank: Vec<Arc<Pmem>>,
    model: Model,
    /// The pool was closed in order before: then what it held is known of both.
    closed: bool,
    /// What the node knows of here.
    term: Cell<u64>,
    log: Cell<Option<[u8; 16]>>,
    here: Cell<Written>,
    there: Cell<Written>,
    prng: RefCell<Prng>,
}

impl Media {
    /// Such a pool, where there are drives enough for that.
    pub fn fork(&self, model: &Model, life: usize, nth: u64) -> Option<Fork> {
        let is_one = self.plan.starts && self.plan.rough.is_some() && !self.exported.get();
        if !is_one || self.is_doubtful() {
            return None;
        }
        self.swap_back();
        let newest = self.newest()?;
        let prng = self.plan.seed ^ 0x5eed_0f04_6000_0001 ^ u64_of(life) << 48 ^ nth << 40;
        let mut prng = Prng::new(prng);
        let is_used = |n: &usize| {
            let label = newest_label(&self.drives[*n]);
            let is_in = newest.drives.get(*n).is_some_and(|record| !record.is_out());
            is_in && label.is_some_and(|label| label.epoch == newest.epoch)
        };
        let mut stay: BTreeSet<usize> = (0..self.drives.len()).filter(is_used).collect();
        let mut away = BTreeSet::new();
        while away.len() < newest.needed() {
            let nth = usize64(prng.below(u64_of(stay.len()).max(1)));
            let n = stay.iter().nth(nth).copied()?;
            stay.remove(&n);
            away.insert(n);
        }
        if stay.is_empty() {
            return None;
        }
        let pmem = self.pmem.borrow();
        Some(Fork {
            drives: (0..self.drives.len()).map(|n| self.copy(n)).collect(),
            away,
            stay,
            kind: newest.log,
            memory: pmem.iter().map(|pmem| memory_of(pmem.contents())).collect(),
            current: newest.current_members().count(),
            blank: pmem.iter().map(|pmem| memory_of(vec![0; pmem.contents().len()])).collect(),
            model: model.clone(),
            closed: self.closed.get(),
            term: Cell::new(self.node.term()),
            log: Cell::new(self.node.log()),
            here: Cell::default(),
            there: Cell::default(),
            prng: RefCell::new(prng),
        })
    }
}

impl Fork {
    /// All that happens to it: whether both went on.
    pub fn play(self, seed: u64) -> Result<bool, String> {
        let fork = Rc::new(self);
        let step = |nth: u64| seed ^ nth << 32;
        let first = Rc::clone(&fork);
        if !reactor::simulate(step(1), async move { first.go_on(Line::There).await })? {
            return Ok(false);
        }
        let mut both = !fork.chance(4);
        if both {
            let second = Rc::clone(&fork);
            both = reactor::simulate(step(2), async move { second.go_on(Line::Here).await })?;
        }
        for nth in 0..LOOKS {
            let fork = Rc::clone(&fork);
            // What is opened goes on.
            if reactor::simulate(step(3 + nth), async move { fork.look().await })? {
                break;
            }
        }
        Ok(both)
    }

    fn draw(&self, of: u64) -> u64 {
        self.prng.borrow_mut().below(of)
    }

    fn chance(&self, of: u64) -> bool {
        self.draw(of) == 0
    }

    /// The log of one of them, on so many devices.
    fn log(&self, line: Line, devices: usize) -> LogSpec {
        let memory = if line == Line::Here { &self.memory } else { &self.blank };
        match self.kind {
            LogKind::Drives => LogSpec::Drives,
            _ => LogSpec::Pmem(memory[..devices].to_vec()),
        }
    }

    /// Whether so many devices of the log tell that nobody went on with the drives that are elsewhere: all there are.
    const fn is_told(&self, devices: usize) -> bool {
        !matches!(self.kind, LogKind::Drives) && devices >= self.current
    }

    fn given(&self, these: &BTreeSet<usize>) -> Vec<Arc<Simulated>> {
        these.iter().map(|n| Arc::clone(&self.drives[*n])).collect()
    }

    /// One goes on, if it can: whether it did. There somebody wants it to, here nobody is asked.
    async fn go_on(&self, line: Line) -> Result<bool, String> {
        let (drives, options) = match line {
            Line::There => {
                let accept_loss = !self.closed && self.kind != LogKind::Drives;
                (&self.away, OpenOptions { accept_loss, ..OpenOptions::default() })
            }
            Line::Here => (&self.stay, OpenOptions { unattended: true, ..self.known() }),
        };
        let options = OpenOptions { degraded: true, ..options };
        let all = self.memory.len();
        let devices = if all > 1 && self.chance(3) { all - 1 } else { all };
        let Ok(pool) = open(self.given(drives), self.log(line, devices), options).await? else {
            return Ok(false);
        };
        if line == Line::Here && !self.is_told(devices) {
            return Err(format!(
                "drives {drives:?} are opened by themselves, with {devices} devices of the log, while {:?} went on \
                 elsewhere",
                self.away
            ));
        }
        self.check(&pool, line).await?;
        let version = 1 + line.of(self).get().version;
        if !self.write(&pool, line, version).await? {
            return Ok(false);
        }
        if line == Line::Here {
            self.term.set(pool.durable_term());
            self.log.set(Some(pool.log_id()));
        }
        let closed = self.chance(2);
        if closed {
            pool.close().await.map_err(|error| error.to_string())?;
        }
        line.of(self).set(Written { version, closed });
        Ok(true)
    }

    /// Writes something that the other line does not have; where there is room for that.
    async fn write(&self, pool: &Pool, line: Line, version: u64) -> Result<bool, String> {
        let spec = VolumeSpec {
            name: line.name().to_owned(),
            id: [line.number(); 16],
            bytes: BLOCKS * u64_of(BLOCK),
            block_size: 4096,
            quota: None,
            reservation: None,
        };
        let no_room = |error: engine::Error| match error.kind {
            Kind::Full => Ok(false),
            _ => Err(format!("what goes on {}: {error}", line.name())),
        };
        let volume = match pool.create_volume(spec).await {
            Ok(volume) => volume,
            Err(error) => return no_room(error),
        };
        for block in 0..BLOCKS {
            let written =
                volume.write(block * u64_of(BLOCK), &contents(line, version, block)).await;
            if let Err(error) = written {
                return no_room(error);
            }
        }
        Ok(true)
    }

    /// Whether a pool has all of this line, and nothing of the other.
    async fn check(&self, pool: &Pool, line: Line) -> Result<(), String> {
        let Written { version, .. } = line.of(self).get();
        if version > 0 {
            let volume = pool.volume(line.name()).map_err(|error| error.to_string())?;
            for block in 0..BLOCKS {
                let mut bytes = vec![0xEE; BLOCK];
                let read = volume.read(block * u64_of(BLOCK), &mut bytes).await;
                read.map_err(|error| error.to_string())?;
                if bytes != contents(line, version, block) {
                    return Err(format!(
                        "block {block} of what went on {} is another's",
                        line.name()
                    ));
                }
            }
        }
        if line == Line::There && !self.closed && self.kind != LogKind::Drives {
            // It was begun without what was in the log.
            return Ok(());
        }
        check(pool, self.model.clone(), &[line.name()]).await
    }

    /// Drives have come back, and somebody opens the pool with what is there.
    async fn look(&self) -> Result<bool, String> {
        let nobody = BTreeSet::new;
        let (back, here) = match self.draw(4) {
            0 => (self.away.clone(), nobody()),
            1 => (nobody(), self.stay.clone()),
            2 => (self.away.clone(), self.stay.clone()),
            _ => (self.some(&self.away), self.some(&self.stay)),
        };
        let drives = &back | &here;
        let options = OpenOptions { degraded: true, unattended: self.chance(2), ..self.known() };
        let what = format!(
            "drives {back:?} that come back, {here:?} that were here, {options:?}; here: {:?}, there: {:?}, \
             closed before: {}",
            self.here.get(),
            self.there.get(),
            self.closed
        );
        if drives.is_empty() {
            return Ok(false);
        }
        let Ok(pool) =
            open(self.given(&drives), self.log(Line::Here, self.memory.len()), options).await?
        else {
            return Ok(false);
        };
        let names = pool.volumes();
        let went_there = names.iter().any(|name| name == Line::There.name());
        let line = if went_there { Line::There } else { Line::Here };
        self.check(&pool, line).await.map_err(|wrong| format!("{what}: {wrong}"))?;
        let went_on_here = self.here.get().version > 0;
        let wrong = match line {
            // Somebody may want what is there, when none of the drives that went on here is.
            Line::There if went_on_here => {
                !here.is_empty() || !self.there.get().closed || options.unattended
            }
            Line::There => false,
            Line::Here
                if !went_on_here && options.unattended && !self.is_told(self.memory.len()) =>
            {
                true
            }
            Line::Here => !back.is_empty(),
        };
        if wrong {
            return Err(format!("{what}: it opens as what went on {}", line.name()));
        }
        Ok(true)
    }

    /// What the node knows of here.
    fn known(&self) -> OpenOptions {
        let (known_term, known_log) = (self.term.get(), self.log.get());
        OpenOptions { known_term, known_log, ..OpenOptions::default() }
    }

    fn some(&self, of: &BTreeSet<usize>) -> BTreeSet<usize> {
        of.iter().copied().filter(|_| self.chance(2)).collect()
    }
}

fn contents(line: Line, version: u64, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    fill(&mut bytes, Stamp(version), u64::MAX - u64::from(line.number()), block);
    bytes
}
