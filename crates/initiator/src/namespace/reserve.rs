//! Reservations: which hosts may write to a namespace (NVMe Base 2.1, section 8.1.22).

use nvme::opcode::io;
use nvme::reservation::{
    AcquireAction, AcquireData, ChangePersistence, ExtendedStatusHeader, RCSTS_HOLDS,
    RegisterAction, RegisterData, RegistrantExtended, Type,
};
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::{u32_of, usize32};
use zerocopy::{FromBytes, IntoBytes};

use super::life::Effect;
use super::{Buffer, Namespace};
use crate::Error;
use crate::queue::Data;

/// A host that is registered with a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// Its reservation key.
    pub key: u64,
    /// Its Host Identifier.
    pub host: [u8; 16],
    /// It holds the reservation.
    pub holds: bool,
}

/// Ignore Existing Key (IEKEY), in CDW10.
const IEKEY: u32 = 1 << 3;

/// Registrants that the first report has room for: as many hosts as are usually let near one namespace.
const REGISTRANTS_FIRST: usize = 63;

impl Namespace {
    /// Registers this host with `key`, in place of another one it may have. It lasts over a loss of power where
    /// the namespace can do that.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn register(&self, key: u64) -> Result<(), Error> {
        let persists = self.geometry().supports.reservations_persist;
        let persistence =
            if persists { ChangePersistence::Set } else { ChangePersistence::NoChange };
        let persistence = u32::from(persistence.raw()) << 30;
        match self.change(RegisterAction::Register, persistence, (0, key)).await {
            Err(Error::Command { status, .. }) if status.is(Status::RESERVATION_CONFLICT) => {
                let cdw10 = persistence | IEKEY;
                self.change(RegisterAction::Replace, cdw10, (0, key)).await
            }
            done => done,
        }
    }

    /// Takes this host's registration back, and with it the reservation, if it holds that.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn unregister(&self, key: u64) -> Result<(), Error> {
        self.change(RegisterAction::Unregister, 0, (key, 0)).await
    }

    async fn change(
        &self,
        action: RegisterAction,
        cdw10: u32,
        (current, new): (u64, u64),
    ) -> Result<(), Error> {
        let data = RegisterData { crkey: current.into(), nrkey: new.into() };
        let sqe = self.reserve(io::RESERVATION_REGISTER, cdw10 | u32::from(action.raw()));
        // Twice is as good as once: the key is what it was to be.
        self.order("Reservation Register", Effect::Same, sqe, Data::copy_of(data.as_bytes())).await
    }

    /// Acquires a reservation of `kind` for this host, which is registered with `key`. An [`Error::Command`] of
    /// status Reservation Conflict says that another host has it.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn acquire(&self, key: u64, kind: Type) -> Result<(), Error> {
        self.take(AcquireAction::Acquire, (key, 0), kind).await
    }

    /// Takes the reservation from the host registered with `victim`, whose commands are ended and whose
    /// registration is removed.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub async fn preempt(&self, key: u64, victim: u64, kind: Type) -> Result<(), Error> {
        self.take(AcquireAction::PreemptAndAbort, (key, victim), kind).await
    }

    /// The hosts that are registered.
    ///
    /// # Errors
    /// See [`Namespace`]; [`Error::Unsupported`] for more than one transfer has room for, or a report that is cut short.
    pub async fn registrants(&self) -> Result<Vec<Registrant>, Error> {
        let mut room = REGISTRANTS_FIRST;
        loop {
            let report = self.report(room).await?;
            let (count, found) = registrants_in(&report, room)?;
            if count <= room {
                return Ok(found);
            }
            // More may come between one report and the next.
            room = count;
        }
    }

    /// A report with room for so many registrants.
    async fn report(&self, registrants: usize) -> Result<Buffer, Error> {
        let bytes =
            size_of::<ExtendedStatusHeader>() + registrants * size_of::<RegistrantExtended>();
        if bytes > usize32(self.geometry().transfer_max_bytes).min(reactor::BUFFER_MAX) {
            let words =
                format!("{registrants} registered hosts are more than one transfer tells of");
            return Err(Error::Unsupported(words));
        }
        let mut buffer = Buffer::new(bytes).await;
        let bytes = u32_of(bytes);
        // Number of Dwords, 0's based; Extended Data Structure.
        let mut sqe = self.reserve(io::RESERVATION_REPORT, bytes / 4 - 1);
        sqe.cdw11 = 1.into();
        let data = buffer.receive(bytes);
        self.move_data("Reservation Report", Effect::None, sqe, data, &mut buffer).await?;
        Ok(buffer)
    }

    async fn take(
        &self,
        action: AcquireAction,
        (key, victim): (u64, u64),
        kind: Type,
    ) -> Result<(), Error> {
        let data = AcquireData { crkey: key.into(), prkey: victim.into() };
        let cdw10 = u32::from(action.raw()) | u32::from(kind.raw()) << 8;
        let sqe = self.reserve(io::RESERVATION_ACQUIRE, cdw10);
        // Acquiring twice is acquiring; who is preempted is not there to be preempted again.
        let again = action == AcquireAction::Acquire;
        let effect = if again { Effect::Same } else { Effect::Once };
        self.order("Reservation Acquire", effect, sqe, Data::copy_of(data.as_bytes())).await
    }

    fn reserve(&self, opcode: u8, cdw10: u32) -> Sqe {
        let mut sqe = Sqe::new(opcode, 0, self.inner.life.nsid());
        sqe.cdw10 = cdw10.into();
        sqe
    }
}

/// How many are registered, and of these as many as the report has room for.
fn registrants_in(report: &[u8], room: usize) -> Result<(usize, Vec<Registrant>), Error> {
    let cut = || Error::Unsupported("a reservation report is cut short".to_owned());
    let (status, rest) = ExtendedStatusHeader::read_from_prefix(report).map_err(|_| cut())?;
    let count = usize::from(status.head.regstrnt.get());
    let entries = rest.chunks_exact(size_of::<RegistrantExtended>()).take(count.min(room));
    let read = |bytes| RegistrantExtended::read_from_bytes(bytes).map_err(|_| cut());
    let found = entries.map(|bytes| {
        let one = read(bytes)?;
        let holds = one.rcsts & RCSTS_HOLDS != 0;
        Ok(Registrant { key: one.rkey.get(), host: one.hostid, holds })
    });
    Ok((count, found.collect::<Result<_, Error>>()?))
}

/// Whether a command that is sent again is answered in this way because it was executed the first time: who has been
/// unregistered is not registered.
pub(super) fn is_done_before(sqe: &Sqe, status: Status) -> bool {
    const RREGA: u32 = 0b111;
    sqe.opcode == io::RESERVATION_REGISTER
        && sqe.cdw10.get() & RREGA == u32::from(RegisterAction::Unregister.raw())
        && status.is(Status::RESERVATION_CONFLICT)
}
