//! Where hosts ask for connections, and how those come to be.

use std::io;
use std::net::SocketAddr;

use nvme::rdma::{AcceptData, Most, RejectData, RejectStatus, Request};
use reactor::event::Descriptor;
use verbs::Endpoint;
use window::dial::Ask;
use zerocopy::IntoBytes;

use super::layout::Layout;
use super::link::Link;
use super::ring;
use super::site::{self, Site};
use crate::limits::{QUEUE_DEPTH, RDMA_ADMIN_DEPTH};

/// Commands that a queue may have.
const MOST: Most = Most { admin: RDMA_ADMIN_DEPTH, io: QUEUE_DEPTH };

/// A listener of this reactor.
pub struct Listener {
    listener: verbs::Listener,
    ready: Descriptor,
}

impl core::fmt::Debug for Listener {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Listener").field("local", &self.listener.local().ok()).finish()
    }
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one. Where it is a device's, makes sure that connections can be served
    /// there.
    ///
    /// # Errors
    /// In words for an administrator: no rdma-core, no device that has the address, no memory that may be locked; the
    /// address in use.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = verbs::Listener::bind(address)?;
        if !address.ip().is_unspecified() {
            drop(site::open(address.ip())?);
        }
        let ready = Descriptor::of(std::os::fd::AsFd::as_fd(&listener))?;
        Ok(Self { listener, ready })
    }

    /// The address listened on.
    ///
    /// # Errors
    /// None that a kernel is known to give.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.listener.local()
    }

    /// The next connection that a host asks for. Those that ask for what is neither a queue nor a ring are refused.
    ///
    /// # Errors
    /// `NotConnected` when the device was removed: nobody comes here any more. The connection manager's; too few
    /// descriptors.
    pub async fn accept(&self) -> io::Result<Wanted> {
        loop {
            while let Some(mut request) = self.listener.accept()? {
                if let Some(ask) = Ask::decode(request.private()) {
                    refuse(&mut request, RejectStatus::NoResources);
                    return Ok(Wanted::Ring(ring::Asked::new(request, ask)));
                }
                match Request::parse(request.private(), MOST) {
                    Ok(_) if request.reads() == 0 => refuse(&mut request, RejectStatus::Ird),
                    Ok(wanted) => {
                        // What is said when it is dropped: nobody took it.
                        refuse(&mut request, RejectStatus::NoResources);
                        return Ok(Wanted::Queue(Asked { request, wanted }));
                    }
                    Err(status) => refuse(&mut request, status),
                }
                drop(request);
                // Whoever floods it takes turns with others.
                reactor::yield_now().await;
            }
            self.ready.readable().await?;
        }
    }
}

fn refuse(request: &mut verbs::Request, status: RejectStatus) {
    request.refuse_with(RejectData::new(status).as_bytes());
}

/// What a host asks for a connection for.
#[derive(Debug)]
pub enum Wanted {
    /// A queue of a controller's.
    Queue(Asked),
    /// A ring of a direct write window.
    Ring(ring::Asked),
}

/// A queue that a host asks for; refused when dropped.
pub struct Asked {
    request: verbs::Request,
    wanted: Request,
}

impl core::fmt::Debug for Asked {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Asked").field("peer", &self.peer()).finish_non_exhaustive()
    }
}

impl Asked {
    /// The host's address.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.request.peer()
    }

    /// Takes it, for this reactor.
    ///
    /// # Errors
    /// Too little of anything here; the host is told that.
    pub async fn attach(self) -> io::Result<Link> {
        let Self { request, wanted } = self;
        let layout = Layout::of(wanted.commands);
        let peer = request.peer().ip();
        let receives = site::take_receives(peer, layout.bytes()).ok_or_else(|| {
            let what = format!("{peer} has as many RDMA queues as there is memory to receive into");
            io::Error::new(io::ErrorKind::OutOfMemory, what)
        })?;
        let device = request.device().ok_or(io::ErrorKind::NotConnected)?;
        let site = Site::of(device, request.local().ip()).await?;
        if layout.sizes().sends > site.domain.work_most() {
            return Err(io::Error::other("the RDMA device has no queues that are so long"));
        }
        let (domain, memory) = (site.domain.clone(), site.memory.clone());
        let endpoint = reactor::blocking(move || {
            let endpoint = Endpoint::build(request, &domain, &memory, layout.sizes())?;
            for slot in 0..layout.receives() {
                endpoint.post_receive(u64::from(slot), layout.receive(slot))?;
            }
            endpoint.accept(AcceptData::new(wanted.commands).as_bytes(), 0)?;
            Ok(endpoint)
        });
        Ok(Link { endpoint: endpoint.await?, site, layout, receives })
    }
}
