//! NVMe over TCP: the socket side of both ends.

pub mod connect;
pub mod gather;
mod landing;
pub mod listen;
pub mod out;
