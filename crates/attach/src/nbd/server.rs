//! Listens, negotiates, and serves as many clients as come, within bounds.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use hostraid::Volume;
use reactor::net::{ListenOptions, TcpListener, TcpStream, UnixListener};
use reactor::sync::Signal;
use zerocopy::IntoBytes;

use super::client::Client;
use super::export::Export;
use super::handshake::{Handshake, Refused, Settled, Step};
use super::inbox::Inbox;
use crate::Place;
use crate::disk::Disk;
use crate::limits::{CLIENTS_MAX, HANDSHAKE_TIMEOUT, NAME_BYTES_MAX};

/// Where clients come from.
#[derive(Debug)]
pub enum Listener {
    /// A socket in the file system: for programs on this machine.
    Unix {
        listener: UnixListener,
        /// A program that was killed had left its socket there.
        succeeds: bool,
    },
    /// A TCP port.
    Tcp {
        listener: TcpListener,
        /// It was asked for: whoever had it before may have been killed, which leaves nothing to tell by.
        succeeds: bool,
    },
}

impl Listener {
    /// Listens at `place`.
    ///
    /// # Errors
    /// As bind(2).
    pub fn bind(place: &Place) -> io::Result<Self> {
        match place {
            Place::Unix(path) => {
                let succeeds = path.exists();
                UnixListener::bind(path).map(|listener| Self::Unix { listener, succeeds })
            }
            Place::Tcp(address) => {
                let succeeds = address.port() != 0;
                let bound = TcpListener::bind(*address, ListenOptions::default());
                bound.map(|listener| Self::Tcp { listener, succeeds })
            }
        }
    }

    /// Where it listens: the port that was free, if any was asked for.
    #[must_use]
    pub fn place(&self, asked: &Place) -> Place {
        match self {
            Self::Unix { .. } => asked.clone(),
            Self::Tcp { listener, .. } => {
                listener.local_addr().map_or_else(|_| asked.clone(), Place::Tcp)
            }
        }
    }

    /// Whether its clients may have been those of a program that was killed: what that had in flight may come after what they
    /// send again by this one.
    const fn succeeds(&self) -> bool {
        match self {
            Self::Unix { succeeds, .. } | Self::Tcp { succeeds, .. } => *succeeds,
        }
    }

    async fn accept(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Unix { listener, .. } => listener.accept_fd().await,
            Self::Tcp { listener, .. } => Ok(listener.accept_fd().await?.0),
        }
    }
}

/// How an export is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The export's name; clients that give none mean it, too.
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// Refuse to write.
    pub read_only: bool,
}

/// A name or description that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an export's name and description have at most {NAME_BYTES_MAX} bytes each")]
pub struct TooLong;

/// A server of one namespace.
pub struct Server {
    disk: Rc<Disk>,
    options: Options,
    /// As last shown to a client.
    export: RefCell<Rc<Export>>,
    /// Those who have a place: also who left, until their requests are over.
    clients: Cell<usize>,
    /// Those who are served.
    served: Cell<usize>,
    stopped: Cell<bool>,
    changed: Signal,
}

/// A client's place.
struct Counted(Rc<Server>);

impl Counted {
    fn new(server: &Rc<Server>) -> Self {
        server.clients.set(server.clients.get() + 1);
        Self(Rc::clone(server))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.clients.set(self.0.clients.get() - 1);
    }
}

/// A client that is served.
struct Served(Rc<Server>);

impl Served {
    fn new(server: &Rc<Server>) -> Self {
        server.served.set(server.served.get() + 1);
        Self(Rc::clone(server))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.served.set(self.0.served.get() - 1);
        self.0.changed.raise();
    }
}

