//! Direct write windows (`docs/anof.md`), the host's end: they are asked for over the admin queue, and then written to
//! by whichever thread has something to write, without a reactor.

mod attach;
mod copies;
mod dial;
mod direct;
mod negotiate;
mod ring;
mod shared;
mod standing;
#[cfg(test)]
mod tests;
mod wanted;
mod written;

pub use attach::Descriptors;
pub(crate) use attach::receive;
#[cfg(feature = "testing")]
pub use copies::{Copies as RingCopies, Copy as RingCopy};
pub(crate) use dial::dial;
pub use direct::DirectWindow;
#[cfg(feature = "testing")]
pub use ring::{Ring, Step, Writing};
pub use shared::SharedWindow;
pub use standing::Standing;
pub use wanted::WindowUse;
pub use written::{NotDone, Written};
