//! Where peers ask for connections.
#![allow(unsafe_code, reason = "functions of librdmacm")]

use core::ptr::{self, NonNull};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use crate::channel::{Event, EventChannel, Id};
use crate::device::not_there;
use crate::ffi::{self, Functions};
use crate::library::checked;
use crate::{Device, socket};

/// Requests that wait to be taken.
const BACKLOG: i32 = 128;

/// A listener.
pub struct Listener {
    id: Id,
    channel: EventChannel,
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// The library's absence; `AddrNotAvailable`: no RDMA device has the address; it is in use, or not allowed.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let channel = EventChannel::new()?;
        let functions = channel.functions();
        let id = channel.create_id()?;
        let mut yes: i32 = 1;
        // SAFETY: the option is an int.
        checked(unsafe {
            (functions.rdma_set_option)(
                id.as_ptr(),
                ffi::OPTION_ID,
                ffi::OPTION_ID_REUSEADDR,
                ptr::from_mut(&mut yes).cast(),
                size_of::<i32>(),
            )
        })?;
        id.bind(address).map_err(|error| not_there(error, address.ip()))?;
        // SAFETY: the identifier is ours, and bound.
        checked(unsafe { (functions.rdma_listen)(id.as_ptr(), BACKLOG) })?;
        Ok(Self { id, channel })
    }

    /// The address listened on.
    ///
    /// # Errors
    /// None that a kernel is known to give.
    pub fn local(&self) -> io::Result<SocketAddr> {
        socket::from_c(&self.id.get().src_addr)
            .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// The next request, if there is one.
    ///
    /// # Errors
    /// `NotConnected` when the device was removed: nothing comes here any more. The connection manager's.
    pub fn accept(&self) -> io::Result<Option<Request>> {
        while let Some(event) = self.channel.next()? {
            let of = event.get();
            let functions = self.channel.functions();
            if of.event == ffi::EVENT_DEVICE_REMOVAL && of.id == self.id.as_ptr() {
                let what = "the RDMA device of the address was removed";
                return Err(io::Error::new(io::ErrorKind::NotConnected, what));
            }
            if of.event == ffi::EVENT_CONNECT_REQUEST
                && let Some(id) = NonNull::new(of.id)
            {
                // SAFETY: the event makes it, for whoever takes the event.
                let id = unsafe { Id::from_raw(functions, id) };
                let request = Request::of(functions, id, &event);
                drop(event);
                if let Some(mut request) = request {
                    // Its events are not to come here any more, as soon as the event is acknowledged.
                    let channel = EventChannel::new()?;
                    request.id()?.migrate(&channel)?;
                    request.channel = Some(channel);
                    return Ok(Some(request));
                }
            }
        }
        Ok(None)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// A connection that somebody asks for. Dropped, it is refused.
pub struct Request {
    functions: &'static Functions,
    id: Option<Id>,
    /// Where its events come; behind the identifier, as those of it come here.
    channel: Option<EventChannel>,
    private: Vec<u8>,
    reads: u8,
    local: SocketAddr,
    peer: SocketAddr,
    refusal: Vec<u8>,
}

impl Request {
    fn of(functions: &'static Functions, id: Id, event: &Event) -> Option<Self> {
        let private = event.private();
        let local = socket::from_c(&id.get().src_addr)?;
        let peer = socket::from_c(&id.get().dst_addr)?;
        let (id, refusal, reads) = (Some(id), Vec::new(), event.get().param.initiator_depth);
        Some(Self { functions, id, channel: None, private, reads, local, peer, refusal })
    }

    fn id(&self) -> io::Result<&Id> {
        self.id.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// What the peer said.
    #[must_use]
    pub fn private(&self) -> &[u8] {
        &self.private
    }

    /// RDMA_READs that the peer answers at once.
    #[must_use]
    pub const fn reads(&self) -> u8 {
        self.reads
    }

    /// The address that the peer asked at.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The device that it came by.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        Device::bound_to(self.id.as_ref()?)
    }

    /// Has a refusal say this.
    pub fn refuse_with(&mut self, private: &[u8]) {
        self.refusal = private.to_vec();
    }

    /// What an endpoint is made of; refused no more.
    pub(crate) fn into_parts(mut self) -> io::Result<(Id, EventChannel, SocketAddr, SocketAddr)> {
        let (local, peer) = (self.local, self.peer);
        match (self.id.take(), self.channel.take()) {
            (Some(id), Some(channel)) => Ok((id, channel, local, peer)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub(crate) const fn raw_id(&self) -> Option<&Id> {
        self.id.as_ref()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            let length = u8::try_from(self.refusal.len()).unwrap_or(u8::MAX);
            // SAFETY: the identifier is that of a request, and so many bytes are there.
            let _ = unsafe {
                (self.functions.rdma_reject)(id.as_ptr(), self.refusal.as_ptr().cast(), length)
            };
        }
    }
}
