//! Commands of a volume whose pool has lost more drives than its redundancy bears, and waits for them. What can be read is;
//! all else waits for a short while, in which the pool may be opened again, and ends with a path error, which hosts send
//! it again on (`docs/decisions/0037-beyond.md`).

use std::rc::Rc;
use std::sync::Arc;

use nvme::status::Status;

use super::{Attached, Slot};
use crate::namespace::Backend;

/// What a command ends with that its pool cannot serve before drives are back.
pub(super) const WAITS_FOR_DRIVES: Status = Status::INTERNAL_PATH_ERROR;

impl Attached {
    /// Whether changes are known to fail for want of drives. A write has found out about that before.
    #[inline]
    pub(super) fn lacks_drives(&self) -> bool {
        match &self.namespace().backend {
            Backend::Volume(volume) => volume.has_failed() && volume.is_beyond_redundancy(),
            Backend::Memory(_)
            | Backend::Drive(_)
            | Backend::Passthrough(_)
            | Backend::Absent { .. } => false,
        }
    }

    /// Whether this one, of the same namespace, has what `before` waited for: its pool was opened again.
    pub(crate) fn is_mended(&self, before: &Self) -> bool {
        let backend = &self.namespace().backend;
        let is_other = || !Arc::ptr_eq(self.namespace(), before.namespace());
        let is_well = || !matches!(backend, Backend::Volume(of) if of.is_beyond_redundancy());
        !backend.is_absent() && (is_other() || is_well())
    }

    /// What a command ends with that has waited in vain: one that has no backend now is held back by its host.
    pub(crate) fn waited_in_vain(&self) -> Status {
        match self.namespace().backend.is_absent() {
            true => Status::ANA_INACCESSIBLE,
            false => WAITS_FOR_DRIVES,
        }
    }
}

/// To be asked before a command changes anything, and best before it has its data: where changes cannot be made safe, it
/// waits. The namespace to go on with, if it is another one by then.
///
/// # Errors
/// Internal Path Error where nothing came of that, and as [`Slot::hold`].
pub(super) async fn mended(
    at: &Attached,
    slot: &impl Slot,
) -> Result<Option<Rc<Attached>>, Status> {
    if !at.lacks_drives() {
        return Ok(None);
    }
    // On the heap: rare, and no slot needs memory for it.
    Box::pin(slot.until_mended(at)).await.map(Some)
}

/// Does what changes nothing, and once more when the namespace is another one, where drives were lacking.
///
/// # Errors
/// As `read` and [`mended`].
pub(super) async fn read_when_mended<T>(
    at: &Attached,
    slot: &impl Slot,
    mut read: impl AsyncFnMut(&Attached) -> Result<T, Status>,
) -> Result<T, Status> {
    let mut other: Option<Rc<Attached>> = None;
    loop {
        let here = other.as_deref().unwrap_or(at);
        match read(here).await {
            Err(status) if status.is(WAITS_FOR_DRIVES) => {
                let mended = Box::pin(slot.until_mended(here)).await?;
                other = Some(mended);
            }
            done => return done,
        }
    }
}
