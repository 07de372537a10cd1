//! Asymmetric Namespace Access of one controller (Base 2.1, section 8.1.1): every namespace of the subsystem is
//! in one ANA group, whose state is that of the listener which the controller was connected through.

use std::sync::atomic::Ordering;

use nvme::ana::{self, Group};
use nvme::property::{CommandSetSelected, ShutdownStatus};
use nvme::status::Status;

use super::{Controller, State};

/// The one ANA group there is (ANAGRPID).
pub(crate) const GROUP: u32 = 1;

/// [`Controller::permits`] when no I/O command is processed; else it is the ANA state.
pub(super) const NO_IO: u8 = 0;

/// What the controller says of the access to its namespaces.
#[derive(Debug)]
pub(crate) struct Access {
    state: ana::State,
    /// Times that the log page was found changed since the last Controller Level Reset (CHGCNT).
    changes: u64,
    /// The group's namespaces as the log page had them last.
    nsids: Option<Vec<u32>>,
}

impl Access {
    pub fn new(state: ana::State) -> Self {
        Self { state, changes: 0, nsids: None }
    }

    /// A Controller Level Reset: the change count starts at 0 again.
    pub fn reset(&mut self) {
        *self = Self::new(self.state);
    }
}

impl Controller {
    /// Whether I/O commands are processed: the controller is ready, not shutting down, and runs
    /// with an I/O Command Set selected (CC.CSS).
    #[must_use]
    pub fn serves_io(&self) -> bool {
        self.permits.load(Ordering::Acquire) != NO_IO
    }

    /// Refuses a command on an I/O queue when none are processed, or when the namespaces cannot be
    /// accessed through this controller (section 8.1.1.5 and following). One plain load.
    ///
    /// # Errors
    /// The status that the command ends with.
    #[inline]
    pub fn permit_io(&self) -> Result<(), Status> {
        match ana::State::from_raw(self.permits.load(Ordering::Acquire)) {
            Some(state) => state.refusal().map_or(Ok(()), Err),
            None => Err(Status::COMMAND_SEQUENCE_ERROR),
        }
    }

    /// Refuses an admin command that needs the namespaces when they cannot be accessed.
    pub(crate) fn permit_namespaces(&self) -> Result<(), Status> {
        self.ana().refusal().map_or(Ok(()), Err)
    }

    /// ANA state of every namespace of this controller.
    #[must_use]
    pub fn ana(&self) -> ana::State {
        self.lock().access.state
    }

    /// Notes the ANA state; commands that come from now on obey it, those that run finish. Returns
    /// whether it is another one.
    pub(crate) fn set_ana(&self, new: ana::State) -> bool {
        let mut state = self.lock();
        if state.access.state == new {
            return false;
        }
        state.access.state = new;
        state.access.changes = state.access.changes.wrapping_add(1);
        self.set_permits(&state);
        true
    }

    pub(crate) fn set_permits(&self, state: &State) {
        let shutting_down = state.csts.shst() != Some(ShutdownStatus::Normal);
        let io = !matches!(state.cc.css(), None | Some(CommandSetSelected::AdminOnly));
        let ready = state.cc.enabled() && state.csts.ready();
        let serves = ready && !state.csts.fatal() && !shutting_down && io;
        let permits = if serves { state.access.state.raw() } else { NO_IO };
        self.permits.store(permits, Ordering::Release);
    }

    /// The Asymmetric Namespace Access log page (section 5.1.12.1.13). A namespace that came or
    /// went since it was read last is a change of the page.
    pub(crate) fn ana_log(&self, groups_only: bool) -> Vec<u8> {
        let nsids: Vec<_> = self.view().iter().map(|namespace| namespace.nsid).collect();
        let mut state = self.lock();
        let access = &mut state.access;
        if access.nsids.replace(nsids.clone()).is_some_and(|before| before != nsids) {
            access.changes = access.changes.wrapping_add(1);
        }
        let group = Group { id: GROUP, change_count: access.changes, state: access.state, nsids };
        ana::page(access.changes, &[group], groups_only)
    }
}
