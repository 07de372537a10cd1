//! What the management API asks for.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use api::v1::{
    Consent, Host, Kind, Listener, ListenerChange, Losses, Namespace, NamespaceChange, NewHost,
    NewListener, NewNamespace, NewSubsystem, Referral, Subsystem, SubsystemChange,
};
use api::value::{Address, Backend, Nqn};
use uuid::Uuid;

use super::Node;
use super::drive_openings::Opened;
use crate::desired::{self, Desired, ListenerDef, NamespaceDef, SubsystemDef};
use crate::jobs::Task;
use crate::serving::media::not_meant;
use crate::{Error, Result, generic};

impl Node {
    /// Adds a subsystem.
    ///
    /// # Errors
    /// `Conflict` when there is one of that name, `Invalid` for what it cannot be.
    pub fn add_subsystem(&self, new: NewSubsystem) -> Result<Subsystem> {
        desired::check_subsystem_nqn(&new.nqn)?;
        if let Some(serial) = &new.serial {
            desired::check_serial(serial)?;
        }
        if let Some(model) = &new.model {
            desired::check_model(model)?;
        }
        let nqn = self.change(
            |nqn| format!("subsystem {nqn} added"),
            move |wanted| match wanted.subsystems.entry(new.nqn) {
                Entry::Occupied(entry) => Err(exists(format!("subsystem {}", entry.key()))),
                Entry::Vacant(entry) => {
                    let nqn = entry.key().clone();
                    entry.insert(SubsystemDef {
                        serial: new.serial,
                        model: new.model,
                        allow_any_host: new.allow_any_host,
                        hosts: BTreeSet::from_iter(new.hosts),
                        ..SubsystemDef::default()
                    });
                    Ok(nqn)
                }
            },
        )?;
        self.subsystem(&nqn)
    }

    /// Removes a subsystem with its namespaces; its controllers end. Gives what is lost.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a loss that is not meant.
    pub fn remove_subsystem(&self, nqn: &Nqn, consent: Consent) -> Result<Losses> {
        let of = nqn.clone();
        self.change_meant(consent, format!("subsystem {nqn} removed"), move |wanted| {
            match wanted.subsystems.remove(&of) {
                Some(_) => Ok(()),
                None => Err(no_subsystem(&of)),
            }
        })
    }

    /// Changes who may connect to a subsystem. Gives what is lost.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a loss that is not meant.
    pub fn change_subsystem(
        &self,
        nqn: &Nqn,
        change: &SubsystemChange,
        consent: Consent,
    ) -> Result<Losses> {
        let of = nqn.clone();
        let change = change.clone();
        self.change_meant(consent, format!("subsystem {nqn} changed"), move |wanted| {
            let def = subsystem(wanted, &of)?;
            if let Some(allow) = change.allow_any_host {
                def.allow_any_host = allow;
            }
            Ok(())
        })
    }

    /// Adds a namespace; hosts that are connected are told.
    ///
    /// # Errors
    /// `NotFound` without the subsystem, `Conflict` when the NSID or drive is taken, `Invalid` for
    /// what it cannot be, `Failed` when the drive cannot be opened.
    pub fn add_namespace(&self, nqn: &Nqn, new: NewNamespace) -> Result<Namespace> {
        // Nobody deletes the volume or the snapshot, or renames it, meanwhile.
        let pool = new.backend.pool();
        let _turn = pool.map(|pool| self.turn(pool, &Task::default())).transpose()?;
        let kept_in = self.view().serving()?.pools.kept_in(&new.backend).transpose()?;
        let id = kept_in.as_ref().map(|volume| Uuid::from_bytes(volume.id()));
        if let (Some(id), Some(meant)) = (id, new.uuid)
            && id != meant
        {
            return Err(not_meant(&new.backend, id, meant));
        }
        let uuid = new.uuid.or(id);
        let own = kept_in.as_ref().map(|volume| volume.block_size());
        let backend = absolute(new.backend)?;
        let own = own.or_else(|| generic::own_block_size(&backend));
        let block_size = new.block_size.or(own).unwrap_or(desired::BLOCK_SIZE);
        desired::check_block_size(block_size)?;
        if let Some(nsid) = new.nsid {
            desired::check_nsid(nsid)?;
        }
        if let Some(path) = generic::block_device(&backend) {
            self.check_no_pools(vec![path], new.force)?;
        }
        let size = match &backend {
            Backend::Memory { size } | Backend::Drive { size: Some(size), .. } => size.bytes(),
            Backend::Drive { size: None, .. }
            | Backend::Passthrough { .. }
            | Backend::Volume(_)
            | Backend::Snapshot(_) => 0,
        };
        desired::check_whole_blocks(size, block_size)?;
        let (of, at) = (nqn.clone(), nqn.clone());
        let add = move |wanted: &mut Desired| {
            check_unused(wanted, &backend)?;
            let def = NamespaceDef { backend: backend.clone(), block_size, uuid };
            insert(subsystem(wanted, &of)?, &of, new.nsid, def)
        };
        let first = add.clone();
        let opened = self.open_wanted(
            move |owned| {
                let mut wanted = owned.state.current.clone();
                first(&mut wanted).map(|_| wanted)
            },
            &BTreeSet::new(),
            Opened::new(),
        )?;
        let nsid = self.change_with(
            |nsid| format!("namespace {nsid} added to {nqn}"),
            add,
            // Another may have the NSID by now.
            move |&nsid| opened.into_values().map(|drive| ((at.clone(), nsid), drive)).collect(),
        )?;
        self.namespace(nqn, nsid)
    }

