//! What can go wrong between a host and a controller, as kinds to act on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fabric::{TransportAddress, host};
use nvme::fabrics::{ConnectData, ConnectInvalid};
use nvme::status::Status;

/// Why the host side failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The transport address is not one.
    #[error("cannot resolve `{traddr}`: {source}")]
    Resolve {
        /// Transport address given.
        traddr: String,
        /// The resolver's word.
        source: io::Error,
    },
    /// A name given is no NQN.
    #[error("`{name}`: {source}")]
    Nqn {
        /// The name.
        name: String,
        /// What is wrong with it.
        source: nvme::nqn::NqnError,
    },
    /// The connection could not be made or ended.
    #[error(transparent)]
    Transport(#[from] host::Error),
    /// The controller refused a Connect command.
    #[error("the controller refused Connect of queue {qid}: {}{}", name_of(*.status), field_of(*.invalid))]
    Refused {
        /// Queue.
        qid: u16,
        /// Status of the completion.
        status: Status,
        /// The field at fault, when the status is Connect Invalid Parameters.
        invalid: Option<ConnectInvalid>,
    },
    /// A command failed.
    #[error("{command} failed: {status}")]
    Command {
        /// Name of the command.
        command: &'static str,
        /// Status of the completion.
        status: Status,
    },
    /// A command was not answered.
    #[error("{command} was not answered within {} ms", .after.as_millis())]
    Timeout {
        /// Name of the command.
        command: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The controller reports CSTS.CFS.
    #[error("the controller reports a fatal error (CSTS.CFS)")]
    Fatal,
    /// What the controller answered makes no sense.
    #[error("the controller's answer is invalid: {0}")]
    Answer(&'static str),
    /// A direct write window was granted, and cannot be had here.
    #[error("cannot have the direct write window that was granted: {source}")]
    Window {
        /// Why.
        source: io::Error,
    },
    /// What a connection belongs to is gone.
    #[error("{0}")]
    Lost(&'static str),
    /// The connection that a command was on ended; several commands share the reason.
    #[error(transparent)]
    Ended(Arc<Error>),
    /// The controller is away, and is being connected again: what to do meanwhile is the caller's choice.
    #[error("the controller has been away for {} ms: {why}", .after.as_millis())]
    Away {
        /// For how long.
        after: Duration,
        /// What happened to the association.
        why: Arc<Error>,
    },
    /// The controller did not come back in time. Nothing more can be done with the namespace.
    #[error("the controller did not come back within {} ms: {why}", .after.as_millis())]
    Gone {
        /// How long it had.
        after: Duration,
        /// The last attempt's failure.
        why: Arc<Error>,
    },
    /// A command that changes something was lost on its way. It may have been executed, in part as well, or may
    /// still be, until the controller has noticed that the association is lost.
    #[error("the outcome of a command in flight is not known: {0}")]
    InDoubt(Arc<Error>),
    /// The namespace is not there any more.
    #[error("namespace {0} has been removed")]
    Removed(u32),
    /// Another namespace has taken its place.
    #[error("namespace {0} is not the one it was")]
    Replaced(u32),
    /// A request goes beyond what the controller supports.
    #[error("{0}")]
    Unsupported(String),
    /// A reactor could not be started for a blocking question.
    #[error("cannot start a reactor: {0}")]
    Reactor(#[from] reactor::Error),
}

fn name_of(status: Status) -> String {
    let name = status.fabrics_name().unwrap_or("reserved status");
    format!("{name} ({:#x}/{:#04x})", status.code_type(), status.code())
}

fn field_of(invalid: Option<ConnectInvalid>) -> String {
    let Some(invalid) = invalid else { return String::new() };
    match (invalid.in_data, invalid.offset) {
        (true, ConnectData::HOSTID_AT) => ": HOSTID".to_owned(),
        (true, ConnectData::CNTLID_AT) => ": CNTLID".to_owned(),
        (true, ConnectData::SUBNQN_AT) => ": SUBNQN".to_owned(),
        (true, ConnectData::HOSTNQN_AT) => ": HOSTNQN".to_owned(),
        (true, offset) => format!(": byte {offset} of the Connect data"),
        (false, offset) => format!(": byte {offset} of the submission queue entry"),
    }
}

impl Error {
    /// What to do about it, where something can be said.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Resolve { .. } => Some("give an IP address, or a name that resolves"),
            Self::Nqn { .. } => Some("an NQN looks like nqn.2026-11.io.flashloom:name"),
            Self::Transport(error) => transport_advice(error),
            Self::Ended(why)
            | Self::Away { why, .. }
            | Self::Gone { why, .. }
            | Self::InDoubt(why) => why.advice(),
            Self::Refused { status, invalid, .. } => refusal_advice(*status, *invalid),
            Self::Window { .. } => Some(
                "by shm the host runs on the target's machine, and may read and write its socket; by RDMA the target says what is in the way, \
                 and memory that may be locked is needed at both ends",
            ),
            Self::Timeout { .. } => Some("the target is stuck or the network drops packets"),
            Self::Command { status, .. } if status.is(Status::INVALID_NAMESPACE_OR_FORMAT) => {
                Some("no such namespace in this subsystem: check --nsid")
            }
            _ => None,
        }
    }
}

fn transport_advice(error: &host::Error) -> Option<&'static str> {
    Some(match error {
        host::Error::Connect { source, address } => match (source.kind(), address) {
            (io::ErrorKind::ConnectionRefused, _) => {
                "nothing listens there: check --traddr and --trsvcid, and that the target runs"
            }
            (io::ErrorKind::NetworkUnreachable, TransportAddress::Rdma(_)) => {
                "`rdma link` lists the RDMA devices of this machine, and the network interface of each"
            }
            (io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable, _) => {
                "no route to that address"
            }
            (io::ErrorKind::TimedOut, TransportAddress::Rdma(_)) => {
                "nobody answers there by RDMA: check the address, and that the target listens by RDMA"
            }
            _ => return None,
        },
        host::Error::Rejected { .. } => {
            "the target has no room for the queue, or not of that length: ask for fewer (--nr-io-queues), or shorter \
             ones (--queue-size)"
        }
        host::Error::Silent { address: TransportAddress::Rdma(_), .. } => {
            "check the address, and that the target listens by RDMA; or the network drops packets"
        }
        host::Error::Silent { .. } => {
            "something listens there, but it does not speak NVMe/TCP, or a firewall drops the answer"
        }
        host::Error::Protocol(_) => "what listens there does not speak its protocol correctly",
        _ => return None,
    })
}

fn refusal_advice(status: Status, invalid: Option<ConnectInvalid>) -> Option<&'static str> {
    if status.is(Status::CONNECT_INVALID_HOST) {
        return Some("the subsystem does not allow this host NQN: add it there, or use --hostnqn");
    }
    if status.is(Status::CONNECT_CONTROLLER_BUSY) {
        return Some("the subsystem has no controller left: disconnect another host, or try later");
    }
    match invalid {
        Some(ConnectInvalid { in_data: true, offset: ConnectData::SUBNQN_AT }) => {
            Some("no such subsystem there: `flashloom discover` lists those this host may see")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_subsystem_is_told_in_words() {
        let invalid = Some(ConnectInvalid { offset: 256, in_data: true });
        let status = Status::CONNECT_INVALID_PARAMETERS.with_dnr();
        let error = Error::Refused { qid: 0, status, invalid };
        assert_eq!(
            error.to_string(),
            "the controller refused Connect of queue 0: Connect Invalid Parameters (0x1/0x82): SUBNQN"
        );
        assert!(error.advice().unwrap().contains("flashloom discover"));
    }

    #[test]
    fn a_refused_host_is_told_what_to_do() {
        let status = Status::CONNECT_INVALID_HOST;
        let error = Error::Refused { qid: 0, status, invalid: None };
        assert!(error.to_string().contains("Connect Invalid Host"), "{error}");
        assert!(error.advice().unwrap().contains("--hostnqn"));
    }
}
