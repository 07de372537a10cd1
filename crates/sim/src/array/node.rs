//! What the node knows of its pool over lives, as the daemon keeps it, and how it opens the pool with that.

use super::Media;
use engine::{OpenOptions, Pool};
use std::cell::{Cell, RefCell};
use stdx::Prng;

/// The node whose pool it is.
pub(super) struct Node {
    /// The term of the pool's labels that it knows of.
    term: Cell<u64>,
    /// And the name of its log when it was opened last.
    log: Cell<Option<[u8; 16]>>,
    /// The pool as long as it is open.
    pool: RefCell<Option<Pool>>,
    prng: RefCell<Prng>,
}

impl Node {
    pub fn new(seed: u64) -> Self {
        let prng = RefCell::new(Prng::new(seed ^ 0x5eed_0da0_6057_0001));
        Self { term: Cell::new(0), log: Cell::new(None), pool: RefCell::default(), prng }
    }

    pub const fn term(&self) -> u64 {
        self.term.get()
    }

    pub const fn log(&self) -> Option<[u8; 16]> {
        self.log.get()
    }

    /// With what it knows: older labels are taken only by those who accept a loss.
    pub fn knowing(&self, options: OpenOptions) -> OpenOptions {
        let known_term = if options.accept_loss { 0 } else { self.term.get() };
        OpenOptions { known_term, known_log: self.log.get(), ..options }
    }

    /// The pool was opened, which is kept at once.
    pub fn opened(&self, pool: &Pool) {
        self.term.set(pool.durable_term());
        self.log.set(Some(pool.log_id()));
        self.pool.replace(Some(pool.clone()));
    }

    /// A life comes to its end: what changed since it looked last the node does not know.
    fn look_last(&self) {
        let Some(pool) = self.pool.take() else { return };
        if self.prng.borrow_mut().below(2) == 0 {
            self.term.set(self.term.get().max(pool.durable_term()));
        }
    }
}

impl Media {
    /// What the node notes of an open pool when a life ends. A machine without power notes nothing.
    pub(super) fn note_term(&self) {
        if self.is_on() {
            self.node.look_last();
        }
        self.node.pool.take();
    }

    /// The options of an opening, as the node makes it.
    pub(super) fn as_node(&self, options: OpenOptions) -> OpenOptions {
        self.node.knowing(options)
    }
}
