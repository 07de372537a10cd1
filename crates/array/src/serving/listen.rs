//! Listening sockets: each accepts on one reactor and hands over to the least loaded one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use api::value::{Address, Transport};
use fabric::controller::{Detached, Listener};
use reactor::Call;
use target::Target;
use target::listener::ListenerId;

use super::reactors::Reactors;
use super::seldom::Seldom;
use super::signal::Signal;
use super::words::transport_address;
use crate::limits::LEFT_BEHIND;
use crate::{Error, Result};

/// How long to let go after accept(2) failed: descriptors or memory are short, and connections
/// that end give some back.
const PAUSE: Duration = Duration::from_millis(100);

/// How often to look whether an address has become free.
const BIND_AGAIN: Duration = Duration::from_millis(20);

/// A bound socket. Dropping it closes the socket before the drop returns.
pub struct Listening {
    local: Address,
    /// Number that discovery knows it by; 0 while there is none.
    id: Arc<AtomicU16>,
    /// Given when connections may be accepted.
    open: Signal,
    /// Given when the socket is to be closed.
    close: Signal,
    /// Its device was removed: nobody comes any more.
    deserted: Arc<AtomicBool>,
    task: Option<Call<()>>,
}

impl Listening {
    /// Binds `address`. Hosts that connect wait until [`serve`](Self::serve).
    pub fn bind(reactors: &Arc<Reactors>, target: &Arc<Target>, address: Address) -> Result<Self> {
        let (bound, answer) = mpsc::channel();
        let acceptor = Acceptor {
            reactors: Arc::clone(reactors),
            target: Arc::clone(target),
            id: Arc::default(),
            open: Signal::default(),
            close: Signal::default(),
            deserted: Arc::default(),
            failed: Seldom::default(),
        };
        let (id, open, close) =
            (acceptor.id.clone(), acceptor.open.clone(), acceptor.close.clone());
        let deserted = Arc::clone(&acceptor.deserted);
        let handle = reactors.acceptor(usize::from(address.socket().port()));
        let task = handle.call(move || async move {
            let socket = bind(address).await;
            let socket = socket.and_then(|socket| Ok((socket.address()?.socket(), socket)));
            match socket {
                Ok((local, socket)) => {
                    let _ = bound.send(Ok(local));
                    acceptor.run(&socket).await;
                }
                Err(error) => {
                    let _ = bound.send(Err(error));
                }
            }
        });
        let stopped = || Error::new(api::v1::Kind::Stopping, "the reactors have stopped");
        let local = answer.recv().map_err(|_| stopped())?.map_err(|error| {
            let help = match error.kind() {
                std::io::ErrorKind::AddrNotAvailable if address.transport() == Transport::Rdma => {
                    "`rdma link` lists RDMA devices: name an address of the network interface of one of them"
                }
                std::io::ErrorKind::Unsupported => {
                    "install Debian's packages librdmacm1 and ibverbs-providers, or what rdma-core is called here"
                }
                std::io::ErrorKind::NotFound => {
                    "load the driver of the network card and rdma_ucm: `modprobe rdma_ucm`, `rdma link`"
                }
                std::io::ErrorKind::OutOfMemory => "every reactor needs that much, and each connection some",
                std::io::ErrorKind::AddrInUse => {
                    "another program listens there: stop it, or choose another port"
                }
                std::io::ErrorKind::AddrNotAvailable => {
                    "no interface of this machine has that address"
                }
                std::io::ErrorKind::PermissionDenied => "ports below 1024 are for root",
                _ => "choose another address",
            };
            Error::failed(format!("cannot listen on {address}"), error).help(help)
        })?;
        let local = Address::new(address.transport(), local);
        Ok(Self { local, id, open, close, deserted, task: Some(task) })
    }

    /// Accepts connections from now on, as the listener `id`.
    pub fn serve(&self, id: ListenerId) {
        self.id.store(id.0, Ordering::Release);
        self.open.give();
    }

    /// The listener's number.
    pub fn id(&self) -> Option<ListenerId> {
        Some(ListenerId(self.id.load(Ordering::Acquire))).filter(|id| id.0 > 0)
    }

    /// Whether nobody can come any more, because its device was removed. It is closed then.
    pub fn is_deserted(&self) -> bool {
        self.deserted.load(Ordering::Acquire)
    }

    /// Has it be as if its device were removed.
    #[cfg(test)]
    pub fn desert(&self) {
        self.deserted.store(true, Ordering::Release);
    }

    /// The address that the socket is bound to.
    pub const fn local(&self) -> Address {
        self.local
    }
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Listening").field("local", &self.local).field("id", &self.id).finish()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.close.give();
        if let Some(task) = self.task.take() {
            // Gone is a reactor that has stopped: the socket went with it.
            let _ = task.wait();
        }
    }
}

/// Binds `address`, waiting a little for whoever has it: of a daemon that was killed, the kernel closes the
/// sockets that its rings held only after the process is gone.
async fn bind(address: Address) -> std::io::Result<Listener> {
    let mut attempts = LEFT_BEHIND.as_millis() / BIND_AGAIN.as_millis();
    loop {
        let bound = Listener::bind(transport_address(address));
        match &bound {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && attempts > 0 => {}
            _ => return bound,
        }
        attempts -= 1;
        reactor::sleep(BIND_AGAIN).await;
    }
}

/// What accepts.
struct Acceptor {
    reactors: Arc<Reactors>,
    target: Arc<Target>,
    id: Arc<AtomicU16>,
    open: Signal,
    close: Signal,
    deserted: Arc<AtomicBool>,
    failed: Seldom,
}

impl Acceptor {
    async fn run(self, socket: &Listener) {
        self.close
            .unless(async {
                self.open.given().await;
                while !self.deserted.load(Ordering::Acquire) {
                    self.accept(socket).await;
                }
            })
            .await;
    }

    async fn accept(&self, socket: &Listener) {
        match socket.accept_detached().await {
            Ok(Detached::Ring(asked)) => {
                self.target.hand_out(asked);
                // Whoever floods it takes turns with others.
                reactor::yield_now().await;
            }
            Ok(connection) => {
                let id = ListenerId(self.id.load(Ordering::Acquire));
                self.reactors.hand_over(connection, &self.target, id);
                self.reactors.make_room().await;
            }
            // Of a TCP socket that says nothing of the kind.
            Err(error) if error.kind() == std::io::ErrorKind::NotConnected => {
                self.deserted.store(true, Ordering::Release);
            }
            Err(error) => {
                if let Some(times) = self.failed.due(reactor::now()) {
                    let many = if times > 1 { format!(" ({times} times)") } else { String::new() };
                    tracing::warn!("cannot accept connections{many}: {error}");
                }
                reactor::sleep(PAUSE).await;
            }
        }
    }
}
