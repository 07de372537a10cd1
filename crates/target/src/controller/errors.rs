//! The Error Information log of a controller (Base 2.1 section 5.1.12.1.2).

use std::collections::VecDeque;

use nvme::discovery::TransportType;
use nvme::log::ErrorEntry;
use nvme::refusal::Location;
use nvme::sqe::Sqe;
use nvme::status::Status;
use zerocopy::IntoBytes;

use super::Controller;
use crate::limits::ERROR_LOG_ENTRIES;

/// The last errors, newest first.
#[derive(Debug, Default)]
pub(crate) struct ErrorLog {
    /// Errors in the controller's life.
    count: u64,
    entries: VecDeque<ErrorEntry>,
}

/// A command that failed.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// Submission queue it came from.
    pub qid: u16,
    pub sqe: &'a Sqe,
    pub status: Status,
    /// Field at fault, if one is.
    pub location: Option<Location>,
    /// First logical block at fault, or 0.
    pub lba: u64,
}

impl ErrorLog {
    pub fn add(&mut self, failure: &Failure<'_>, trtype: TransportType) {
        self.count = self.count.saturating_add(1);
        let sqe = failure.sqe;
        let entry = ErrorEntry {
            error_count: self.count.into(),
            sqid: failure.qid.into(),
            cid: sqe.cid,
            status: failure.status.to_field().into(),
            location: failure.location.map_or(ErrorEntry::NONE, Location::to_field).into(),
            lba: failure.lba.into(),
            nsid: if sqe.opcode == nvme::opcode::admin::FABRICS { 0.into() } else { sqe.nsid },
            trtype: trtype.raw(),
            opcode: sqe.opcode,
            version: ErrorEntry::VERSION,
            ..ErrorEntry::default()
        };
        self.entries.truncate(usize::from(ERROR_LOG_ENTRIES) - 1);
        self.entries.push_front(entry);
    }

    /// Errors in the controller's life.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The log page, unused entries zero.
    pub fn page(&self) -> Vec<u8> {
        let mut page: Vec<u8> = Vec::new();
        for entry in &self.entries {
            page.extend_from_slice(entry.as_bytes());
        }
        page.resize(usize::from(ERROR_LOG_ENTRIES) * size_of::<ErrorEntry>(), 0);
        page
    }
}

impl Controller {
    /// Enters a failed command into the Error Information log. Admin commands that
    /// [`Controller::execute_admin`] fails are in it already.
    pub fn log_error(&self, failure: &Failure<'_>) {
        self.lock().errors.add(failure, self.path.local.trtype());
    }
}
