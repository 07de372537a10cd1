//! The thread that serves a namespace.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use initiator::{Geometry, Namespace, PathPolicy, Remote};
use reactor::{Config, Handle, Reactor};

use crate::limits::FAREWELL;
use crate::window::{self, Window};
use crate::{Error, Options, WindowUse};

thread_local! {
    /// The namespace that this thread serves. A task owns it, as it cannot outlive the reactor.
    static SERVED: RefCell<Weak<Namespace>> = const { RefCell::new(Weak::new()) };
}

/// A reactor on a thread of its own, and the namespace there. Ends when dropped.
pub struct Thread {
    handle: Handle,
    geometry: Arc<Mutex<Geometry>>,
    /// What writes go by, where it is and takes them.
    pub window: Option<Window>,
    /// Held by whoever waits for the thread's end, so that all do who want to.
    ending: Mutex<()>,
    pub options: Options,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is valid after every statement, whoever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Thread {
    /// Starts it, and attaches namespace `nsid` there.
    pub fn start(options: &Options, nsid: u32) -> Result<Self, Error> {
        let (cpu, poll) = (options.cpu, options.poll);
        let (remotes, policy) = (options.remotes(), options.path_policy);
        let name = "flashloom-host".to_owned();
        let handle = Reactor::start(Config { cpu, poll, name })?;
        let used = options.window;
        let attached = handle.call(move || attach(remotes, nsid, policy, used)).wait();
        match attached.map_err(Error::from).and_then(|result| result) {
            Ok((geometry, window)) => {
                let (ending, options) = (Mutex::new(()), options.clone());
                Ok(Self { handle, geometry, window, ending, options })
            }
            Err(why) => {
                handle.stop();
                let _ = handle.join();
                Err(why)
            }
        }
    }

    pub fn geometry(&self) -> Geometry {
        *lock(&self.geometry)
    }

    /// Runs `question` with the namespace, on its thread.
    pub fn ask<T: Send + 'static, F: Future<Output = T>>(
        &self,
        question: impl FnOnce(Rc<Namespace>) -> F + Send + 'static,
    ) -> Result<T, Error> {
        let asked = self.handle.call(move || async move {
            match SERVED.with_borrow(Weak::upgrade) {
                Some(namespace) => Some(question(namespace).await),
                None => None,
            }
        });
        asked.wait()?.ok_or(Error::Closed)
    }

    /// Waits until the thread has ended, which nothing here asks it to.
    pub fn wait_for_end(&self) {
        let _turn = lock(&self.ending);
        // Why it ended was told to nobody: it is known by what it does not do any more.
        let _ = self.handle.join();
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Nothing is lost by a controller that is not shut down: it notices by itself.
        let _ = self.ask(|namespace| async move {
            drop(reactor::timeout(FAREWELL, namespace.shut_down()).await);
        });
        self.handle.stop();
        self.wait_for_end();
    }
}

/// Attaches the namespace, and has tasks of this reactor keep it.
async fn attach(
    remotes: Vec<Remote>,
    nsid: u32,
    policy: PathPolicy,
    used: WindowUse,
) -> Result<(Arc<Mutex<Geometry>>, Option<Window>), Error> {
    let namespace = Rc::new(Namespace::attach_paths(&remotes, nsid, policy).await?);
    let window = window::open(&namespace, used).await?;
    let mut seen = namespace.geometry();
    let shown = Arc::new(Mutex::new(seen));
    let geometry = Arc::clone(&shown);
    SERVED.set(Rc::downgrade(&namespace));
    reactor::spawn(async move {
        while let Ok(now) = namespace.changed(&seen).await {
            *lock(&shown) = now;
            seen = now;
        }
        // Commands fail with the reason from now on.
        std::future::pending::<()>().await;
    });
    Ok((geometry, window))
}
