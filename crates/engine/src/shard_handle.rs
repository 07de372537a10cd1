//! How a shard is reached, from any reactor.
//!
//! A request that is made on the shard's reactor calls the shard. One that is made elsewhere goes there by that
//! reactor's [`RequestQueue`], which is made when it is first needed.

use std::cell::RefCell;
use std::future::Future;
use std::ops::{DerefMut, Range};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::Handle;
use stdx::num::u64_of;

use crate::address::Key as BlockKey;
use crate::error::Result;
use crate::reading::{self, Begun};
use crate::remote::queue::Call;
use crate::remote::reception::Reception;
use crate::remote::server;
use crate::remote::{Operation, RequestQueue, ShardEnd, gone};
use crate::shard::{CopyRange, Outcome, Shard};
use crate::volume::state::State;
use crate::writing::{Way, Writing};

/// Where a reactor keeps a shard: a place, and a number by which another shard in the same place of
/// this or another reactor is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    slot: usize,
    id: u64,
}

/// Numbers of shards in this process, never used again.
static IDS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The shards of this reactor. Their tasks keep them.
    static HERE: RefCell<Vec<(u64, Weak<Shard>)>> = const { RefCell::new(Vec::new()) };

    /// The queues of this reactor to shards of others, by the shards' numbers. Their tasks keep them.
    static THERE: RefCell<Vec<(u64, Weak<RequestQueue>)>> = const { RefCell::new(Vec::new()) };
}

/// The shard `key` stands for, if it is on this reactor.
fn here(key: Key) -> Option<Rc<Shard>> {
    HERE.with_borrow(|here| match here.get(key.slot) {
        Some((id, shard)) if *id == key.id => shard.upgrade(),
        _ => None,
    })
}

/// A way to a shard. Cloning shares it.
#[derive(Clone, Debug)]
pub struct ShardHandle {
    key: Key,
    reception: Arc<Reception<ShardEnd>>,
    /// Its reactor, if that is not the pool's own.
    reactor: Option<Handle>,
}

impl ShardHandle {
    /// On the shard's reactor: opens the way to it. `reactor` is how the pool's own reactor reaches
    /// this one, if it is another. `serves` requests of other reactors, if there are any.
    pub fn open(shard: &Rc<Shard>, reactor: Option<Handle>, serves: bool) -> Self {
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let slot = HERE.with_borrow_mut(|here| {
            let free = here.iter().position(|(_, shard)| shard.strong_count() == 0);
            let slot = free.unwrap_or(here.len());
            if slot == here.len() {
                here.push((0, Weak::new()));
            }
            here[slot] = (id, Rc::downgrade(shard));
            slot
        });
        let reception = Arc::<Reception<ShardEnd>>::default();
        match serves {
            true => drop(reactor::spawn(server::serve(Rc::clone(shard), Arc::clone(&reception)))),
            false => reception.close(),
        }
        Self { key: Key { slot, id }, reception, reactor }
    }

    /// Serves other reactors no more. What is under way is finished, what waits is refused.
    pub fn close(&self) {
        self.reception.close();
    }

    /// This reactor's queue to the shard, which is on another.
    fn queue(&self) -> Result<Rc<RequestQueue>> {
        let id = self.key.id;
        let known = THERE.with_borrow(|there| {
            there.iter().find(|(shard, _)| *shard == id).and_then(|(_, queue)| queue.upgrade())
        });
        known.map_or_else(|| self.join(), Ok)
    }

    #[cold]
    fn join(&self) -> Result<Rc<RequestQueue>> {
        let (queue, end) = RequestQueue::new();
        if !self.reception.join(end) {
            return Err(gone());
        }
        drop(reactor::spawn(Rc::clone(&queue).answers()));
        THERE.with_borrow_mut(|there| {
            there.retain(|(_, queue)| queue.strong_count() > 0);
            there.push((self.key.id, Rc::downgrade(&queue)));
        });
        Ok(queue)
    }

    /// Has the shard's reactor do what is asked; `take` has what was read.
    async fn ask(&self, call: Call<'_>, take: impl FnOnce(&[u8])) -> Result<()> {
        let queue = self.queue()?;
        queue.call(call, take).await
    }

    /// Reads bytes of a volume, all of this shard's blocks.
    ///
    /// # Errors
    /// As [`Volume::read`](crate::Volume::read).
    pub async fn read(&self, volume: &Arc<State>, offset: u64, out: &mut [u8]) -> Result<()> {
        match here(self.key) {
            Some(shard) => shard.front.read_bytes(volume, offset, out).await,
            None => {
                let (operation, length) = (Operation::Read, u64_of(out.len()));
                let call = Call { operation, volume, source: None, offset, length, data: &[] };
                self.ask(call, |bytes| out.copy_from_slice(bytes)).await
            }
        }
    }

