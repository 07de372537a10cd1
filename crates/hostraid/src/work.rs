//! Buffers for a set's own work, all of an operation's at once; and work that goes on to its end.

use std::rc::Rc;

use initiator::{Buffer, Error};
use reactor::buffer::Pool;
use reactor::spawn;
use reactor::sync::Semaphore;

use crate::limits::WORK_BYTES;

/// Runs `work` to its end, even if whoever waits for it goes away: what was sent to members must be over before its
/// stripes are unlocked and before the next superblock is written.
///
/// # Errors
/// When the reactor ends.
pub async fn to_its_end<T: 'static>(work: impl Future<Output = T> + 'static) -> Result<T, Error> {
    spawn(work).await.ok_or(Error::Lost("the work was ended"))
}

/// A bounded set of buffers.
pub struct Work {
    pool: Pool,
    permits: Semaphore,
}

/// What a buffer of so many bytes takes of the pool.
const fn taken(bytes: usize) -> usize {
    let least = if bytes < reactor::BUFFER_ALIGN { reactor::BUFFER_ALIGN } else { bytes };
    least.next_power_of_two()
}

/// Leave to take a number of buffers; while it is held, they are there.
pub struct Permit {
    work: Rc<Work>,
    amount: usize,
}

impl Work {
    /// # Errors
    /// When there is no address space.
    pub fn new() -> std::io::Result<Rc<Self>> {
        let permits = Semaphore::new(WORK_BYTES);
        Ok(Rc::new(Self { pool: Pool::new(WORK_BYTES)?, permits }))
    }

    /// Waits until there are `count` buffers of `bytes`.
    pub async fn permit(self: &Rc<Self>, count: usize, bytes: usize) -> Permit {
        let amount = count * taken(bytes);
        debug_assert!(amount <= WORK_BYTES, "no operation takes more than there is");
        self.permits.acquire(amount).await;
        Permit { work: Rc::clone(self), amount }
    }
}

impl Permit {
    /// A buffer, of those that were asked for.
    pub async fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::from_pool(&self.work.pool, bytes).await
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.work.permits.release(self.amount);
    }
}
