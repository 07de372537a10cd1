//! I/O commands: one straight function a command (NVM Command Set 1.1, section 3; reservations as
//! in Base 2.1, section 7).
//!
//! [`execute`] takes a command as it came, the namespace as its queue sees it ([`Attached`]) and
//! the queue's [`Slot`] to move data through, and returns the [`Reply`] that completes it.
//!
//! A read of memory, and a write to it whose data came in the capsule, end where they begin and
//! allocate nothing; so do those of a volume that find all they need in memory.
//!
//! Checks are made in this order: opcode, fields, logical block range, transfer size, length of
//! the data, reservation, write protection; and the last two again when data had to be waited for.

mod attached;
mod beyond;
mod blocks;
mod compare;
mod copy;
mod dataset;
mod entering;
mod fence;
mod flush;
mod gather;
mod lines;
mod ranges;
mod read;
mod reservation;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod uncorrectable;
mod verify;
mod write;
mod write_zeroes;

use std::cell::Ref;
use std::net::IpAddr;
use std::rc::Rc;

use engine::{Reading, UnverifiedRead};
use fabric::payload::Payload;
use nvme::cqe::Cqe;
use nvme::nvm::Command;
use nvme::opcode::io;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::budget::{Grant, Ledger};
use reactor::buffer::Buffer;

pub use attached::Attached;
pub(crate) use attached::lose;
pub use blocks::Blocks;
pub use compare::compare_and_write;
pub use fence::Fence;
pub(crate) use fence::{Answer as Done, Answers as Pending};
pub use flush::flush_all;
pub(crate) use gather::{charge, charge_to_send};

use crate::reservation::{CommandGroup, HostId, Notice};

/// What a command needs of the queue that it came from.
pub trait Slot {
    /// The capsule's data, whole; only within the poll in which the capsule arrived.
    fn in_capsule(&self) -> Option<Ref<'_, [u8]>>;

    /// Has the host send `length` bytes to the start of `buffer`.
    ///
    /// # Errors
    /// The status that completes the command; the buffer is back in its pool then.
    fn receive(&self, length: u32, buffer: Buffer) -> impl Future<Output = Result<Buffer, Status>>;

    /// Whether the host has taken enough of earlier data, and holds little enough of what all hosts share, that
    /// `bytes` more may be buffered for it.
    fn has_room(&self, bytes: usize) -> bool;

    /// Whether what is sent is copied, wherever it lies.
    fn copies(&self) -> bool;

    /// Waits until the host's share allows `bytes` more, which the host is to bring.
    ///
    /// # Errors
    /// The status that completes the command: it was aborted, or its queue ends.
    fn hold(&self, bytes: usize) -> impl Future<Output = Result<Grant, Status>>;

    /// As [`Slot::hold`], for `bytes` that the host is to take: also until it has taken enough of what there is.
    ///
    /// # Errors
    /// As there.
    fn hold_to_send(&self, bytes: usize) -> impl Future<Output = Result<Grant, Status>>;

    /// Notes that `bytes` of the capsule are kept until the command is done.
    fn keep(&self, bytes: usize) -> Grant;

    /// Waits for the host's turn to do a piece of work that moves none of its data, and takes as long as to move `bytes`;
    /// to be dropped after each.
    ///
    /// # Errors
    /// As [`Slot::hold`].
    fn work(&self, bytes: usize) -> impl Future<Output = Result<Grant, Status>>;

    /// Waits for what others have, as long as the command is not aborted and its queue does not end: what it had begun to
    /// wait for is given up then, and it ends where it waits.
    ///
    /// # Errors
    /// As [`Slot::hold`].
    fn unless_aborted<F: Future>(&self, wait: F)
    -> impl Future<Output = Result<F::Output, Status>>;

    /// Waits for the host's turn to have `bytes` under way in the drive of a namespace; to be dropped when they are
    /// there. `None` where there is no need to wait.
    ///
    /// # Errors
    /// As [`Slot::hold`].
    fn place(
        &self,
        at: &Attached,
        bytes: usize,
    ) -> impl Future<Output = Result<Option<Grant>, Status>>;

    /// Waits until the host's share of what a namespace has on this core for all of them, which a ledger of its counts, has so
    /// much more.
    ///
    /// # Errors
    /// As [`Slot::hold`].
    fn share_of(
        &self,
        ledger: &Rc<Ledger>,
        amount: usize,
    ) -> impl Future<Output = Result<Grant, Status>>;

