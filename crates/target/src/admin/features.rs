//! Set Features and Get Features (Base 2.1 sections 5.1.25 and 5.1.11).

use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::{low8, low16};

use super::{Fault, Outcome};
use crate::controller::{Controller, Features, Kind, granted};
use crate::limits::IO_QUEUES_MAX;
use crate::reservation::NoticeMask;

/// Feature identifiers.
mod fid {
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    pub const ASYNC_EVENT_CONFIGURATION: u8 = 0x0b;
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    pub const RESERVATION_NOTIFICATION_MASK: u8 = 0x82;
}

impl Controller {
    pub(super) fn set_features(&self, sqe: &Sqe, _data: &[u8]) -> Result<Outcome, Fault> {
        let cdw10 = sqe.cdw10.get();
        let cdw11 = sqe.cdw11.get();
        // SV: no feature is saveable.
        if cdw10 & 1 << 31 != 0 {
            return Err(Fault::at(Status::FEATURE_NOT_SAVEABLE, 10, 31));
        }
        let fid = low8(cdw10.into());
        if fid == fid::RESERVATION_NOTIFICATION_MASK && self.kind() == Kind::Io {
            let nsid = self.active(sqe.nsid.get())?.nsid;
            let mask = NoticeMask::from_cdw11(cdw11).ok_or(Fault::field(11, 0))?;
            self.set_reservation_mask(nsid, mask);
            return Ok(Outcome::DONE);
        }
        let mut state = self.lock();
        match fid {
            fid::NUMBER_OF_QUEUES if self.kind() == Kind::Io => {
                set_number_of_queues(&mut state.features, cdw11)
            }
            fid::ASYNC_EVENT_CONFIGURATION => {
                state.features.async_event_configuration = cdw11;
                Ok(Outcome::DONE)
            }
            fid::KEEP_ALIVE_TIMER => {
                state.features.kato = granted(cdw11);
                Ok(Outcome::DONE)
            }
            _ => Err(Fault::field(10, 0)),
        }
    }

    pub(super) fn get_features(&self, sqe: &Sqe, _out: &mut [u8]) -> Result<Outcome, Fault> {
        let fid = low8(sqe.cdw10.get().into());
        if fid == fid::RESERVATION_NOTIFICATION_MASK && self.kind() == Kind::Io {
            let nsid = self.active(sqe.nsid.get())?.nsid;
            return Ok(Outcome::Complete { dw0: self.reservation_mask(nsid).to_dw0(), dw1: 0 });
        }
        let state = self.lock();
        let dw0 = match fid {
            fid::NUMBER_OF_QUEUES if self.kind() == Kind::Io => {
                number_of_queues(state.features.io_queues)
            }
            fid::ASYNC_EVENT_CONFIGURATION => state.features.async_event_configuration,
            fid::KEEP_ALIVE_TIMER => state.features.kato,
            _ => return Err(Fault::field(10, 0)),
        };
        Ok(Outcome::Complete { dw0, dw1: 0 })
    }
}

/// Number of Queues (07h): as many as are asked for, up to the limit; of each kind the same,
/// because over Fabrics they come in pairs.
fn set_number_of_queues(features: &mut Features, cdw11: u32) -> Result<Outcome, Fault> {
    let (submission, completion) = (low16(cdw11.into()), low16(u64::from(cdw11) >> 16));
    if submission == u16::MAX || completion == u16::MAX {
        return Err(Fault::field(11, 0));
    }
    // Section 5.1.25.1.5: only before the first I/O queue.
    if features.queues_created {
        return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr().into());
    }
    features.io_queues = (submission.min(completion) + 1).min(IO_QUEUES_MAX);
    Ok(Outcome::Complete { dw0: number_of_queues(features.io_queues), dw1: 0 })
}

/// The completion's dword: both counts 0's based.
fn number_of_queues(count: u16) -> u32 {
    let zeros_based = u32::from(count - 1);
    zeros_based << 16 | zeros_based
}
