//! NVMe over TCP: the socket side of both ends.

pub mod controller;
mod groups;
pub mod host;
mod out;
