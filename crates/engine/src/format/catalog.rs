//! The catalog: the objects of a pool, volumes and what else has a name. On every drive it is a base, whole, and the
//! edits since.

mod area;
mod page;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Bad, check_name};
use crate::address::{BLOCK, Version, View};
use crate::limits::{QUOTA_MAX, QUOTA_UNIT, RESERVATION_MAX, VOLUME_BYTES_MAX};

pub use area::{CatalogArea, EDIT_PAGES_MAX};
pub use page::{Base, Loader, PAGE, Page, Part, RECORDS, base_pages};

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What hosts read and write.
    Volume,
    /// What a volume or clone had at an epoch.
    Snapshot,
    /// A volume that begins with what its parent has.
    Clone,
    /// What other objects belong to together.
    Group,
}

impl Kind {
    /// What operators call one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::Clone => "clone",
            Self::Group => "group",
        }
    }
}

/// The version of what is written in an epoch.
fn version_of(epoch: u64) -> Option<Version> {
    u32::try_from(epoch).ok().and_then(Version::new).filter(|version| *version < Version::LAST)
}

/// Space that is kept for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// So many bytes, a multiple of [`QUOTA_UNIT`].
    Bytes(u64),
    /// As many as the volume has, whatever its size.
    All,
}

impl Reservation {
    /// How many of a volume of that size.
    #[must_use]
    pub fn of(self, size: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.min(size),
            Self::All => size,
        }
    }
}

/// One object. Its number is that of its view, and never used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub view: View,
    pub kind: Kind,
    /// Its own among all, but for snapshots: among those of its volume.
    pub name: Arc<str>,
    /// What identifies it for ever.
    pub id: [u8; 16],
    /// Size in bytes, a multiple of the block; 0 for a group.
    pub bytes: u64,
    /// Where the blocks of an earlier, larger size end, while they are still being given back;
    /// otherwise as `bytes`.
    pub shrunk_from: u64,
    /// The logical block hosts see: 512 or 4096 bytes.
    pub block_size: u32,
    /// It was deleted. Its blocks are still being given back, unless it has no bytes any more: then it is there for what
    /// its clones see of it.
    pub deleted: bool,
    /// What it was made from, and the epoch that one had from then on: all that is older is seen. Snapshots and clones
    /// have one.
    pub parent: Option<View>,
    pub parent_epoch: u64,
    /// The group that it belongs to.
    pub group: Option<View>,
    /// Its blocks go over the shards by this number: its own, or its parent's.
    pub placement: u32,
    /// The view that its volume had first: its own, but where the volume was rolled back since. A volume's snapshots are
    /// those of all its views, of which one is not deleted.
    pub first_view: View,
    /// How many snapshots were taken of it so far: the [version](Object::version) of what is written to it now.
    pub epoch: u64,
    /// A clone that is being given what it inherits as its own.
    pub detaching: bool,
    /// The epoch in which a clone had all that it inherits as its own: its parent is there for what is older.
    pub detached: Option<u64>,
    /// Bytes that a volume, or the volumes of a group, and all their snapshots may hold together, a multiple of [`QUOTA_UNIT`]; 0 for no bound.
    pub quota: u64,
    /// What is kept for a volume's hosts to write.
    pub reservation: Option<Reservation>,
    /// The number of its direct write window, if a host has one: what is stored there is part of the log. 0 for none.
    pub window: u32,
    /// When it was made, in seconds since 1970; 0 where nobody said so.
    pub created: u64,
}

impl Object {
    /// A volume without parent or group.
    #[must_use]
    pub fn volume(view: View, name: &str, id: [u8; 16], bytes: u64, block_size: u32) -> Self {
        Self {
            view,
            kind: Kind::Volume,
            name: name.into(),
            id,
            bytes,
            shrunk_from: bytes,
            block_size,
            deleted: false,
            parent: None,
            parent_epoch: 0,
            group: None,
            placement: view.get(),
            first_view: view,
            epoch: 0,
            detaching: false,
            detached: None,
            quota: 0,
            reservation: None,
            window: 0,
            created: 0,
        }
    }

    /// It is what hosts read and write, a clone or not.
    #[must_use]
    pub const fn is_volume(&self) -> bool {
        matches!(self.kind, Kind::Volume | Kind::Clone)
    }