    /// As [`Volume::begin_read`](crate::Volume::begin_read).
    #[must_use]
    pub fn begin_read<B: DerefMut<Target = [u8]> + 'static>(
        &self,
        volume: &Arc<State>,
        offset: u64,
        length: usize,
        memory: impl FnOnce() -> Option<B>,
    ) -> Begun<B> {
        match here(self.key) {
            Some(shard) => reading::begin(shard, volume, offset, length, memory),
            None => Begun::Not,
        }
    }

    /// As [`Volume::look_ahead`](crate::Volume::look_ahead).
    #[must_use]
    pub fn look_ahead(&self, block: BlockKey) -> bool {
        let shard = here(self.key);
        shard.inspect(|shard| shard.base.log.look_ahead(block)).is_some()
    }

    /// The records of the shard's log that are not on the drives yet, by sequence: the first, and the one after
    /// the last. `None` on another reactor.
    #[must_use]
    pub fn undestaged(&self) -> Option<Range<u64>> {
        here(self.key).map(|shard| shard.base.log.tail()..shard.base.log.head())
    }

    /// As [`Volume::begin_write`](crate::Volume::begin_write). `None` on another reactor.
    #[inline]
    pub fn begin_write(
        &self,
        volume: &State,
        offset: u64,
        data: &[u8],
    ) -> Option<Result<Outcome<Writing>>> {
        let shard = here(self.key)?;
        Some(match shard.front.begin_write(volume, offset, data) {
            Ok(Outcome::Done) => Ok(Outcome::Done),
            Ok(Outcome::Wait(rest)) => Ok(Outcome::Wait(Writing(Way::Here(shard, rest)))),
            Err(error) => Err(error),
        })
    }

    /// Writes bytes of a volume, all of this shard's blocks; durable when this returns.
    ///
    /// # Errors
    /// As [`Volume::write`](crate::Volume::write).
    pub async fn write(&self, volume: &Arc<State>, offset: u64, data: &[u8]) -> Result<()> {
        match here(self.key) {
            Some(shard) => shard.front.write_bytes(volume, offset, data).await,
            None => self.send_write(volume, offset, data).await,
        }
    }

    /// As [`write`](Self::write), on another reactor.
    ///
    /// # Errors
    /// As there.
    pub async fn send_write(&self, volume: &Arc<State>, offset: u64, data: &[u8]) -> Result<()> {
        let (operation, length) = (Operation::Write, u64_of(data.len()));
        self.ask(Call { operation, volume, source: None, offset, length, data }, |_| {}).await
    }

    /// Makes a hole of whole blocks of a volume; durable when this returns.
    ///
    /// # Errors
    /// As [`Volume::deallocate`](crate::Volume::deallocate).
    pub async fn deallocate(&self, volume: &Arc<State>, offset: u64, length: u64) -> Result<()> {
        match here(self.key) {
            Some(shard) => shard.front.deallocate_bytes(volume, offset, length).await,
            None => {
                let operation = Operation::Deallocate;
                let call = Call { operation, volume, source: None, offset, length, data: &[] };
                self.ask(call, |_| {}).await
            }
        }
    }

    /// Copies whole blocks from one volume to another, all of this shard's blocks; durable when this
    /// returns.
    ///
    /// # Errors
    /// As [`Volume::copy_from`](crate::Volume::copy_from).
    pub async fn copy(&self, to: &Arc<State>, from: &Arc<State>, copy: CopyRange) -> Result<()> {
        match here(self.key) {
            Some(shard) => Box::pin(shard.front.copy_bytes(to, from, copy)).await,
            None => {
                let CopyRange { from: first, to: offset, length } = copy;
                let (operation, source) = (Operation::Copy { from: first }, Some(from));
                let call = Call { operation, volume: to, source, offset, length, data: &[] };
                self.ask(call, |_| {}).await
            }
        }
    }

    /// On the pool's own reactor: does something with the shard, on its reactor. It is done to its
    /// end even when nobody awaits it any more.
    ///
    /// # Errors
    /// `Gone` when the shard is not there any more, and what `work` says.
    pub async fn call<T, F>(&self, work: impl FnOnce(Rc<Shard>) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        let key = self.key;
        let work = move || async move {
            match here(key) {
                Some(shard) => work(shard).await,
                None => Err(gone()),
            }
        };
        run_on(self.reactor.as_ref(), work).await.unwrap_or_else(|| Err(gone()))
    }
}

/// Runs a future on another reactor, or on this one; `None` when that reactor is gone.
pub async fn run_on<T, F>(
    reactor: Option<&Handle>,
    work: impl FnOnce() -> F + Send + 'static,
) -> Option<T>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    match reactor {
        None => reactor::spawn(work()).await,
        Some(handle) => handle.call(work).await.ok(),
    }
}
