//! Subsystems, their namespaces, hosts and controllers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::DriveHardware;
use crate::value::{AnaState, Backend, Nqn, Size};

/// An NVM subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subsystem {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number, as Identify Controller returns it.
    pub serial: String,
    /// Model number, as Identify Controller returns it.
    pub model: String,
    /// Any host may connect; the list of hosts is not looked at.
    pub allow_any_host: bool,
    /// Hosts that may connect.
    pub hosts: Vec<Nqn>,
    /// Its namespaces, by NSID.
    pub namespaces: Vec<Namespace>,
}

/// A subsystem to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSubsystem {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number, at most 20 printable ASCII characters; made from the node's identity when
    /// left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Model number, at most 40 printable ASCII characters; "Flashloom" when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Let any host connect.
    #[serde(default)]
    pub allow_any_host: bool,
    /// Hosts that may connect.
    #[serde(default)]
    pub hosts: Vec<Nqn>,
}

/// What to change of a subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubsystemChange {
    /// Let any host connect, or only those on the list: the connections of others are ended.
    pub allow_any_host: Option<bool>,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Namespace {
    /// Its subsystem.
    pub subsystem: Nqn,
    /// Its NSID in that subsystem.
    pub nsid: u32,
    /// What it keeps its bytes on.
    pub backend: Backend,
    /// Logical block size in bytes.
    pub block_size: u32,
    /// Size in bytes. While it is not served what it was, or 0 where nobody knows.
    pub size: Size,
    /// Whether hosts can use it: not while the pool of its volume is not open, or its drive is absent. They see it
    /// as it was meanwhile, and wait.
    pub served: bool,
    /// UUID, kept over restarts.
    pub uuid: Uuid,
    /// NGUID as 32 hexadecimal digits, kept over restarts.
    pub nguid: String,
    /// What the machine says of the hardware behind it, where it is a drive by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<DriveHardware>,
}

/// A namespace to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNamespace {
    /// NSID; the lowest free one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// What it keeps its bytes on.
    pub backend: Backend,
    /// Logical block size in bytes: 512 or 4096; 4096 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// UUID; made from the node's identity when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// Also a drive that carries a pool's label: that pool is lost once hosts write to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// What to change of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceChange {
    /// The new size in bytes, a multiple of the logical block size. Making it smaller loses what
    /// lies beyond, and needs `force`.
    pub size: Size,
}

/// A host that may connect to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// The subsystem.
    pub subsystem: Nqn,
    /// The host.
    pub nqn: Nqn,
}

/// A host to let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHost {
    /// The host.
    pub nqn: Nqn,
}

/// A live controller: one host's association with a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Controller {
    /// Its subsystem.
    pub subsystem: String,
    /// Its CNTLID.
    pub cntlid: u16,
    /// NQN of the host.
    pub host: String,
    /// Address that the host connects from, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Number of I/O queues.
    pub io_queues: usize,
    /// Keep Alive timeout in milliseconds; 0 when the host asked for none.
    pub kato_ms: u32,
    /// ANA state of its namespaces; none when it is the discovery service's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ana: Option<AnaState>,
}