    #[must_use]
    pub const fn is_group(&self) -> bool {
        matches!(self.kind, Kind::Group)
    }

    /// Which version what is written to it now is of.
    #[must_use]
    pub fn version(&self) -> Version {
        version_of(self.epoch).unwrap_or(Version::LAST)
    }

    /// The last version of its parent that it sees, if it has one.
    #[must_use]
    pub fn sees(&self) -> Option<Version> {
        version_of(self.parent_epoch)?.before()
    }

    /// Whether what sees it up to a version, or all of it, sees what its parent has where it has nothing.
    #[must_use]
    pub fn inherits(&self, sees: Option<Version>) -> bool {
        let is_older = |detached| sees.is_some_and(|sees| u64::from(sees.get()) < detached);
        self.kind == Kind::Clone && self.detached.is_none_or(is_older)
    }

    /// As it is without a parent: whoever sees anything of it sees nothing of that.
    #[must_use]
    pub fn cut_loose(&self) -> Self {
        let (kind, parent, parent_epoch) = (Kind::Volume, None, 0);
        Self { kind, parent, parent_epoch, detaching: false, detached: None, ..self.clone() }
    }

    /// Whether it makes sense by itself.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), Bad> {
        check_name(&self.name).map_err(|_| Bad::Field("name"))?;
        if !matches!(self.block_size, 512 | 4096) {
            return Err(Bad::Field("block of an object"));
        }
        let is_size = |bytes: u64| {
            bytes.is_multiple_of(stdx::num::u64_of(BLOCK)) && bytes <= VOLUME_BYTES_MAX
        };
        let has_none = self.bytes == 0 && self.shrunk_from == 0;
        if !is_size(self.bytes) || !is_size(self.shrunk_from) {
            return Err(Bad::Field("size of an object"));
        }
        let is_sensible = match self.kind {
            Kind::Volume => self.parent.is_none(),
            Kind::Snapshot | Kind::Clone => self.parent.is_some(),
            Kind::Group => self.parent.is_none() && self.group.is_none() && has_none,
        };
        if !is_sensible || self.parent.is_some() != (self.parent_epoch > 0) {
            return Err(Bad::Field("parent"));
        }
        // As of the last version everything is seen: nothing is written in it.
        if [self.epoch, self.parent_epoch].iter().any(|epoch| version_of(*epoch).is_none()) {
            return Err(Bad::Field("epoch"));
        }
        let is_clone = self.kind == Kind::Clone;
        if self.detaching && (self.deleted || !is_clone)
            || self.detached.is_some_and(|detached| detached > self.epoch || !is_clone)
        {
            return Err(Bad::Field("detached"));
        }
        let may_have_quota = self.kind != Kind::Snapshot && self.quota <= QUOTA_MAX;
        if self.quota != 0 && !may_have_quota || !self.quota.is_multiple_of(QUOTA_UNIT) {
            return Err(Bad::Field("quota"));
        }
        let can_be =
            |bytes: u64| bytes > 0 && bytes <= RESERVATION_MAX && bytes.is_multiple_of(QUOTA_UNIT);
        let is_sensible = match self.reservation {
            None => true,
            Some(Reservation::All) => self.is_volume(),
            Some(Reservation::Bytes(bytes)) => self.is_volume() && can_be(bytes),
        };
        if !is_sensible {
            return Err(Bad::Field("reservation"));
        }
        if self.window != 0 && !self.is_volume() {
            return Err(Bad::Field("window"));
        }
        let was_other = self.first_view != self.view;
        let can_be = self.is_volume() || !was_other;
        if self.first_view.get() == 0 || self.first_view > self.view || !can_be {
            return Err(Bad::Field("first view"));
        }
        if self.placement == 0 || self.placement > self.view.get() {
            return Err(Bad::Field("placement"));
        }
        Ok(())
    }

    /// It is what its volume is since that was rolled back.
    fn was_rolled_back(&self) -> bool {
        !self.deleted && self.first_view != self.view
    }

    /// What has to be there for as long as it is.
    fn needs(&self) -> impl Iterator<Item = View> {
        self.parent.into_iter().chain(self.group)
    }
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// This is what it is now, whether it was there before or not.
    Put(Object),
    Remove(View),
}

