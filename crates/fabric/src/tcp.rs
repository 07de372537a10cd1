//! NVMe over TCP: the socket side of both ends.

pub mod connect;
pub mod gather;
mod groups;
pub mod landing;
pub mod listen;
pub mod out;
