//! Namespaces as one queue sees them: looked up without a lock, counted without an atomic.

use core::cell::{OnceCell, RefCell, RefMut};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use stdx::num::usize32;

use crate::command::Attached;
use crate::controller::Controller;
use crate::metrics::{Counters, Labels};
use crate::namespace::Namespace;
use crate::registry::Target;

/// A namespace with what its queue keeps beside it.
pub struct Local {
    pub attached: Rc<Attached>,
    labels: Labels,
    counters: OnceCell<Rc<Counters>>,
}

impl Local {
    /// Made with the first command: most hosts never use most namespaces.
    pub fn counters(&self) -> &Rc<Counters> {
        self.counters.get_or_init(|| Counters::of(self.labels.clone()))
    }
}

/// The namespaces of one queue, as of one epoch.
pub struct LocalView {
    epoch: u64,
    /// Index: namespace identifier minus one.
    namespaces: Vec<Option<Rc<Local>>>,
}

impl LocalView {
    #[must_use]
    pub fn get(&self, nsid: u32) -> Option<&Rc<Local>> {
        self.namespaces.get(usize32(nsid.checked_sub(1)?))?.as_ref()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rc<Local>> {
        self.namespaces.iter().flatten()
    }
}

thread_local! {
    /// The views of this core's queues.
    static VIEWS: RefCell<Vec<Weak<Views>>> = const { RefCell::new(Vec::new()) };
}

/// Has every queue of this core let go of namespaces that are gone, also those whose host is silent.
pub fn refresh_all() {
    let all: Vec<_> = VIEWS.with_borrow(|views| views.iter().filter_map(Weak::upgrade).collect());
    for views in all {
        views.current();
    }
}

/// A queue's view, refreshed when the target's epoch has moved.
pub struct Views {
    target: Arc<Target>,
    controller: Arc<Controller>,
    /// The queue's number.
    queue: u64,
    current: RefCell<Rc<LocalView>>,
}

impl Views {
    pub fn new(target: Arc<Target>, controller: Arc<Controller>, queue: u64) -> Rc<Self> {
        let empty = LocalView { epoch: u64::MAX, namespaces: Vec::new() };
        let current = RefCell::new(Rc::new(empty));
        let views = Rc::new(Self { target, controller, queue, current });
        VIEWS.with_borrow_mut(|all| {
            all.retain(|known| known.strong_count() > 0);
            all.push(Rc::downgrade(&views));
        });
        views
    }

    #[must_use]
    pub fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// The namespace with this identifier now. Who keeps it keeps no other.
    pub fn get(&self, nsid: u32) -> Option<Rc<Local>> {
        self.refreshed().get(nsid).cloned()
    }

    /// The namespaces now.
    pub fn current(&self) -> Rc<LocalView> {
        self.refreshed().clone()
    }

    fn refreshed(&self) -> RefMut<'_, Rc<LocalView>> {
        let epoch = self.target.epoch();
        let mut current = self.current.borrow_mut();
        if current.epoch != epoch {
            *current = Rc::new(self.load(epoch, &current));
        }
        current
    }

    /// Builds a view, keeping what has not changed so that counters go on.
    fn load(&self, epoch: u64, old: &LocalView) -> LocalView {
        let view = self.controller.view();
        let mut namespaces = Vec::new();
        for namespace in view.iter() {
            let index = usize32(namespace.nsid - 1);
            if namespaces.len() <= index {
                namespaces.resize(index + 1, None);
            }
            let kept = old
                .get(namespace.nsid)
                .filter(|local| Arc::ptr_eq(local.attached.namespace(), namespace));
            namespaces[index] = Some(match kept {
                Some(kept) => kept.clone(),
                None => Rc::new(self.local(namespace)),
            });
        }
        LocalView { epoch, namespaces }
    }

    fn local(&self, namespace: &Arc<Namespace>) -> Local {
        let labels = Labels {
            subsystem: self.controller.subsystem_nqn().to_string(),
            host: self.controller.host().nqn.to_string(),
            nsid: namespace.nsid,
        };
        let attached = Attached::new(namespace.clone(), self.controller.host_id());
        let attached = Rc::new(attached.of_queue(self.queue));
        Local { attached, labels, counters: OnceCell::new() }
    }
}
