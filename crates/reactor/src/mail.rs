//! Mailboxes: how other threads reach a reactor.
//!
//! What is rare (errands, stops, wakes from threads without a reactor) is put in under a lock. Wakes from other
//! reactors come by rings of their own ([`peers`](crate::peers)), whose putters only knock.

use crate::bell::Bell;
use crate::concurrent::{AtomicBool, Mutex, MutexGuard, fence};
use crate::error::Error;
use crate::limits::{MAIL_MAX, MAIL_WAKES_MAX, REACTORS_MAX};
use crate::spsc::Taker;
use crate::waker::TaskRef;
use std::sync::atomic::Ordering;
use std::sync::{self, Arc, PoisonError};
use stdx::num::{u32_of, usize32};

pub(crate) type Errand = Box<dyn FnOnce() + Send>;

/// What arrived since the mailbox was last emptied.
#[derive(Default)]
pub(crate) struct Mail {
    pub errands: Vec<Errand>,
    pub wakes: Vec<TaskRef>,
    /// More wakes than fit: wake every task.
    pub wake_all: bool,
    /// Rings by which other reactors wake tasks from now on.
    pub rings: Vec<Taker<TaskRef>>,
    pub stop: bool,
}

#[derive(Default)]
struct Inside {
    mail: Mail,
    closed: bool,
}

pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
    /// There is mail. The reactor reads it once a turn.
    pending: AtomicBool,
    /// There is something in one of the rings. Read once a turn, too.
    knocked: AtomicBool,
    /// The reactor is gone.
    closed: AtomicBool,
    /// The reactor sleeps, or is about to: whoever brings mail must ring.
    sleeping: AtomicBool,
    bell: Bell,
}

static REGISTRY: [sync::Mutex<Option<Arc<Mailbox>>>; REACTORS_MAX] =
    [const { sync::Mutex::new(None) }; REACTORS_MAX];

// What is inside of either lock is valid after every single statement, whoever panicked.