    /// Removes a namespace; hosts that are connected are told. What a drive holds stays. Gives what is lost.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a loss that is not meant.
    pub fn remove_namespace(&self, nqn: &Nqn, nsid: u32, consent: Consent) -> Result<Losses> {
        let of = nqn.clone();
        self.change_meant(consent, format!("namespace {nsid} removed from {nqn}"), move |wanted| {
            match subsystem(wanted, &of)?.namespaces.remove(&nsid) {
                Some(_) => Ok(()),
                None => Err(no_namespace(&of, nsid)),
            }
        })
    }

    /// Changes a namespace's size; hosts that are connected are told. Gives what is lost.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` for a size that it cannot have, `Conflict` for a loss that is not meant, `Failed` when the
    /// drive refuses.
    pub fn resize_namespace(
        &self,
        nqn: &Nqn,
        nsid: u32,
        change: &NamespaceChange,
        consent: Consent,
    ) -> Result<Losses> {
        let of = nqn.clone();
        let size = change.size;
        let what = format!("namespace {nsid} of {nqn} resized to {size}");
        self.change_meant(consent, what, move |wanted| {
            let def = subsystem(wanted, &of)?.namespaces.get_mut(&nsid);
            let def = def.ok_or_else(|| no_namespace(&of, nsid))?;
            desired::check_whole_blocks(size.bytes(), def.block_size)?;
            def.backend = def.backend.clone().with_size(size)?;
            Ok(())
        })
    }

    /// Lets a host connect to a subsystem.
    ///
    /// # Errors
    /// `NotFound` without the subsystem, `Conflict` when it may already.
    pub fn add_host(&self, nqn: &Nqn, new: NewHost) -> Result<Host> {
        let of = nqn.clone();
        self.change(
            |host: &Host| format!("host {} may connect to {nqn}", host.nqn),
            move |wanted| {
                if !subsystem(wanted, &of)?.hosts.insert(new.nqn.clone()) {
                    return Err(exists(format!("host {} on {of}", new.nqn)));
                }
                Ok(Host { subsystem: of, nqn: new.nqn })
            },
        )
    }

    /// Takes a host off a subsystem's list; its controllers end unless any host is allowed. Gives what is lost.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a loss that is not meant.
    pub fn remove_host(&self, nqn: &Nqn, host: &Nqn, consent: Consent) -> Result<Losses> {
        let of = nqn.clone();
        let who = host.clone();
        let what = format!("host {host} taken off the list of {nqn}");
        self.change_meant(consent, what, move |wanted| {
            if subsystem(wanted, &of)?.hosts.remove(&who) {
                return Ok(());
            }
            Err(Error::new(Kind::NotFound, format!("host {who} is not on the list of {of}"))
                .help("`flashloom host list` shows those that are"))
        })
    }

    /// Listens on one more address.
    ///
    /// # Errors
    /// `Conflict` when the node does already, `Failed` when the address cannot be had.
    pub fn add_listener(&self, new: NewListener) -> Result<Listener> {
        self.change(
            |listener: &Listener| format!("listening on {}", listener.address),
            move |wanted| {
                let NewListener { address, advertise, discovery_only, ana } = new;
                let def = ListenerDef { advertise, discovery_only, ana };
                if wanted.listeners.insert(address, def).is_some() {
                    return Err(exists(format!("listener {address}")));
                }
                Ok(Listener { address, advertise, discovery_only, ana })
            },
        )
    }

    /// Stops listening on an address; connections made through it stay. Gives what is lost.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a loss that is not meant.
    pub fn remove_listener(&self, address: Address, consent: Consent) -> Result<Losses> {
        let what = format!("no longer listening on {address}");
        self.change_meant(consent, what, move |wanted| match wanted.listeners.remove(&address) {
            Some(_) => Ok(()),
            None => Err(no_listener(address)),
        })
    }

