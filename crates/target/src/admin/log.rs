//! Get Log Page (Base 2.1 section 5.1.12).

use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::u64_of;

use super::{Fault, Outcome, prepare, window};
use crate::controller::{Controller, Kind};
use crate::discovery;
use crate::limits::TRANSFER_BYTES_MAX;

/// Log page identifiers.
mod lid {
    pub const DISCOVERY: u8 = 0x70;
    pub const RESERVATION_NOTIFICATION: u8 = 0x80;
}

/// A Get Log Page command, its dwords read.
pub(super) struct Request {
    pub lid: u8,
    /// Log Specific Parameter.
    pub lsp: u8,
    /// Retain Asynchronous Event.
    pub retain: bool,
    /// Bytes asked for.
    pub length: u32,
    /// Log Page Offset in bytes.
    pub offset: u64,
}

impl Request {
    fn parse(sqe: &Sqe) -> Result<Self, Fault> {
        let [lid, lsp, numd @ ..] = sqe.cdw10.get().to_le_bytes();
        let [numd_low, numd_high] = numd;
        let [high_low, high_high, ..] = sqe.cdw11.get().to_le_bytes();
        let dwords = u32::from_le_bytes([numd_low, numd_high, high_low, high_high]);
        // NUMD is 0's based.
        let length = dwords.checked_add(1).and_then(|count| count.checked_mul(4));
        let length =
            length.filter(|&bytes| bytes <= TRANSFER_BYTES_MAX).ok_or(Fault::field(10, 16))?;
        let cdw14 = sqe.cdw14.get();
        // No page here is indexed (OT), and there is no UUID list.
        if cdw14 & 1 << 23 != 0 {
            return Err(Fault::field(14, 23));
        }
        if cdw14 & 0x7f != 0 {
            return Err(Fault::field(14, 0));
        }
        let offset = u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get());
        if offset % 4 != 0 {
            return Err(Fault::field(12, 0));
        }
        Ok(Self { lid, lsp: lsp & 0x7f, retain: lsp & 0x80 != 0, length, offset })
    }
}

impl Controller {
    pub(super) fn get_log_page(&self, sqe: &Sqe, out: &mut Vec<u8>) -> Result<Outcome, Fault> {
        let request = Request::parse(sqe)?;
        prepare(sqe, request.length, out)?;
        let size = match (self.kind(), request.lid) {
            (Kind::Discovery, lid::DISCOVERY) => self.discovery_log(&request, out)?,
            (Kind::Io, lid::RESERVATION_NOTIFICATION) => self.reservation_log(&request, out),
            _ => return Err(Fault::at(Status::INVALID_LOG_PAGE, 10, 0)),
        };
        // Section 5.1.12: an offset behind the page's end is refused.
        if request.offset > size {
            return Err(Fault::field(12, 0));
        }
        if !request.retain {
            self.lock().events.acknowledge(request.lid);
        }
        Ok(Outcome::Data)
    }

    /// Reservation Notification (80h): reading it takes the oldest notice out of the log.
    fn reservation_log(&self, request: &Request, out: &mut [u8]) -> u64 {
        let page = self.lock().reservations.take_page();
        window(&page, request.offset, out);
        u64_of(page.len())
    }

    fn discovery_log(&self, request: &Request, out: &mut [u8]) -> Result<u64, Fault> {
        if request.lsp & !discovery::lsp::SUPPORTED != 0 {
            return Err(Fault::field(10, 8));
        }
        let target = self.target().ok_or(Fault::from(Status::INTERNAL_ERROR))?;
        let registry = target.lock();
        let (host, path) = (self.host_nqn(), self.path());
        Ok(discovery::read(&registry, host, path, request.lsp, request.offset, out))
    }
}
