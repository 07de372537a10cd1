//! Listens, and serves one front end after the other.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use hostraid::Volume;
use reactor::net::{TcpStream, UnixListener};
use reactor::sync::Signal;

use super::block::Device;
use super::front_end::{Channel, FrontEnd};
use super::ring::Shared;
use super::wire::ID_BYTES;
use crate::disk::Disk;

/// How long to wait when no front end can be accepted, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);

/// A vhost-user back end of one namespace.
pub struct Server {
    shared: Rc<Shared>,
    read_only: bool,
    /// Where the front end of now is told of changes.
    channel: RefCell<Option<Rc<Channel>>>,
    stopped: Cell<bool>,
    changed: Signal,
}

impl Server {
    /// A back end of `namespace`, which its guest knows by `id`, of which it sees 20 bytes.
    #[must_use]
    pub fn new(namespace: impl Into<Volume>, id: &str, read_only: bool) -> Rc<Self> {
        let disk = Rc::new(Disk::new(namespace));
        let device = Cell::new(Device::new(&disk.geometry(), read_only));
        let mut bytes = [0; ID_BYTES];
        for (to, from) in bytes.iter_mut().zip(id.bytes()) {
            *to = from;
        }
        Rc::new(Self {
            shared: Rc::new(Shared { disk, device, id: bytes }),
            read_only,
            channel: RefCell::default(),
            stopped: Cell::default(),
            changed: Signal::new(),
        })
    }

    /// What guests see.
    #[must_use]
    pub fn device(&self) -> Device {
        self.shared.device.get()
    }

    /// Looks at the namespace again, and tells the front end.
    pub async fn refresh(&self) {
        self.shared.device.set(Device::new(&self.shared.disk.geometry(), self.read_only));
        let channel = self.channel.borrow().clone();
        if let Some(channel) = channel {
            channel.config_changed().await;
        }
    }

    /// Serves one front end after the other until [`Server::stop`]. The next one is not looked at before all
    /// requests of the last one have ended: none of its writes comes after one of the next.
    pub async fn listen(self: Rc<Self>, listener: UnixListener) {
        while !self.stopped.get() {
            let stopped = async {
                self.until_stopped().await;
                Err(io::ErrorKind::Interrupted.into())
            };
            match fabric::race(listener.accept_fd(), stopped).await.and_then(TcpStream::from_fd) {
                Ok(stream) => self.serve(stream).await,
                Err(_) if self.stopped.get() => {}
                Err(error) => {
                    tracing::warn!("cannot accept a front end: {error}");
                    reactor::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn serve(&self, stream: TcpStream) {
        let front_end = FrontEnd::new(stream, &self.shared);
        let stopped = async {
            self.until_stopped().await;
            Ok(())
        };
        let opened = |channel| *self.channel.borrow_mut() = Some(channel);
        match fabric::race(front_end.serve(opened), stopped).await {
            Ok(()) => tracing::debug!("a front end left"),
            Err(ended) => tracing::warn!("a front end was closed: {ended}"),
        }
        *self.channel.borrow_mut() = None;
        front_end.end().await;
    }

    /// Has the front end's requests end.
    pub fn stop(&self) {
        self.stopped.set(true);
        self.changed.raise();
    }

    async fn until_stopped(&self) {
        self.changed.until(|| self.stopped.get()).await;
    }
}
