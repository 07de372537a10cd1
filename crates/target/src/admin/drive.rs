//! What of admin commands is a drive's to answer, where a namespace is one that gets commands as they are.
//!
//! Of the log pages SMART / Health Information is the one that is kept for namespaces (Base 2.1, section 5.1.12.1.3):
//! with the namespace's identifier it is the drive's. All others, and what names all namespaces, tell of this controller
//! and its subsystem, which is no drive. docs/management.md has the table.

use std::sync::Arc;

use media::passthrough::Failure;
use media::{Kind, Passthrough};
use nvme::identify::{Cns, Identify, NSID_ALL};
use nvme::log::{GetLogPage, Smart, lid};
use nvme::opcode::admin as opcode;
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::{u64_of, usize64};

use super::{Fault, window};
use crate::controller::{Controller, Kind as For};

/// What a host asks of a drive's SMART / Health Information, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedDrive {
    nsid: u32,
    /// The part of the page, which may begin at its end.
    offset: u64,
    bytes: u64,
    /// Retain Asynchronous Event: of our events. The drive's are not the host's.
    retain_event: bool,
}

impl Controller {
    /// Whether a Get Log Page is for a drive.
    ///
    /// # Errors
    /// Asymmetric Access Inaccessible for the page of a namespace whose drive is not there, Invalid Field for an offset
    /// behind the page.
    pub(super) fn asked_drive(
        &self,
        command: &GetLogPage,
        offset: u64,
    ) -> Result<Option<AskedDrive>, Fault> {
        let GetLogPage { lid, nsid, bytes, retain_event, .. } = *command;
        if lid != lid::SMART || matches!(nsid, 0 | NSID_ALL) {
            return Ok(None);
        }
        let view = self.view();
        let Some(namespace) = view.get(nsid) else { return Ok(None) };
        if namespace.backend.is_absent() && view.has_drive_with_health() {
            return Err(Status::ANA_INACCESSIBLE.into());
        }
        if namespace.backend.drive_with_health().is_none() {
            return Ok(None);
        }
        if namespace.backend.is_inaccessible() {
            return Err(Status::ANA_INACCESSIBLE.into());
        }
        if offset > u64_of(size_of::<Smart>()) {
            return Err(Fault::field(12, 0));
        }
        Ok(Some(AskedDrive { nsid, offset, bytes, retain_event }))
    }

    /// Refuses the subsystem's SMART / Health Information for what is no namespace; and for one namespace unless some
    /// tell of themselves (LPA bit 0). Those that do not have it in common.
    pub(super) fn check_smart_of(&self, nsid: u32) -> Result<(), Fault> {
        let view = self.view();
        let may = match nsid {
            0 | NSID_ALL => true,
            nsid => view.has_drive_with_health() && view.get(nsid).is_some(),
        };
        if may { Ok(()) } else { Err(Fault::field(1, 0)) }
    }

    /// Has the drive say how it is.
    ///
    /// # Errors
    /// What the drive says; Namespace Not Ready for one that does not answer soon; Asymmetric Access Inaccessible for
    /// one that is gone.
    pub(super) async fn ask_drive(&self, asked: AskedDrive) -> Result<Vec<u8>, Fault> {
        let namespace = self.active(asked.nsid)?;
        let Some(drive) = namespace.backend.drive_with_health() else {
            return Err(Status::ANA_INACCESSIBLE.into());
        };
        // What was told of our own is read as well: events name no namespace.
        let told = match asked.retain_event {
            true => Vec::new(),
            false => self.lock().events.acknowledge(lid::SMART),
        };
        match drive.health().await {
            Ok(page) => {
                let mut out = vec![0; usize64(asked.bytes)];
                window(&page, asked.offset, &mut out);
                Ok(out)
            }
            Err(failure) => {
                told.into_iter().for_each(|event| self.raise(event));
                Err(status_of(&failure).into())
            }
        }
    }

    /// The drive that an Identify Namespace is about, if it has not been asked for a while how much is allocated.
    pub(super) fn drive_to_refresh(&self, sqe: &Sqe) -> Option<Arc<Passthrough>> {
        if sqe.opcode != opcode::IDENTIFY || self.kind() != For::Io || !self.status().ready() {
            return None;
        }
        let command = Identify::parse(sqe).ok()?;
        if !matches!(command.cns, Cns::Namespace | Cns::AllocatedNamespace) {
            return None;
        }
        let view = self.view();
        let drive = view.get(command.nsid)?.backend.passthrough()?;
        drive.is_used_stale().then(|| Arc::clone(drive))
    }
}

/// What became of an admin command that a drive got.
fn status_of(failure: &Failure) -> Status {
    match failure {
        Failure::Drive(status) => *status,
        Failure::Media(error) => match error.kind {
            Kind::Gone => Status::ANA_INACCESSIBLE,
            Kind::Busy | Kind::Passing | Kind::Timeout => Status::NAMESPACE_NOT_READY,
            _ => Status::INTERNAL_ERROR,
        },
    }
}