/// How long to wait when no client can be accepted, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// A server of `namespace`.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn new(namespace: impl Into<Volume>, options: Options) -> Result<Rc<Self>, TooLong> {
        if options.name.len().max(options.description.len()) > NAME_BYTES_MAX {
            return Err(TooLong);
        }
        let disk = Disk::new(namespace);
        let Options { name, description, read_only } = &options;
        let export = Export::new(&disk.geometry(), name, description, *read_only);
        Ok(Rc::new(Self {
            disk: Rc::new(disk),
            options,
            export: RefCell::new(Rc::new(export)),
            clients: Cell::default(),
            served: Cell::default(),
            stopped: Cell::default(),
            changed: Signal::new(),
        }))
    }

    /// What clients are offered.
    #[must_use]
    pub fn export(&self) -> Rc<Export> {
        Rc::clone(&self.export.borrow())
    }

    /// Looks at the namespace again: new clients see its new size, and all are held to it.
    pub fn refresh(&self) {
        let Options { name, description, read_only } = &self.options;
        let export = Export::new(&self.disk.geometry(), name, description, *read_only);
        *self.export.borrow_mut() = Rc::new(export);
    }

    /// Accepts clients until [`Server::stop`].
    pub async fn listen(self: Rc<Self>, listener: Listener) {
        if listener.succeeds() {
            self.disk.succeed();
        }
        let accept = async {
            loop {
                match listener.accept().await.and_then(TcpStream::from_fd) {
                    Ok(stream) if self.clients.get() < CLIENTS_MAX => {
                        reactor::spawn(serve(Counted::new(&self), Served::new(&self), stream));
                    }
                    Ok(_) => tracing::warn!("a client beyond {CLIENTS_MAX} was turned away"),
                    Err(error) => {
                        tracing::warn!("cannot accept a client: {error}");
                        reactor::sleep(PAUSE).await;
                    }
                }
            }
        };
        fabric::race(accept, self.until_stopped()).await;
    }

    /// Has all clients end their requests and leave, and waits for that.
    pub async fn stop(&self) {
        self.stopped.set(true);
        self.changed.raise();
        self.changed.until(|| self.served.get() == 0).await;
    }

    async fn until_stopped(&self) {
        self.changed.until(|| self.stopped.get()).await;
    }
}

/// Serves one client to its end.
async fn serve(_place: Counted, served: Served, stream: TcpStream) {
    let server = Rc::clone(&served.0);
    // A Unix socket has no such delay.
    let _ = stream.set_nodelay(true);
    let mut inbox = Inbox::default();
    let negotiated = {
        let negotiation = negotiate(&server, &stream, &mut inbox);
        within(HANDSHAKE_TIMEOUT, negotiation, server.until_stopped()).await
    };
    match negotiated {
        Ok(Negotiated::Settled(settled)) => {
            let client = Client::new(stream, Rc::new(server.disk.beside()), settled);
            let stop = server.until_stopped();
            let service = Rc::clone(&client).serve(settled, inbox, || server.export(), stop);
            if let Err(ended) = service.await {
                tracing::debug!("a client was closed: {ended}");
            }
            drop(served);
            // What it asked for goes on without it, and takes room as long as it does.
            client.over().await;
        }
        Ok(Negotiated::Refused(why)) => tracing::debug!("a client was not served: {why}"),
        Err(error) => tracing::debug!("a client left while it chose an export: {error}"),
    }
}

/// What a negotiation came to.
enum Negotiated {
    Settled(Settled),
    Refused(Refused),
}

async fn within(
    time: Duration,
    negotiation: impl Future<Output = io::Result<Negotiated>>,
    stop: impl Future<Output = ()>,
) -> io::Result<Negotiated> {
    let stop = async {
        stop.await;
        Err(io::ErrorKind::Interrupted.into())
    };
    let raced = fabric::race(negotiation, stop);
    reactor::timeout(time, raced).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn negotiate(
    server: &Server,
    stream: &TcpStream,
    inbox: &mut Inbox,
) -> io::Result<Negotiated> {
    stream.send_all(Handshake::hello().as_bytes()).await?;
    let mut handshake = Handshake::default();
    let mut out = Vec::new();
    loop {
        let step = handshake.next(inbox.unread(), &server.export(), &mut out);
        stream.send_all(&out).await?;
        out.clear();
        match step {
            Step::NeedMore { consumed } => {
                inbox.consume(consumed);
                inbox.fill(stream).await?;
            }
            Step::Next { consumed } => inbox.consume(consumed),
            Step::Begin { consumed, settled } => {
                inbox.consume(consumed);
                return Ok(Negotiated::Settled(settled));
            }
            Step::Close(why) => return Ok(Negotiated::Refused(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By TCP it was not waited for what a program had in flight that was killed, and that came over what its clients sent again.
    #[test]
    fn who_may_have_come_after_a_killed_program_knows_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd.sock");
        let succeeds = |place: &Place| {
            reactor::run(reactor::Config::default(), {
                let place = place.clone();
                async move { Listener::bind(&place).unwrap().succeeds() }
            })
            .unwrap()
        };
        assert!(!succeeds(&Place::Unix(path.clone())));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(succeeds(&Place::Unix(path)));
        let any = "127.0.0.1:0".parse().unwrap();
        assert!(!succeeds(&Place::Tcp(any)), "nobody knew this port");
        let port = std::net::TcpListener::bind(any).unwrap().local_addr().unwrap();
        assert!(succeeds(&Place::Tcp(port)));
    }
}
