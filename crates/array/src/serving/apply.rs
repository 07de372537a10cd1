//! A change of what is served, step by step: all of it or none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::v1::Kind;
use api::value::{Address, AnaState, Backend, Nqn};
use target::Draining;
use target::listener::ListenerInfo;
use target::namespace::NamespaceSpec;
use target::subsystem::SubsystemSpec;
use uuid::Uuid;

use super::drives::{OpenedDrive, is_drive, not_open_yet};
use super::listen::Listening;
use super::media::Media;
use super::words::{ana, referral, refused, transport_address, wire};
use super::{Place, Serving};
use crate::change::Step;
use crate::desired::{ListenerDef, MODEL, NamespaceDef, SubsystemDef};
use crate::seen::Seen;
use crate::{Error, Result, generic, identity};

/// What a change has ready, and what it has taken out of service and may yet have to put back.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) fresh_media: BTreeMap<Place, Media>,
    fresh_listeners: BTreeMap<Address, Listening>,
    pub(super) parked_media: BTreeMap<Place, Media>,
    parked_listeners: BTreeMap<Address, Listening>,
    /// Places left absent, and those that were and are asked for no more.
    absent: BTreeSet<Place>,
    /// Likewise, addresses that are not there.
    unbound: BTreeSet<Address>,
    /// Namespaces that were removed.
    removed: BTreeSet<Uuid>,
    /// Subsystems that were removed.
    left: BTreeSet<Nqn>,
    /// Sizes before they were changed, in bytes.
    sizes: BTreeMap<Place, u64>,
    /// Namespaces that became smaller.
    cuts: BTreeMap<Place, Draining>,
    /// Drives that were opened for it.
    pub(super) opened: BTreeMap<Place, Result<OpenedDrive>>,
    /// Steps are being taken back.
    pub(super) back: bool,
}

/// A change that was taken, and may have to be taken back.
pub struct Taken {
    steps: Vec<Step>,
    batch: Batch,
    /// What namespaces were before it.
    seen: Seen,
}

/// What a namespace was kept in that is removed, while commands of it have not ended.
#[derive(Debug)]
pub(super) struct Lingering {
    place: Place,
    backend: Backend,
    _media: Media,
    draining: Draining,
}

impl Lingering {
    /// Whether a namespace of this definition would be kept in the same.
    fn is_kept_in(&self, def: &NamespaceDef) -> bool {
        self.backend.is_same_medium(&def.backend)
    }
}

impl Serving {
    /// Lets go of what removed namespaces were kept in, as far as nothing is left of their commands.
    pub fn let_go(&mut self) {
        self.lingering.retain(|lingering| !lingering.draining.wait(Duration::ZERO));
    }

    /// What has to end before all of that is let go of, by namespace: to be waited for with nothing held.
    pub fn lingering(&self) -> Vec<(Place, Draining)> {
        let each = |lingering: &Lingering| (lingering.place.clone(), lingering.draining.clone());
        self.lingering.iter().map(each).collect()
    }

    /// What has to end of what hosts had by what was changed, their direct write windows: to be waited for with nothing held.
    pub fn take_ending(&mut self) -> Vec<Draining> {
        std::mem::take(&mut self.ending)
    }

    /// Refuses to serve anew what has late commands of a namespace that is removed.
    pub(super) fn check_unused(&self, def: &NamespaceDef) -> Result<()> {
        let late = self.lingering.iter().find(|late| late.is_kept_in(def));
        late.map_or(Ok(()), |late| {
            let (nqn, nsid) = &late.place;
            let what = format!(
                "{} was namespace {nsid} of {nqn}, and commands of that have not ended",
                def.backend
            );
            Err(Error::new(Kind::Conflict, what).help("try again in a moment"))
        })
    }

    /// Takes all `steps`, for which their drives were `opened`, or none of them.
    ///
    /// # Errors
    /// Why a step could not be taken; everything is as it was before.
    pub fn apply(
        &mut self,
        steps: Vec<Step>,
        opened: BTreeMap<Place, Result<OpenedDrive>>,
    ) -> Result<Taken> {
        self.let_go();
        self.drop_cuts();
        let batch = self.prepare(&steps, opened)?;
        self.take_all(steps, batch)
    }

