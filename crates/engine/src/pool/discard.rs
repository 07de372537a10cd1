//! Telling the drives of space that nothing is in any more: how, and from when on.

use std::rc::Rc;
use std::time::Duration;

use super::Pool;
use crate::error::Result;
use crate::shard::Shard;

/// How free space is given back to the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discards {
    /// How long after hosts gave space back it is looked for, about.
    pub after: Duration,
    /// The most that is discarded in a second.
    pub bytes_per_second: u64,
}

impl Discards {
    /// As long as one unit of so many bytes takes at most.
    fn pause(self, au_bytes: u64) -> Duration {
        let nanos = u128::from(au_bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Pool {
    /// Has a drive be told from now on, if drives are.
    pub(super) fn tell_of_free_space(&self, index: u16) {
        let common = &self.0.common;
        let drive = common.superblock.drives.drive(index);
        let told = self.0.discards.get() && drive.is_some_and(|drive| drive.has_space_to_free());
        common.allocator.lock().tell(usize::from(index), told);
    }

    /// From now on, and until the pool is closed, drives are told of the space that becomes free.
    ///
    /// # Errors
    /// `Gone` when a reactor has stopped.
    pub async fn discard(&self, how: Discards) -> Result<()> {
        self.0.discards.set(true);
        let common = &self.0.common;
        common.superblock.drives.indices().for_each(|index| self.tell_of_free_space(index));
        let pause = how.pause(common.superblock.label().layout.au_bytes);
        let start = move |shard: Rc<Shard>| async move {
            shard.discard.begin(how.after, pause);
            Ok(())
        };
        self.each(start).await.map(drop)
    }
}
