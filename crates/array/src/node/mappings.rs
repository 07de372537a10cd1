//! Volumes and snapshots as namespaces: mapped, and taken from the hosts again.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use api::v1::{Consent, Kind, Losses, Mapping, NewMapping, Snapshot, Volume};
use api::value::{Backend, Name, Nqn, SnapshotPath, VolumePath};
use uuid::Uuid;

use super::Node;
use super::manage::{check_unused, insert, no_subsystem};
use super::owner::{Owned, View};
use crate::desired::{self, Desired, NamespaceDef, SubsystemDef};
use crate::jobs::Task;
use crate::serving::Place;
use crate::state::State;
use crate::{Error, Result};

impl Node {
    /// Maps a volume: hosts of the subsystem see it as a namespace. Adds the subsystem if it is not there
    /// and the request says who may connect.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` when it is mapped or the NSID is taken, `Limit`.
    pub fn map_volume(&self, path: &VolumePath, new: NewMapping) -> Result<Volume> {
        self.map(Backend::Volume(path.clone()), new)?;
        self.volume(path)
    }

    /// Maps a snapshot, likewise: hosts read the namespace, and cannot change it.
    ///
    /// # Errors
    /// As of [`map_volume`](Self::map_volume).
    pub fn map_snapshot(&self, path: &SnapshotPath, new: NewMapping) -> Result<Snapshot> {
        self.map(Backend::Snapshot(path.clone()), new)?;
        self.snapshot(path)
    }

    /// Takes a volume from the hosts. It keeps what it holds. Gives what is lost.
    ///
    /// # Errors
    /// `NotFound` when it is not mapped, `Conflict` for a loss that is not meant.
    pub fn unmap_volume(&self, path: &VolumePath, consent: Consent) -> Result<Losses> {
        self.unmap(&Backend::Volume(path.clone()), consent)
    }

    /// Takes a snapshot from the hosts, likewise.
    ///
    /// # Errors
    /// As of [`unmap_volume`](Self::unmap_volume).
    pub fn unmap_snapshot(&self, path: &SnapshotPath, consent: Consent) -> Result<Losses> {
        self.unmap(&Backend::Snapshot(path.clone()), consent)
    }

    fn map(&self, backend: Backend, new: NewMapping) -> Result<()> {
        if let Some(nsid) = new.nsid {
            desired::check_nsid(nsid)?;
        }
        desired::check_subsystem_nqn(&new.subsystem)?;
        // Nobody deletes or renames it meanwhile.
        let turn = backend.pool().map(|pool| self.turn(pool, &Task::default()));
        let _turn = turn.transpose()?;
        let kept_in = self.view().serving()?.pools.kept_in(&backend).transpose()?;
        let Some(volume) = kept_in else { return Ok(()) };
        let (block_size, uuid) = (volume.block_size(), Uuid::from_bytes(volume.id()));
        let (nqn, subsystem) = (new.subsystem.clone(), new.subsystem.clone());
        let what = title(&backend);
        self.change(
            |nsid| format!("{what} mapped as namespace {nsid} of {nqn}"),
            move |wanted| {
                check_unused(wanted, &backend)?;
                let def = NamespaceDef { backend, block_size, uuid: Some(uuid) };
                insert(found_or_added(wanted, &new)?, &subsystem, new.nsid, def)
            },
        )?;
        Ok(())
    }

    fn unmap(&self, backend: &Backend, consent: Consent) -> Result<Losses> {
        let what = title(backend);
        let at = self.view().mapping(backend).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("{what} is not mapped"))
                .help(format!("`flashloom {} list` shows what is", backend.kind()))
        })?;
        self.change_meant(consent, format!("{what} unmapped"), move |wanted| {
            let def = wanted.subsystems.get_mut(&at.subsystem);
            let def = def.ok_or_else(|| no_subsystem(&at.subsystem))?;
            def.namespaces.remove(&at.nsid);
            Ok(())
        })
    }
}

/// A volume or a snapshot, for people: `volume fast/db`.
pub(super) fn title(backend: &Backend) -> String {
    backend.to_string().replacen(':', " ", 1)
}

