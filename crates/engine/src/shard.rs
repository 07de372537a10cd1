//! One core's share of a pool: its log, map and segments, and the tasks that work on them.
//!
//! Each task is a room with state of its own, which only its methods change; what all work on is the [`Base`]. A task
//! calls those below it, and tells those above by [events](events::Event):
//!
//! ```text
//! front    reads and writes     discard   drives are told of free space
//! search   finds space          reclaim   empties sparse segments
//! destage  log to stripes, trim sweep     finds shared blocks without references
//! keeper   the map              count     what volumes use
//! capacity who is let in        remake    makes a drive whole
//! bounded  who has a quota, or space kept
//!                               rebuild   empties drives
//!                               scrub     checks what lives
//! checkpoint                    what recovery begins with
//! base     log, map, segments, events
//! ```

pub mod base;
mod bounded;
pub mod candidates;
mod capacity;
mod carry;
pub mod checkpoint;
mod count;
mod destage;
mod discard;
pub mod events;
mod front;
mod keeper;
mod pace;
pub mod rebuild;
pub mod reclaim;
pub mod rejoin;
pub mod scrub;
mod search;
mod sweep;
pub mod window;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::canary::{self, Step};
use crate::common::Common;
use crate::format::catalog::Catalog;
use crate::limits::CLOSING_PATIENCE;
use crate::log::Log;
use crate::map::Map;
use crate::pages::Pages;
use crate::stripe_writer::Writer;
use base::Base;
pub use base::WritesRefused;
use bounded::BoundedVolumes;
use candidates::Sought;
use capacity::Capacity;
use carry::Carrying;
pub use carry::Taken;
use checkpoint::{Checkpoints, Last};
use count::Counting;
use destage::Destage;
use discard::Discard;
use events::Event;
use front::Front;
pub use front::{Change, Compared, CopyRange, Looked, Plan, Writing};
use keeper::MapKeeper;
use rebuild::Rebuild;
use reclaim::Reclaim;
use rejoin::Remake;
use scrub::Scrub;
use search::SpaceSearch;
use sweep::Sweep;

/// What became of a request in the call that began it.
#[derive(Debug)]
pub enum Outcome<W> {
    Done,
    /// The rest is to be waited for, from where this says it was left.
    Wait(W),
}

/// A shard of an open pool. Belongs to one reactor.
pub struct Shard {
    pub front: Front,
    pub base: Rc<Base>,
    pub capacity: Rc<Capacity>,
    pub checkpoints: Rc<Checkpoints>,
    pub keeper: Rc<MapKeeper>,
    pub destage: Rc<Destage>,
    /// For tests.
    #[cfg(test)]
    pub sought: Rc<Sought>,
    #[cfg(test)]
    pub sweep: Rc<Sweep>,
    pub search: Rc<SpaceSearch>,
    pub reclaim: Rc<Reclaim>,
    pub discard: Rc<Discard>,
    pub counting: Rc<Counting>,
    pub remake: Remake,
    pub rebuild: Rebuild,
    pub scrub: Scrub,
}

/// What a shard is made of when it is opened or created.
pub struct Parts {
    pub log: Log,
    pub writer: Rc<Writer>,
    pub common: Arc<Common>,
    pub pages: Rc<Pages>,
    pub map: Map<Rc<Pages>>,
    pub last: Last,
}

/// What a shard did since it was opened.
#[derive(Debug)]
pub struct Counters {
    /// Blocks hosts wrote.
    pub written: u64,
    pub unreadable: u64,
    /// Blocks moved by reclaim.
    pub moved: u64,
    pub segments_reclaimed: u64,
    /// Blocks found lost for good.
    pub lost: u64,
    /// Bytes of free space the drives were told of.
    pub discarded: u64,
}

