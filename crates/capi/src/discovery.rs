//! `fl_discover`.

use std::ffi::{c_char, c_int};

use client::DiscoveryLog;

use crate::border::{FlError, give, given, given_mut, guard, invalid, set_text, shield};
use crate::options::{FlOptions, options_of};

/// A discovery log.
pub struct FlDiscovery(DiscoveryLog);

/// `fl_discovery_entry`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct FlDiscoveryEntry {
    pub trtype: u8,
    pub adrfam: u8,
    pub subtype: u8,
    pub treq: u8,
    pub portid: u16,
    pub cntlid: u16,
    pub trsvcid: [c_char; 40],
    pub traddr: [c_char; 264],
    pub subnqn: [c_char; 264],
}
const _: () = assert!(size_of::<FlDiscoveryEntry>() == 8 + 40 + 264 + 264);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_discover(
    options: *const FlOptions,
    discovery: *mut *mut FlDiscovery,
    error: *mut FlError,
) -> c_int {
    guard(error, || {
        // SAFETY: valid or NULL, by the header.
        let (options, discovery) =
            unsafe { (options_of(options)?, given_mut(discovery, "discovery")?) };
        *discovery = Box::into_raw(Box::new(FlDiscovery(options.discover()?)));
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_discovery_count(discovery: *const FlDiscovery) -> usize {
    // SAFETY: valid or NULL, by the header.
    shield(0, || unsafe { discovery.as_ref() }.map_or(0, |log| log.0.entries.len()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_discovery_get(
    discovery: *const FlDiscovery,
    index: usize,
    entry: *mut FlDiscoveryEntry,
    size: usize,
) -> c_int {
    guard(std::ptr::null_mut(), || {
        // SAFETY: valid or NULL, by the header.
        let log = unsafe { given(discovery, "discovery") }?;
        let found = log.0.entries.get(index).ok_or_else(|| invalid("there is no such entry"))?;
        let mut given = FlDiscoveryEntry {
            trtype: found.trtype,
            adrfam: found.adrfam,
            subtype: found.subtype,
            treq: found.treq,
            portid: found.portid.get(),
            cntlid: found.cntlid.get(),
            trsvcid: [0; 40],
            traddr: [0; 264],
            subnqn: [0; 264],
        };
        set_text(&mut given.trsvcid, &found.trsvcid());
        set_text(&mut given.traddr, &found.traddr());
        set_text(&mut given.subnqn, &found.subnqn());
        // SAFETY: `entry` has `size` bytes or is NULL, by the header; the structure has no padding.
        unsafe { give(&given, entry, size) }?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_discovery_free(discovery: *mut FlDiscovery) {
    if !discovery.is_null() {
        // SAFETY: from `fl_discover`, and given back once.
        shield((), || drop(unsafe { Box::from_raw(discovery) }));
    }
}
