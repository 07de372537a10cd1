//! The target as plain data, for lists and status.

use std::net::SocketAddr;

use nvme::ana;
use nvme::nqn::Nqn;
use nvme::property::Csts;

use crate::controller::Controller;
use crate::counters::Totals;
use crate::listener::{ListenerId, ListenerInfo, Referral};
use crate::namespace::{Namespace, NamespaceIdentity};
use crate::registry::Target;
use crate::subsystem::{Health, Subsystem};

/// Everything at one instant.
#[derive(Clone, Debug)]
pub struct TargetSnapshot {
    pub subsystems: Vec<SubsystemSnapshot>,
    pub listeners: Vec<(ListenerId, ListenerInfo)>,
    pub referrals: Vec<Referral>,
    /// Controllers of the discovery service.
    pub discovery: Vec<ControllerSnapshot>,
    /// Generation counter of the discovery log.
    pub generation: u64,
}

#[derive(Clone, Debug)]
pub struct SubsystemSnapshot {
    pub nqn: Nqn,
    pub serial: String,
    pub model: String,
    pub allow_any_host: bool,
    pub hosts: Vec<Nqn>,
    pub max_namespaces: u32,
    pub namespaces: Vec<NamespaceSnapshot>,
    pub controllers: Vec<ControllerSnapshot>,
    pub health: Health,
    pub totals: Totals,
}

#[derive(Clone, Debug)]
pub struct NamespaceSnapshot {
    pub nsid: u32,
    /// Bytes of a logical block.
    pub block_size: u32,
    pub blocks: u64,
    pub identity: NamespaceIdentity,
    pub write_protected: bool,
    pub volatile_cache: bool,
}

#[derive(Clone, Debug)]
pub struct ControllerSnapshot {
    pub cntlid: u16,
    pub host_nqn: Nqn,
    pub host_id: [u8; 16],
    pub listener: ListenerId,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub status: Csts,
    /// I/O queues connected.
    pub io_queues: usize,
    /// Keep Alive Timeout in ms, 0 for none.
    pub kato: u32,
    pub ana: ana::State,
}

impl Target {
    /// The target as it is now.
    #[must_use]
    pub fn snapshot(&self) -> TargetSnapshot {
        let registry = self.lock();
        TargetSnapshot {
            subsystems: registry.subsystems.values().map(subsystem).collect(),
            listeners: registry.listeners.iter().map(|(&id, info)| (id, info.clone())).collect(),
            referrals: registry.referrals.clone(),
            discovery: registry.discovery.iter().map(|c| controller(c)).collect(),
            generation: registry.generation,
        }
    }
}

fn subsystem(subsystem: &Subsystem) -> SubsystemSnapshot {
    SubsystemSnapshot {
        nqn: subsystem.spec.nqn.clone(),
        serial: subsystem.spec.serial.clone(),
        model: subsystem.spec.model.clone(),
        allow_any_host: subsystem.admission.any(),
        hosts: subsystem.admission.listed().cloned().collect(),
        max_namespaces: subsystem.spec.max_namespaces,
        namespaces: subsystem.namespaces.values().map(|n| namespace(n)).collect(),
        controllers: subsystem.controllers.iter().map(|c| controller(c)).collect(),
        health: subsystem.health(),
        totals: subsystem.totals(),
    }
}

fn namespace(namespace: &Namespace) -> NamespaceSnapshot {
    NamespaceSnapshot {
        nsid: namespace.nsid,
        block_size: namespace.block_size,
        blocks: namespace.blocks(),
        identity: namespace.identity,
        write_protected: namespace.write_protected(),
        volatile_cache: namespace.backend.has_volatile_cache(),
    }
}

fn controller(controller: &Controller) -> ControllerSnapshot {
    let (status, io_queues, kato) = {
        let state = controller.lock();
        (state.csts, state.queues.io_count(), state.features.kato)
    };
    let path = controller.path();
    ControllerSnapshot {
        cntlid: controller.cntlid(),
        host_nqn: controller.host_nqn().clone(),
        host_id: controller.host().id,
        listener: path.listener,
        local: path.local.socket(),
        peer: path.peer.socket(),
        status,
        io_queues,
        kato,
        ana: controller.ana(),
    }
}
