//! NVMe over RDMA: what moves capsules and data by the queue pairs of a network card.
//!
//! Data goes through registered memory, and is copied between there and where it belongs: the pool gives memory back to
//! the kernel, and what a card may touch must stay where it is. At the controller's end each reactor has some for each
//! device ([`site`]), which no host reaches; at the host's each connection has its own, which its controller reads and
//! writes, and no other.

pub mod controller;
mod dial;
mod hear;
pub mod host;
mod layout;
pub mod link;
pub mod listener;
pub mod ring;
mod shares;
mod site;
mod staging;
mod status;
