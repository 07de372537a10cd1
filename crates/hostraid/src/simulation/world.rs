//! The members of a simulated set, and what is known of them.

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash};
use std::rc::Rc;
use std::sync::Arc;

use media::Simulated;
use media::drive::SimulatedOptions;
use reactor::sync::Signal;
use stdx::Prng;
use stdx::num::{low32, u64_of, usize64};

use super::model::{Model, SECTOR};
use crate::canary::Canary;
use crate::member::simulated::{Drive, Link};
use crate::{Create, Level, Member, Superblock};

/// What happened over all lives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) writes: u64,
    pub(super) reads: u64,
    pub(super) crashes: u64,
    pub(super) degraded: u64,
    pub(super) partial: u64,
    pub(super) whole: u64,
    pub(super) damaged: u64,
    pub(super) checks: u64,
    pub(super) broken: u64,
}

pub(super) struct World {
    pub(super) prng: RefCell<Prng>,
    pub(super) members: Vec<Arc<Simulated>>,
    pub(super) model: RefCell<Model>,
    pub(super) counts: Cell<Counts>,
    pub(super) trace: RefCell<DefaultHasher>,
    pub(super) canary: Option<Canary>,
    pub(super) level: Level,
    /// Some member has sectors that cannot be read.
    pub(super) damaged: Cell<bool>,
    pub(super) links: RefCell<Vec<Rc<Link>>>,
    /// This world loses more members than it can do without, now and then.
    pub(super) reckless: bool,
    /// The host dies now, just after something that matters.
    pub(super) doom: Cell<bool>,
    pub(super) doomed: RefCell<Rc<Signal>>,
    /// Members that are dead, by slot.
    pub(super) dead: RefCell<Vec<bool>>,
}

impl World {
    pub(super) fn below(&self, bound: u64) -> u64 {
        self.prng.borrow_mut().below(bound)
    }

    pub(super) fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn note(&self, what: impl Hash) {
        (what, reactor::now()).hash(&mut *self.trace.borrow_mut());
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    pub(super) fn member(&self, slot: usize) -> Member {
        let link = Rc::clone(&self.links.borrow()[slot]);
        Member::Simulated(Drive::new(&self.members[slot], link))
    }

    pub(super) fn tolerates(&self) -> usize {
        self.level.shape(self.members.len()).map_or(0, |shape| usize::from(shape.parity))
    }

    pub(super) fn alive(&self) -> Vec<usize> {
        let dead = self.dead.borrow();
        (0..dead.len()).filter(|&slot| !dead[slot]).collect()
    }

    /// New links and a new doom, before a life: whoever waits on the old ones is gone.
    pub(super) fn connect(&self) {
        self.doom.set(false);
        *self.doomed.borrow_mut() = Rc::new(Signal::new());
        let dead = self.dead.borrow();
        *self.links.borrow_mut() = dead.iter().map(|&dead| Rc::new(Link::new(dead))).collect();
    }

    /// A dead member comes back: what was not durable on it may be lost, if it was not just out of reach.
    pub(super) fn revive(&self, slot: usize) {
        let seed = self.prng.borrow_mut().next_u64();
        if self.chance(60) {
            self.members[slot].power_cut(&mut Prng::new(seed));
            self.members[slot].power_on();
        }
        self.links.borrow()[slot].mend();
        self.dead.borrow_mut()[slot] = false;
    }

    /// Some member that is alive knows what became of the set last: those left behind before, alone, would be used
    /// with what they hold, as `degraded` says they may.
    pub(super) fn keep_the_newest(&self) {
        let newest = (0..self.members.len()).max_by_key(|&slot| self.newest(slot));
        if let Some(slot) = newest.filter(|&slot| self.dead.borrow()[slot]) {
            self.revive(slot);
        }
    }

    /// Event count and generation of a member's superblock.
    pub(super) fn newest(&self, slot: usize) -> Option<(u64, u64)> {
        let pages = [0, 4096].map(|at| {
            let mut page = vec![0; 4096];
            self.members[slot].peek(at, &mut page);
            Superblock::from_page(&page).ok().map(|says| (says.events, says.generation))
        });
        pages.into_iter().max().flatten()
    }

    pub(super) fn kill(&self, slot: usize) {
        self.links.borrow()[slot].cut();
        self.dead.borrow_mut()[slot] = true;
    }
}

pub(super) fn new_world(seed: u64, canary: Option<Canary>) -> (Rc<World>, Create) {
    let mut prng = Prng::new(seed);
    let level = match canary {
        Some(Canary::SkipResync | Canary::EarlyChange | Canary::EarlyClear) => Level::Mirror,
        Some(Canary::TrustCaches) => Level::Mirror,
        Some(Canary::SkipJournal | Canary::ForgetParity) => Level::Raid5,
        Some(Canary::StoreStopped) => Level::Raid5,
        _ => [Level::Mirror, Level::Raid5, Level::Raid6][usize64(prng.below(3))],
    };
    let count = match level {
        Level::Mirror => 2 + prng.below(2),
        Level::Raid6 => 4 + prng.below(3),
        _ => 3 + prng.below(3),
    };
    let chunk = 4096 << prng.below(2);
    // Few: places are used again soon; many: old records stay for long.
    let records = match (prng.below(3), canary) {
        (_, Some(Canary::StoreStopped)) => 4,
        (0, _) => 64,
        _ => 4 + prng.below(5),
    };
    let stripes = 12 + prng.below(20);
    let journal = if level == Level::Mirror { 0 } else { records * (chunk + 4096) };
    let capacity = (1 << 20) + journal.next_multiple_of(1 << 20) + stripes * chunk;
    let members: Vec<_> = (0..count)
        .map(|_| {
            Simulated::new(SimulatedOptions { capacity, seed: prng.next_u64(), ..<_>::default() })
        })
        .collect();
    let create = Create {
        id: [7; 16],
        member_ids: (0..count).map(|n| [stdx::num::low8(n) + 1; 16]).collect(),
        name: "simulated".to_owned(),
        level,
        chunk: low32(chunk),
        records: Some(records),
        region: Some(chunk * (1 + prng.below(3))),
        force: false,
    };
    let data = u64_of(usize::from(level.shape(members.len()).unwrap().data));
    let reckless = prng.below(5) == 0 || canary == Some(Canary::StoreStopped);
    let world = World {
        reckless,
        doom: Cell::new(false),
        doomed: RefCell::default(),
        prng: RefCell::new(prng),
        dead: RefCell::new(vec![false; members.len()]),
        links: RefCell::default(),
        members,
        model: RefCell::new(Model::new(stripes * data * chunk / u64_of(SECTOR))),
        counts: Cell::default(),
        trace: RefCell::default(),
        canary,
        level,
        damaged: Cell::new(false),
    };
    world.connect();
    (Rc::new(world), create)
}
