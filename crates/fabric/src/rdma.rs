//! NVMe over RDMA: what moves capsules and data by the queue pairs of a network card.
//!
//! Data goes through memory that each reactor registers once for each device ([`site`]), and is copied between there and
//! where it belongs: the pool gives memory back to the kernel, and what a card may touch must stay where it is.

pub mod controller;
mod layout;
pub mod link;
pub mod listener;
mod site;
mod staging;