impl Shard {
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { log, writer, common, pages, map, last } = parts;
        let applied = last.cut;
        let versions = |catalog: &Catalog| {
            let later = catalog.objects().filter(|object| object.epoch > 0);
            later.for_each(|volume| log.set_version(volume.view, volume.version()));
        };
        if !canary::skips(Step::OpeningVersions) {
            common.superblock.catalog(versions);
        }
        let base = Rc::new(Base::new(log, map, pages, writer, common));
        let of = || Rc::clone(&base);
        let capacity = Rc::new(Capacity::new(of()));
        let checkpoints = Rc::new(Checkpoints::new(of(), last));
        let sought = Rc::<Sought>::default();
        let (due, heard) = (Rc::clone(&checkpoints), Rc::clone(&sought));
        let keeper = Rc::new(MapKeeper::new(of(), due, heard, applied));
        let destage = Rc::new(Destage::new(of(), Rc::clone(&keeper), Rc::clone(&capacity)));
        let sweep = Rc::new(Sweep::new(of(), Rc::clone(&keeper), Rc::clone(&sought)));
        let search = Rc::new(SpaceSearch::new(search::Parts {
            base: of(),
            capacity: Rc::clone(&capacity),
            checkpoints: Rc::clone(&checkpoints),
            keeper: Rc::clone(&keeper),
            destage: Rc::clone(&destage),
            sweep: Rc::clone(&sweep),
        }));
        let reclaim = Rc::new(Reclaim::new(of(), Rc::clone(&checkpoints), Rc::clone(&keeper)));
        let (found, won) = (Rc::clone(&search), Rc::clone(&reclaim));
        let discard = Rc::new(Discard::new(of(), Rc::clone(&capacity), found, won));
        let carry = Rc::new(Carrying::new(of(), Rc::clone(&destage)));
        let quotas = Rc::new(BoundedVolumes::new(of()));
        let (held, charged) = (Rc::clone(&capacity), Rc::clone(&quotas));
        let counting = Rc::new(Counting::new(of(), held, Rc::clone(&carry), charged));
        let front = Front::new(
            of(),
            Rc::clone(&capacity),
            Rc::clone(&search),
            Rc::clone(&destage),
            Rc::clone(&counting),
            quotas,
            carry,
        );
        let remake = Remake::new(of(), Rc::clone(&checkpoints));
        let scrub = Scrub::new(of(), Rc::clone(&checkpoints));
        let (due, of_map) = (Rc::clone(&checkpoints), Rc::clone(&keeper));
        let rebuild = Rebuild::new(of(), due, of_map, Rc::clone(&reclaim));
        Self {
            front,
            base,
            capacity,
            checkpoints,
            keeper,
            destage,
            #[cfg(test)]
            sought,
            #[cfg(test)]
            sweep,
            search,
            reclaim,
            discard,
            counting,
            remake,
            rebuild,
            scrub,
        }
    }

    /// Starts the tasks behind the acknowledgements.
    pub fn start(self: &Rc<Self>) {
        self.capacity.claim();
        self.base.start();
        for task in [
            reactor::spawn_behind(Rc::clone(&self.destage).run()),
            reactor::spawn_behind(Rc::clone(&self.destage).settle()),
            reactor::spawn_behind(Rc::clone(&self.keeper).maintain()),
            reactor::spawn_behind(Rc::clone(&self.checkpoints).checkpoint_on_demand()),
            reactor::spawn_behind(Rc::clone(&self.reclaim).run()),
            reactor::spawn(Rc::clone(&self.search).answer_calls()),
            reactor::spawn_behind(Rc::clone(&self.search).run()),
            reactor::spawn(Rc::clone(&self.base).watch_drives()),
            reactor::spawn(Rc::clone(self).watch_log()),
            reactor::spawn_behind(Rc::clone(&self.counting).run()),
            reactor::spawn_behind(Rc::clone(&self.counting).answer()),
        ] {
            self.base.run(task);
        }
    }

    /// Has destage look at what became durable in the log, as whoever appended it may be gone, and
    /// when there is no room: those who wait were the last to append, perhaps. Keeps the shard as long as it goes on.
    async fn watch_log(self: Rc<Self>) {
        while !self.base.has_ended() {
            self.base.log.wait_for_more().await;
            self.destage.look_at_log();
            self.counting.note_change();
            if self.base.log.has_ended() {
                // Who waits for all of it to be carried waits for less now.
                self.base.events.raise(Event::Advanced);
            }
        }
    }

    /// From now on nobody waits longer for space behind the drives than until a write finds none that is tried some seconds
    /// from now: a lack that passes is waited for.
    pub fn wait_for_no_space(&self) {
        let (begun, base) = (reactor::now(), Rc::clone(&self.base));
        self.base.run(reactor::spawn(async move {
            let space_wait = base.writer.segments().space_wait();
            let is_refused = || {
                let tried = space_wait.last_refused().unwrap_or(0);
                Duration::from_nanos(tried.saturating_sub(begun)) >= CLOSING_PATIENCE
            };
            space_wait.until(|| space_wait.has_ended() || is_refused()).await;
            space_wait.end();
        }));
    }

    /// Ends the tasks, and waits for that.
    pub async fn stop(&self) {
        self.base.end();
        self.front.windows.stop().await;
        let segments = self.base.writer.segments();
        segments.space_wait().end();
        for task in self.base.take_tasks() {
            // A task that was dropped with its reactor has nothing left to end.
            let _ = task.await;
        }
        // Stripes on their way that nobody waited for: who opens the pool next finds the drives at rest.
        if !canary::skips(Step::StopStripes) {
            self.base.writer.between_stripes(|| ()).await;
        }
        // Readers under way, and what they put right.
        if !canary::skips(Step::StopGrace) {
            self.base.grace.pass().await;
        }
        if !canary::skips(Step::StopRepairs) {
            segments.repaired().await;
        }
    }

    /// What it did since it was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let (segments_reclaimed, lost) = self.reclaim.emptied_and_lost();
        Counters {
            written: self.front.written(),
            unreadable: self.front.unreadable(),
            moved: self.keeper.moved(),
            segments_reclaimed,
            lost,
            discarded: self.discard.discarded(),
        }
    }
}
