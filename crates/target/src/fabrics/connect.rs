//! Connect (Base 2.1 section 6.3): a connection becomes a queue of a controller.

use std::sync::Arc;

use nvme::ana;
use nvme::fabrics::{
    CNTLID_DYNAMIC, Command, Connect, ConnectData, ConnectInvalid, ConnectResponse,
};
use nvme::nqn::Nqn;
use nvme::sqe::Sqe;
use nvme::status::Status;

use crate::controller::{Association, Controller, Kind, Path, QueueLease};
use crate::controller::{CQE_LOG2, SQE_LOG2};
use crate::host::Host;
use crate::limits::{ADMIN_QUEUE_ENTRIES_MAX, IO_QUEUE_ENTRIES_MAX, KEEP_ALIVE_MS_MAX};
use crate::registry::{Registry, Target};

/// A Connect as it arrived.
#[derive(Clone, Copy)]
pub struct ConnectParams<'a> {
    pub sqe: &'a Sqe,
    /// The command's data: 1024 bytes.
    pub data: &'a ConnectData,
    /// Where the connection came in.
    pub path: Path,
    /// Reactor nanoseconds.
    pub now: u64,
}

/// A queue that is connected.
#[derive(Debug)]
pub struct Connected {
    /// The queue; dropping it ends it.
    pub lease: QueueLease,
    /// Entries of the submission queue, 1's based.
    pub entries: u16,
    /// SQ flow control is off, as the host asked: SQHD of this and every later completion of the
    /// queue is reserved, and FFFFh in this one tells the host so.
    pub flow_control_disabled: bool,
    /// DW0 of the successful completion.
    pub dw0: u32,
}

impl Connected {
    #[must_use]
    pub fn controller(&self) -> &Arc<Controller> {
        self.lease.controller()
    }
}

/// A Connect that failed: what its completion carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: Status,
    /// DW0: for Connect Invalid Parameters which field was wrong, else 0.
    pub dw0: u32,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self { status: status.with_dnr(), dw0: 0 }
    }
}

/// Byte offsets in the entry of what a Connect can have wrong.
mod sqe_at {
    pub const QID: u16 = 42;
    pub const SQSIZE: u16 = 44;
}

fn invalid_command(offset: u16) -> Refusal {
    invalid(ConnectInvalid { offset, in_data: false })
}

fn invalid_data(offset: u16) -> Refusal {
    invalid(ConnectInvalid { offset, in_data: true })
}

fn invalid(which: ConnectInvalid) -> Refusal {
    Refusal { status: Status::CONNECT_INVALID_PARAMETERS.with_dnr(), dw0: which.to_dw0() }
}

/// Decides on a Connect.
///
/// # Errors
/// What the completion of the refused command carries. Nothing changed; the host may try again on
/// the same connection.
pub fn connect(target: &Target, params: &ConnectParams<'_>) -> Result<Connected, Refusal> {
    let command = match Command::parse(params.sqe) {
        Ok(Command::Connect(connect)) => connect,
        // Before Connect nothing else is allowed (section 3.3.2.2).
        Ok(_) => return Err(Status::COMMAND_SEQUENCE_ERROR.into()),
        Err(refusal) => return Err(refusal.status().into()),
    };
    check_command(&command)?;
    let subsystem =
        Nqn::from_field(&params.data.subnqn).map_err(|_| invalid_data(ConnectData::SUBNQN_AT))?;
    let nqn =
        Nqn::from_field(&params.data.hostnqn).map_err(|_| invalid_data(ConnectData::HOSTNQN_AT))?;
    let host = Host { nqn, id: params.data.hostid };
    let lease = if command.qid == 0 {
        connect_admin(target, params, &command, subsystem, host)?
    } else {
        connect_io(target, params, &command, &subsystem, &host)?
    };
    lease.controller().touch(params.now);
    let response = ConnectResponse { cntlid: lease.controller().cntlid(), authreq: 0 };
    Ok(Connected {
        dw0: response.to_dw0(),
        lease,
        entries: command.sqsize.saturating_add(1),
        flow_control_disabled: command.attributes.disable_sq_flow_control(),
    })
}

/// What can be judged from the entry alone.
fn check_command(command: &Connect) -> Result<(), Refusal> {
    if command.recfmt != 0 {
        return Err(Status::CONNECT_INCOMPATIBLE_FORMAT.into());
    }
    let entries_max = match command.qid {
        0 => ADMIN_QUEUE_ENTRIES_MAX,
        _ => IO_QUEUE_ENTRIES_MAX,
    };
    // 0's based: at least two entries, because a queue with one can hold none.
    if command.sqsize == 0 || command.sqsize >= entries_max {
        return Err(invalid_command(sqe_at::SQSIZE));
    }
    // On an I/O queue the field is reserved.
    if command.qid == 0 && command.kato > KEEP_ALIVE_MS_MAX {
        return Err(Status::KEEP_ALIVE_TIMEOUT_INVALID.into());
    }
    Ok(())
}

