//! Where a reactor receives: one buffer for all its connections.
//!
//! A capsule's data is used, or copied to where it belongs, in the turn in which it arrives. So one
//! buffer serves every connection, and stays in the cache; a connection keeps for itself only the
//! bytes of a PDU that has not arrived whole.

use core::cell::{Ref, RefCell};
use core::ops::Range;
use std::rc::Rc;

use stdx::Aligned;

use crate::limits::RECEIVE_BYTES;

thread_local! {
    static INBOX: Rc<Inbox> = Rc::new(Inbox { bytes: RefCell::new(Aligned::zeroed(RECEIVE_BYTES)) });
}

/// A reactor's receive buffer.
pub struct Inbox {
    bytes: RefCell<Aligned>,
}

impl Inbox {
    /// This thread's.
    #[must_use]
    pub fn of_this_core() -> Rc<Self> {
        INBOX.with(Rc::clone)
    }

    /// The bytes of `range`, as they stand until the next receive.
    pub fn read(&self, range: Range<usize>) -> Ref<'_, [u8]> {
        Ref::map(self.bytes.borrow(), |bytes| &bytes[range])
    }

    /// The whole buffer, to receive into. No [`Inbox::read`] may be held.
    pub fn fill<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        f(&mut self.bytes.borrow_mut())
    }
}