impl Record {
    const fn view(&self) -> View {
        match self {
            Self::Put(object) => object.view,
            Self::Remove(view) => *view,
        }
    }
}

/// Changes that happen together, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// The view the next object gets, from then on.
    pub next_view: u32,
    pub records: Vec<Record>,
}

/// A name, and the volume among whose snapshots it is one, by its first view.
type Named = (Option<View>, Arc<str>);

/// All objects of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// Grows with every base and every edit written.
    pub generation: u64,
    next_view: u32,
    objects: BTreeMap<View, Object>,
    /// By what they are names among.
    names: BTreeMap<Named, View>,
    /// The views of volumes that were rolled back, by the first that each had.
    rolled_back: BTreeMap<View, View>,
    /// How many objects name this one as their parent or group.
    needed: BTreeMap<View, u32>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self {
            generation: 0,
            next_view: 1,
            objects: BTreeMap::new(),
            names: BTreeMap::new(),
            rolled_back: BTreeMap::new(),
            needed: BTreeMap::new(),
        }
    }
}

impl Catalog {
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The view the next object gets; views are never used again.
    #[must_use]
    pub const fn next_view(&self) -> u32 {
        self.next_view
    }

    /// All objects by their numbers.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    #[must_use]
    pub fn get(&self, view: View) -> Option<&Object> {
        self.objects.get(&view)
    }

