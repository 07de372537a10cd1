//! NVMe, Fabrics and NVMe/TCP as types and state machines, without I/O.
//!
//! Section numbers without a document name are those of the NVM Express Base Specification 2.1.

#[macro_use]
mod wire;

pub mod cqe;
pub mod fabrics;
pub mod identify;
pub mod limits;
pub mod nqn;
pub mod opcode;
pub mod pdu;
pub mod property;
pub mod refusal;
pub mod sqe;
pub mod status;
pub mod tcp;
