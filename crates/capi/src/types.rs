//! What several functions take.

use client::{Deallocate, Error, Fua};

use crate::border::{array, invalid};

/// `fl_range`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FlRange {
    pub lba: u64,
    pub blocks: u32,
    pub reserved: u32,
}

/// Ranges as [`client`] takes them.
///
/// # Safety
/// As [`array`].
pub unsafe fn ranges(pointer: *const FlRange, count: usize) -> Result<Box<[(u64, u32)]>, Error> {
    // SAFETY: the caller's promise.
    let ranges = unsafe { array(pointer, count) }?;
    Ok(ranges.iter().map(|range| (range.lba, range.blocks)).collect())
}

/// `FL_FUA`.
const FUA: u32 = 1;
/// `FL_DEALLOCATE_ZEROES`.
const DEALLOCATE_ZEROES: u32 = 2;

/// `enum fl_flags`.
pub fn flags(raw: u32, known: Known) -> Result<(Fua, Deallocate), Error> {
    let allowed = match known {
        Known::None => 0,
        Known::Fua => FUA,
        Known::All => FUA | DEALLOCATE_ZEROES,
    };
    if raw & !allowed != 0 {
        return Err(invalid("a flag that the command does not have"));
    }
    let fua = if raw & FUA != 0 { Fua::Yes } else { Fua::No };
    let deallocate = if raw & DEALLOCATE_ZEROES != 0 { Deallocate::Yes } else { Deallocate::No };
    Ok((fua, deallocate))
}

/// Which flags a command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    None,
    Fua,
    All,
}
