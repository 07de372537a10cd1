//! NVMe, Fabrics and NVMe/TCP as types and state machines, without I/O.
//!
//! Section numbers without a document name are those of the NVM Express Base Specification 2.1.

#[macro_use]
mod wire;

pub mod admin;
pub mod ana;
pub mod count;
pub mod cqe;
pub mod discovery;
pub mod event;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod limits;
pub mod log;
pub mod nqn;
pub mod nvm;
pub mod opcode;
pub mod pdu;
pub mod property;
pub mod rdma;
pub mod refusal;
pub mod reservation;
pub mod sqe;
pub mod status;
pub mod tcp;
pub mod window;

#[cfg(test)]
mod tests;
