//! Direct write windows (`docs/anof.md`), the host's end: they are asked for over the admin queue, and then written to
//! by whichever thread has something to write, without a reactor.

mod attach;
mod direct;
mod negotiate;
mod ring;
mod shared;
#[cfg(test)]
mod tests;
mod wanted;

pub use attach::Descriptors;
pub(crate) use attach::receive;
pub use direct::{DirectWindow, NotDone, Standing, Written};
pub use shared::SharedWindow;
pub use wanted::WindowUse;
