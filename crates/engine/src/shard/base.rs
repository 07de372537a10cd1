//! What the tasks of a shard work on, and whether they go on.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use reactor::GracePeriod;
use stdx::Counted;

use super::events::{Event, Events};
use crate::common::Common;
use crate::error::{Error, Kind};
use crate::log::Log;
use crate::map::Map;
use crate::pages::Pages;
use crate::segment_table::Table;
use crate::stripe_writer::Writer;

/// The log, the map and the segments of a shard. All of its tasks have it, and none of them another's state.
pub struct Base {
    pub log: Log,
    pub map: Map<Rc<Pages>>,
    pub pages: Rc<Pages>,
    pub writer: Rc<Writer>,
    /// What it shares with the pool's other shards.
    pub common: Arc<Common>,
    /// Who looks blocks up, and reads where they were found: before they are done nothing there is given back.
    pub grace: GracePeriod,
    pub events: Events,
    started: Cell<bool>,
    ended: Cell<bool>,
    /// Tasks that wait for space for metadata.
    waiting_for_segments: Cell<usize>,
    /// Nothing is free, and what has the space cannot be read now.
    unreadable: Cell<bool>,
    tasks: RefCell<Vec<reactor::Task<()>>>,
}

/// Adds to a counter.
pub fn count(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

/// Why a pool takes no writes although it is not full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritesRefused {
    /// There is no space behind a drive, whose file system is full: until there is.
    NoDriveSpace,
    /// No space is free, and none can be won: what has it cannot be read while drives are missing.
    Unreadable,
}

impl WritesRefused {
    /// What is said of a write.
    #[must_use]
    pub fn error(self) -> Error {
        let context = match self {
            Self::NoDriveSpace => "there is no space behind a drive of the pool",
            Self::Unreadable => {
                "no space can be won: what has it cannot be read without the drives that are missing"
            }
        };
        Error::new(Kind::Full, context)
    }
}

impl Base {
    #[must_use]
    pub fn new(
        log: Log,
        map: Map<Rc<Pages>>,
        pages: Rc<Pages>,
        writer: Rc<Writer>,
        common: Arc<Common>,
    ) -> Self {
        Self {
            log,
            map,
            pages,
            writer,
            common,
            grace: GracePeriod::default(),
            events: Events::default(),
            started: Cell::new(false),
            ended: Cell::new(false),
            waiting_for_segments: Cell::new(0),
            unreadable: Cell::new(false),
            tasks: RefCell::default(),
        }
    }

    pub fn table(&self) -> Ref<'_, Table> {
        self.writer.table()
    }

    /// Blocks of data in segments and in the log, those nobody sees any more included where that is
    /// not known yet.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.table().live_data() + stdx::num::u64_of(self.log.indexed())
    }

    /// Its tasks begin.
    pub fn start(&self) {
        assert!(!self.started.replace(true), "a shard is started once");
        self.common.join(self.writer.shard());
    }

    #[must_use]
    pub const fn has_started(&self) -> bool {
        self.started.get()
    }

    /// Has the shard wait for one more task when it ends.
    pub fn run(&self, task: reactor::Task<()>) {
        self.tasks.borrow_mut().push(task);
    }

    pub fn take_tasks(&self) -> Vec<reactor::Task<()>> {
        self.tasks.take()
    }

    /// Its tasks are to end.
    pub fn end(&self) {
        self.ended.set(true);
        self.log.refuse();
        self.writer.end();
        self.raise_all();
    }

    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// A background task failed: nothing more is taken, and what waits is woken to see why.
    pub fn fail(&self, error: &Error) {
        self.writer.fail(error);
        // Nobody makes room in it any more.
        self.log.refuse();
        self.raise_all();
    }

    /// Whether it ends or failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended.get() || self.writer.check().is_err()
    }

    fn raise_all(&self) {
        self.common.leave(self.writer.shard());
        for event in [Event::LogFills, Event::SpaceChanged, Event::Advanced, Event::Search] {
            self.events.raise(event);
        }
        self.writer.wake_all();
        self.events.raise(Event::Counted);
        self.writer.segments().space_wait().wake();
    }

    /// Whether nothing leaves the log, whatever is given back, and why.
    #[must_use]
    #[inline]
    pub fn refuses(&self) -> Option<WritesRefused> {
        if self.writer.segments().space_wait().is_tried() {
            return Some(WritesRefused::NoDriveSpace);
        }
        self.unreadable.get().then_some(WritesRefused::Unreadable)
    }

    /// Whether nothing is free, and what has the space cannot be read now.
    pub fn set_unreadable(&self, unreadable: bool) {
        if self.unreadable.replace(unreadable) != unreadable {
            self.refuse_without_space();
            self.events.raise(Event::Search);
            self.events.raise(Event::Advanced);
        }
    }

    /// Whether a search for space may not come to its end.
    #[must_use]
    pub fn is_hindered(&self) -> bool {
        self.is_over() || self.refuses().is_some()
    }

    /// Whether tasks wait for space for metadata.
    #[must_use]
    pub const fn needs_segments(&self) -> bool {
        self.waiting_for_segments.get() > 0
    }

    /// Whether drives are being emptied, and the others have no space for it now: with what they have left, the pool
    /// goes on serving.
    #[must_use]
    pub fn lacks_room_to_empty_drives(&self) -> bool {
        self.common.leaving() != 0 && !self.common.allocator.lock().has_room_to_empty()
    }

    /// Counts one that waits for space for metadata, as long as this lives.
    pub fn need_segments(&self) -> Counted<'_> {
        Counted::new(&self.waiting_for_segments)
    }

    /// Has the log refuse writes as long as there is no space for them, or for metadata.
    pub fn refuse_without_space(&self) {
        self.log.refuse_writes(self.needs_segments() || self.refuses().is_some());
    }

    /// Has the log refuse writes while there is no space behind the drives, until the shard ends.
    pub async fn watch_drives(self: Rc<Self>) {
        let space_wait = self.writer.segments().space_wait();
        let now = || (space_wait.is_tried(), space_wait.last_refused());
        let mut seen = (false, None);
        while !self.has_ended() {
            space_wait.until(|| self.has_ended() || now() != seen).await;
            seen = now();
            self.refuse_without_space();
            self.events.raise(Event::Search);
            self.events.raise(Event::Advanced);
        }
    }
}
