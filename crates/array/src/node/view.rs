//! The node as documents of the management API.

use std::sync::Arc;
use std::time::SystemTime;

use api::v1::{Controller, Host, Listener, Metrics, Namespace, Referral, Status, Subsystem};
use api::value::{Address, Nqn, Size};
use uuid::Uuid;

use super::Node;
use super::manage::{no_namespace, no_subsystem};
use super::owner::View;
use crate::desired::{Desired, ListenerDef, MODEL, NamespaceDef, SubsystemDef};
use crate::serving::{Collector, controllers};
use crate::{Result, identity};

impl Node {
    /// The state of the node now.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn status(&self) -> Result<Status> {
        let view = self.view();
        let serving = view.serving()?;
        let reactors = self.reactors.documents();
        let current = &view.state.current;
        let (health, pools) = view.health()?;
        let uptime = SystemTime::now().duration_since(self.started).unwrap_or_default();
        Ok(Status {
            node: view.state.node,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: uptime.as_secs(),
            state_dir: self.state_dir().display().to_string(),
            config: self.config.as_ref().map(|path| path.display().to_string()),
            connections: reactors.iter().map(|reactor| reactor.connections).sum(),
            reactors,
            listeners: listeners(current),
            subsystems: current.subsystems.len(),
            namespaces: serving.namespaces_served(),
            controllers: controllers(&self.target).len(),
            problems: [
                serving.pools.problems(),
                view.strayed().collect(),
                serving.absences(current),
            ]
            .concat(),
            health,
            pools,
            revision: view.revision,
            open_to_any_host: current.open_to_any_host(),
        })
    }

    /// Addresses listened on.
    pub fn listeners(&self) -> Vec<Listener> {
        listeners(&self.view().state.current)
    }

    /// Other discovery services that hosts are told of.
    pub fn referrals(&self) -> Vec<Referral> {
        let referral = |&address: &Address| Referral { address };
        self.view().state.current.referrals.iter().map(referral).collect()
    }

    /// All subsystems, by NQN.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn subsystems(&self) -> Result<Vec<Subsystem>> {
        let view = self.view();
        let all = view.state.current.subsystems.iter();
        let mut all: Vec<Subsystem> =
            all.map(|(nqn, def)| view.subsystem(nqn, def)).collect::<Result<_>>()?;
        self.physical.fill_namespaces(all.iter_mut().flat_map(|of| &mut of.namespaces));
        Ok(all)
    }

    /// One subsystem.
    ///
    /// # Errors
    /// `NotFound`, `Stopping`.
    pub fn subsystem(&self, nqn: &Nqn) -> Result<Subsystem> {
        let view = self.view();
        let def = view.state.current.subsystem(nqn).ok_or_else(|| no_subsystem(nqn))?;
        let mut subsystem = view.subsystem(nqn, def)?;
        self.physical.fill_namespaces(&mut subsystem.namespaces);
        Ok(subsystem)
    }

    /// One namespace.
    ///
    /// # Errors
    /// `NotFound`, `Stopping`.
    pub fn namespace(&self, nqn: &Nqn, nsid: u32) -> Result<Namespace> {
        let view = self.view();
        let def = view.state.current.subsystem(nqn).ok_or_else(|| no_subsystem(nqn))?;
        let def = def.namespaces.get(&nsid).ok_or_else(|| no_namespace(nqn, nsid))?;
        let mut namespace = view.namespace(nqn, nsid, def)?;
        self.physical.fill_namespaces([&mut namespace]);
        Ok(namespace)
    }

    /// Hosts on a subsystem's list.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn hosts(&self, nqn: &Nqn) -> Result<Vec<Host>> {
        let view = self.view();
        let def = view.state.current.subsystem(nqn).ok_or_else(|| no_subsystem(nqn))?;
        let host = |host: &Nqn| Host { subsystem: nqn.clone(), nqn: host.clone() };
        Ok(def.hosts.iter().map(host).collect())
    }

    /// Live controllers.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn controllers(&self) -> Result<Vec<Controller>> {
        self.view().serving()?;
        Ok(controllers(&self.target))
    }

    /// All counters now, of the reactors that answer in time.
    pub fn metrics(&self) -> Metrics {
        Collector::new(Arc::clone(&self.reactors), Arc::clone(&self.target)).collect()
    }
}

impl View {
    fn subsystem(&self, nqn: &Nqn, def: &SubsystemDef) -> Result<Subsystem> {
        let namespaces = def.namespaces.iter();
        let namespaces = namespaces.map(|(nsid, def)| self.namespace(nqn, *nsid, def));
        Ok(Subsystem {
            nqn: nqn.clone(),
            serial: serial(self.state.node, nqn, def),
            model: def.model.clone().unwrap_or_else(|| MODEL.to_owned()),
            allow_any_host: def.allow_any_host,
            hosts: def.hosts.iter().cloned().collect(),
            namespaces: namespaces.collect::<Result<_>>()?,
        })
    }

    fn namespace(&self, nqn: &Nqn, nsid: u32, def: &NamespaceDef) -> Result<Namespace> {
        let serving = self.serving()?;
        let uuid = serving.uuid(nqn, nsid, def);
        let place = (nqn.clone(), nsid);
        Ok(Namespace {
            subsystem: nqn.clone(),
            nsid,
            backend: def.backend.clone(),
            block_size: def.block_size,
            size: Size::new(serving.namespace_bytes(&place)),
            served: serving.is_served(&place),
            uuid,
            nguid: identity::nguid_text(uuid),
            hardware: None,
        })
    }
}

/// The serial number that a subsystem is served with.
pub(crate) fn serial(node: Uuid, nqn: &Nqn, def: &SubsystemDef) -> String {
    def.serial.clone().unwrap_or_else(|| identity::serial(node, nqn))
}

fn listeners(current: &Desired) -> Vec<Listener> {
    let document = |(address, def): (&Address, &ListenerDef)| Listener {
        address: *address,
        advertise: def.advertise,
        discovery_only: def.discovery_only,
        ana: def.ana,
    };
    current.listeners.iter().map(document).collect()
}
