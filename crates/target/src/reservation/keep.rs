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
    let namespace = Arc::clone(namespace);
    let kept = reactor::blocking(move || namespace.reservation.keep()).await;
    kept.map_err(|_| Status::INTERNAL_ERROR)
}
