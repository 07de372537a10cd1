//! `fl_namespace`: connecting, and commands that block.

use std::ffi::{c_int, c_void};
use std::ptr;

use client::{Error, Geometry, Namespace};
use stdx::num::{usize32, usize64};

use crate::border::{FlError, give, given, given_mut, guard, invalid, shield};
use crate::options::{FlOptions, options_of};
use crate::types::{FlRange, Known, flags, ranges};

/// A namespace.
pub struct FlNamespace(pub Namespace);

/// `fl_info`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FlInfo {
    pub blocks: u64,
    pub block_bytes: u32,
    pub transfer_max_bytes: u32,
    pub atomic_blocks: u32,
    pub atomic_power_fail_blocks: u32,
    pub optimal_write_blocks: u32,
    pub flags: u32,
    pub copy_ranges: u16,
    pub copy_range_blocks: u16,
    pub copy_blocks: u32,
    pub nguid: [u8; 16],
    pub eui64: [u8; 8],
}
const _: () = assert!(size_of::<FlInfo>() == 64);

impl FlInfo {
    fn new(geometry: &Geometry) -> Self {
        let supports = geometry.supports;
        // In the order of `enum fl_info_flags`.
        let flags = [
            geometry.read_only,
            geometry.volatile_cache,
            supports.write_zeroes,
            supports.zeroes_deallocate,
            supports.deallocate,
            supports.deallocated_reads_zeroes,
            supports.compare,
            supports.verify,
            geometry.copy.is_some(),
        ];
        let copy = geometry.copy;
        Self {
            blocks: geometry.blocks,
            block_bytes: geometry.block_bytes,
            transfer_max_bytes: geometry.transfer_max_bytes,
            atomic_blocks: geometry.atomic_blocks,
            atomic_power_fail_blocks: geometry.atomic_power_fail_blocks,
            optimal_write_blocks: geometry.optimal_write_blocks,
            flags: (0..).zip(flags).map(|(bit, set)| u32::from(set) << bit).sum(),
            copy_ranges: copy.map_or(0, |limits| limits.ranges),
            copy_range_blocks: copy.map_or(0, |limits| limits.range_blocks),
            copy_blocks: copy.map_or(0, |limits| limits.blocks),
            nguid: geometry.identity.0,
            eui64: geometry.identity.1,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_namespace_open(
    options: *const FlOptions,
    nsid: u32,
    ns: *mut *mut FlNamespace,
    error: *mut FlError,
) -> c_int {
    guard(error, || {
        // SAFETY: valid or NULL, by the header.
        let (options, ns) = unsafe { (options_of(options)?, given_mut(ns, "ns")?) };
        *ns = Box::into_raw(Box::new(FlNamespace(Namespace::open(options, nsid)?)));
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_namespace_close(ns: *mut FlNamespace) {
    if !ns.is_null() {
        // SAFETY: from `fl_namespace_open`, and given back once.
        shield((), || drop(unsafe { Box::from_raw(ns) }));
    }
}

/// Runs `command` with the namespace behind a pointer that is valid or NULL, by the header.
fn with(
    ns: *const FlNamespace,
    error: *mut FlError,
    command: impl FnOnce(&Namespace) -> Result<(), Error>,
) -> c_int {
    guard(error, || {
        // SAFETY: by the header.
        command(&unsafe { given(ns, "ns") }?.0).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_namespace_shut_down(
    ns: *mut FlNamespace,
    error: *mut FlError,
) -> c_int {
    with(ns, error, Namespace::shut_down)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_namespace_info(
    ns: *const FlNamespace,
    info: *mut FlInfo,
    size: usize,
) -> c_int {
    with(ns, ptr::null_mut(), |namespace| {
        // SAFETY: `info` has `size` bytes or is NULL, by the header; the structure has no padding.
        unsafe { give(&FlInfo::new(&namespace.geometry()), info, size) }
    })
}

/// Length of `blocks` in a buffer of the caller's.
fn bytes(namespace: &Namespace, buffer: *const c_void, blocks: u64) -> Result<usize, Error> {
    let block = usize32(namespace.geometry().block_bytes);
    let bytes = usize64(blocks).checked_mul(block).filter(|&n| isize::try_from(n).is_ok());
    bytes
        .filter(|_| !buffer.is_null())
        .ok_or_else(|| invalid("the buffer is NULL, or the blocks exceed the address space"))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_read(
    ns: *mut FlNamespace,
    buffer: *mut c_void,
    lba: u64,
    blocks: u64,
    error: *mut FlError,
) -> c_int {
    with(ns, error, |namespace| {
        let length = bytes(namespace, buffer, blocks)?;
        // SAFETY: the buffer has room for the blocks and is ours for now, by the header.
        namespace.read(lba, unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_write(
    ns: *mut FlNamespace,
    buffer: *const c_void,
    lba: u64,
    blocks: u64,
    raw_flags: u32,
    error: *mut FlError,
) -> c_int {
    with(ns, error, |namespace| {
        let length = bytes(namespace, buffer, blocks)?;
        let (fua, _) = flags(raw_flags, Known::Fua)?;
        // SAFETY: the buffer holds the blocks and nobody changes it for now, by the header.
        namespace.write(lba, unsafe { std::slice::from_raw_parts(buffer.cast(), length) }, fua)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_compare(
    ns: *mut FlNamespace,
    buffer: *const c_void,
    lba: u64,
    blocks: u64,
    error: *mut FlError,
) -> c_int {
    with(ns, error, |namespace| {
        let length = bytes(namespace, buffer, blocks)?;
        // SAFETY: as in `fl_write`.
        namespace.compare(lba, unsafe { std::slice::from_raw_parts(buffer.cast(), length) })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_flush(ns: *mut FlNamespace, error: *mut FlError) -> c_int {
    with(ns, error, Namespace::flush)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_write_zeroes(
    ns: *mut FlNamespace,
    lba: u64,
    blocks: u64,
    raw_flags: u32,
    error: *mut FlError,
) -> c_int {
    with(ns, error, |namespace| {
        let (fua, deallocate) = flags(raw_flags, Known::All)?;
        namespace.write_zeroes(lba, blocks, deallocate, fua)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_verify(
    ns: *mut FlNamespace,
    lba: u64,
    blocks: u64,
    error: *mut FlError,
) -> c_int {
    with(ns, error, |namespace| namespace.verify(lba, blocks))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_deallocate(
    ns: *mut FlNamespace,
    some: *const FlRange,
    count: usize,
    error: *mut FlError,
) -> c_int {
    with(ns, error, |namespace| {
        // SAFETY: `count` ranges, by the header.
        namespace.deallocate(&unsafe { ranges(some, count) }?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_copy(
    ns: *mut FlNamespace,
    some: *const FlRange,
    count: usize,
    destination: u64,
    error: *mut FlError,
) -> c_int {
    with(ns, error, |namespace| {
        // SAFETY: `count` ranges, by the header.
        namespace.copy(&unsafe { ranges(some, count) }?, destination)
    })
}
