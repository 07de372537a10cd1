//! What is asked for and is not there yet: volumes of pools that are not open, drives and addresses that are
//! absent. The node starts without them, hosts see their namespaces as they were, and they are taken up when they
//! are there.

use std::collections::{BTreeMap, BTreeSet};

use api::value::{Address, Name};
use target::Draining;

use super::apply::Batch;
use super::drives::{LateDrive, OpenedDrive, is_drive, not_open_yet};
use super::listen::Listening;
use super::media::{Media, not_meant};
use super::words::{refused, wire};
use super::{Place, Serving};
use crate::change::Step;
use crate::desired::{Desired, ListenerDef, NamespaceDef};
use crate::{Error, Result};

/// Whether no interface has the address that was to be listened on: it may get one.
fn is_address_absent(error: &Error) -> bool {
    let source = error.source.as_ref().and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::AddrNotAvailable)
}

impl Serving {
    /// As [`apply`](Self::apply), when the node starts: a volume whose pool is not open keeps nothing else from
    /// being served, and if `patient` neither does a drive or an address that is not there. Drives were `opened` before,
    /// as far as they are there. Gives what is to be said of those that are not.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn begin(
        &mut self,
        steps: Vec<Step>,
        opened: BTreeMap<Place, Result<OpenedDrive>>,
        patient: bool,
    ) -> Result<Vec<String>> {
        let mut batch = Batch::default();
        batch.opened = opened;
        let (mut there, mut said) = (Vec::new(), Vec::new());
        for step in steps {
            let Err(error) = self.prepare_step(&step, &mut batch) else {
                there.push(step);
                continue;
            };
            match &step {
                Step::AddNamespace { nqn, nsid, def } if self.is_late(def, patient) => {
                    if is_drive(&def.backend) {
                        said.push(format!(
                            "namespace {nsid} of {nqn} waits for its drive: {}",
                            error.advised()
                        ));
                    }
                    let place = (nqn.clone(), *nsid);
                    if let Some(seen) = self.seen.get(nqn, *nsid, &def.backend) {
                        batch.fresh_media.insert(place, Media::absent(seen.bytes));
                        there.push(step);
                    } else {
                        self.absent.insert(place);
                    }
                }
                Step::AddListener { address, .. } if patient && is_address_absent(&error) => {
                    said.push(format!("{error}: it is listened on when it is there"));
                    self.unbound.insert(*address);
                }
                _ => return Err(error),
            }
        }
        self.take_all(there, batch)?;
        Ok(said)
    }

    /// Serves again what was taken out for a change that failed, by the steps that add it. Drives were let go of, and are
    /// looked for as those that are late: nobody asked for another one. Gives why others are not served.
    pub fn put_back(&mut self, steps: Vec<Step>) -> Vec<String> {
        let mut said = Vec::new();
        for step in steps {
            let Step::AddNamespace { nqn, nsid, def } = step else { continue };
            let place = (nqn, nsid);
            let known = self.seen.get(&place.0, nsid, &def.backend).map(|seen| seen.bytes);
            let media = match known {
                Some(bytes) if is_drive(&def.backend) => Ok(Media::absent(bytes)),
                _ if is_drive(&def.backend) => Err(not_open_yet(&def)),
                _ => self.open_again(&def),
            };
            let mut failed = |error: &Error| {
                said.push(format!("namespace {nsid} of {}: {}", place.0, error.advised()));
            };
            let media = media.inspect_err(&mut failed).ok().or(known.map(Media::absent));
            let added = media.map(|media| {
                let mut batch = Batch::default();
                batch.back = true;
                batch.parked_media.insert(place.clone(), media);
                self.add_namespace(&place.0, nsid, &def, &mut batch)
            });
            if let Some(Err(error)) = &added {
                failed(error);
            }
            if !matches!(added, Some(Ok(()))) {
                self.absent.insert(place);
            }
        }
        said
    }

    /// What keeps a namespace of memory or of a pool that was taken out.
    fn open_again(&self, def: &NamespaceDef) -> Result<Media> {
        self.check_unused(def)?;
        Media::open(def, self.reactors.len() > 1, &self.pools)
    }

    /// Whether what keeps a namespace may be absent: of a pool that is not open, or a drive, where that is waited for.
    pub(super) fn is_late(&self, def: &NamespaceDef, patient: bool) -> bool {
        match def.backend.pool() {
            Some(pool) => self.pools.is_unavailable(pool),
            None => is_drive(&def.backend) && patient,
        }
    }

    /// Namespaces that are asked for and whose backend is not there, as `current` wants them.
    fn late(&self, current: &Desired) -> Vec<(Place, NamespaceDef)> {
        let listed = self.media.iter().filter(|(_, media)| media.is_absent());
        let places: BTreeSet<_> = listed.map(|(place, _)| place).chain(&self.absent).collect();
        let def = |(nqn, nsid): &Place| {
            let def = current.subsystem(nqn)?.namespaces.get(nsid)?;
            Some(((nqn.clone(), *nsid), def.clone()))
        };
        places.into_iter().filter_map(def).collect()
    }

    /// Those of them that are drives.
    pub fn late_drives(&self, current: &Desired) -> Vec<LateDrive> {
        let mut late = self.late(current);
        late.retain(|(_, def)| is_drive(&def.backend));
        late.into_iter().map(|(place, def)| LateDrive::new(place, def, &self.seen)).collect()
    }

    /// What drives that get commands as they are are served from: to be [looked at](Media::change) with nothing held.
    pub fn passthroughs(&self) -> Vec<(Place, Media)> {
        let all = self.media.iter().filter(|(_, media)| media.is_passthrough());
        all.map(|(place, media)| (place.clone(), media.clone())).collect()
    }

    /// Has a namespace be absent from now on, until its drive is found again. `false` when it is served from another by
    /// now.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn withdraw_drive(&mut self, place: &Place, gone: &Media) -> Result<bool> {
        let (nqn, nsid) = place;
        let Some(media) = self.media.get_mut(place).filter(|media| media.is(gone)) else {
            return Ok(false);
        };
        media.give_up();
        drop(self.target.withdraw_namespace(&wire(nqn)?, *nsid).map_err(refused)?);
        *media = Media::absent(media.bytes());
        Ok(true)
    }

    /// Listeners whose address is not there, as `current` wants them.
    pub fn late_listeners(&self, current: &Desired) -> Vec<(Address, ListenerDef)> {
        let def = |address: &Address| Some((*address, current.listeners.get(address)?.clone()));
        self.unbound.iter().filter_map(def).collect()
    }

    /// Serves the volumes of `pool` that were absent, as `current` wants them, but those that have [late](Self::late_volumes)
    /// commands yet. Gives why some are not.
    pub fn attach(&mut self, pool: &Name, current: &Desired) -> Vec<Error> {
        let mut failed = Vec::new();
        for (place, def) in self.late(current) {
            if def.backend.pool() != Some(pool) || self.check_unused(&def).is_err() {
                continue;
            }
            if let Err(error) = self.attach_late(&place, &def) {
                failed.push(error);
            }
        }
        failed
    }

    /// Volumes of open pools that are absent, as `current` wants them, and could be served: what was [put
    /// back](Self::put_back) while its commands had not ended.
    pub fn late_volumes(&mut self, current: &Desired) -> Vec<(Place, NamespaceDef)> {
        self.let_go();
        let mut late = self.late(current);
        late.retain(|(_, def)| {
            let is_open = def.backend.pool().is_some_and(|pool| !self.pools.is_unavailable(pool));
            is_open && self.check_unused(def).is_ok()
        });
        late
    }

    /// Serves a volume that was absent. One that was made anew under its name, as another node may do with the pool, has
    /// neither what hosts wrote nor what they reserved: it is not served as what they know, also where the mapping has no
    /// identity.
    ///
    /// # Errors
    /// Why it is not there; `Conflict` where it is another one than hosts saw.
    pub fn attach_late(&mut self, place: &Place, def: &NamespaceDef) -> Result<()> {
        let media = Media::open(def, self.reactors.len() > 1, &self.pools)?;
        let seen = self.seen.get(&place.0, place.1, &def.backend).map(|seen| seen.uuid);
        if let (Some(id), Some(meant)) = (media.kept_in(), seen)
            && id != meant
        {
            return Err(not_meant(&def.backend, id, meant));
        }
        self.provide(place, def, media)
    }

    /// Has the volumes of `pool` be absent from now on, as hosts saw them last, until they are [attached](Self::attach).
    /// Gives why some are not.
    pub fn withdraw(&mut self, pool: &Name, current: &Desired) -> Vec<Error> {
        let mut failed = Vec::new();
        for ((nqn, nsid), media) in &mut self.media {
            let def = current.subsystem(nqn).and_then(|def| def.namespaces.get(nsid));
            if def.and_then(|def| def.backend.pool()) != Some(pool) || media.is_absent() {
                continue;
            }
            let withdrawn = wire(nqn)
                .and_then(|name| self.target.withdraw_namespace(&name, *nsid).map_err(refused));
            match withdrawn {
                Ok(_) => *media = Media::absent(media.bytes()),
                Err(error) => failed.push(error),
            }
        }
        failed
    }

    /// Has one namespace be absent, likewise, and gives what its backend still has.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn withdraw_one(&mut self, place: &Place) -> Result<Draining> {
        let (nqn, nsid) = place;
        let Some(media) = self.media.get_mut(place).filter(|media| !media.is_absent()) else {
            return Ok(Draining::default());
        };
        let draining = self.target.withdraw_namespace(&wire(nqn)?, *nsid).map_err(refused)?;
        *media = Media::absent(media.bytes());
        Ok(draining)
    }

    /// Serves a namespace whose backend is there now.
    ///
    /// # Errors
    /// Why it cannot be served.
    pub fn provide(&mut self, place: &Place, def: &NamespaceDef, media: Media) -> Result<()> {
        let (nqn, nsid) = place;
        if self.media.get(place).is_some_and(Media::is_absent) {
            let (name, bytes) = (wire(nqn)?, media.bytes());
            let provided = self.target.provide_namespace(&name, *nsid, media.backend(), bytes);
            provided.map_err(refused)?;
            self.media.insert(place.clone(), media);
            self.remember(nqn, *nsid, def, bytes);
        } else if self.absent.contains(place) {
            let mut batch = Batch::default();
            batch.fresh_media.insert(place.clone(), media);
            self.add_namespace(nqn, *nsid, def, &mut batch)?;
        }
        self.absent.remove(place);
        Ok(())
    }

    /// Whether devices of listeners were removed.
    pub fn has_deserted_listeners(&self) -> bool {
        self.listeners.values().any(Listening::is_deserted)
    }

    /// Has the device of a listener be as if it were removed.
    #[cfg(test)]
    pub fn desert(&self, address: Address) {
        self.listeners[&address].desert();
    }

    /// Has listeners whose devices were removed be absent, until [`listen`](Self::listen). Gives their addresses.
    ///
    /// # Errors
    /// None that is known.
    pub fn withdraw_listeners(&mut self) -> Result<Vec<Address>> {
        let deserted = self.listeners.extract_if(.., |_, listening| listening.is_deserted());
        let deserted: Vec<_> = deserted.collect();
        for (address, listening) in &deserted {
            self.unbound.insert(*address);
            if let Some(id) = listening.id() {
                self.target.remove_listener(id).map_err(refused)?;
            }
        }
        Ok(deserted.into_iter().map(|(address, _)| address).collect())
    }

    /// Listens on an address that is there now.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn listen(
        &mut self,
        address: Address,
        def: &ListenerDef,
        listening: Listening,
    ) -> Result<()> {
        if self.unbound.contains(&address) {
            self.serve_listener(address, def, listening)?;
            self.unbound.remove(&address);
        }
        Ok(())
    }

    /// What binds an address that was absent, with nothing of the node.
    pub fn binder(&self) -> impl Fn(Address) -> Result<Listening> + use<> {
        let (reactors, target) = (self.reactors.clone(), self.target.clone());
        move |address| Listening::bind(&reactors, &target, address)
    }
}
