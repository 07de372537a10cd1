//! The life of a drive of another machine: incarnations, one after the other, of which one at most is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use api::value::RemoteNamespace;
use initiator::{Geometry, HostIdentity};
use reactor::cross_core::Watch;
use reactor::{Nanos, now_exact};
use stdx::num::low32;
use uuid::Uuid;

use super::error::Why;
use super::fit::{GRAIN, bytes_of, fits};
use super::key::{Key, Takes};
use crate::events::now_ms;
use crate::limits::{REMOTE_ATTEMPTS, REMOTE_OPERATION};

/// As whom the drive is used, from one claim of the namespace to the first failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Incarnation {
    /// They count from 1 for each drive.
    pub number: u64,
    /// The node's name with a Host Identifier of this incarnation's own: whoever takes its reservation takes nothing
    /// from the one that comes after it.
    pub host: HostIdentity,
    pub key: Key,
    /// From whom it takes the namespace.
    pub takes: Takes,
}

#[derive(Debug)]
enum Phase {
    /// Nothing is in use; the next operation begins an incarnation, but not before `next`.
    Away { why: Why, since_ms: u64, next: Nanos },
    /// One reactor connects, and takes the namespace; operations wait.
    Claiming { incarnation: Arc<Incarnation>, begun: Nanos },
    /// All reactors may use it.
    Held { incarnation: Arc<Incarnation>, begun: Nanos, since_ms: u64 },
    /// Nobody has the drive any more; the incarnation that was held then has nothing in flight.
    Closed { left: Option<u64> },
}

#[derive(Debug)]
struct Inside {
    phase: Phase,
    /// Number of the last incarnation.
    last: u64,
    /// From whom the next one takes the namespace.
    takes: Takes,
    /// Why the last one was over, until one is held again: what is tried again and again is told of once.
    told: Option<Arc<str>>,
    /// Associations that there are, or are being made, on all reactors.
    associations: usize,
}

/// What whoever has an operation does next.
#[derive(Debug)]
pub(super) enum Next {
    /// Claim the namespace for this incarnation, which is new.
    Claim(Arc<Incarnation>),
    /// Use this one.
    Use(Arc<Incarnation>),
}

/// How an incarnation was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// It failed: something of it may be in flight.
    Failed,
    /// It was in use to the last, and nothing is in flight.
    Left,
}

/// What all reactors share of the drive.
#[derive(Debug)]
pub(super) struct Core {
    pub place: RemoteNamespace,
    /// Number of the drive in this process.
    pub drive: u64,
    node: Uuid,
    /// What tells its keys from those of others of this node.
    pub line: u32,
    /// Number of the incarnation that is held; 0 for none.
    current: AtomicU64,
    capacity: AtomicU64,
    block: AtomicU32,
    volatile_cache: AtomicBool,
    inside: Watch<Inside>,
}

impl Core {
    pub fn new(place: RemoteNamespace, node: Uuid, takes: Takes) -> Self {
        static DRIVES: AtomicU64 = AtomicU64::new(1);
        let [a, b, c, d, ..] = chance();
        let line = u32::from_le_bytes([a, b, c, d]);
        let why = Why::gone("nobody has used it yet");
        let phase = Phase::Away { why, since_ms: now_ms(), next: 0 };
        Self {
            place,
            drive: DRIVES.fetch_add(1, Ordering::Relaxed),
            node,
            line,
            current: AtomicU64::new(0),
            capacity: AtomicU64::new(0),
            block: AtomicU32::new(low32(GRAIN)),
            volatile_cache: AtomicBool::new(true),
            inside: Watch::new(Inside { phase, last: 0, takes, told: None, associations: 0 }),
        }
    }

    /// Number of the incarnation that operations use now; `None` has them ask [`Core::next`].
    pub fn current(&self) -> Option<u64> {
        Some(self.current.load(Ordering::Acquire)).filter(|&number| number != 0)
    }

    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub fn block(&self) -> u32 {
        self.block.load(Ordering::Relaxed)
    }

    pub fn has_volatile_cache(&self) -> bool {
        self.volatile_cache.load(Ordering::Relaxed)
    }

    /// Waits until it is known what to do about an operation.
    ///
    /// # Errors
    /// Why it ends here: the last attempt failed a moment ago, or one takes long.
    pub async fn next(&self) -> Result<Next, Why> {
        self.inside.until(|inside| self.decide(inside)).await
    }

    fn decide(&self, inside: &mut Inside) -> Option<Result<Next, Why>> {
        let now = now_exact();
        match &inside.phase {
            Phase::Closed { .. } => Some(Err(Why::gone("the drive was closed"))),
            Phase::Held { incarnation, .. } => Some(Ok(Next::Use(Arc::clone(incarnation)))),
            Phase::Claiming { begun, .. } => {
                let long = now.saturating_sub(*begun) >= nanos(REMOTE_OPERATION);
                long.then(|| Err(Why::gone(STILL_CLAIMING)))
            }
            Phase::Away { why, next, .. } if now < *next => Some(Err(why.clone())),
            Phase::Away { .. } => {
                inside.last += 1;
                let incarnation = Arc::new(self.incarnation(inside.last, inside.takes));
                let claimed = Arc::clone(&incarnation);
                inside.phase = Phase::Claiming { incarnation: claimed, begun: now };
                Some(Ok(Next::Claim(incarnation)))
            }
        }
    }