    /// The volume, clone or group of this name, unless it was deleted.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Object> {
        self.get(*self.names.get(&(None, name.into()))?)
    }

    /// The snapshot of this name of a volume or clone.
    #[must_use]
    pub fn find_snapshot(&self, of: View, name: &str) -> Option<&Object> {
        let first = self.get(of)?.first_view;
        self.get(*self.names.get(&(Some(first), name.into()))?)
    }

    /// The snapshots of a volume or clone, by their names.
    pub fn snapshots_of(&self, view: View) -> impl Iterator<Item = &Object> {
        let first = Some(self.get(view).map_or(view, |of| of.first_view));
        let from = (first, Arc::from(""));
        let of_volume = self.names.range(from..).take_while(move |((of, _), _)| *of == first);
        of_volume.filter_map(|(_, view)| self.get(*view))
    }

    /// The volume or clone that a snapshot is of, whichever of its views it was taken of.
    #[must_use]
    pub fn volume_of(&self, snapshot: &Object) -> Option<&Object> {
        let first = self.get(snapshot.parent?)?.first_view;
        self.current(first)
    }

    /// The view that hosts have of a volume now, by the first that it had.
    fn current(&self, first: View) -> Option<&Object> {
        let view = self.rolled_back.get(&first).copied().unwrap_or(first);
        self.get(view).filter(|object| !object.deleted)
    }

    /// What nothing else may have: its name, and among which ones. What was deleted has none: it may be there for long
    /// yet, for its clones, or its snapshots where it was rolled back.
    fn named(&self, object: &Object) -> Option<Named> {
        let of_snapshot = object.parent.filter(|_| object.kind == Kind::Snapshot);
        let scope = of_snapshot.map(|of| self.get(of).map_or(of, |of| of.first_view));
        (!object.deleted).then(|| (scope, Arc::clone(&object.name)))
    }

    /// How many snapshots and clones were made from this one, or how many are of this group.
    #[must_use]
    pub fn needing(&self, view: View) -> u32 {
        self.needed.get(&view).copied().unwrap_or(0)
    }

    /// Whether another catalog has the same objects, of whatever generation it is.
    #[must_use]
    pub fn has_same(&self, other: &Self) -> bool {
        (self.next_view, &self.objects) == (other.next_view, &other.objects)
    }

    /// An edit with these records, that makes no new object.
    #[must_use]
    pub fn edit(&self, records: Vec<Record>) -> Edit {
        Edit { next_view: self.next_view, records }
    }

    /// How many objects there are once an edit is applied, which is not done.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn check(&mut self, edit: &Edit) -> Result<usize, Bad> {
        let undo = self.try_apply(edit)?;
        let objects = self.len();
        self.revert(undo);
        Ok(objects)
    }

    /// Applies an edit.
    ///
    /// # Errors
    /// Why it cannot be: then nothing of it is.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), Bad> {
        self.try_apply(edit).map(drop)
    }

    fn try_apply(&mut self, edit: &Edit) -> Result<Undo, Bad> {
        if edit.next_view < self.next_view || edit.next_view > View::SHARED.get() {
            return Err(Bad::Field("next view"));
        }
        let mut undo = Undo { next_view: self.next_view, before: Vec::new() };
        self.next_view = edit.next_view;
        for record in &edit.records {
            if let Err(bad) = self.check_record(record) {
                self.revert(undo);
                return Err(bad);
            }
            let object = match record {
                Record::Put(object) => Some(object.clone()),
                Record::Remove(_) => None,
            };
            undo.before.push((record.view(), self.replace(record.view(), object)));
        }
        Ok(undo)
    }

    fn revert(&mut self, undo: Undo) {
        for (view, object) in undo.before.into_iter().rev() {
            self.replace(view, object);
        }
        self.next_view = undo.next_view;
    }

    /// Puts an object, or none, in the place of the one there; gives that.
    fn replace(&mut self, view: View, object: Option<Object>) -> Option<Object> {
        let before = self.objects.remove(&view);
        if let Some(before) = &before {
            self.named(before).and_then(|name| self.names.remove(&name));
            if before.was_rolled_back() {
                self.rolled_back.remove(&before.first_view);
            }
            for needed in before.needs() {
                if let Some(count) = self.needed.get_mut(&needed) {
                    *count -= 1;
                    if *count == 0 {
                        self.needed.remove(&needed);
                    }
                }
            }
        }
        if let Some(object) = object {
            self.named(&object).and_then(|name| self.names.insert(name, view));
            if object.was_rolled_back() {
                self.rolled_back.insert(object.first_view, view);
            }
            for needed in object.needs() {
                *self.needed.entry(needed).or_default() += 1;
            }
            self.objects.insert(view, object);
        }
        before
    }

    fn check_record(&self, record: &Record) -> Result<(), Bad> {
        match record {
            Record::Put(object) => self.check_put(object),
            Record::Remove(view) if !self.objects.contains_key(view) => {
                Err(Bad::Field("removal of an object"))
            }
            Record::Remove(view) if self.needed.contains_key(view) => {
                Err(Bad::Field("removal of a parent or group"))
            }
            Record::Remove(_) => Ok(()),
        }
    }

    fn check_put(&self, object: &Object) -> Result<(), Bad> {
        if object.view.get() == 0 || object.view.get() >= self.next_view {
            return Err(Bad::Field("view"));
        }
        object.check()?;
        let is_taken = |name| self.names.get(&name).is_some_and(|view| *view != object.view);
        if self.named(object).is_some_and(is_taken) {
            return Err(Bad::Field("name"));
        }
        let current = self.current(object.first_view);
        if !object.deleted && current.is_some_and(|current| current.view != object.view) {
            return Err(Bad::Field("first view"));
        }
        if let Some(parent) = object.parent {
            let parent = self.get(parent).ok_or(Bad::Field("parent"))?;
            let can_be = match parent.kind {
                Kind::Volume | Kind::Clone => true,
                Kind::Snapshot => object.kind == Kind::Clone,
                Kind::Group => false,
            };
            // A clone of a snapshot sees just what that does.
            let had_epoch = match parent.kind {
                Kind::Snapshot => object.parent_epoch == parent.parent_epoch,
                _ => object.parent_epoch <= parent.epoch,
            };
            let is_older = parent.view < object.view && had_epoch;
            if !can_be || !is_older || parent.placement != object.placement {
                return Err(Bad::Field("parent"));
            }
        }
        if let Some(group) = object.group
            && !self.get(group).is_some_and(Object::is_group)
        {
            return Err(Bad::Field("group"));
        }
        // What others rely on stays.
        let before = self.get(object.view);
        match before {
            Some(before) if before.placement != object.placement => Err(Bad::Field("placement")),
            Some(before) if before.first_view != object.first_view => Err(Bad::Field("first view")),
            Some(before) if before.epoch > object.epoch => Err(Bad::Field("epoch")),
            Some(before) if before.is_group() != object.is_group() => {
                Err(Bad::Field("kind of an object"))
            }
            _ => Ok(()),
        }
    }
}

/// What takes an edit back.
struct Undo {
    next_view: u32,
    /// What was there, in the order in which it was replaced.
    before: Vec<(View, Option<Object>)>,
}