    /// Waits until a namespace whose pool lacks drives is served again, for a short while after the command came; gives it.
    /// Nothing of the namespace may be in use meanwhile.
    ///
    /// # Errors
    /// Internal Path Error when it is not by then, and as [`Slot::hold`].
    fn until_mended(&self, at: &Attached) -> impl Future<Output = Result<Rc<Attached>, Status>>;

    /// Refuses to go on when the command's queue is lost; to be asked last before something is changed, where anything was
    /// waited for.
    ///
    /// # Errors
    /// Command Aborted due to SQ Deletion.
    fn permit(&self) -> Result<(), Status>;

    /// Refuses to come to blocks when the command's queue ends, also by a Disconnect: what its commands are on then is kept from
    /// others, and nothing else.
    ///
    /// # Errors
    /// Command Aborted due to SQ Deletion.
    fn permit_entry(&self) -> Result<(), Status>;

    /// Another namespace of the same controller, for Copy.
    fn namespace(&self, nsid: u32) -> Option<Rc<Attached>>;

    /// Copy Descriptor Formats beyond 0h and 1h that the host enabled (Host Behavior Support): bit
    /// n for format n.
    fn copy_formats_enabled(&self) -> u16;

    /// Every controller that has `nsid` attached, with its host; for Reservation Report.
    fn controllers(&self, nsid: u32) -> Vec<(HostId, u16)>;

    /// Whose address the command came from.
    fn address(&self) -> IpAddr;

    /// Hands notices to the controllers of the hosts they name.
    fn notify(&self, nsid: u32, notices: &[Notice]);
}

/// What completes a command.
pub struct Reply {
    pub status: Status,
    pub dw0: u32,
    /// Data for the host, sent before the completion.
    pub data: Option<Payload>,
}

/// What a command that need not wait came to.
pub enum AtOnce {
    Done(Reply),
    /// Read data that has yet to be verified: to be done for all commands of a turn, after they have been
    /// looked at, so that the processor fetches it for all of them meanwhile.
    UnverifiedRead(UnverifiedRead),
    /// It is for [`execute`], which goes on from there.
    Waits(Begun),
}

/// What is done of a command that has to wait: it was parsed, and its blocks and rights were looked at.
#[derive(Debug, Default)]
pub enum Begun {
    /// Nothing.
    #[default]
    Nothing,
    /// A read of these blocks. Where the volume began with it, the rest of it is waited for.
    Read(Blocks, Option<Reading<Buffer>>),
    /// A write. Where the volume began with it, the rest of it is waited for; none of its data was taken otherwise.
    Write(write::Rest),
}

impl Reply {
    const SUCCESS: Self = Self { status: Status::SUCCESS, dw0: 0, data: None };

    pub(crate) const fn failed(status: Status) -> Self {
        Self { status, dw0: 0, data: None }
    }

    pub(crate) const fn with_data(payload: Payload) -> Self {
        Self { status: Status::SUCCESS, dw0: 0, data: Some(payload) }
    }

    /// The completion entry, but for SQHD and SQID, which are the queue's.
    #[must_use]
    pub fn cqe(&self, cid: u16) -> Cqe {
        let mut cqe = Cqe::new(cid, self.status);
        cqe.dw0 = self.dw0.into();
        cqe
    }
}

/// Whether a command with this opcode is one of [`execute`]'s. Others are refused before their
/// namespace is looked for.
#[must_use]
pub const fn is_supported(opcode: u8) -> bool {
    matches!(
        opcode,
        io::FLUSH
            | io::WRITE
            | io::READ
            | io::COMPARE
            | io::WRITE_ZEROES
            | io::DATASET_MANAGEMENT
            | io::VERIFY
            | io::RESERVATION_REGISTER
            | io::RESERVATION_REPORT
            | io::RESERVATION_ACQUIRE
            | io::RESERVATION_RELEASE
            | io::COPY
    )
}

/// Whether a command with this opcode is one of [`execute`]'s for some namespaces, and refused for others.
#[must_use]
pub const fn is_some_drives(opcode: u8) -> bool {
    opcode == io::WRITE_UNCORRECTABLE
}

/// Whether a command is better executed once the other commands of its turn have come; what it will need is on
/// its way to the processor then.
#[inline]
#[must_use]
pub fn look_ahead(at: &Attached, sqe: &Sqe) -> bool {
    sqe.opcode == io::READ
        && matches!(Command::parse(sqe), Ok(Command::Read(read)) if read::look_ahead(at, &read))
}