/// The subsystem that a volume is to be mapped in.
fn found_or_added<'d>(wanted: &'d mut Desired, new: &NewMapping) -> Result<&'d mut SubsystemDef> {
    let may_add = new.allow_any_host || !new.hosts.is_empty();
    match wanted.subsystems.entry(new.subsystem.clone()) {
        Entry::Occupied(entry) => {
            if may_add {
                check_hosts(entry.get(), new)?;
            }
            Ok(entry.into_mut())
        }
        Entry::Vacant(entry) if may_add => Ok(entry.insert(SubsystemDef {
            allow_any_host: new.allow_any_host,
            hosts: new.hosts.iter().cloned().collect(),
            ..SubsystemDef::default()
        })),
        Entry::Vacant(entry) => Err(no_subsystem(entry.key())
            .help("say who may connect to have it added: --allow-host NQN or --allow-any-host")),
    }
}

/// Refuses to map for other hosts than those that a subsystem, which is there, lets in.
fn check_hosts(def: &SubsystemDef, new: &NewMapping) -> Result<()> {
    let asked: BTreeSet<_> = new.hosts.iter().cloned().collect();
    let fits = asked == def.hosts || (asked.is_empty() && new.allow_any_host);
    if fits && new.allow_any_host == def.allow_any_host {
        return Ok(());
    }
    let of = &new.subsystem;
    let who = if def.allow_any_host { "any host" } else { "other hosts than those" };
    Err(Error::new(Kind::Conflict, format!("{of} is there, and lets {who} in")).help(format!(
        "leave the hosts out to map it for those; `flashloom host list`, `host add` and `host remove` change who they \
         are, `flashloom subsystem set {of} --allow-any-host true|false` whether any may connect"
    )))
}

/// The refusal of what cannot be done to a volume or a snapshot while hosts have it.
fn is_mapped(backend: &Backend, at: &Mapping) -> Error {
    let what = title(backend);
    let command = what.replacen(' ', " unmap ", 1);
    Error::new(Kind::Conflict, format!("{what} is namespace {} of {}", at.nsid, at.subsystem))
        .help(format!("`flashloom {command}` first"))
}

impl State {
    /// What volumes and snapshots are mapped as.
    pub(super) fn mappings(&self) -> impl Iterator<Item = (&Backend, Mapping)> {
        let all = self.current.subsystems.iter();
        all.flat_map(|(nqn, def): (&Nqn, &SubsystemDef)| {
            let of_pools = def.namespaces.iter().filter(|(_, def)| def.backend.pool().is_some());
            of_pools.map(move |(nsid, def)| {
                (&def.backend, Mapping { subsystem: nqn.clone(), nsid: *nsid })
            })
        })
    }

    /// What is mapped by this name, if something is.
    fn mapping(&self, of: &Backend) -> Option<Mapping> {
        self.mappings().find(|(backend, _)| *backend == of).map(|(_, at)| at)
    }

    /// Refuses what cannot be done to a pool while hosts have a volume or a snapshot of it.
    ///
    /// # Errors
    /// `Conflict`.
    pub(super) fn check_unmapped(&self, pool: &Name) -> Result<()> {
        match self.mappings().find(|(backend, _)| backend.pool() == Some(pool)) {
            Some((backend, at)) => Err(is_mapped(backend, &at)),
            None => Ok(()),
        }
    }
}

impl Owned {
    /// Serves what is mapped of a pool that is open now. Gives why some is not.
    pub(super) fn attach(&mut self, pool: &Name) -> Vec<Error> {
        if let Some(current) = self.renamed(pool) {
            Arc::make_mut(&mut self.state).current = current;
        }
        let state = Arc::clone(&self.state);
        self.serving_mut()
            .map_or_else(|error| vec![error], |serving| serving.attach(pool, &state.current))
    }

    /// Serves volumes of open pools that were put back while commands of theirs had not ended, and have none by now. Not
    /// while it is somebody's turn with the pool: what is rolled back is absent, too. Gives which are served.
    pub(super) fn attach_late(&mut self) -> Result<Vec<Place>> {
        let state = Arc::clone(&self.state);
        let mut served = Vec::new();
        for (place, def) in self.serving_mut()?.late_volumes(&state.current) {
            let is_free = def.backend.pool().is_some_and(|pool| self.turns.is_free(pool));
            // One that its pool does not give was told of when that was opened.
            if is_free
                && !self.taken_out.contains(&place)
                && self.serving_mut()?.attach_late(&place, &def).is_ok()
            {
                served.push(place);
            }
        }
        if !served.is_empty() {
            self.keep()?;
        }
        Ok(served)
    }

