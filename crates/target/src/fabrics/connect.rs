//! Connect (Base 2.1 section 6.3): a connection becomes a queue of a controller.

use std::sync::Arc;

use nvme::ana;
use nvme::fabrics::{CNTLID_DYNAMIC, Command, Connect, ConnectData, ConnectResponse};
use nvme::nqn::{Nqn, NqnError};
use nvme::sqe::Sqe;

use super::{Refusal, Why};
use crate::budget::{Seat, Share, address_owner};
use crate::controller::{Association, Controller, Kind, Path, QueueLease};
use crate::controller::{CQE_LOG2, SQE_LOG2};
use crate::host::{Admission, Host, UNNAMED};
use crate::limits::{
    ADDRESS_CONTROLLERS_MAX, ADMIN_QUEUE_ENTRIES_MAX, HOST_CONTROLLERS_ENDED, IO_QUEUE_ENTRIES_MAX,
    KEEP_ALIVE_MS_MAX,
};
use crate::refusals::Refused;
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
    /// The queue's part of what its host may have of this reactor.
    pub seat: Seat,
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

/// Decides on a Connect.
///
/// # Errors
/// What the completion of the refused command carries; it is counted, and told. Nothing else changed; the host may
/// try again on the same connection.
pub fn connect(target: &Target, params: &ConnectParams<'_>) -> Result<Connected, Refusal> {
    decide(target, params).map_err(|why| {
        target.refusals.note(Refused::new(params.data, params.path.peer.socket(), why), params.now);
        why.refusal()
    })
}

fn decide(target: &Target, params: &ConnectParams<'_>) -> Result<Connected, Why> {
    let command = match Command::parse(params.sqe) {
        Ok(Command::Connect(connect)) => connect,
        // Before Connect nothing else is allowed (section 3.3.2.2).
        Ok(_) => return Err(Why::NotConnect),
        Err(refusal) => return Err(Why::Malformed(refusal.status())),
    };
    check_command(&command)?;
    let subsystem = Nqn::from_field(&params.data.subnqn).map_err(|_| Why::SubsystemName)?;
    let host = Host { nqn: host_name(target, params.data)?, id: params.data.hostid };
    let address = params.path.peer.traddr();
    let share = if subsystem.is_discovery() {
        Share::of_address(address)
    } else {
        Share::of_host(host.nqn.as_str(), address)
    };
    let lease = if command.qid == 0 {
        connect_admin(target, params, &command, subsystem, host)?
    } else {
        connect_io(target, params, &command, &subsystem, &host)?
    };
    let entries = command.sqsize.saturating_add(1);
    let seat = share.seat(entries).ok_or(Why::NoEntries)?;
    lease.controller().touch(params.now);
    let response = ConnectResponse { cntlid: lease.controller().cntlid(), authreq: 0 };
    Ok(Connected {
        dw0: response.to_dw0(),
        lease,
        seat,
        entries,
        flow_control_disabled: command.attributes.disable_sq_flow_control(),
    })
}

/// The host's name. Section 6.3 wants one; but SPDK's perf tool, with which arrays are measured, sends none unless it
/// is told to, so that a host without one is admitted where any host is, under a name that says so.
fn host_name(target: &Target, data: &ConnectData) -> Result<Nqn, Why> {
    match Nqn::from_field(&data.hostnqn) {
        Ok(nqn) => Ok(nqn),
        Err(NqnError::Empty) if target.strict_host_names() => Err(Why::Unnamed),
        Err(NqnError::Empty) => Nqn::new(UNNAMED).map_err(|_| Why::HostName),
        Err(_) => Err(Why::HostName),
    }
}

/// Refuses a host that a subsystem does not admit.
fn admit(admission: &Admission, host: &Nqn) -> Result<(), Why> {
    match admission.admits(host) {
        true => Ok(()),
        false if host.as_str() == UNNAMED => Err(Why::Unnamed),
        false => Err(Why::HostNotAllowed),
    }
}

