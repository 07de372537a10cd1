//! Tasks that wait for work: giving them some allocates nothing once there are enough of them.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use reactor::sync::Notify;

/// Tasks that do jobs of one kind. There are as many as there were jobs at once; whoever gives jobs bounds that.
pub struct Crew<J> {
    idle: RefCell<Vec<Rc<Hand<J>>>>,
    dismissed: Cell<bool>,
}

/// One of them.
pub struct Hand<J> {
    job: Cell<Option<J>>,
    called: Notify,
}

impl<J> Default for Crew<J> {
    fn default() -> Self {
        Self { idle: RefCell::default(), dismissed: Cell::default() }
    }
}

impl<J> Crew<J> {
    /// Gives a job to whoever is idle, or to a new task that `hire` makes: it asks for [`Crew::next`] until that
    /// is none.
    pub fn give<F>(&self, job: J, hire: impl FnOnce(Rc<Hand<J>>) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        let idle = self.idle.borrow_mut().pop();
        if let Some(hand) = idle {
            hand.job.set(Some(job));
            hand.called.notify();
        } else {
            let hand = Hand { job: Cell::new(Some(job)), called: Notify::new() };
            reactor::spawn(hire(Rc::new(hand)));
        }
    }

    /// The next job of a hand; none when the crew is dismissed.
    pub async fn next(&self, hand: &Rc<Hand<J>>) -> Option<J> {
        loop {
            if let Some(job) = hand.job.take() {
                return Some(job);
            }
            if self.dismissed.get() {
                return None;
            }
            self.idle.borrow_mut().push(Rc::clone(hand));
            hand.called.notified().await;
        }
    }

    /// Has all leave: those at work when they are done.
    pub fn dismiss(&self) {
        self.dismissed.set(true);
        for hand in self.idle.take() {
            hand.called.notify();
        }
    }
}