/// The admin queue: a new controller. Only the dynamic controller model is offered, so the host
/// must leave the choice of controller to us (CNTLID FFFFh).
fn connect_admin(
    target: &Target,
    params: &ConnectParams<'_>,
    command: &Connect,
    subsystem: Nqn,
    host: Host,
) -> Result<QueueLease, Refusal> {
    let mut registry = target.lock();
    let listener = registry.listeners.get(&params.path.listener);
    let discovery_only = listener.is_some_and(|info| info.discovery_only);
    let ana = listener.map_or(ana::State::Optimized, |info| info.ana);
    let (kind, controllers) = if subsystem.is_discovery() {
        (Kind::Discovery, &mut registry.discovery)
    } else {
        let Some(found) = registry.subsystems.get_mut(&subsystem).filter(|_| !discovery_only)
        else {
            return Err(invalid_data(ConnectData::SUBNQN_AT));
        };
        if !found.admission.admits(&host.nqn) {
            return Err(Status::CONNECT_INVALID_HOST.into());
        }
        (Kind::Io, &mut found.controllers)
    };
    if params.data.cntlid.get() != CNTLID_DYNAMIC {
        return Err(invalid_data(ConnectData::CNTLID_AT));
    }
    // Not "do not retry": controllers come and go.
    let cntlid =
        controllers.free_id().ok_or(Refusal { status: Status::CONNECT_CONTROLLER_BUSY, dw0: 0 })?;
    let association = Association {
        kind,
        subsystem,
        cntlid,
        host,
        path: params.path,
        ana,
        kato: command.kato,
        now: params.now,
    };
    let controller = Controller::new(target, association);
    let lease = controller.lock().lease(&controller, 0);
    controllers.insert(controller);
    Ok(lease)
}

/// An I/O queue: it joins the controller that its admin queue made, if host and controller are
/// the ones of that association (section 3.3.2.2).
fn connect_io(
    target: &Target,
    params: &ConnectParams<'_>,
    command: &Connect,
    subsystem: &Nqn,
    host: &Host,
) -> Result<QueueLease, Refusal> {
    let controller = {
        let registry = target.lock();
        find_associated(&registry, params, subsystem, host)?
    };
    // A discovery controller has no I/O queues.
    if controller.is_discovery() {
        return Err(invalid_command(sqe_at::QID));
    }
    let mut state = controller.lock();
    if state.queues.ended() {
        return Err(invalid_data(ConnectData::CNTLID_AT));
    }
    if command.qid > state.features.io_queues {
        return Err(invalid_command(sqe_at::QID));
    }
    let shutting_down = state.csts.shst() != Some(nvme::property::ShutdownStatus::Normal);
    let ready = state.cc.enabled() && state.csts.ready();
    if !ready || shutting_down || state.queues.contains(command.qid) {
        return Err(Status::COMMAND_SEQUENCE_ERROR.into());
    }
    if state.cc.iosqes() != SQE_LOG2 || state.cc.iocqes() != CQE_LOG2 {
        return Err(invalid_command(sqe_at::SQSIZE));
    }
    state.features.queues_created = true;
    Ok(state.lease(&controller, command.qid))
}

fn find_associated(
    registry: &Registry,
    params: &ConnectParams<'_>,
    subsystem: &Nqn,
    host: &Host,
) -> Result<Arc<Controller>, Refusal> {
    let cntlid = params.data.cntlid.get();
    let found = if subsystem.is_discovery() {
        registry.discovery.get(cntlid)
    } else {
        let Some(known) = registry.subsystems.get(subsystem) else {
            return Err(invalid_data(ConnectData::SUBNQN_AT));
        };
        if !known.admission.admits(&host.nqn) {
            return Err(Status::CONNECT_INVALID_HOST.into());
        }
        known.controllers.get(cntlid)
    };
    let controller = found.ok_or(invalid_data(ConnectData::CNTLID_AT))?;
    if controller.host().nqn != host.nqn {
        return Err(invalid_data(ConnectData::HOSTNQN_AT));
    }
    if controller.host().id != host.id {
        return Err(invalid_data(ConnectData::HOSTID_AT));
    }
    Ok(Arc::clone(controller))
}
