//! Finding the way to a peer, before it is asked for a connection.
#![allow(unsafe_code, reason = "functions of librdmacm")]

use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use crate::channel::{Event, EventChannel, Id};
use crate::library::checked;
use crate::{Device, ffi, socket};

/// A connection that is to be: the way to the peer is looked for.
pub struct Dial {
    id: Id,
    channel: EventChannel,
    peer: SocketAddr,
    patience: c_int,
}

/// How far that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The device is known, and the route is looked for.
    Address,
    /// An endpoint can be made of it.
    Route,
}

impl Dial {
    /// Looks for the device that leads to `peer`, each step for `patience` at most.
    ///
    /// # Errors
    /// The library's absence; `NetworkUnreachable`: no RDMA device leads there.
    pub fn start(peer: SocketAddr, patience: Duration) -> io::Result<Self> {
        let channel = EventChannel::new()?;
        let id = channel.create_id()?;
        let patience = c_int::try_from(patience.as_millis()).unwrap_or(c_int::MAX);
        let mut address = socket::to_c(peer);
        let to = ptr::from_mut(&mut address).cast();
        // SAFETY: the identifier is ours, and the address one of its family.
        let asked = checked(unsafe {
            (channel.functions().rdma_resolve_addr)(id.as_ptr(), ptr::null_mut(), to, patience)
        });
        asked.map_err(|error| unreachable(error, peer))?;
        Ok(Self { id, channel, peer, patience })
    }

    /// What has come of it since this was last asked.
    ///
    /// # Errors
    /// As of [`Dial::start`]; the peer's address answers to nobody.
    pub fn next(&self) -> io::Result<Option<Step>> {
        while let Some(event) = self.channel.next()? {
            let what = event.get();
            match what.event {
                ffi::EVENT_ADDRESS_RESOLVED => {
                    drop(event);
                    // SAFETY: the identifier is ours, and has its address.
                    let asked = checked(unsafe {
                        let functions = self.channel.functions();
                        (functions.rdma_resolve_route)(self.id.as_ptr(), self.patience)
                    });
                    asked.map_err(|error| unreachable(error, self.peer))?;
                    return Ok(Some(Step::Address));
                }
                ffi::EVENT_ROUTE_RESOLVED => return Ok(Some(Step::Route)),
                ffi::EVENT_ADDRESS_ERROR | ffi::EVENT_ROUTE_ERROR => {
                    return Err(unreachable(failure(what.status), self.peer));
                }
                ffi::EVENT_DEVICE_REMOVAL => return Err(removed()),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The address of this end, once it has one.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        socket::from_c(&self.id.get().src_addr)
    }

    /// The device, once there is one.
    #[must_use]
    pub fn device(&self) -> Option<Device> {
        Device::bound_to(&self.id)
    }

    pub(crate) const fn id(&self) -> &Id {
        &self.id
    }

    /// What an endpoint is made of.
    pub(crate) fn into_parts(self) -> io::Result<(Id, EventChannel, SocketAddr, SocketAddr)> {
        let local = self.local().ok_or(io::ErrorKind::NotConnected)?;
        Ok((self.id, self.channel, local, self.peer))
    }
}

impl AsFd for Dial {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// What a peer says to who asks for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The connection is there, and this is what it says.
    Taken(Vec<u8>),
    /// Nobody listens there.
    Nobody,
    /// It does not want it, and says so.
    Refused(Vec<u8>),
    /// Nobody answers, or there is no way to.
    Failed(c_int),
}

impl Answer {
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let status = event.get().status;
        Some(match event.get().event {
            ffi::EVENT_ESTABLISHED => Self::Taken(event.private()),
            // iWARP has no reasons, but what TCP has.
            ffi::EVENT_REJECTED
                if [ffi::REFUSED_NO_SERVICE, -libc::ECONNREFUSED].contains(&status) =>
            {
                Self::Nobody
            }
            ffi::EVENT_REJECTED if status == ffi::REFUSED_BY_CONSUMER || status < 0 => {
                Self::Refused(event.private())
            }
            ffi::EVENT_REJECTED
            | ffi::EVENT_CONNECT_ERROR
            | ffi::EVENT_UNREACHABLE
            | ffi::EVENT_DISCONNECTED
            | ffi::EVENT_DEVICE_REMOVAL => Self::Failed(status),
            _ => return None,
        })
    }
}

/// What a status of the connection manager's says: an error's number, negative.
fn failure(status: c_int) -> io::Error {
    io::Error::from_raw_os_error(status.saturating_abs())
}

fn removed() -> io::Error {
    io::Error::other("the RDMA device was removed")
}

/// Says it of an address that no device leads to.
fn unreachable(error: io::Error, peer: SocketAddr) -> io::Error {
    let leads_nowhere = [libc::ENODEV, libc::EADDRNOTAVAIL, libc::ENETUNREACH];
    match error.raw_os_error() {
        Some(code) if leads_nowhere.contains(&code) => io::Error::new(
            io::ErrorKind::NetworkUnreachable,
            format!("no RDMA device of this machine leads to {}", peer.ip()),
        ),
        _ => error,
    }
}
