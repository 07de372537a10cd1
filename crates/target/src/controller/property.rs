//! Properties (Base 2.1 section 3.1.4), and the controller's life that hosts steer through them:
//! enable, reset, shutdown (sections 3.5, 3.6, 3.7).

use nvme::fabrics::{PropertyGet, PropertySet};
use nvme::property::{
    Arbitration, Cap, Cc, CommandSetSelected, Crto, Csts, ShutdownNotification, ShutdownStatus,
    Version, offset,
};
use nvme::status::Status;

use super::queues::end;
use super::{Controller, Kind, State};
use crate::limits::{ADMIN_QUEUE_ENTRIES_MAX, IO_QUEUE_ENTRIES_MAX, READY_TIMEOUT};
use crate::queue::remote::RemoteQueue;

/// Binary logarithms of the entry sizes: 64 and 16 bytes (CC.IOSQES, CC.IOCQES).
pub(crate) const SQE_LOG2: u8 = 6;
pub(crate) const CQE_LOG2: u8 = 4;

impl Controller {
    /// Controller Capabilities. Queues are contiguous in no one's memory, but hosts expect CQR;
    /// there is no NVM Subsystem Reset and one memory page size, 4 KiB.
    pub(crate) fn capabilities(&self) -> Cap {
        let common = Cap::CQR | Cap::CSS_NVM | Cap::CRWMS;
        match self.kind {
            Kind::Io => Cap::new(IO_QUEUE_ENTRIES_MAX - 1, READY_TIMEOUT, common | Cap::CSS_IOCSS),
            Kind::Discovery => Cap::new(ADMIN_QUEUE_ENTRIES_MAX - 1, READY_TIMEOUT, common),
        }
    }

    /// Property Get: the value, zero-extended.
    ///
    /// # Errors
    /// Invalid Field in Command for a property this controller does not have.
    pub(crate) fn property_get(&self, get: PropertyGet) -> Result<u64, Status> {
        Ok(match get.offset {
            offset::CAP => self.capabilities().0,
            offset::VS => u64::from(Version::V2_1.0),
            offset::CC => u64::from(self.lock().cc.0),
            offset::CSTS => {
                let mut state = self.lock();
                state.finish(self.association.has_left());
                u64::from(state.csts.0)
            }
            offset::CRTO => u64::from(Crto::new(u16::from(READY_TIMEOUT), 0).0),
            _ => return Err(Status::INVALID_FIELD.with_dnr()),
        })
    }

    /// Property Set. Only CC can be written; writing CSTS has nothing to clear here, as there is
    /// no NVM Subsystem Reset to have occurred.
    ///
    /// # Errors
    /// Invalid Field in Command for a property this controller does not have, or that is read
    /// only.
    pub(crate) fn property_set(&self, set: PropertySet) -> Result<(), Status> {
        let Ok(value) = u32::try_from(set.value) else {
            return Err(Status::INVALID_FIELD.with_dnr());
        };
        match set.offset {
            offset::CC => {
                let now = self.now();
                let mut state = self.lock();
                // Known before anything is complete: one that may have a window waits for its end.
                let leaving = self.association.has_asked().then(|| self.association.leaves());
                let ending = state.configure(Cc(value), now, leaving.is_none());
                self.set_permits(&state);
                let serves =
                    state.cc.enabled() && state.csts.shst() == Some(ShutdownStatus::Normal);
                Self::wake_if_due(state);
                end(ending);
                if !serves && leaving.is_some() {
                    self.end_windows_first();
                }
                drop(leaving);
                self.lock().finish(self.association.has_left());
                Ok(())
            }
            _ => Err(Status::INVALID_FIELD.with_dnr()),
        }
    }
}

/// Whether this controller can run as `cc` wants: 4 KiB pages, round robin, a command set it has,
/// no bit that is reserved.
fn is_supported(cc: Cc) -> bool {
    let css = matches!(
        cc.css(),
        Some(CommandSetSelected::Nvm | CommandSetSelected::All | CommandSetSelected::AdminOnly)
    );
    css && cc.mps() == 0
        && cc.ams() == Some(Arbitration::RoundRobin)
        && cc.0 & Cc::RESERVED == 0
        && !cc.crime()
}

impl State {
    /// A write of CC. Returns the queues that end by it.
    fn configure(&mut self, cc: Cc, now: u64, has_left: bool) -> Vec<RemoteQueue> {
        let before = core::mem::replace(&mut self.cc, cc);
        let mut ending = Vec::new();
        match (before.enabled(), cc.enabled()) {
            (true, false) => ending = self.reset(now, has_left),
            (false, true) => self.enable(cc),
            _ => {}
        }
        let asked =
            matches!(cc.shn(), Some(ShutdownNotification::Normal | ShutdownNotification::Abrupt));
        if asked && self.csts.shst() == Some(ShutdownStatus::Normal) {
            ending.extend(self.shut_down(now, has_left));
        }
        ending
    }

    /// CC.EN became 1. Ready at once, or fatal when the configuration is not one the controller
    /// has (section 3.5.3).
    fn enable(&mut self, cc: Cc) {
        if is_supported(cc) {
            self.csts = Csts::new(true, self.csts.fatal(), ShutdownStatus::Normal);
            self.disabled_since = None;
        } else {
            self.csts = Csts(self.csts.0 | Csts::CFS);
        }
    }

    /// CC.EN became 0: a Controller Level Reset (section 3.7.2). I/O queues end, parked requests
    /// are aborted, features return to their defaults; the admin queue's association lives on.
    /// CSTS.RDY becomes 0 when the last command has ended: a host takes that for proof.
    fn reset(&mut self, now: u64, has_left: bool) -> Vec<RemoteQueue> {
        let draining = self.queues.io_count() > 0 || !has_left;
        self.csts = Csts::new(draining, false, ShutdownStatus::Normal);
        self.disabled_since = Some(now);
        self.events.reset();
        self.features.reset(now);
        self.changed = super::Changed::default();
        self.event_context = None;
        self.access.reset();
        self.close_io_queues()
    }

    /// CC.SHN was set: I/O queues drain and end; complete when none is left (section 3.6.2).
    /// Normal and abrupt differ only in what the host has done before.
    fn shut_down(&mut self, now: u64, has_left: bool) -> Vec<RemoteQueue> {
        self.set_shutdown_status(ShutdownStatus::Occurring);
        self.disabled_since = Some(now);
        let ending = self.close_io_queues();
        self.finish(has_left);
        ending
    }

    pub fn set_shutdown_status(&mut self, status: ShutdownStatus) {
        self.csts = Csts::new(self.csts.ready(), self.csts.fatal(), status);
    }
}
