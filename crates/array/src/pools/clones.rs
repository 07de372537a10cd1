//! Clones: volumes that began with what a snapshot had.

use std::collections::BTreeMap;

use api::v1::{Kind, Origin};
use api::value::{Name, Size, VolumePath};
use engine::{CloneSpec, GroupCloneSpec, Volume};
use uuid::Uuid;

use super::held::{Held, Limits, groups_of};
use super::open::OpenPool;
use crate::events::now_ms;
use crate::{Error, Result};

/// What a pool's volumes and snapshots are called now, by what identifies them for ever.
pub(super) struct Names<'h> {
    pool: &'h Name,
    names: BTreeMap<[u8; 16], &'h Name>,
}

impl<'h> Names<'h> {
    pub(super) fn of(pool: &'h Name, held: &'h BTreeMap<Name, Held>) -> Self {
        let mut names = BTreeMap::new();
        // Nobody asks for them where there is no clone.
        if held.values().all(|held| held.volume.origin().is_none()) {
            return Self { pool, names };
        }
        for (name, Held { volume, snapshots }) in held {
            names.insert(volume.id(), name);
            let each = snapshots.iter().map(|snapshot| (snapshot.volume.id(), &snapshot.name));
            names.extend(each);
        }
        Self { pool, names }
    }

    /// What a volume was cloned from; `None` for one that is no clone.
    pub(super) fn origin(&self, of: &Volume) -> Option<Origin> {
        let from = of.origin()?;
        let name = |id: [u8; 16]| self.names.get(&id).map(|name| Name::clone(name));
        let volume = name(from.volume).map(|volume| VolumePath { pool: self.pool.clone(), volume });
        // A snapshot is called something only beside its volume.
        let snapshot = volume.as_ref().and(from.snapshot).and_then(name);
        Some(Origin { volume, snapshot })
    }
}

const WAITS: &str = "a clone waits for what the commit log has of its snapshot to be on the drives: `flashloom health` \
                     tells what holds that up";

impl OpenPool {
    /// What a volume was cloned from, if it was.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn origin_of(&self, volume: &Name) -> Result<Option<Origin>> {
        let of = self.volume(volume)?;
        if of.origin().is_none() {
            return Ok(None);
        }
        let held = self.held().lock();
        Ok(Names::of(self.name(), &held).origin(&of))
    }

    /// Whether clones have something of a volume or of a snapshot, or may: what a clone was of that is deleted, and had
    /// clones, nobody tells any more.
    pub fn is_cloned(&self, of: &Volume) -> bool {
        let held = self.held().lock();
        let names = Names::of(self.name(), &held);
        let mut origins = held.values().filter_map(|held| held.volume.origin());
        origins.any(|from| {
            from.volume == of.id()
                || from.snapshot == Some(of.id())
                || !names.names.contains_key(&from.volume)
        })
    }

    /// Makes a volume that begins with what a snapshot has: of so many bytes, or of as many as that.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a name that is taken or while nothing leaves the log, `Invalid` for a size or a block
    /// size that cannot be, `Limit` when there are too many or clones are cloned too deep, `Failed`.
    pub fn clone_volume(
        &self,
        name: &Name,
        (of, snapshot): (&Name, &Name),
        bytes: Option<u64>,
        block_size: Option<u32>,
        limits: Limits,
    ) -> Result<()> {
        let from = self.snapshot(of, snapshot)?.volume;
        let path = format!("{}/{of}@{snapshot}", self.name());
        if let Some(bytes) = bytes.filter(|bytes| *bytes < from.len()) {
            let (size, of) = (Size::new(bytes), Size::new(from.len()));
            let what = format!("a clone of {path} has at least its {of}, not {size}");
            let help = "leave the size out; `flashloom volume resize` makes the clone smaller then";
            return Err(Error::new(Kind::Invalid, what).help(help));
        }
        if let Some(other) = block_size.filter(|block_size| *block_size != from.block_size()) {
            let is = from.block_size();
            let what =
                format!("a clone of {path} has its logical blocks of {is} bytes, not {other}");
            return Err(Error::new(Kind::Invalid, what).help("leave the block size out"));
        }
        let id = *Uuid::new_v4().as_bytes();
        let spec = CloneSpec {
            volume: of.to_string(),
            snapshot: snapshot.to_string(),
            name: name.to_string(),
            id,
            bytes,
            quota: limits.quota,
            reservation: limits.reservation,
        };
        let made = self.call(|pool| async move { pool.clone_volume(spec).await });
        let volume = made.map_err(|error| match error.kind {
            Kind::Conflict if !self.has_named(name) => error.help(WAITS),
            Kind::Limit if error.context.contains("reservation of volume") => {
                self.no_room_to_reserve(error)
            }
            Kind::Limit => error.help(
                "delete volumes and snapshots that are not needed, and make the clone of one that is less deep: \
                 `flashloom volume detach` makes the next snapshots of a volume so",
            ),
            _ => error,
        })?;
        self.held().lock().insert(name.clone(), Held { volume, snapshots: Vec::new() });
        Ok(())
    }

    /// Makes a clone of each volume of a group, of its snapshot of this name, and a group of the clones: all or none. `names`
    /// has what the clone of each of the volumes is called.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a name that is taken or while nothing leaves the log, `Limit` when there are too many or
    /// clones are cloned too deep, `Failed`.
    pub fn clone_group(
        &self,
        (group, snapshot): (&Name, &Name),
        to: &Name,
        names: &BTreeMap<Name, Name>,
    ) -> Result<()> {
        let spec = GroupCloneSpec {
            group: group.to_string(),
            snapshot: snapshot.to_string(),
            name: to.to_string(),
            id: *Uuid::new_v4().as_bytes(),
            created: now_ms() / 1000,
        };
        let called = names.iter().map(|(volume, name)| (volume.to_string(), name.to_string()));
        let called: BTreeMap<_, _> = called.collect();
        let made = self.call(move |pool| async move {
            let call = move |volume: &str| {
                let name = called.get(volume).cloned().unwrap_or_default();
                (name, *Uuid::new_v4().as_bytes())
            };
            let names = pool.clone_group(spec, call).await?;
            let volumes = names.into_iter().map(|name| Ok((pool.volume(&name)?, name)));
            Ok((volumes.collect::<engine::Result<Vec<_>>>()?, groups_of(&pool)?))
        });
        let (volumes, groups) = made.map_err(|error| match error.kind {
            Kind::Conflict if self.has_named(to) => error.help(format!(
                "choose another name for the group than {to}: `flashloom group list` and `flashloom volume list` show \
                 those there are"
            )),
            Kind::Conflict if names.values().any(|name| self.has_named(name)) => error.help(
                "choose another name: `--volume VOLUME=NAME` says what a clone is called; `flashloom volume list` and \
                 `flashloom group list` show those there are",
            ),
            Kind::Conflict => error.help(WAITS),
            Kind::Limit => error.help("delete volumes and snapshots that are not needed any more"),
            _ => error,
        })?;
        let mut held = self.held().lock();
        for (volume, name) in volumes {
            held.insert(name.parse()?, Held { volume, snapshots: Vec::new() });
        }
        drop(held);
        *self.held().groups() = groups;
        Ok(())
    }
}