    /// Takes all `steps`, for which `batch` has all that they need, or none.
    pub(super) fn take_all(&mut self, steps: Vec<Step>, mut batch: Batch) -> Result<Taken> {
        let mut taken = Vec::new();
        let seen = self.seen.clone();
        for step in steps {
            if let Err(error) = self.take(&step, &mut batch) {
                self.take_steps_back(taken, &mut batch, seen);
                return Err(error);
            }
            taken.push(step);
        }
        self.removed.extend(batch.removed.iter().copied());
        self.event_logs.leave(batch.left.clone());
        for (place, draining) in &batch.cuts {
            self.cut_later(place.clone(), draining.clone());
        }
        self.keep_events();
        Ok(Taken { steps: taken, batch, seen })
    }

    /// Takes a change back that is not to stay, with what it took out: nothing of that has to be opened again.
    pub fn take_back(&mut self, taken: Taken) {
        self.drop_cuts();
        let Taken { steps, mut batch, seen } = taken;
        self.take_steps_back(steps, &mut batch, seen);
        self.removed.extend(batch.removed);
        self.event_logs.leave(batch.left);
    }

    fn take_steps_back(&mut self, steps: Vec<Step>, batch: &mut Batch, seen: Seen) {
        batch.back = true;
        for step in steps.into_iter().rev() {
            let inverse = Step::inverse(step);
            if let Err(error) = self.take(&inverse, batch) {
                // A step that was just taken can be taken back; should it not be so, the
                // rest still is.
                tracing::error!("cannot take back {inverse:?}: {error}");
            }
        }
        // What is not there does not tell what it was.
        self.seen = seen;
    }

    /// Opens and binds what `steps` will need: what fails from outside fails here, before anything
    /// is changed.
    fn prepare(
        &self,
        steps: &[Step],
        opened: BTreeMap<Place, Result<OpenedDrive>>,
    ) -> Result<Batch> {
        let mut batch = Batch { opened, ..Batch::default() };
        for step in steps {
            self.prepare_step(step, &mut batch)?;
        }
        Ok(batch)
    }