    /// Changes what hosts that are connected through a listener are told of the way to the namespaces. Gives what is
    /// lost.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a loss that is not meant.
    pub fn change_listener(
        &self,
        address: Address,
        change: &ListenerChange,
        consent: Consent,
    ) -> Result<Losses> {
        let ana = change.ana;
        let state = ana.map_or_else(|| "as it was".to_owned(), |ana| ana.to_string());
        let what = format!("ANA state of {address} is {state}");
        self.change_meant(consent, what, move |wanted| {
            let def = wanted.listeners.get_mut(&address).ok_or_else(|| no_listener(address))?;
            def.ana = ana.unwrap_or(def.ana);
            Ok(())
        })
    }

    /// One listener.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn listener(&self, address: Address) -> Result<Listener> {
        let all = self.listeners().into_iter();
        all.into_iter().find(|one| one.address == address).ok_or_else(|| no_listener(address))
    }
}

impl Node {
    /// Tells hosts of another discovery service.
    ///
    /// # Errors
    /// `Conflict` when they are told already.
    pub fn add_referral(&self, new: Referral) -> Result<Referral> {
        self.change(
            |new: &Referral| format!("hosts are referred to {}", new.address),
            move |wanted| {
                if !wanted.referrals.insert(new.address) {
                    return Err(exists(format!("referral {}", new.address)));
                }
                Ok(new)
            },
        )
    }

    /// Tells hosts no longer of another discovery service.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn remove_referral(&self, address: Address) -> Result<()> {
        self.change(
            |()| format!("hosts are no longer referred to {address}"),
            move |wanted| {
                if wanted.referrals.remove(&address) {
                    return Ok(());
                }
                Err(Error::new(Kind::NotFound, format!("there is no referral {address}"))
                    .help("`flashloom referral list` shows those there are"))
            },
        )
    }
}

fn subsystem<'d>(wanted: &'d mut Desired, nqn: &Nqn) -> Result<&'d mut SubsystemDef> {
    wanted.subsystems.get_mut(nqn).ok_or_else(|| no_subsystem(nqn))
}

fn no_listener(address: Address) -> Error {
    Error::new(Kind::NotFound, format!("there is no listener {address}"))
        .help("`flashloom listener list` shows those there are")
}

pub(super) fn no_subsystem(nqn: &Nqn) -> Error {
    Error::new(Kind::NotFound, format!("there is no subsystem {nqn}"))
        .help("`flashloom subsystem list` shows those there are")
}

pub(super) fn no_namespace(nqn: &Nqn, nsid: u32) -> Error {
    Error::new(Kind::NotFound, format!("{nqn} has no namespace {nsid}"))
        .help("`flashloom namespace list` shows those there are")
}

/// Adds a namespace to a subsystem, with this NSID, if any, or the lowest free one. Gives that.
///
/// # Errors
/// `Conflict` when it is taken.
pub(super) fn insert(
    subsystem: &mut SubsystemDef,
    of: &Nqn,
    nsid: Option<u32>,
    def: NamespaceDef,
) -> Result<u32> {
    let nsid = match nsid {
        Some(nsid) if subsystem.namespaces.contains_key(&nsid) => {
            return Err(exists(format!("namespace {nsid} of {of}"))
                .help("leave the NSID out to get the lowest free one"));
        }
        Some(nsid) => nsid,
        None => desired::free_nsid(&subsystem.namespaces)?,
    };
    subsystem.namespaces.insert(nsid, def);
    Ok(nsid)
}

pub(super) fn exists(what: String) -> Error {
    Error::new(Kind::Conflict, format!("{what} is there already"))
}

/// Two namespaces over one drive would each write over the other's data; over one volume, each would
/// have reservations of its own.
pub(super) fn check_unused(wanted: &Desired, backend: &Backend) -> Result<()> {
    for (nqn, subsystem) in &wanted.subsystems {
        for (nsid, def) in &subsystem.namespaces {
            if def.backend.is_same_medium(backend) {
                let used = match backend {
                    Backend::Drive { path, .. } | Backend::Passthrough { path } => {
                        path.display().to_string()
                    }
                    other => other.to_string(),
                };
                let used = format!("{used} is namespace {nsid} of {nqn} already");
                return Err(Error::new(Kind::Conflict, used).help(
                    "unmap it, or remove that namespace, first: `flashloom namespace list` shows it",
                ));
            }
        }
    }
    Ok(())
}

/// `backend` with the path from the root, as the daemon has no directory of its own.
fn absolute(backend: Backend) -> Result<Backend> {
    match backend {
        Backend::Drive { path, .. } | Backend::Passthrough { path } if !path.is_absolute() => {
            let wrong = format!("\"{}\" is a relative path", path.display());
            Err(Error::new(Kind::Invalid, wrong).help("write it from the root"))
        }
        backend => Ok(backend),
    }
}
