//! Volumes and snapshots by the names that a configuration has for them. They are what their UUIDs say: whatever way a
//! change comes, a name in what is served is never that of something else.

use std::collections::BTreeMap;
use std::mem::discriminant;

use api::v1::Kind;
use api::value::Backend;
use uuid::Uuid;

use super::mappings::title;
use super::owner::Owned;
use crate::desired::{Desired, NamespaceDef};
use crate::serving::Place;
use crate::{Error, Result};

impl Owned {
    /// `wanted` with the names that its volumes and snapshots have by now: one that was written down before one of them
    /// was renamed still means that one. And what is called otherwise now, in words.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` where a name is nobody's, or of something else than the UUID beside it, and for what would be
    /// two namespaces.
    pub(super) fn named_now(&self, mut wanted: Desired) -> Result<(Desired, Vec<String>)> {
        let current = &self.state.current;
        let mut renames = Vec::new();
        for (nqn, subsystem) in &mut wanted.subsystems {
            let served = current.subsystem(nqn).map(|def| &def.namespaces);
            for (nsid, def) in &mut subsystem.namespaces {
                let was = served.and_then(|all| all.get(nsid));
                if was == Some(&*def) {
                    continue;
                }
                if let Some(now) = self.called_now(def)? {
                    let (asked, called) = (title(&def.backend), title(&now));
                    renames.push(format!(
                        "namespace {nsid} of {nqn}: {asked}, by its UUID, is {called} now, and is served as that"
                    ));
                    def.backend = now;
                }
                if let Some(was) = was {
                    self.check_named(&(nqn.clone(), *nsid), was, def)?;
                }
            }
        }
        check_once(current, &wanted)?;
        Ok((wanted, renames))
    }

    /// What a volume or a snapshot that is meant by its UUID is called, if that is not what `def` calls it.
    fn called_now(&self, def: &NamespaceDef) -> Result<Option<Backend>> {
        let pools = self.serving()?.pools();
        let (Some(id), Some(pool)) = (def.uuid, def.backend.pool()) else { return Ok(None) };
        let named = pools.kept_in(&def.backend).and_then(Result::ok);
        if named.is_some_and(|volume| Uuid::from_bytes(volume.id()) == id) {
            return Ok(None);
        }
        let called = match pools.pool(pool) {
            Ok(open) => open.called(id),
            // What it was when the pool was open.
            Err(_) => {
                let subsystems = self.state.current.subsystems.values();
                let mut all = subsystems.flat_map(|def| def.namespaces.values());
                let is_it = |known: &&NamespaceDef| {
                    known.uuid == Some(id) && known.backend.pool() == Some(pool)
                };
                all.find(is_it).map(|known| known.backend.clone())
            }
        };
        // A volume is not mapped where a snapshot is asked for.
        Ok(called.filter(|called| {
            discriminant(called) == discriminant(&def.backend) && *called != def.backend
        }))
    }

    /// Refuses to call a namespace by the name of something else, or of nothing, and says what it is.
    fn check_named(&self, place: &Place, was: &NamespaceDef, def: &NamespaceDef) -> Result<()> {
        let serving = self.serving()?;
        let pool = def.backend.pool();
        if was.backend == def.backend || pool.is_none() || was.backend.pool() != pool {
            return Ok(());
        }
        let (nqn, nsid) = place;
        let (is, id) = (title(&was.backend), serving.uuid(nqn, *nsid, was));
        let is = format!("namespace {nsid} of {nqn} is {is} (UUID {id})");
        let help = "name what is meant: `flashloom volume list` and `flashloom snapshot list` show what there is";
        match serving.pools().kept_in(&def.backend) {
            Some(Err(error)) => {
                Err(Error::new(error.kind, format!("{is}: {}", error.context)).help(help))
            }
            Some(Ok(volume)) => {
                let has = Uuid::from_bytes(volume.id());
                let other = |meant: Uuid| {
                    let what = title(&def.backend);
                    let what = format!(
                        "{is}, and {what} has UUID {has}: it is not the one meant, {meant}"
                    );
                    Err(Error::new(Kind::Conflict, what).help(help))
                };
                def.uuid.filter(|meant| *meant != has).map_or(Ok(()), other)
            }
            None => Ok(()),
        }
    }
}

/// Refuses one volume, or one snapshot, as two namespaces, as far as that is new: each would have reservations of its own.
fn check_once(current: &Desired, wanted: &Desired) -> Result<()> {
    let mut places = BTreeMap::new();
    for (nqn, subsystem) in &wanted.subsystems {
        for (nsid, def) in &subsystem.namespaces {
            if def.backend.pool().is_none() {
                continue;
            }
            let was = current.subsystem(nqn).and_then(|def| def.namespaces.get(nsid));
            let is_new = was != Some(def);
            let before = places.insert(&def.backend, (nqn, nsid, is_new));
            if let Some((other, of, was_new)) = before
                && (is_new || was_new)
            {
                let what = title(&def.backend);
                let what = format!(
                    "{what} would be namespace {of} of {other} and namespace {nsid} of {nqn}"
                );
                return Err(Error::new(Kind::Conflict, what).help("map it once"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