    fn incarnation(&self, number: u64, takes: Takes) -> Incarnation {
        let host = HostIdentity { nqn: host_nqn(self.node), id: chance() };
        Incarnation { number, host, key: Key::new(self.node, self.line, number), takes }
    }

    /// The incarnation holds the namespace: all reactors may use it. Says no when it is over.
    pub fn hold(&self, number: u64, geometry: &Geometry) -> bool {
        self.inside.change(|inside| {
            let Phase::Claiming { incarnation, begun } = &inside.phase else { return false };
            if incarnation.number != number {
                return false;
            }
            self.learn(geometry);
            tracing::info!(drive = %self.place, "a drive of another machine is connected");
            let (incarnation, begun) = (Arc::clone(incarnation), *begun);
            inside.phase = Phase::Held { incarnation, begun, since_ms: now_ms() };
            (inside.takes, inside.told) = (Takes::Own, None);
            self.current.store(number, Ordering::Release);
            true
        })
    }

    fn learn(&self, geometry: &Geometry) {
        self.capacity.store(bytes_of(geometry), Ordering::Relaxed);
        self.block.store(geometry.block_bytes, Ordering::Relaxed);
        self.volatile_cache.store(geometry.volatile_cache, Ordering::Relaxed);
    }

    /// Takes over what the namespace is by now.
    ///
    /// # Errors
    /// When it is less than it was, or otherwise cannot be used.
    pub fn look(&self, geometry: &Geometry) -> Result<(), Why> {
        fits(geometry)?;
        let (was, is) = (self.capacity(), bytes_of(geometry));
        if is < was {
            let words = format!("the namespace has {is} bytes, and had {was}: its end was cut off");
            return Err(Why::gone(words));
        }
        if was != 0 {
            self.learn(geometry);
        }
        Ok(())
    }

    /// The incarnation is of no more use. Only the first reason counts.
    pub fn end(&self, number: u64, why: Why) {
        self.inside.change(|inside| {
            // A peer that does not answer costs the time of an operation: most are spared that.
            let (incarnation, from) = match &inside.phase {
                Phase::Claiming { incarnation, .. } => (incarnation, now_exact()),
                Phase::Held { incarnation, begun, .. } => (incarnation, *begun),
                Phase::Away { .. } | Phase::Closed { .. } => return,
            };
            if incarnation.number != number {
                return;
            }
            self.current.store(0, Ordering::Release);
            if inside.told.as_ref() != Some(&why.words) {
                inside.told = Some(Arc::clone(&why.words));
                tracing::warn!(drive = %self.place, why = %why.words, "a drive of another machine is away");
            }
            let next = from.saturating_add(nanos(REMOTE_ATTEMPTS));
            inside.phase = Phase::Away { why, since_ms: now_ms(), next };
        });
    }

    /// Nobody has the drive any more, and so nothing is in flight that did not end its incarnation.
    pub fn close(&self) {
        self.inside.change(|inside| {
            self.current.store(0, Ordering::Release);
            let left = match &inside.phase {
                Phase::Held { incarnation, .. } => Some(incarnation.number),
                Phase::Claiming { .. } | Phase::Away { .. } | Phase::Closed { .. } => None,
            };
            inside.phase = Phase::Closed { left };
        });
    }

    /// Waits until the incarnation is over.
    pub async fn over(&self, number: u64) -> Over {
        let over = |inside: &mut Inside| match &inside.phase {
            Phase::Claiming { incarnation, .. } | Phase::Held { incarnation, .. }
                if incarnation.number == number =>
            {
                None
            }
            Phase::Closed { left } if *left == Some(number) => Some(Over::Left),
            _ => Some(Over::Failed),
        };
        self.inside.until(over).await
    }

    pub fn associated(&self) {
        self.inside.change(|inside| inside.associations += 1);
    }

    pub fn parted(&self) {
        self.inside.change(|inside| inside.associations -= 1);
    }

    /// Waits until the drive is closed, and no association of it is left.
    pub async fn closed(&self) {
        let closed = |inside: &mut Inside| {
            let closed = matches!(inside.phase, Phase::Closed { .. });
            (closed && inside.associations == 0).then_some(())
        };
        self.inside.until(closed).await;
    }

    /// Since when it is connected, or away and why.
    pub fn state(&self) -> Result<u64, (u64, Why)> {
        self.inside.change(|inside| match &inside.phase {
            Phase::Held { since_ms, .. } => Ok(*since_ms),
            Phase::Claiming { .. } => Err((now_ms(), Why::gone("it is being connected"))),
            Phase::Away { why, since_ms, .. } => Err((*since_ms, why.clone())),
            Phase::Closed { .. } => Err((now_ms(), Why::gone("the drive was closed"))),
        })
    }
}

const STILL_CLAIMING: &str =
    "connecting to the namespace, and waiting until what was in flight to it before has ended";

fn nanos(duration: std::time::Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// What a node calls itself as a host (NVMe Base 2.1, section 4.7).
pub(super) fn host_nqn(node: Uuid) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:{node}")
}

/// A Host Identifier: a version 4 UUID.
fn chance() -> [u8; 16] {
    if !reactor::is_simulated() {
        return *Uuid::new_v4().as_bytes();
    }
    let drawn = [reactor::random(), reactor::random()];
    *Uuid::from_u64_pair(drawn[0], drawn[1]).as_bytes()
}

#[cfg(test)]
mod tests;