/// What can be judged from the entry alone.
fn check_command(command: &Connect) -> Result<(), Why> {
    if command.recfmt != 0 {
        return Err(Why::RecordFormat);
    }
    let entries_max = match command.qid {
        0 => ADMIN_QUEUE_ENTRIES_MAX,
        _ => IO_QUEUE_ENTRIES_MAX,
    };
    // 0's based: at least two entries, because a queue with one can hold none.
    if command.sqsize == 0 || command.sqsize >= entries_max {
        return Err(Why::QueueSize);
    }
    // On an I/O queue the field is reserved.
    if command.qid == 0 && command.kato > KEEP_ALIVE_MS_MAX {
        return Err(Why::KeepAlive);
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
) -> Result<QueueLease, Why> {
    let mut registry = target.lock();
    let listener = registry.listeners.get(&params.path.listener);
    let discovery_only = listener.is_some_and(|info| info.discovery_only);
    let ana = listener.map_or(ana::State::Optimized, |info| info.ana);
    let (kind, controllers) = if subsystem.is_discovery() {
        (Kind::Discovery, &mut registry.discovery)
    } else {
        if discovery_only {
            return Err(Why::DiscoveryOnly);
        }
        let found = registry.subsystems.get_mut(&subsystem).ok_or(Why::NoSubsystem)?;
        admit(&found.admission, &host.nqn)?;
        (Kind::Io, &mut found.controllers)
    };
    if params.data.cntlid.get() != CNTLID_DYNAMIC {
        return Err(Why::StaticController);
    }
    let count = |of: &dyn Fn(&Controller) -> bool| controllers.iter().filter(|c| of(c)).count();
    let of_host = kind == Kind::Io && {
        let most = target.host_controllers();
        // Those whose association ended and that a drive keeps are none of its paths: a drive that hangs would lock the
        // host out of all others. They take memory all the same.
        count(&|c| c.host().nqn == host.nqn && !c.has_ended()) >= most
            || count(&|c| c.host().nqn == host.nqn) >= most.saturating_mul(HOST_CONTROLLERS_ENDED)
    };
    let address = address_owner(params.path.peer.traddr());
    if of_host
        || count(&|c| address_owner(c.path().peer.traddr()) == address) >= ADDRESS_CONTROLLERS_MAX
    {
        return Err(Why::Busy);
    }
    let cntlid = controllers.free_id().ok_or(Why::Busy)?;
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
) -> Result<QueueLease, Why> {
    let controller = {
        let registry = target.lock();
        find_associated(&registry, params, subsystem, host)?
    };
    // A discovery controller has no I/O queues.
    if controller.is_discovery() {
        return Err(Why::QueueId);
    }
    let mut state = controller.lock();
    if state.queues.ended() {
        return Err(Why::NoController);
    }
    if command.qid > state.features.io_queues {
        return Err(Why::QueueId);
    }
    if !state.cc.enabled() || !state.csts.ready() {
        return Err(Why::Disabled);
    }
    if state.csts.shst() != Some(nvme::property::ShutdownStatus::Normal) {
        return Err(Why::ShuttingDown);
    }
    if state.queues.contains(command.qid) {
        return Err(Why::QueueInUse);
    }
    if state.cc.iosqes() != SQE_LOG2 || state.cc.iocqes() != CQE_LOG2 {
        return Err(Why::EntrySize);
    }
    state.features.queues_created = true;
    Ok(state.lease(&controller, command.qid))
}

fn find_associated(
    registry: &Registry,
    params: &ConnectParams<'_>,
    subsystem: &Nqn,
    host: &Host,
) -> Result<Arc<Controller>, Why> {
    let cntlid = params.data.cntlid.get();
    let found = if subsystem.is_discovery() {
        registry.discovery.get(cntlid)
    } else {
        let known = registry.subsystems.get(subsystem).ok_or(Why::NoSubsystem)?;
        admit(&known.admission, &host.nqn)?;
        known.controllers.get(cntlid)
    };
    let controller = found.ok_or(Why::NoController)?;
    if controller.host().nqn != host.nqn {
        return Err(Why::OtherHost);
    }
    // Of an I/O queue 0h is no Host Identifier, and ignored (section 6.3).
    if host.id != [0; 16] && controller.host().id != host.id {
        return Err(Why::OtherHostId);
    }
    Ok(Arc::clone(controller))
}