fn registered(id: u32) -> sync::MutexGuard<'static, Option<Arc<Mailbox>>> {
    REGISTRY[usize32(id)].lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    fn new() -> Result<Self, Error> {
        let bell = Bell::new()
            .map_err(|source| Error::System { what: "cannot create an eventfd", source })?;
        Ok(Self {
            inside: Mutex::default(),
            pending: AtomicBool::new(false),
            knocked: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            bell,
        })
    }

    pub const fn bell(&self) -> &Bell {
        &self.bell
    }

    fn post(&self, put: impl FnOnce(&mut Mail)) -> bool {
        {
            let mut inside = lock(&self.inside);
            if inside.closed {
                return false;
            }
            put(&mut inside.mail);
        }
        if !self.pending.swap(true, Ordering::Relaxed) {
            // As in `prepare_sleep`: either it sees the mail, or we see it sleeping.
            fence(Ordering::SeqCst);
            if self.sleeping.load(Ordering::Relaxed) {
                self.bell.ring();
            }
        }
        true
    }

    /// False when the reactor is gone or has too much to do already.
    pub fn run(&self, errand: Errand) -> bool {
        let mut errand = Some(errand);
        self.post(|mail| {
            if mail.errands.len() < MAIL_MAX {
                mail.errands.extend(errand.take());
            }
        }) && errand.is_none()
    }

    pub fn stop(&self) {
        self.post(|mail| mail.stop = true);
    }

    /// Gives the reactor a ring; it looks into it whenever somebody [knocks](Self::knock).
    pub fn put_ring(&self, ring: Taker<TaskRef>) -> bool {
        self.post(|mail| mail.rings.push(ring))
    }

    /// Has the reactor look into its rings; for whoever published something in one.
    pub fn knock(&self) {
        // As in `take_knock`: either it sees what was published, or we see that it has taken the last knock.
        fence(Ordering::SeqCst);
        if self.knocked.load(Ordering::Relaxed) {
            return;
        }
        self.knocked.store(true, Ordering::Relaxed);
        // As in `prepare_sleep`.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// Whether somebody knocked; the reactor looks into its rings after that.
    pub fn take_knock(&self) -> bool {
        let knocked = self.knocked.load(Ordering::Relaxed);
        if knocked {
            self.knocked.store(false, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        knocked
    }

    pub fn wake(&self, task: TaskRef) {
        self.post(|mail| {
            if mail.wakes.len() < MAIL_WAKES_MAX {
                mail.wakes.push(task);
            } else {
                mail.wake_all = true;
            }
        });
    }

    /// Whether there is anything for the reactor: mail, or a knock.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.has_letters() || self.knocked.load(Ordering::Relaxed)
    }

    /// Whether there is something to [take](Self::take).
    pub fn has_letters(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    /// Whether the reactor is gone, for good.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Takes all mail; the reactor only.
    pub fn take(&self) -> Mail {
        // Whoever puts something in after this took it out, under the lock, is the later one to write here.
        self.pending.store(false, Ordering::Relaxed);
        std::mem::take(&mut lock(&self.inside).mail)
    }

    /// Asks for the bell. False when there is mail already: do not sleep then.
    pub fn prepare_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.has_mail()
    }

    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Refuses mail from now on and gives back what is inside.
    pub fn close(&self) -> Mail {
        let mut inside = lock(&self.inside);
        inside.closed = true;
        self.closed.store(true, Ordering::Relaxed);
        std::mem::take(&mut inside.mail)
    }
}

/// A place in the registry, given back when dropped.
pub(crate) struct Registration {
    pub id: u32,
    pub mailbox: Arc<Mailbox>,
}

impl Registration {
    pub fn new() -> Result<Self, Error> {
        let mailbox = Arc::new(Mailbox::new()?);
        for id in 0..u32_of(REACTORS_MAX) {
            let mut place = registered(id);
            if place.is_none() {
                *place = Some(Arc::clone(&mailbox));
                return Ok(Self { id, mailbox });
            }
        }
        Err(Error::TooMany)
    }
}

impl Registration {
    /// Gives the place back and refuses mail. Errands dropped here tell whoever waits for them that
    /// the reactor is gone.
    pub fn close(&self) {
        let mut place = registered(self.id);
        if place.as_ref().is_some_and(|there| Arc::ptr_eq(there, &self.mailbox)) {
            *place = None;
        }
        drop(place);
        drop(self.mailbox.close());
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.close();
    }
}

/// The mailbox of a reactor, if that still lives.
pub(crate) fn find(reactor: u32) -> Option<Arc<Mailbox>> {
    registered(reactor).clone()
}

/// Wakes a task of another thread's reactor, if that still lives. For threads that are no reactors.
pub(crate) fn wake(task: TaskRef) {
    if let Some(mailbox) = find(task.reactor) {
        mailbox.wake(task);
    }
}

#[cfg(loom)]
#[cfg(test)]
mod loom_tests {
    use super::*;
    use crate::concurrent::explore;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// Lives as a reactor does until it is asked to stop.
    fn live(mailbox: &Mailbox) {
        loop {
            let mail = mailbox.take();
            mail.errands.into_iter().for_each(|errand| errand());
            if mail.stop {
                return;
            }
            if mailbox.prepare_sleep() {
                mailbox.bell().wait(None);
                mailbox.bell().silence();
            }
            mailbox.awake();
        }
    }

    #[test]
    fn loom_mail_wakes_a_reactor_that_goes_to_sleep() {
        explore(|| {
            let mailbox = Arc::new(Mailbox::new().unwrap());
            let ran = Arc::new(AtomicUsize::new(0));
            let bringing = {
                let (mailbox, ran) = (Arc::clone(&mailbox), Arc::clone(&ran));
                thread::spawn(move || {
                    let errand = move || {
                        ran.fetch_add(1, Ordering::Relaxed);
                    };
                    assert!(mailbox.run(Box::new(errand)));
                    mailbox.stop();
                })
            };
            live(&mailbox);
            bringing.join().unwrap();
            assert_eq!(ran.load(Ordering::Relaxed), 1);
        });
    }

    /// Wakes two tasks by two rings, and sees both.
    #[test]
    fn loom_a_knock_wakes_a_reactor_that_goes_to_sleep() {
        explore(|| {
            let mailbox = Arc::new(Mailbox::new().unwrap());
            let (mut rings, mut knocking) = (Vec::new(), Vec::new());
            for slot in 0..2 {
                let (mut putter, taker) = crate::spsc::ring(1);
                rings.push(taker);
                let mailbox = Arc::clone(&mailbox);
                knocking.push(thread::spawn(move || {
                    let task = TaskRef { reactor: 0, slot, generation: 0 };
                    putter.put(task).unwrap();
                    putter.publish();
                    mailbox.knock();
                }));
            }
            let mut woken = 0;
            loop {
                if mailbox.take_knock() {
                    woken += rings.iter_mut().filter_map(crate::spsc::Taker::take).count();
                }
                if woken == 2 {
                    break;
                }
                if mailbox.prepare_sleep() {
                    mailbox.bell().wait(None);
                    mailbox.bell().silence();
                }
                mailbox.awake();
            }
            knocking.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn loom_an_errand_is_run_or_refused_or_dropped_when_a_reactor_ends() {
        explore(|| {
            let mailbox = Arc::new(Mailbox::new().unwrap());
            let kept = loom::sync::Arc::new(());
            let bringing = {
                let (mailbox, kept) = (Arc::clone(&mailbox), loom::sync::Arc::clone(&kept));
                thread::spawn(move || mailbox.run(Box::new(move || drop(kept))))
            };
            drop(mailbox.close());
            let _ = bringing.join().unwrap();
            assert!(!mailbox.run(Box::new(|| ())));
            assert_eq!(loom::sync::Arc::strong_count(&kept), 1, "nothing is left inside");
        });
    }
}
