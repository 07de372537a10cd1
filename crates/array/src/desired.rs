//! What a node is to serve, as one value.

use std::collections::{BTreeMap, BTreeSet};

use api::limits::{
    BLOCK_SIZES, HOSTS_MAX, LISTENERS_MAX, MODEL_BYTES, NSID_MAX, REFERRALS_MAX, SERIAL_BYTES,
    SUBSYSTEMS_MAX,
};
use api::value::{Address, Advertise, AnaState, Backend, Name, Nqn, Refused};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

mod merge;
pub use merge::merge;

/// Model number of a subsystem that is not given one.
pub const MODEL: &str = "Flashloom";
/// Logical block size of a namespace that is not given one.
pub const BLOCK_SIZE: u32 = 4096;

/// Listeners and subsystems with all that belongs to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// By the address listened on.
    pub listeners: BTreeMap<Address, ListenerDef>,
    /// By NQN.
    pub subsystems: BTreeMap<Nqn, SubsystemDef>,
    /// Other discovery services that hosts are told of.
    #[serde(default)]
    pub referrals: BTreeSet<Address>,
}

/// A listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerDef {
    /// What discovery returns instead of the address that the host connected to.
    pub advertise: Option<Advertise>,
    /// Offer the discovery subsystem only.
    pub discovery_only: bool,
    /// ANA state of the namespaces for hosts that are connected through it.
    #[serde(default)]
    pub ana: AnaState,
}

/// A subsystem; what is `None` is derived from the node's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubsystemDef {
    /// Serial number.
    pub serial: Option<String>,
    /// Model number.
    pub model: Option<String>,
    /// Any host may connect.
    pub allow_any_host: bool,
    /// Hosts that may connect.
    pub hosts: BTreeSet<Nqn>,
    /// By NSID.
    pub namespaces: BTreeMap<u32, NamespaceDef>,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceDef {
    /// What it keeps its bytes on.
    pub backend: Backend,
    /// Logical block size in bytes.
    pub block_size: u32,
    /// UUID; derived from the node's identity when `None`.
    pub uuid: Option<Uuid>,
}

impl Desired {
    /// The subsystem `nqn`.
    pub fn subsystem(&self, nqn: &Nqn) -> Option<&SubsystemDef> {
        self.subsystems.get(nqn)
    }

    /// Subsystems that any host may use, on addresses that others than this machine reach.
    pub fn open_to_any_host(&self) -> Vec<Nqn> {
        let reaches = |(address, def): (&Address, &ListenerDef)| {
            !def.discovery_only && !address.socket().ip().to_canonical().is_loopback()
        };
        if !self.listeners.iter().any(reaches) {
            return Vec::new();
        }
        let open = |(nqn, def): (&Nqn, &SubsystemDef)| def.allow_any_host.then(|| nqn.clone());
        self.subsystems.iter().filter_map(open).collect()
    }

    /// The pools of the volumes and snapshots that are mapped.
    pub fn pools(&self) -> BTreeSet<Name> {
        let all = self.subsystems.values().flat_map(|def| def.namespaces.values());
        all.filter_map(|def| def.backend.pool().cloned()).collect()
    }

    /// Checks the bounds that only the whole can exceed.
    pub fn check(&self) -> Result<(), Refused> {
        bound("listeners", self.listeners.len(), LISTENERS_MAX)?;
        bound("referrals", self.referrals.len(), REFERRALS_MAX)?;
        bound("subsystems", self.subsystems.len(), SUBSYSTEMS_MAX)?;
        for (nqn, subsystem) in &self.subsystems {
            bound(&format!("hosts on {nqn}"), subsystem.hosts.len(), HOSTS_MAX)?;
        }
        Ok(())
    }
}

fn bound(what: &str, count: usize, most: usize) -> Result<(), Refused> {
    if count <= most {
        return Ok(());
    }
    Err(Refused::new(format!("{count} {what}"), format!("a node has at most {most}")))
}

/// The lowest NSID that `taken` does not have.
pub fn free_nsid<V>(taken: &BTreeMap<u32, V>) -> Result<u32, Refused> {
    (1..=NSID_MAX).find(|nsid| !taken.contains_key(nsid)).ok_or_else(|| {
        Refused::new(
            format!("all {NSID_MAX} NSIDs are taken"),
            "remove a namespace, or add it to another subsystem",
        )
    })
}

/// Refuses an NSID out of range.
pub fn check_nsid(nsid: u32) -> Result<(), Refused> {
    if (1..=NSID_MAX).contains(&nsid) {
        return Ok(());
    }
    Err(Refused::new(format!("{nsid} is not an NSID"), format!("NSIDs run from 1 to {NSID_MAX}")))
}

/// Refuses a logical block size that is not served.
pub fn check_block_size(bytes: u32) -> Result<(), Refused> {
    if BLOCK_SIZES.contains(&bytes) {
        return Ok(());
    }
    Err(Refused::new(
        format!("{bytes} is not a logical block size that is served"),
        "choose 512 or 4096",
    ))
}

/// Refuses a size that is not whole blocks.
pub fn check_whole_blocks(bytes: u64, block_size: u32) -> Result<(), Refused> {
    if bytes.is_multiple_of(u64::from(block_size)) {
        return Ok(());
    }
    Err(Refused::new(
        format!("{bytes} bytes are not whole blocks of {block_size} bytes"),
        format!("choose a multiple of {block_size}, such as {}", {
            bytes.next_multiple_of(u64::from(block_size))
        }),
    ))
}

/// Refuses the NQN of the discovery subsystem, which is always there.
pub fn check_subsystem_nqn(nqn: &Nqn) -> Result<(), Refused> {
    if !nqn.is_discovery() {
        return Ok(());
    }
    Err(Refused::new(
        "this NQN names the discovery subsystem, which every listener offers already",
        "choose a name of your own, such as nqn.2026-11.io.flashloom:default",
    ))
}

/// Refuses a serial number that Identify Controller could not hold.
pub fn check_serial(serial: &str) -> Result<(), Refused> {
    check_ascii("serial number", serial, SERIAL_BYTES)
}

/// Refuses a model number that Identify Controller could not hold.
pub fn check_model(model: &str) -> Result<(), Refused> {
    check_ascii("model number", model, MODEL_BYTES)
}

fn check_ascii(what: &str, text: &str, most: usize) -> Result<(), Refused> {
    let printable = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if printable && !text.trim().is_empty() && text.len() <= most {
        return Ok(());
    }
    Err(Refused::new(
        format!("{text:?} cannot be a {what}"),
        format!("a {what} has 1 to {most} printable ASCII characters"),
    ))
}
