//! What the tasks of a shard work on, and whether they go on.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use reactor::Grace;
use stdx::Counted;

use super::events::{Event, Events};
use crate::common::Common;
use crate::error::{Error, Kind};
use crate::log::Log;
use crate::map::Map;
use crate::pages::Pages;
use crate::table::Table;
use crate::writer::Writer;

/// The log, the map and the segments of a shard. All of its tasks have it, and none of them another's state.
pub struct Base {
    pub log: Log,
    pub map: Map<Rc<Pages>>,
    pub pages: Rc<Pages>,
    pub writer: Rc<Writer>,
    /// What it shares with the pool's other shards.
    pub common: Arc<Common>,
    /// Who looks blocks up, and reads where they were found: before they are done nothing there is given back.
    pub grace: Grace,
    pub events: Events,
    started: Cell<bool>,
    ended: Cell<bool>,
    /// Tasks that wait for space for metadata.
    starved: Cell<usize>,
    tasks: RefCell<Vec<reactor::Task<()>>>,
}

/// Adds to a counter.
pub fn count(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

/// What is said of a write where a drive has no space behind it.
pub fn no_drive_space() -> Error {
    Error::new(Kind::Full, "there is no space behind a drive of the pool")
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
            grace: Grace::default(),
            events: Events::default(),
            started: Cell::new(false),
            ended: Cell::new(false),
            starved: Cell::new(0),
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
        self.writer.segments().patience().wake();
    }

    /// Whether there is no space behind the drives, so that nothing leaves the log.
    #[must_use]
    pub fn lacks_drive_space(&self) -> bool {
        self.writer.segments().patience().is_tried()
    }

    /// Whether a search for space may not come to its end.
    #[must_use]
    pub fn is_hindered(&self) -> bool {
        self.is_over() || self.lacks_drive_space()
    }

    /// Whether tasks wait for space for metadata.
    #[must_use]
    pub const fn is_starved(&self) -> bool {
        self.starved.get() > 0
    }

    /// Counts one that waits for space for metadata, as long as this lives.
    pub fn starve(&self) -> Counted<'_> {
        Counted::new(&self.starved)
    }

    /// Has the log refuse writes as long as there is no space for them, or for metadata.
    pub fn refuse_without_space(&self) {
        self.log.refuse_writes(self.is_starved() || self.lacks_drive_space());
    }

    /// Has the log refuse writes while there is no space behind the drives, until the shard ends.
    pub async fn watch_drives(self: Rc<Self>) {
        let patience = self.writer.segments().patience();
        let now = || (patience.is_tried(), patience.last_refused());
        let mut seen = (false, None);
        while !self.has_ended() {
            patience.until(|| self.has_ended() || now() != seen).await;
            seen = now();
            self.refuse_without_space();
            self.events.raise(Event::Search);
            self.events.raise(Event::Advanced);
        }
    }
}
