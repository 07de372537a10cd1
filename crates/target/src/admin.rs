//! Admin commands (Base 2.1 section 5): each is decided and answered at once.

mod drive;
pub(crate) mod features;
mod identify;
pub(crate) mod log;
pub(crate) mod run;
#[cfg(test)]
mod tests;
mod windows;

pub use drive::AskedDrive;
use nvme::opcode::admin as opcode;
use nvme::refusal::{Location, Refusal};
use nvme::sqe::{DataPointer, Fused, Sqe};
use nvme::status::Status;
use nvme::window::{WindowEnd, WindowReceive};
use stdx::num::{low16, usize32};

use crate::controller::{Controller, Failure, Kind};
use crate::queue::is_connect;

/// What becomes of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Completes successfully with these dwords.
    Complete { dw0: u32, dw1: u32 },
    /// The data to return to the host is in `out`; completes successfully with dwords 0.
    Data,
    /// Completes with this status.
    Failed(Status),
    /// An Asynchronous Event Request was parked: it completes through
    /// [`Controller::next_event`].
    AsyncEvent,
    /// Abort command `cid` of submission queue `sqid` if it is outstanding; then complete with
    /// DW0 bit 0 cleared if it was aborted, set if not.
    Abort { sqid: u16, cid: u16 },
    /// Keep the reservations of this namespace (all, with FFFFFFFFh) as they are now, where that has
    /// to be; then complete.
    KeepReservations { nsid: u32 },
    /// Ask a drive how it is; then complete with what is asked for of that.
    AskDrive(AskedDrive),
    /// Grant a direct write window; then complete with what it is.
    GrantWindow(WindowReceive),
    /// End a direct write window; then complete.
    EndWindow(WindowEnd),
    /// Disconnect: complete successfully, then close this I/O queue.
    Disconnect,
}

impl Outcome {
    /// Success without a result.
    pub const DONE: Self = Self::Complete { dw0: 0, dw1: 0 };
}

/// Why a command failed, and which field of it was at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub status: Status,
    pub location: Option<Location>,
}

impl Fault {
    /// Fails with `status`, Do Not Retry, because of bit `bit` of Command Dword `dword`.
    pub const fn at(status: Status, dword: u8, bit: u8) -> Self {
        Self { status: status.with_dnr(), location: Some(Location::dword(dword, bit)) }
    }

    /// Invalid Field in Command, for bit `bit` of Command Dword `dword`.
    pub const fn field(dword: u8, bit: u8) -> Self {
        Self::at(Status::INVALID_FIELD, dword, bit)
    }
}

impl From<Status> for Fault {
    fn from(status: Status) -> Self {
        Self { status, location: None }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self { status: refusal.status(), location: Some(refusal.location) }
    }
}

/// DW0 of an Abort that aborted nothing.
const NOT_ABORTED: Outcome = Outcome::Complete { dw0: 1, dw1: 0 };

impl Controller {
    /// Executes a command that arrived on the admin queue. `host_data` is what the host sent with
    /// it; data for the host goes to `out`, which is cleared first. Total: every entry and every
    /// data gives one outcome.
    ///
    /// [`Self::touch`] the controller before, with the time the command arrived.
    pub fn execute_admin(&self, sqe: &Sqe, host_data: &[u8], out: &mut Vec<u8>) -> Outcome {
        out.clear();
        match self.admin(sqe, host_data, out) {
            Ok(outcome) => outcome,
            Err(fault) => {
                out.clear();
                if is_connect(sqe) {
                    return Outcome::Failed(fault.status);
                }
                Outcome::Failed(self.failed(sqe, fault))
            }
        }
    }

    /// Enters a command that failed into the log; the status that it ends with.
    fn failed(&self, sqe: &Sqe, fault: Fault) -> Status {
        // More: the Error Information log has an entry for it.
        let status = fault.status.with_more();
        self.log_error(&Failure { qid: 0, sqe, status, location: fault.location, lba: 0 });
        status
    }

    fn admin(&self, sqe: &Sqe, host_data: &[u8], out: &mut Vec<u8>) -> Result<Outcome, Fault> {
        // No admin command is part of a fused operation (section 4.1.1).
        if sqe.fused() != Some(Fused::Normal) {
            return Err(Fault::field(0, 8));
        }
        if sqe.opcode == opcode::FABRICS {
            return self.fabrics(0, sqe);
        }
        // Section 3.5: until CSTS.RDY is set only Fabrics commands are processed.
        if !self.status().ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.into());
        }
        match sqe.opcode {
            opcode::IDENTIFY => self.identify(sqe, out),
            opcode::GET_LOG_PAGE => self.get_log_page(sqe, out),
            opcode::SET_FEATURES => self.set_features(sqe, host_data),
            opcode::GET_FEATURES => self.get_features(sqe, out),
            opcode::ASYNC_EVENT_REQUEST => self.async_event_request(sqe),
            opcode::KEEP_ALIVE => Ok(Outcome::DONE),
            opcode::ABORT if self.kind() == Kind::Io => Ok(self.abort(sqe)),
            opcode::WINDOW_RECEIVE if self.grants_windows() => self.window_receive(sqe, out),
            opcode::WINDOW_END if self.grants_windows() => self.window_end(sqe),
            _ => Err(Fault::at(Status::INVALID_OPCODE, 0, 0)),
        }
    }

    fn async_event_request(&self, sqe: &Sqe) -> Result<Outcome, Fault> {
        let mut state = self.lock();
        let cid = sqe.cid.get();
        if state.events.is_parked(cid) {
            return Err(Status::COMMAND_ID_CONFLICT.with_dnr().into());
        }
        if !state.events.park(cid) {
            return Err(Status::ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED.with_dnr().into());
        }
        Self::wake_if_due(state);
        Ok(Outcome::AsyncEvent)
    }

    /// Abort (section 5.1.1). A parked Asynchronous Event Request is aborted here; other commands
    /// are the queue's to find.
    fn abort(&self, sqe: &Sqe) -> Outcome {
        let cdw10 = u64::from(sqe.cdw10.get());
        let (sqid, cid) = (low16(cdw10), low16(cdw10 >> 16));
        let mut state = self.lock();
        if sqid == 0 && state.events.abort(cid) {
            Self::wake_if_due(state);
            return Outcome::DONE;
        }
        if state.queues.contains(sqid) { Outcome::Abort { sqid, cid } } else { NOT_ABORTED }
    }
}

/// Checks the data pointer of a command that returns `length` bytes, and makes room for them.
fn prepare(sqe: &Sqe, length: u32, out: &mut Vec<u8>) -> Result<(), Fault> {
    // Section 4.1.1: over Fabrics, PSDT names SGLs.
    if !sqe.uses_sgl() {
        return Err(Fault::field(0, 14));
    }
    // In-capsule data is the host's: its command capsule has no place for data that comes back.
    let Some(DataPointer::Transport { length: room }) = sqe.dptr.data() else {
        return Err(Fault::at(Status::SGL_DESCRIPTOR_TYPE_INVALID, 9, 24));
    };
    if room < length {
        return Err(Fault::at(Status::DATA_SGL_LENGTH_INVALID, 8, 0));
    }
    out.resize(usize32(length), 0);
    Ok(())
}

/// Copies what of `page` lies at `offset` and behind into `out`, which stays zero where the page
/// has ended.
fn window(page: &[u8], offset: u64, out: &mut [u8]) {
    let Some(rest) = usize::try_from(offset).ok().and_then(|at| page.get(at..)) else { return };
    let length = rest.len().min(out.len());
    out[..length].copy_from_slice(&rest[..length]);
}