    /// What is wanted, with the names that volumes and snapshots of a pool have by now: the node may have ended after one
    /// was renamed and before that was written down. They are what they were by their identity.
    fn renamed(&self, pool: &Name) -> Option<Desired> {
        let pools = self.serving().ok()?.pools();
        let open = pools.pool(pool).ok()?;
        let mut wanted = self.state.current.clone();
        let mut is_other = false;
        for (nqn, def) in &mut wanted.subsystems {
            for (nsid, def) in &mut def.namespaces {
                if def.backend.pool() != Some(pool) {
                    continue;
                }
                let seen = self.state.seen.get(nqn, *nsid, &def.backend).map(|seen| seen.uuid);
                let Some(id) = def.uuid.or(seen) else { continue };
                let named = pools.kept_in(&def.backend)?;
                if named.is_ok_and(|volume| Uuid::from_bytes(volume.id()) == id) {
                    continue;
                }
                if let Some(backend) = open.called(id) {
                    def.backend = backend;
                    is_other = true;
                }
            }
        }
        is_other.then_some(wanted)
    }
}

/// What hosts saw of what is of a pool that is not open.
pub(super) struct SeenClosed {
    pub backend: Backend,
    pub id: Uuid,
    pub bytes: u64,
    pub block_size: u32,
    pub mapping: Mapping,
}

impl View {
    /// What a volume or a snapshot is mapped as, if it is. Where it is served counts, by its identity: the name only while
    /// nothing is served there.
    pub(super) fn mapping(&self, of: &Backend) -> Option<Mapping> {
        let named = self.state.mapping(of);
        let Ok(serving) = self.serving() else { return named };
        let Some(Ok(volume)) = serving.pools.kept_in(of) else { return named };
        let id = Uuid::from_bytes(volume.id());
        if let Some((nqn, nsid)) = serving.place_of(id) {
            return Some(Mapping { subsystem: nqn.clone(), nsid: *nsid });
        }
        named.filter(|at| serving.kept_in(&(at.subsystem.clone(), at.nsid)).is_none())
    }

    /// Refuses what cannot be done to a volume or a snapshot while hosts have it.
    ///
    /// # Errors
    /// `Conflict`.
    pub(super) fn check_not_mapped(&self, backend: &Backend) -> Result<()> {
        self.mapping(backend).map_or(Ok(()), |at| Err(is_mapped(backend, &at)))
    }

    /// What is mapped of pools that are not open, as hosts saw it last.
    pub(super) fn seen_closed(&self) -> Result<impl Iterator<Item = SeenClosed>> {
        let serving = self.serving()?;
        let seen = |(backend, mapping): (&Backend, Mapping)| {
            let def = self.state.current.subsystem(&mapping.subsystem)?;
            let block_size = def.namespaces.get(&mapping.nsid)?.block_size;
            let seen = self.state.seen.get(&mapping.subsystem, mapping.nsid, backend)?;
            let (id, bytes) = (seen.uuid, seen.bytes);
            Some(SeenClosed { backend: backend.clone(), id, bytes, block_size, mapping })
        };
        let is_closed =
            |of: &Backend| of.pool().is_some_and(|pool| serving.pools.pool(pool).is_err());
        let closed = self.state.mappings().filter(move |(backend, _)| is_closed(backend));
        Ok(closed.filter_map(seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hosts that were asked for were let in by nobody, and others that were not asked for had the volume.
    #[test]
    fn a_subsystem_that_lets_in_others_is_not_taken_for_the_one_asked_for() {
        let nqn = "nqn.2026-11.io.flashloom:a";
        let host = |n: u32| format!("nqn.2026-11.io.flashloom:host{n}").parse::<Nqn>().unwrap();
        let mut wanted = Desired::default();
        let mut map = |any: bool, hosts: &[u32]| {
            let hosts = hosts.iter().map(|&n| host(n)).collect();
            let subsystem = nqn.parse().unwrap();
            let new = NewMapping { subsystem, nsid: None, allow_any_host: any, hosts };
            found_or_added(&mut wanted, &new).map(|def| def.hosts.len())
        };
        assert_eq!(map(false, &[1, 2]).unwrap(), 2);
        assert_eq!(map(false, &[2, 1]).unwrap(), 2);
        assert_eq!(map(false, &[]).unwrap(), 2);
        for (any, hosts) in [(false, &[1][..]), (false, &[1, 2, 3]), (true, &[]), (true, &[1, 2])] {
            let refused = map(any, hosts).unwrap_err();
            assert_eq!(refused.kind, Kind::Conflict, "{refused}");
            assert!(refused.help.unwrap().contains("host add"));
        }
    }
}
