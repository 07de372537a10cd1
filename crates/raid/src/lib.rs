//! RAID as arithmetic: geometry, parity, placement. No I/O; used over drives by the engine and over
//! targets by the host side.

pub mod geometry;
mod limits;
pub mod parity;
pub mod placement;

pub use geometry::{Geometry, Invalid, Place, Scheme, Shape};
pub use limits::{DATA_MAX, PARITY_MAX, SLOTS_MAX, UNIT_BLOCKS_MAX, WIDTH_MAX};
