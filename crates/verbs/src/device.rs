//! A device, and what belongs together on it.
#![allow(unsafe_code, reason = "functions of libibverbs")]

use core::ptr::NonNull;
use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::channel::{EventChannel, Id};
use crate::ffi::{self, Context, DeviceAttributes, Functions, Opaque};
use crate::library::numbered;

/// Tells devices apart, as long as one of them is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device(usize);

impl Device {
    pub(crate) fn of(context: *mut Context) -> Self {
        Self(context.addr())
    }

    /// The device that an identifier is bound to.
    pub(crate) fn bound_to(id: &Id) -> Option<Self> {
        let context = id.get().verbs;
        (!context.is_null()).then(|| Self::of(context))
    }
}

/// A protection domain: what is registered in it is for its queue pairs only.
pub struct Domain {
    functions: &'static Functions,
    pd: NonNull<Opaque>,
    device: Device,
    attributes: DeviceAttributes,
    flushes: Flushes,
    /// Bound to the device, so that the library keeps it open; and where its events go.
    _keeper: Id,
    _channel: EventChannel,
}

/// What a device can do of RDMA FLUSH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flushes {
    /// It has it.
    has: bool,
    /// Also of memory whose pages are not locked, as those of files on persistent memory cannot be.
    on_demand: bool,
}

// SAFETY: the library's functions may be called from any thread, and a domain has no state here.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// A domain on the device that has the address.
    ///
    /// # Errors
    /// The library's absence; `AddrNotAvailable`: no RDMA device has it.
    pub fn open(address: IpAddr) -> io::Result<Self> {
        let channel = EventChannel::new()?;
        let functions = channel.functions();
        let keeper = channel.create_id()?;
        keeper.bind(SocketAddr::new(address, 0)).map_err(|error| not_there(error, address))?;
        let context = keeper.get().verbs;
        if context.is_null() {
            return Err(not_there(io::Error::from_raw_os_error(libc::ENODEV), address));
        }
        // SAFETY: all of it is integers, for which zeros are a value.
        let mut attributes: DeviceAttributes = unsafe { core::mem::zeroed() };
        // SAFETY: the context is open as long as the keeper, and the attributes are of its size.
        numbered(unsafe { (functions.ibv_query_device)(context, &raw mut attributes) })?;
        let flushes = Flushes::of(context);
        // SAFETY: as above.
        let pd = unsafe { (functions.ibv_alloc_pd)(context) };
        let pd = NonNull::new(pd).ok_or_else(io::Error::last_os_error)?;
        let device = Device::of(context);
        Ok(Self { functions, pd, device, attributes, flushes, _keeper: keeper, _channel: channel })
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> Device {
        self.device
    }

    /// Whether a send can invalidate a key of the peer's.
    #[must_use]
    pub const fn can_invalidate(&self) -> bool {
        self.attributes.device_cap_flags & ffi::DEVICE_MEM_MGT_EXTENSIONS != 0
    }

    /// Whether a queue pair can have what it wrote be made durable, with RDMA FLUSH.
    #[must_use]
    pub const fn can_flush(&self) -> bool {
        self.flushes.has
    }

    /// Whether a peer can have what it wrote to files on persistent memory be made durable.
    #[must_use]
    pub const fn can_be_flushed(&self) -> bool {
        self.flushes.has && self.flushes.on_demand
    }

    /// RDMA_READs that a queue pair can have under way.
    #[must_use]
    pub fn reads_most(&self) -> u8 {
        u8::try_from(self.attributes.max_qp_init_rd_atom).unwrap_or(u8::MAX)
    }

    /// RDMA_READs of the peer's that a queue pair can answer at once.
    #[must_use]
    pub fn reads_answered_most(&self) -> u8 {
        u8::try_from(self.attributes.max_qp_rd_atom).unwrap_or(u8::MAX)
    }

    /// Work requests that a queue of a queue pair can hold.
    #[must_use]
    pub fn work_most(&self) -> u32 {
        u32::try_from(self.attributes.max_qp_wr).unwrap_or(0)
    }

    pub(crate) const fn functions(&self) -> &'static Functions {
        self.functions
    }

    pub(crate) const fn as_ptr(&self) -> *mut Opaque {
        self.pd.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: whoever uses it keeps it, and the device is open as long as the keeper.
        let _ = unsafe { (self.functions.ibv_dealloc_pd)(self.as_ptr()) };
    }
}

impl Flushes {
    /// As the device says; a library or a kernel that knows nothing of it says that it has none.
    fn of(context: *mut Context) -> Self {
        // SAFETY: all of it is integers, for which zeros are a value.
        let mut attributes: ffi::DeviceAttributesEx = unsafe { core::mem::zeroed() };
        let bytes = size_of::<ffi::DeviceAttributesEx>();
        // SAFETY: the context is open, and such a one is the end of an extended one, which says how much of that there is; the
        // attributes are of the size that is told.
        let answered = unsafe {
            if (*context).abi_compat.addr() != ffi::IS_EXTENDED {
                return Self::default();
            }
            let extended = context
                .byte_sub(core::mem::offset_of!(ffi::ExtendedContext, context))
                .cast::<ffi::ExtendedContext>();
            // What there is less of begins behind the function.
            let sizes = &raw const (*extended).bytes;
            if sizes.read() < size_of::<ffi::ExtendedContext>() {
                return Self::default();
            }
            let Some(query) = (*extended).query_device_ex else { return Self::default() };
            query(context, core::ptr::null(), &raw mut attributes, bytes)
        };
        let has = attributes.device_cap_flags & ffi::DEVICE_FLUSH == ffi::DEVICE_FLUSH;
        let wanted = ffi::ON_DEMAND_FOR_WINDOWS;
        let on_demand = attributes.on_demand & ffi::ON_DEMAND != 0
            && attributes.on_demand_by_transport[0] & wanted == wanted;
        if answered == 0 { Self { has, on_demand } } else { Self::default() }
    }
}

/// Says it of an address that no device has.
pub(crate) fn not_there(error: io::Error, address: IpAddr) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::EADDRNOTAVAIL) => io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            format!("no RDMA device of this machine has the address {address}"),
        ),
        _ => error,
    }
}
