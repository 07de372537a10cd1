//! A drive of another machine: a namespace of another target, reached through the initiator in this program.
//!
//! It is connected when it is first used, and again by the next operation after it was away. `incarnation` has its
//! life, `claim` what keeps late writes of one incarnation from the next one, `association` its connections on each
//! reactor, `operation` the commands.

mod association;
mod claim;
mod error;
mod fit;
mod incarnation;
mod key;
mod operation;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::value::RemoteNamespace;
use media::drive::{Answer, Remote};
use media::{Drive, Error, Kind, Operation, Refused};
use reactor::buffer::Buffer;
use stdx::num::u64_of;
use uuid::Uuid;

use incarnation::Core;
use key::Takes;
use operation::Doing;

/// Whether a drive of another machine can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteState {
    /// It is connected, and this node's alone.
    Connected {
        /// Since when, in milliseconds since 1970.
        since_ms: u64,
    },
    /// It is not.
    Away {
        /// Since when, in milliseconds since 1970.
        since_ms: u64,
        /// The last failure, in words.
        why: String,
    },
}

/// What the node knows of a drive of another machine, besides using it.
#[derive(Clone, Debug)]
pub struct RemoteDrive {
    core: Arc<Core>,
}

impl RemoteDrive {
    /// The namespace at `place` as a drive of this node. Nobody is asked before its first operation. When nobody has
    /// the drive any more, it is left to others.
    #[must_use]
    pub fn open(place: RemoteNamespace, node: Uuid) -> (Self, Arc<Drive>) {
        let core = Arc::new(Core::new(place, node, Takes::Nodes));
        let used = Used { core: Arc::clone(&core), _alone: None };
        (Self { core }, Arc::new(Drive::Remote(Arc::new(used))))
    }

    /// The Host NQN that this node has there: the target must let it use the subsystem.
    #[must_use]
    pub fn host_nqn(node: Uuid) -> String {
        incarnation::host_nqn(node)
    }

    /// The same for one in this process at a time: two would take it from each other. `forced`: also what another node
    /// holds, which is gone for good.
    ///
    /// # Errors
    /// `Conflict` while another has it.
    pub fn open_alone(
        place: RemoteNamespace,
        node: Uuid,
        forced: bool,
    ) -> crate::Result<Arc<Drive>> {
        let takes = if forced { Takes::Anybodys } else { Takes::Nodes };
        let core = Arc::new(Core::new(place, node, takes));
        let alone = Alone::take(&core)?;
        Ok(Arc::new(Drive::Remote(Arc::new(Used { core, _alone: Some(alone) }))))
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> &RemoteNamespace {
        &self.core.place
    }

    /// Whether it can be used.
    #[must_use]
    pub fn state(&self) -> RemoteState {
        match self.core.state() {
            Ok(since_ms) => RemoteState::Connected { since_ms },
            Err((since_ms, why)) => RemoteState::Away { since_ms, why: why.words.to_string() },
        }
    }

    /// Waits until nobody has the drive any more, and it has been left, as far as its target answers.
    pub async fn closed(&self) {
        self.core.closed().await;
    }
}

/// Namespaces that this process has, each one once, and what its keys there have in common.
static HELD: Mutex<BTreeMap<RemoteNamespace, u32>> = Mutex::new(BTreeMap::new());

fn held() -> MutexGuard<'static, BTreeMap<RemoteNamespace, u32>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a key of this node is of a namespace that is had alone: it is known by another address then.
fn is_held_here(key: u64) -> bool {
    held().values().any(|&line| key::is_of_line(key, line))
}

/// That one of them is had.
#[derive(Debug)]
struct Alone(RemoteNamespace);

impl Alone {
    fn take(core: &Core) -> crate::Result<Self> {
        let (place, mut held) = (&core.place, held());
        if held.contains_key(place) {
            let what = format!("{place} is in use by this daemon already");
            return Err(crate::Error::new(api::v1::Kind::Conflict, what)
                .help("each log has a namespace of its own"));
        }
        held.insert(place.clone(), core.line);
        Ok(Self(place.clone()))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        held().remove(&self.0);
    }
}

/// The drive, for those who use it.
#[derive(Debug)]
struct Used {
    core: Arc<Core>,
    _alone: Option<Alone>,
}

impl Drop for Used {
    fn drop(&mut self) {
        self.core.close();
    }
}

impl Used {
    fn doing(&self, operation: Operation, offset: u64, len: u64) -> Doing<'_> {
        Doing::new(&self.core, operation, offset, len, None)
    }
}

impl Remote for Used {
    fn capacity(&self) -> u64 {
        self.core.capacity()
    }

    fn logical_block(&self) -> u32 {
        self.core.block()
    }

    fn has_volatile_cache(&self) -> bool {
        self.core.has_volatile_cache()
    }

    /// It comes back.
    fn failure(&self) -> Option<Kind> {
        None
    }

    /// They would be of an incarnation that is over.
    fn has_late_changes(&self) -> bool {
        false
    }

    fn connection(&self) -> Option<u64> {
        self.core.current()
    }

    fn away(&self) -> Option<String> {
        let (_, why) = self.core.state().err()?;
        Some(format!("{}: {}", self.core.place, why.words))
    }

    fn read(
        &self,
        by: Option<u64>,
        offset: u64,
        len: usize,
        buffer: Buffer,
    ) -> Answer<'_, Result<Buffer, Refused>> {
        let doing = Doing::new(&self.core, Operation::Read, offset, u64_of(len), by);
        Box::pin(async move { doing.read(buffer).await })
    }

    fn write(
        &self,
        by: Option<u64>,
        offset: u64,
        data: Buffer,
        fua: bool,
    ) -> Answer<'_, Result<(), Refused>> {
        let doing = Doing::new(&self.core, Operation::Write, offset, u64_of(data.len()), by);
        Box::pin(async move { doing.write(data, fua).await })
    }

    fn flush(&self) -> Answer<'_, Result<(), Error>> {
        Box::pin(async move { self.doing(Operation::Flush, 0, 0).flush().await })
    }

    fn deallocate(&self, offset: u64, len: u64) -> Answer<'_, Result<(), Error>> {
        Box::pin(async move { self.doing(Operation::Deallocate, offset, len).deallocate().await })
    }

    fn write_zeroes(
        &self,
        by: Option<u64>,
        offset: u64,
        len: u64,
        deallocate: bool,
    ) -> Answer<'_, Result<(), Error>> {
        let doing = Doing::new(&self.core, Operation::WriteZeroes, offset, len, by);
        Box::pin(async move { doing.write_zeroes(deallocate).await })
    }
}

#[cfg(test)]
mod tests;
