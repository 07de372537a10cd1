//! Associations with the namespace: one on each reactor that uses it, for one incarnation.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use fabric::race;
use initiator::{Namespace, Optimization, Optimizations, Options, Remote};
use reactor::sync::Signal;

use super::claim;
use super::error::Why;
use super::incarnation::{Core, Incarnation, Next, Over};
use crate::limits::{REMOTE_KEEP_ALIVE, REMOTE_LEAVE, REMOTE_OPERATION, REMOTE_QUEUE, REMOTE_STEP};

/// Numbers of a drive and of its incarnation.
type Name = (u64, u64);

/// An incarnation's association on this reactor, made or in the making.
#[derive(Default)]
struct Slot {
    open: OnceCell<Rc<Association>>,
    /// It was never made, or is over.
    over: Cell<bool>,
    changed: Signal,
}

thread_local! {
    /// Those of this reactor. Each has a task that takes it out.
    static SLOTS: RefCell<BTreeMap<Name, Rc<Slot>>> = const { RefCell::new(BTreeMap::new()) };
}

/// What commands of this reactor go to.
pub(super) struct Association {
    /// Number of the incarnation.
    pub incarnation: u64,
    pub namespace: Namespace,
}

fn find(name: Name) -> Option<Rc<Slot>> {
    SLOTS.with_borrow(|slots| slots.get(&name).cloned())
}

/// The association of this reactor with the incarnation there is, or with a new one.
///
/// # Errors
/// Why there is none.
pub(super) async fn associate(core: &Arc<Core>) -> Result<Rc<Association>, Why> {
    if let Some(open) = core.current().and_then(|number| find((core.drive, number)))
        && let Some(association) = open.open.get()
    {
        return Ok(Rc::clone(association));
    }
    loop {
        match core.next().await? {
            Next::Claim(incarnation) => begin(core, &incarnation, true),
            Next::Use(incarnation) => {
                let name = (core.drive, incarnation.number);
                let slot = find(name).unwrap_or_else(|| {
                    begin(core, &incarnation, false);
                    find(name).unwrap_or_default()
                });
                slot.changed.until(|| slot.open.get().is_some() || slot.over.get()).await;
                if let (Some(association), false) = (slot.open.get(), slot.over.get()) {
                    return Ok(Rc::clone(association));
                }
                // Its incarnation is over, which the core tells of.
            }
        }
    }
}

/// Starts a task that makes the association, and keeps it while the incarnation lasts: whoever asked for it may go.
fn begin(core: &Arc<Core>, incarnation: &Arc<Incarnation>, claims: bool) {
    let slot = Rc::<Slot>::default();
    let name = (core.drive, incarnation.number);
    SLOTS.with_borrow_mut(|slots| slots.insert(name, Rc::clone(&slot)));
    core.associated();
    let kept = Kept { core: Arc::clone(core), incarnation: Arc::clone(incarnation), slot };
    drop(reactor::spawn(kept.live(claims)));
}

/// An association's task. Whatever ends it, the incarnation ends with it.
struct Kept {
    core: Arc<Core>,
    incarnation: Arc<Incarnation>,
    slot: Rc<Slot>,
}

impl Kept {
    async fn live(self, claims: bool) {
        let number = self.incarnation.number;
        let over = async {
            self.core.over(number).await;
            Err(Why::gone("the drive is over"))
        };
        let namespace = match race(over, self.open(claims)).await {
            Ok(namespace) => namespace,
            Err(why) => return self.core.end(number, why),
        };
        let association =
            Rc::new(Association { incarnation: number, namespace: namespace.clone() });
        let _ = self.slot.open.set(association);
        if claims && !self.core.hold(number, &namespace.geometry()) {
            // Closed meanwhile: nothing was written by it.
            return claim::leave(&namespace, &self.incarnation).await;
        }
        self.slot.changed.raise();
        let over = race(self.core.over(number), self.watch(&namespace)).await;
        self.leave_slot();
        if over == Over::Left && claims {
            claim::leave(&namespace, &self.incarnation).await;
        }
        // Commands in flight end with an error. Nothing is lost by a controller that is not shut down: it notices.
        let _ = reactor::timeout(REMOTE_LEAVE, namespace.shut_down()).await;
    }

    /// Connects, and takes the namespace or looks whether it is taken.
    async fn open(&self, claims: bool) -> Result<Namespace, Why> {
        let remote = remote(&self.core, &self.incarnation);
        let attach = Namespace::attach(&remote, self.core.place.nsid);
        let namespace = match reactor::timeout(REMOTE_OPERATION, attach).await {
            Ok(attached) => attached.map_err(|error| claim::why(&error))?,
            Err(_) => {
                let seconds = REMOTE_OPERATION.as_secs();
                return Err(Why::gone(format!("it could not be connected within {seconds} s")));
            }
        };
        self.core.look(&namespace.geometry())?;
        if claims {
            let lost = async { Err(lost(&namespace).await) };
            race(claim::claim(&namespace, &self.incarnation), lost).await?;
        }
        claim::verify(&namespace, &self.incarnation).await?;
        Ok(namespace)
    }

    /// Follows the namespace until it cannot be used any more, and ends the incarnation then.
    async fn watch(&self, namespace: &Namespace) -> Over {
        let mut seen = namespace.geometry();
        let why = loop {
            match namespace.changed(&seen).await {
                Ok(now) => match self.core.look(&now) {
                    Ok(()) => seen = now,
                    Err(why) => break why,
                },
                Err(error) => break claim::why(&error),
            }
        };
        self.core.end(self.incarnation.number, why);
        self.core.over(self.incarnation.number).await
    }

    fn leave_slot(&self) {
        let name = (self.core.drive, self.incarnation.number);
        SLOTS.with_borrow_mut(|slots| slots.remove(&name));
        self.slot.over.set(true);
        self.slot.changed.raise();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.core
            .end(self.incarnation.number, Why::gone("the reactor that connected it has ended"));
        self.leave_slot();
        self.core.parted();
    }
}

/// Waits until the association of a namespace is lost.
async fn lost(namespace: &Namespace) -> Why {
    let mut seen = namespace.geometry();
    loop {
        match namespace.changed(&seen).await {
            Ok(now) => seen = now,
            Err(error) => return claim::why(&error),
        }
    }
}

/// Where the namespace is, and as whom it is asked.
fn remote(core: &Core, incarnation: &Incarnation) -> Remote {
    let place = &core.place;
    let transport = if place.rdma { "rdma://" } else { "" };
    Remote {
        traddr: format!("{transport}{}", place.traddr),
        trsvcid: place.trsvcid,
        subnqn: place.subnqn.to_string(),
        host: incarnation.host.clone(),
        options: Options {
            keep_alive: REMOTE_KEEP_ALIVE,
            timeout: REMOTE_STEP,
            // Operations have times of their own; what a claim waits for has none.
            io_timeout: std::time::Duration::ZERO,
            // Another association is another incarnation.
            ctrl_loss: Some(std::time::Duration::ZERO),
            io_queues: 1,
            // The reactor has others to serve while it waits for a network.
            optimizations: Optimizations::default().without(Optimization::Polled),
            queue_size: REMOTE_QUEUE,
            ..Options::default()
        },
    }
}