    pub(super) fn prepare_step(&self, step: &Step, batch: &mut Batch) -> Result<()> {
        match step {
            Step::AddNamespace { nqn, nsid, def } => {
                let place = (nqn.clone(), *nsid);
                self.check_free(def)?;
                let media = match self.goes_on_waiting(&place, def) {
                    Some(absent) => absent,
                    None if is_drive(&def.backend) => {
                        let opened = batch.opened.remove(&place);
                        let opened = opened.unwrap_or_else(|| Err(not_open_yet(def)));
                        opened?.not_of(&self.pools, def)?
                    }
                    None => Media::open(def, self.reactors.len() > 1, &self.pools)?,
                };
                batch.fresh_media.insert(place, media);
            }
            Step::AddListener { address, .. } if !self.listeners.contains_key(address) => {
                let listening = Listening::bind(&self.reactors, &self.target, *address)?;
                batch.fresh_listeners.insert(*address, listening);
            }
            Step::Resize { nqn, nsid, to, .. } => {
                let place = (nqn.clone(), *nsid);
                let before = self.media.get(&place).map_or(0, Media::bytes);
                if Media::size_asked(to).is_some_and(|bytes| bytes > before) {
                    self.check_uncut(&place)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses to serve what late commands of a removed namespace have, and what pools have.
    pub(super) fn check_free(&self, def: &NamespaceDef) -> Result<()> {
        self.check_unused(def)?;
        generic::block_device(&def.backend).map_or(Ok(()), |path| self.pools.check_no_drive(&path))
    }

    /// What is there in place of what is waited for, where that goes on to be. What is of a pool that is open is there.
    pub(super) fn goes_on_waiting(&self, place: &Place, def: &NamespaceDef) -> Option<Media> {
        if !self.is_late(def, true) {
            return None;
        }
        let absent = self.media.get(place).filter(|media| media.is_absent())?;
        self.seen.get(&place.0, place.1, &def.backend)?;
        Some(Media::absent(absent.bytes()))
    }

    fn take(&mut self, step: &Step, batch: &mut Batch) -> Result<()> {
        match step {
            Step::AddSubsystem { nqn, def } => self.add_subsystem(nqn, def),
            Step::RemoveSubsystem { nqn, .. } => {
                // It may come back.
                if let Ok(events) = self.target.persistent_events(&wire(nqn)?) {
                    self.event_logs.write(nqn, events);
                }
                // Its namespaces were removed before it.
                let _none = self.target.remove_subsystem(&wire(nqn)?).map_err(refused)?;
                batch.left.insert(nqn.clone());
                Ok(())
            }
            Step::AllowAny { nqn, allow } => {
                let ending = self.target.set_allow_any(&wire(nqn)?, *allow).map_err(refused)?;
                self.ending.push(ending);
                Ok(())
            }
            Step::AllowHost { nqn, host } => {
                self.target.allow_host(&wire(nqn)?, &wire(host)?).map_err(refused)
            }
            Step::DenyHost { nqn, host } => {
                let ending = self.target.deny_host(&wire(nqn)?, &wire(host)?).map_err(refused)?;
                self.ending.push(ending);
                Ok(())
            }
            Step::AddNamespace { nqn, nsid, def } => self.add_namespace(nqn, *nsid, def, batch),
            Step::RemoveNamespace { nqn, nsid, def } => {
                self.remove_namespace(nqn, *nsid, def, batch)
            }
            Step::Resize { nqn, nsid, to, .. } => self.resize(nqn, *nsid, to, batch),
            Step::AddListener { address, def } => self.add_listener(*address, def, batch),
            Step::RemoveListener { address, .. } => self.remove_listener(*address, batch),
            Step::SetAna { address, to, .. } => self.set_ana(*address, *to),
            Step::AddReferral { address } => {
                self.target.add_referral(referral(*address)).map_err(refused)
            }
            Step::RemoveReferral { address } => {
                self.target.remove_referral(&referral(*address)).map_err(refused)
            }
        }
    }

    fn add_subsystem(&mut self, nqn: &Nqn, def: &SubsystemDef) -> Result<()> {
        let spec = SubsystemSpec {
            serial: def.serial.clone().unwrap_or_else(|| identity::serial(self.node, nqn)),
            model: def.model.clone().unwrap_or_else(|| MODEL.to_owned()),
            allow_any_host: def.allow_any_host,
            ..SubsystemSpec::new(wire(nqn)?)
        };
        let name = spec.nqn.clone();
        self.target.add_subsystem(spec).map_err(refused)?;
        self.target.restore_events(&name, self.event_logs.read(nqn)).map_err(refused)
    }

    pub(super) fn add_namespace(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        def: &NamespaceDef,
        batch: &mut Batch,
    ) -> Result<()> {
        let place = (nqn.clone(), nsid);
        if batch.back && batch.absent.remove(&place) {
            self.absent.insert(place);
            return Ok(());
        }
        if !batch.back {
            // By what it was in this very change, perhaps.
            self.check_unused(def)?;
        }
        let ready = if batch.back { &mut batch.parked_media } else { &mut batch.fresh_media };
        let media = ready.remove(&place).ok_or_else(|| unprepared("namespace"))?;
        let uuid = self.uuid(nqn, nsid, def);
        let spec = NamespaceSpec {
            nsid: Some(nsid),
            uuid: Some(*uuid.as_bytes()),
            nguid: Some(identity::nguid(uuid)),
            write_protected: matches!(def.backend, Backend::Snapshot(_)),
            reservations: media.is_durable().then(|| self.reservations.of(uuid)).transpose()?,
            ..NamespaceSpec::new(media.backend(), def.block_size)
        };
        let name = wire(nqn)?;
        self.target.add_namespace(&name, &spec).map_err(refused)?;
        let bytes = media.bytes();
        if let Err(error) = self.target.resize_namespace(&name, nsid, bytes) {
            let draining = self.target.remove_namespace(&name, nsid).map_err(refused)?;
            self.linger(place, def, media, draining);
            return Err(refused(error));
        }
        self.media.insert(place, media);
        self.remember(nqn, nsid, def, bytes);
        Ok(())
    }

    /// Keeps what a removed namespace was kept in until nothing is left of its commands.
    fn linger(&mut self, place: Place, def: &NamespaceDef, media: Media, draining: Draining) {
        if !draining.wait(Duration::ZERO) {
            let backend = def.backend.clone();
            self.lingering.push(Lingering { place, backend, _media: media, draining });
        }
    }

    fn remove_namespace(
        &mut self,
        nqn: &Nqn,
        nsid: u32,
        def: &NamespaceDef,
        batch: &mut Batch,
    ) -> Result<()> {
        if let Some(place) = self.absent.take(&(nqn.clone(), nsid)) {
            batch.absent.insert(place);
            return Ok(());
        }
        let draining = self.target.remove_namespace(&wire(nqn)?, nsid).map_err(refused)?;
        let place = (nqn.clone(), nsid);
        batch.removed.insert(self.uuid(nqn, nsid, def));
        let Some(media) = self.media.remove(&place) else { return Ok(()) };
        // A late write must not meet the media's next owner: it is kept until there is none.
        self.linger(place.clone(), def, media.clone(), draining);
        if !batch.back {
            batch.parked_media.insert(place, media);
        }
        Ok(())
    }

    /// Growing, the media goes first; shrinking, the namespace does: at no time does a host see
    /// more than there is. What is behind a new end is cut off later: when the change is kept, and no command is
    /// there any more.
    fn resize(&mut self, nqn: &Nqn, nsid: u32, to: &NamespaceDef, batch: &mut Batch) -> Result<()> {
        let place = (nqn.clone(), nsid);
        if self.absent.contains(&place) {
            return Ok(());
        }
        let media = self.media.get_mut(&place).ok_or_else(|| unprepared("namespace"))?;
        let before = media.bytes();
        let bytes = match batch.sizes.get(&place) {
            Some(bytes) if batch.back => *bytes,
            _ => Media::size_asked(to).unwrap_or(before),
        };
        if batch.back && batch.cuts.remove(&place).is_some() {
            media.serve(bytes);
        } else if bytes > before || media.is_absent() {
            media.resize(bytes)?;
        }
        let draining = self.target.resize_namespace(&wire(nqn)?, nsid, bytes).map_err(refused)?;
        if bytes < before {
            media.serve(bytes);
            if !batch.back {
                batch.cuts.insert(place.clone(), draining);
            } else if draining.wait(Duration::ZERO) {
                media.cut()?;
            }
        }
        batch.sizes.insert(place, before);
        self.remember(nqn, nsid, to, bytes);
        Ok(())
    }

    fn add_listener(
        &mut self,
        address: Address,
        def: &ListenerDef,
        batch: &mut Batch,
    ) -> Result<()> {
        if batch.back && batch.unbound.remove(&address) {
            self.unbound.insert(address);
            return Ok(());
        }
        let fresh = batch.fresh_listeners.remove(&address);
        let ready = fresh.or_else(|| batch.parked_listeners.remove(&address));
        self.serve_listener(address, def, ready.ok_or_else(|| unprepared("listener"))?)
    }

    pub(super) fn serve_listener(
        &mut self,
        address: Address,
        def: &ListenerDef,
        listening: Listening,
    ) -> Result<()> {
        let local = listening.local();
        let port = local.socket().port();
        let advertise = def.advertise.map(|to| (to.ip, to.port.unwrap_or(port)));
        let info = ListenerInfo {
            advertise,
            discovery_only: def.discovery_only,
            ana: ana(def.ana),
            ..ListenerInfo::new(transport_address(local))
        };
        listening.serve(self.target.add_listener(info).map_err(refused)?);
        self.listeners.insert(address, listening);
        Ok(())
    }

    fn remove_listener(&mut self, address: Address, batch: &mut Batch) -> Result<()> {
        if self.unbound.remove(&address) {
            batch.unbound.insert(address);
            return Ok(());
        }
        let listening = self.listeners.remove(&address).ok_or_else(|| unprepared("listener"))?;
        if let Some(id) = listening.id() {
            self.target.remove_listener(id).map_err(refused)?;
        }
        batch.parked_listeners.entry(address).or_insert(listening);
        Ok(())
    }

    fn set_ana(&mut self, address: Address, to: AnaState) -> Result<()> {
        if self.unbound.contains(&address) {
            return Ok(());
        }
        let id = self.listeners.get(&address).and_then(Listening::id);
        let id = id.ok_or_else(|| unprepared("listener"))?;
        self.ending.push(self.target.set_listener_ana(id, ana(to)).map_err(refused)?);
        Ok(())
    }
}

/// A step out of order: a fault of this program.
fn unprepared(what: &str) -> Error {
    debug_assert!(false, "{what} was not prepared");
    Error::new(Kind::Failed, format!("a {what} was not prepared"))
}
