//! RDMA through rdma-core: what of libibverbs and librdmacm a reliable connection needs, as safe Rust.
//!
//! The libraries are loaded when they are first needed ([`load`]), so that nothing of them is needed to build, and a
//! machine without them runs everything else (`docs/decisions/0032-rdma.md`). What of their structures is used is
//! declared in [`ffi`], with the sizes and offsets that the headers of rdma-core 44 give for 64 bits.
//!
//! Nothing here waits: both kinds of channels have a descriptor that a reactor waits for. Set-up and teardown are system
//! calls of up to some milliseconds, for a helper thread.
//!
//! Memory that a network card may touch is [`Memory`]: its bytes are copied in and out, never borrowed, and it is given
//! back when the last queue pair that may touch it is gone, not before.

mod channel;
mod device;
mod dial;
mod endpoint;
mod exposed;
mod extended;
mod ffi;
mod library;
mod listener;
mod memory;
mod region;
mod socket;

pub use channel::{Cause, EventChannel};
pub use device::{Device, Domain};
pub use dial::{Answer, Dial, Step};
pub use endpoint::{Completion, Endpoint, Sizes};
pub use exposed::{Exposed, Kept, Peers};
pub use library::load;
pub use listener::{Listener, Request};
pub use memory::{Memory, Place, Reach, Remote};
