//! Asymmetric Namespace Access of one controller (Base 2.1, section 8.1.1). The namespaces of a subsystem are in
//! one ANA group, whose state is that of the listener which the controller was connected through; but for those
//! whose backend cannot be reached for now: these are in another, which is inaccessible. Hosts hold back what they have for
//! such a namespace, for as long as it takes; to one that was not listed they would have given up at once.

use std::sync::atomic::Ordering;

use nvme::ana::{self, Group};
use nvme::property::{CommandSetSelected, ShutdownStatus};
use nvme::status::Status;

use super::{Controller, State};
use crate::namespace::Namespace;

/// ANA group (ANAGRPID) of the namespaces that are there.
pub(crate) const GROUP: u32 = 1;
/// ANA group of the namespaces whose backend cannot be reached for now.
pub(crate) const INACCESSIBLE_GROUP: u32 = 2;
/// How many ANA groups there are (NANAGRPID), which is the highest identifier of one, too (ANAGRPMAX).
pub(crate) const GROUPS: u32 = 2;

impl Namespace {
    /// The ANA group that it is in now.
    pub(crate) fn ana_group(&self) -> u32 {
        if self.backend.is_inaccessible() { INACCESSIBLE_GROUP } else { GROUP }
    }

    /// Its ANA state on a controller whose listener has `state`.
    pub(crate) fn ana(&self, state: ana::State) -> ana::State {
        if self.backend.is_inaccessible() { ana::State::Inaccessible } else { state }
    }
}

/// [`Controller::permits`] when no I/O command is processed; else it is the ANA state.
pub(super) const NO_IO: u8 = 0;

/// What the controller says of the access to its namespaces.
#[derive(Debug)]
pub(crate) struct Access {
    state: ana::State,
    /// Times that the log page was found changed since the last Controller Level Reset (CHGCNT).
    changes: u64,
    /// The groups' namespaces as the log page had them last.
    nsids: Option<[Vec<u32>; 2]>,
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

    /// Refuses an admin command that needs a namespace which cannot be accessed.
    pub(crate) fn permit_namespace(&self, namespace: &Namespace) -> Result<(), Status> {
        namespace.ana(self.ana()).refusal().map_or(Ok(()), Err)
    }

    /// ANA state of every namespace of this controller whose backend is there.
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
        let view = self.view();
        let of = |group| {
            view.iter().filter(|namespace| namespace.ana_group() == group).map(|n| n.nsid).collect()
        };
        let nsids: [Vec<u32>; 2] = [of(GROUP), of(INACCESSIBLE_GROUP)];
        let mut state = self.lock();
        let access = &mut state.access;
        if access.nsids.replace(nsids.clone()).is_some_and(|before| before != nsids) {
            access.changes = access.changes.wrapping_add(1);
        }
        let (change_count, state) = (access.changes, access.state);
        let [here, absent] = nsids;
        let groups = [
            Group { id: GROUP, change_count, state, nsids: here },
            Group {
                id: INACCESSIBLE_GROUP,
                change_count,
                state: ana::State::Inaccessible,
                nsids: absent,
            },
        ];
        ana::page(change_count, &groups, groups_only)
    }
}
