//! Keeping reservations through a loss of power (PTPL, NVMe Base 2.1 section 8.1.22).

use std::fmt;
use std::io;
use std::sync::Arc;

use nvme::status::Status;

use super::Saved;
use crate::namespace::Namespace;

/// Where the reservations of one namespace are kept.
pub trait Keeper: fmt::Debug + Send + Sync {
    /// Replaces what is kept, with nothing if `saved` is `None`; durable when this returns. Blocks.
    ///
    /// # Errors
    /// What is kept may be the old state or the new one then.
    fn keep(&self, saved: Option<&Saved>) -> io::Result<()>;
}

/// What was kept of a namespace's reservations, and where further ones are to be.
#[derive(Clone, Debug)]
pub struct Keeping {
    pub saved: Option<Saved>,
    pub keeper: Arc<dyn Keeper>,
}

/// Attempts at keeping the reservations of one namespace, of which one is under way at a time: what changed before it
/// began is in it, so that whoever waits shares its outcome, and a flood of commands is a flood to nobody else.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// How many began, whether the last of them still goes on, the last that ended, and the last that was good.
    begun: u64,
    under_way: bool,
    ended: u64,
    kept: u64,
}

impl Attempts {
    /// The end of attempt `wanted` or a later one, or leave to make the next one.
    fn look(&mut self, wanted: u64) -> Option<Turn> {
        if self.kept >= wanted {
            return Some(Turn::Over(Ok(())));
        }
        if self.ended >= wanted {
            return Some(Turn::Over(Err(Status::INTERNAL_ERROR)));
        }
        if std::mem::replace(&mut self.under_way, true) {
            return None;
        }
        self.begun += 1;
        Some(Turn::Mine(self.begun))
    }
}

enum Turn {
    Mine(u64),
    Over(Result<(), Status>),
}

/// The attempt under way. Dropped without an outcome it was none: the next in line makes one.
struct Attempt {
    namespace: Arc<Namespace>,
    number: u64,
}

impl Attempt {
    fn make(self) -> io::Result<()> {
        let outcome = self.namespace.reservation.keep();
        self.namespace.reservation.attempts.change(|attempts| {
            attempts.ended = self.number;
            if outcome.is_ok() {
                attempts.kept = self.number;
            }
        });
        outcome
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.namespace.reservation.attempts.change(|attempts| attempts.under_way = false);
    }
}

/// Has what persists through a loss of power reach stable storage, which a command that changed it
/// waits for. Nothing, as a rule: reservations persist where a host asked for it.
///
/// # Errors
/// Internal Error when it cannot be kept. What the command changed stays changed: another attempt, of
/// any command, keeps it too.
pub async fn keep(namespace: &Arc<Namespace>) -> Result<(), Status> {
    if !namespace.reservation.is_to_be_kept() {
        return Ok(());
    }
    let attempts = &namespace.reservation.attempts;
    let wanted = attempts.change(|attempts| attempts.begun + 1);
    loop {
        let number = match attempts.until(|attempts| attempts.look(wanted)).await {
            Turn::Over(outcome) => return outcome,
            Turn::Mine(number) => number,
        };
        let attempt = Attempt { namespace: Arc::clone(namespace), number };
        if reactor::blocking(move || attempt.make()).await.is_err() {
            return Err(Status::INTERNAL_ERROR);
        }
    }
}