/// Begins one command, and ends it if it is of those that end where they begin: a read of memory, or a write to it
/// whose data came in the capsule, and those of a volume that need not wait. All others are [`execute`]'s, from where
/// they were left; it does these too, at the cost of a future, which is most of such a command's.
#[inline]
pub fn begin(at: &Attached, sqe: &Sqe, slot: &impl Slot) -> AtOnce {
    if !matches!(sqe.opcode, io::READ | io::WRITE) {
        return AtOnce::Waits(Begun::Nothing);
    }
    let done = match Command::parse(sqe) {
        Ok(Command::Read(read)) => read::begin(at, &read, sqe, slot),
        Ok(Command::Write(write)) if !write.fused => write::begin(at, &write, sqe, slot),
        _ => return AtOnce::Waits(Begun::Nothing),
    };
    done.unwrap_or_else(|status| AtOnce::Done(Reply::failed(status)))
}

/// Executes one command that is not part of a fused operation, from where [`begin`] left it.
#[expect(clippy::manual_async_fn, reason = "an async fn keeps what it is given twice")]
pub fn execute(
    at: &Attached,
    sqe: &Sqe,
    mut begun: Begun,
    slot: &impl Slot,
) -> impl Future<Output = Reply> {
    // What is begun has its place here, once: each slot of each queue has as much memory.
    async move {
        if matches!(begun, Begun::Nothing) {
            let other = match look(at, sqe, &mut begun) {
                Ok(other) => other,
                Err(status) => return Reply::failed(status),
            };
            if let Some(command) = other {
                return execute_other(at, command, sqe, slot).await;
            }
        }
        let done = match &mut begun {
            Begun::Read(run, reading) => read::go_on(at, *run, reading.take(), slot).await,
            Begun::Write(rest) => write::go_on(at, rest, sqe, slot).await,
            Begun::Nothing => Err(Status::INTERNAL_ERROR.with_dnr()),
        };
        done.unwrap_or_else(Reply::failed)
    }
}

/// Looks at what a command is, and begins with the blocks and rights of a read or a write; gives any other.
fn look(at: &Attached, sqe: &Sqe, begun: &mut Begun) -> Result<Option<Command>, Status> {
    at.permit_access()?;
    *begun = match Command::parse(sqe).map_err(|refusal| refusal.status())? {
        Command::Read(read) => {
            let run = at.transfer(read.range, sqe)?;
            at.permit(CommandGroup::Read)?;
            Begun::Read(run, None)
        }
        Command::Write(write) if !write.fused => {
            let run = at.transfer(write.range, sqe)?;
            at.permit_change()?;
            Begun::Write(write::Rest { run, fua: write.fua, writing: None })
        }
        command => return Ok(Some(command)),
    };
    Ok(None)
}

/// Executes one command that is neither a read nor a write.
async fn execute_other(at: &Attached, command: Command, sqe: &Sqe, slot: &impl Slot) -> Reply {
    let done = match command {
        Command::Compare(compare) if !compare.fused => {
            compare::compare(at, &compare, sqe, slot).await
        }
        // Half of a fused operation is not a command.
        Command::Read(_) | Command::Write(_) | Command::Compare(_) => {
            Err(Status::INVALID_FIELD.with_dnr())
        }
        Command::Flush => flush::flush(at).await,
        Command::WriteZeroes(zeroes) => write_zeroes::write_zeroes(at, &zeroes, slot).await,
        Command::DatasetManagement(dataset) => {
            Box::pin(dataset::dataset_management(at, &dataset, sqe, slot)).await
        }
        Command::Verify(verify) => {
            let verify = async |at: &Attached| verify::verify(at, &verify, slot).await;
            Box::pin(beyond::read_when_mended(at, slot, verify)).await
        }
        // On the heap, as their lists are: too large for the slot that every command has.
        Command::Copy(copy) => return Box::pin(copy::copy(at, &copy, sqe, slot)).await,
        Command::ReservationRegister(fields) => reservation::register(at, fields, sqe, slot).await,
        Command::ReservationAcquire(fields) => reservation::acquire(at, fields, sqe, slot).await,
        Command::ReservationRelease(fields) => reservation::release(at, fields, sqe, slot).await,
        Command::ReservationReport(fields) => reservation::report(at, fields, sqe, slot).await,
        Command::WriteUncorrectable(range) => {
            Box::pin(uncorrectable::write_uncorrectable(at, range, slot)).await
        }
    };
    done.unwrap_or_else(Reply::failed)
}
