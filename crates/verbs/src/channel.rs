//! What the connection manager has to say.
#![allow(unsafe_code, reason = "functions of librdmacm")]

use core::ptr::{self, NonNull};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::ffi::{self, CmEvent, CmId, Functions};
use crate::library::{checked, functions};

/// Where events come out, of those connections that it was given.
pub struct EventChannel {
    functions: &'static Functions,
    channel: NonNull<ffi::EventChannel>,
}

// SAFETY: the library's functions may be called from any thread; this is used by one at a time.
unsafe impl Send for EventChannel {}

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is there.
    Established,
    /// The peer ended it, or is gone.
    Disconnected,
    /// The device is gone.
    Removed,
    /// It did not come to be.
    Failed,
    /// Nothing that anybody has to know.
    Other,
}

/// An event, until it is dropped.
pub(crate) struct Event {
    functions: &'static Functions,
    event: NonNull<CmEvent>,
}

impl Event {
    pub fn get(&self) -> &CmEvent {
        // SAFETY: it is the library's until it is acknowledged, which dropping this does.
        unsafe { self.event.as_ref() }
    }

    /// What the peer said with it.
    pub fn private(&self) -> Vec<u8> {
        let param = &self.get().param;
        if param.private_data.is_null() {
            return Vec::new();
        }
        let (data, length) = (param.private_data.cast::<u8>(), usize::from(param.private_data_len));
        // SAFETY: so many bytes are there until the event is acknowledged.
        unsafe { core::slice::from_raw_parts(data, length) }.to_vec()
    }

    pub fn cause(&self) -> Cause {
        match self.get().event {
            ffi::EVENT_ESTABLISHED => Cause::Established,
            ffi::EVENT_DISCONNECTED | ffi::EVENT_TIMEWAIT_EXIT => Cause::Disconnected,
            ffi::EVENT_DEVICE_REMOVAL => Cause::Removed,
            ffi::EVENT_CONNECT_ERROR | ffi::EVENT_UNREACHABLE | ffi::EVENT_REJECTED => {
                Cause::Failed
            }
            _ => Cause::Other,
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it is acknowledged once.
        let _ = unsafe { (self.functions.rdma_ack_cm_event)(self.event.as_ptr()) };
    }
}

impl EventChannel {
    /// A new one.
    ///
    /// # Errors
    /// The library's absence; `NotFound` when the kernel has no connection manager for programs.
    pub fn new() -> io::Result<Self> {
        let functions = functions()?;
        // SAFETY: it needs nothing.
        let channel = unsafe { (functions.rdma_create_event_channel)() };
        let Some(channel) = NonNull::new(channel) else {
            let why = io::Error::last_os_error();
            let what = "the kernel has no RDMA device, or no connection manager for programs (module rdma_ucm)";
            return Err(match why.raw_os_error() {
                Some(libc::ENODEV | libc::ENOENT | libc::ENOSYS) => {
                    io::Error::new(io::ErrorKind::NotFound, what)
                }
                _ => why,
            });
        };
        let this = Self { functions, channel };
        nonblocking(this.as_fd())?;
        Ok(this)
    }

    pub(crate) const fn functions(&self) -> &'static Functions {
        self.functions
    }

    pub(crate) const fn as_ptr(&self) -> *mut ffi::EventChannel {
        self.channel.as_ptr()
    }

    /// The next event, if there is one.
    pub(crate) fn next(&self) -> io::Result<Option<Event>> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is ours, and the event is written to a place of this function.
        let got = checked(unsafe {
            (self.functions.rdma_get_cm_event)(self.channel.as_ptr(), &raw mut event)
        });
        match got {
            Ok(()) => {
                Ok(NonNull::new(event).map(|event| Event { functions: self.functions, event }))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An identifier whose events come here.
    pub(crate) fn create_id(&self) -> io::Result<Id> {
        let mut id = ptr::null_mut();
        // SAFETY: the channel is ours, and the identifier is written to a place of this function.
        checked(unsafe {
            (self.functions.rdma_create_id)(
                self.as_ptr(),
                &raw mut id,
                ptr::null_mut(),
                ffi::PORT_SPACE_TCP,
            )
        })?;
        let id = NonNull::new(id).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Id { functions: self.functions, id })
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: its identifiers are gone, or moved to another: all that have one keep it behind them.
        unsafe { (self.functions.rdma_destroy_event_channel)(self.channel.as_ptr()) };
    }
}

/// An identifier of the connection manager: a listener, or a connection. Whoever has one keeps its channel longer.
pub(crate) struct Id {
    functions: &'static Functions,
    id: NonNull<CmId>,
}

// SAFETY: as of `EventChannel`.
unsafe impl Send for Id {}

impl Id {
    /// # Safety
    /// It must be an identifier that nobody else destroys.
    pub unsafe fn from_raw(functions: &'static Functions, id: NonNull<CmId>) -> Self {
        Self { functions, id }
    }

    pub const fn as_ptr(&self) -> *mut CmId {
        self.id.as_ptr()
    }

    pub fn get(&self) -> &CmId {
        // SAFETY: it is there until this is dropped; what is read of it the library writes when this is called upon only.
        unsafe { self.id.as_ref() }
    }

    /// Binds it to an address of this machine.
    pub fn bind(&self, address: std::net::SocketAddr) -> io::Result<()> {
        let mut address = crate::socket::to_c(address);
        // SAFETY: the identifier is ours, and the address one of its family.
        checked(unsafe {
            (self.functions.rdma_bind_addr)(self.as_ptr(), ptr::from_mut(&mut address).cast())
        })
    }

    /// Moves it to another channel. No event of it may be held.
    pub fn migrate(&self, channel: &EventChannel) -> io::Result<()> {
        // SAFETY: both are ours.
        checked(unsafe { (self.functions.rdma_migrate_id)(self.as_ptr(), channel.as_ptr()) })
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: it has no queue pair any more, and it is destroyed once.
        let _ = unsafe { (self.functions.rdma_destroy_id)(self.as_ptr()) };
    }
}

/// Has calls on a descriptor return where they would wait.
pub(crate) fn nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open, and nothing of ours is touched.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })
}
