//! Why a Connect is refused: what its completion carries, and what an operator is told.

use nvme::fabrics::{ConnectData, ConnectInvalid};
use nvme::status::Status;

/// A Connect that failed: what its completion carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: Status,
    /// DW0: for Connect Invalid Parameters which field was wrong, else 0.
    pub dw0: u32,
}

/// Byte offsets in the entry of what a Connect can have wrong.
mod sqe_at {
    pub const QID: u16 = 42;
    pub const SQSIZE: u16 = 44;
}

/// Why a Connect, or a command in its place, is refused. A closed set: each is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Another command came before it.
    NotConnect,
    /// The entry or its data cannot be read.
    Malformed(Status),
    RecordFormat,
    QueueSize,
    KeepAlive,
    SubsystemName,
    HostName,
    /// The host has no name, and the subsystem is for hosts by name.
    Unnamed,
    NoSubsystem,
    DiscoveryOnly,
    HostNotAllowed,
    /// The host asks for a controller by number: only the dynamic model is offered.
    StaticController,
    Busy,
    /// There is no such association, or it has ended.
    NoController,
    OtherHost,
    OtherHostId,
    QueueId,
    Disabled,
    ShuttingDown,
    QueueInUse,
    EntrySize,
    /// The host has its share of the entries that queues may have.
    NoEntries,
}

impl Why {
    /// How many there are.
    pub const COUNT: usize = 22;

    /// Its place among them.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::NotConnect => 0,
            Self::Malformed(_) => 1,
            Self::RecordFormat => 2,
            Self::QueueSize => 3,
            Self::KeepAlive => 4,
            Self::SubsystemName => 5,
            Self::HostName => 6,
            Self::Unnamed => 7,
            Self::NoSubsystem => 8,
            Self::DiscoveryOnly => 9,
            Self::HostNotAllowed => 10,
            Self::StaticController => 11,
            Self::Busy => 12,
            Self::NoController => 13,
            Self::OtherHost => 14,
            Self::OtherHostId => 15,
            Self::QueueId => 16,
            Self::Disabled => 17,
            Self::ShuttingDown => 18,
            Self::QueueInUse => 19,
            Self::EntrySize => 20,
            Self::NoEntries => 21,
        }
    }

    /// The reasons' names in metrics, by their places.
    pub const NAMES: [&'static str; Self::COUNT] = [
        "not_connect",
        "malformed",
        "record_format",
        "queue_size",
        "keep_alive_timeout",
        "subsystem_name",
        "host_name",
        "host_unnamed",
        "no_subsystem",
        "discovery_only",
        "host_not_allowed",
        "static_controller",
        "busy",
        "no_controller",
        "other_host",
        "other_host_identifier",
        "queue_identifier",
        "disabled",
        "shutting_down",
        "queue_in_use",
        "entry_size",
        "queue_entries",
    ];

    /// What is said of it in events.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NotConnect => "it sent another command before Connect",
            Self::Malformed(_) => "its Connect cannot be read",
            Self::RecordFormat => "its Connect has another record format",
            Self::QueueSize => "it asks for a queue of a size that there is not (SQSIZE)",
            Self::KeepAlive => "it asks for a Keep Alive Timeout that is too long (KATO)",
            Self::SubsystemName => "its SUBNQN is no NQN",
            Self::HostName => "its HOSTNQN is no NQN",
            Self::Unnamed => "its HOSTNQN is empty, and hosts are admitted by name",
            Self::NoSubsystem => "there is no such subsystem here",
            Self::DiscoveryOnly => "it came to a listener that is for discovery only",
            Self::HostNotAllowed => "it is not on the subsystem's list of hosts",
            Self::StaticController => "it asks for a controller by number (CNTLID)",
            Self::Busy => "no controller is left for it",
            Self::NoEntries => "no queue entries are left for it ([serving] queue-entries)",
            Self::NoController => "its association has ended (CNTLID)",
            Self::OtherHost => "the controller is another host's (HOSTNQN)",
            Self::OtherHostId => "the controller has another Host Identifier (HOSTID)",
            Self::QueueId => "there is no queue of this number (QID)",
            Self::Disabled => "its controller is not enabled",
            Self::ShuttingDown => "its controller is shut down",
            Self::QueueInUse => "the queue is connected already (QID)",
            Self::EntrySize => "its controller has other entry sizes (CC)",
        }
    }

    /// What completes the command. Do Not Retry stands only where another attempt of this host cannot fare better: Linux
    /// hosts give a controller up for good when they see it, also one that they had for days and whose subsystem is
    /// away for a moment only.
    #[must_use]
    pub fn refusal(self) -> Refusal {
        let (status, retry) = match self {
            Self::NotConnect => (Status::COMMAND_SEQUENCE_ERROR, false),
            Self::Malformed(status) => (status, false),
            Self::RecordFormat => (Status::CONNECT_INCOMPATIBLE_FORMAT, false),
            Self::KeepAlive => (Status::KEEP_ALIVE_TIMEOUT_INVALID, false),
            Self::HostNotAllowed => (Status::CONNECT_INVALID_HOST, false),
            Self::Busy | Self::NoEntries => (Status::CONNECT_CONTROLLER_BUSY, true),
            Self::ShuttingDown | Self::QueueInUse => (Status::COMMAND_SEQUENCE_ERROR, true),
            Self::NoSubsystem | Self::NoController | Self::Disabled => {
                (Status::CONNECT_INVALID_PARAMETERS, true)
            }
            Self::QueueSize
            | Self::SubsystemName
            | Self::HostName
            | Self::Unnamed
            | Self::DiscoveryOnly
            | Self::StaticController
            | Self::OtherHost
            | Self::OtherHostId
            | Self::QueueId
            | Self::EntrySize => (Status::CONNECT_INVALID_PARAMETERS, false),
        };
        let dw0 = self.field().map_or(0, ConnectInvalid::to_dw0);
        Refusal { status: if retry { status } else { status.with_dnr() }, dw0 }
    }

    /// The field at fault, for Connect Invalid Parameters.
    const fn field(self) -> Option<ConnectInvalid> {
        let (offset, in_data) = match self {
            Self::QueueId => (sqe_at::QID, false),
            Self::QueueSize | Self::EntrySize => (sqe_at::SQSIZE, false),
            Self::SubsystemName | Self::NoSubsystem | Self::DiscoveryOnly => {
                (ConnectData::SUBNQN_AT, true)
            }
            Self::HostName | Self::Unnamed | Self::OtherHost => (ConnectData::HOSTNQN_AT, true),
            Self::OtherHostId => (ConnectData::HOSTID_AT, true),
            Self::StaticController | Self::NoController | Self::Disabled => {
                (ConnectData::CNTLID_AT, true)
            }
            _ => return None,
        };
        Some(ConnectInvalid { offset, in_data })
    }
}
