//! Reads that were begun where they were asked for, and go on from there.

use std::future::Future;
use std::ops::DerefMut;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use stdx::num::u64_of;

use crate::error::Result;
use crate::shard::{Outcome, Shard};
use crate::unverified::UnverifiedRead;
use crate::volume::state::State;

/// What became of a read in the call that began it.
#[derive(Debug)]
pub enum Begun<B> {
    /// It lies where it is sent from, and has yet to be verified.
    UnverifiedRead(UnverifiedRead),
    /// It is in this memory.
    Done(B),
    /// The rest has to be waited for.
    Wait(Reading<B>),
    /// Nothing was done. It is for [`Volume::read`](crate::Volume::read), which says what is wrong with it, if anything is.
    Not,
}

/// A read that waits for what is not in memory. While it lives its pool gives no space back: whoever has to
/// wait for a host drops it, and begins anew. On the heap: it has several kilobytes, too many for the slot that every
/// command has.
pub struct Reading<B>(Pin<Box<dyn Future<Output = Result<B>>>>);

impl<B> std::fmt::Debug for Reading<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading").finish_non_exhaustive()
    }
}

/// Begins to read bytes of a volume, all of this shard's blocks. `memory`, which is asked for unless they are lent, has
/// room for them.
pub fn begin<B: DerefMut<Target = [u8]> + 'static>(
    shard: Rc<Shard>,
    volume: &Arc<State>,
    offset: u64,
    length: usize,
    memory: impl FnOnce() -> Option<B>,
) -> Begun<B> {
    let Some(plan) = shard.front.resolve_bytes(volume, offset, length) else { return Begun::Not };
    if let Some(lent) = shard.front.lend(&plan) {
        shard.front.keep_plan(plan);
        return Begun::UnverifiedRead(lent);
    }
    let Some(mut memory) = memory() else {
        shard.front.keep_plan(plan);
        return Begun::Not;
    };
    match shard.front.copy_known(plan, &mut memory[..length]) {
        Outcome::Done => Begun::Done(memory),
        Outcome::Wait(plan) => {
            let volume = Arc::clone(volume);
            Begun::Wait(Reading(Box::pin(async move {
                shard.front.fetch(plan, &mut memory[..length]).await?;
                // What was taken from the volume meanwhile has read as zeroes.
                volume.check(offset, u64_of(length))?;
                Ok(memory)
            })))
        }
    }
}

impl<B> Reading<B> {
    /// Reads what is not in memory yet.
    ///
    /// # Errors
    /// As [`Volume::read`](crate::Volume::read).
    pub async fn finish(self) -> Result<B> {
        self.0.await
    }
}
