//! Groups of the engine's pool: their snapshots and clones, and how snapshots are called that have a name together.

use super::pool::Array;
use super::told;
use crate::host::GROUP_SNAPSHOT;
use crate::store::Refusal;
use engine::{
    GroupChange, GroupCloneSpec, GroupSnapshotSpec, GroupSpec, Kind, QUOTA_UNIT, SnapshotName,
    Volume,
};
use reactor::random;
use std::collections::BTreeMap;
use stdx::Prng;

/// The group there is: one at a time.
const GROUP: &str = "g";

fn drawn() -> [u8; 16] {
    let mut id = [0; 16];
    Prng::new(random()).fill(&mut id);
    id
}

impl Array {
    /// The quota of a group: of one in two. What identifies it decides, which is drawn anyway.
    fn quota_for_group(&self, id: [u8; 16], volumes: &[String]) -> Option<u64> {
        let sizes = volumes.iter().filter_map(|name| Some(self.pool.volume(name).ok()?.len()));
        let units = (sizes.sum::<u64>() / QUOTA_UNIT).max(1);
        let [is_bounded, low, high, ..] = id;
        let part = 1 + u64::from(u16::from_le_bytes([low, high])) % units;
        is_bounded.is_multiple_of(2).then_some(part * QUOTA_UNIT)
    }

    /// What a snapshot of a volume is called among all: what several have together tells whose each is, whatever that
    /// volume is called.
    pub(super) fn called(volume: &Volume, name: &str) -> String {
        let id = volume.id();
        match name.starts_with(GROUP_SNAPSHOT) {
            true => format!("{name}.{:08x}", u32::from_le_bytes([id[0], id[1], id[2], id[3]])),
            false => name.to_owned(),
        }
    }

    /// The volume of a snapshot, and its name there.
    pub(super) fn snapshot_of(&self, called: &str) -> Option<SnapshotName> {
        let name = called.split_once('.').map_or(called, |(name, _)| name);
        let is_it = |volume: &String| {
            let is_called = |of: &Volume| Self::called(of, name) == called;
            self.pool.snapshot(volume, name).is_ok()
                && self.pool.volume(volume).is_ok_and(|of| is_called(&of))
        };
        let volume = self.pool.volumes().into_iter().find(is_it)?;
        Some(SnapshotName { volume, name: name.to_owned() })
    }

    /// What the snapshot of a volume is called among all.
    pub fn name_in_group(&self, volume: &str, name: &str) -> Option<String> {
        self.pool.volume(volume).ok().map(|volume| Self::called(&volume, name))
    }

    /// Takes snapshots of volumes, as those of a group.
    pub async fn take_group(&self, volumes: &[String], name: &str) -> Result<(), Refusal> {
        // A crash may have left others.
        for group in self.pool.groups() {
            told(self.pool.delete_group(&group.name).await)?;
        }
        let (id, volumes) = (drawn(), volumes.to_vec());
        let quota = self.quota_for_group(id, &volumes);
        let spec = GroupSpec { name: GROUP.to_owned(), id, created: 1, volumes, quota: None };
        told(self.pool.create_group(spec).await)?;
        if quota.is_some() {
            self.bounds_groups.set(true);
            let change = GroupChange { quota: Some(quota), ..GroupChange::default() };
            match self.pool.change_group(GROUP, change).await {
                // They hold more, or nobody can count.
                Err(error) if matches!(error.kind, Kind::Full | Kind::Busy) => {}
                done => told(done)?,
            }
        }
        let (group, name) = (GROUP.to_owned(), name.to_owned());
        let spec = GroupSnapshotSpec { group, name, created: 1 };
        told(self.pool.take_group_snapshots(spec, drawn).await).map(drop)
    }

    /// Makes clones of the group's snapshots of this name: by volume, what its clone is called.
    pub async fn clone_group(
        &self,
        name: &str,
        clones: &[(String, String)],
    ) -> Result<(), Refusal> {
        let names: BTreeMap<String, String> = clones.iter().cloned().collect();
        let call = move |volume: &str| (names.get(volume).cloned().unwrap_or_default(), drawn());
        let (group, snapshot) = (GROUP.to_owned(), name.to_owned());
        let name = format!("{GROUP}-clones");
        let spec = GroupCloneSpec { group, snapshot, name, id: drawn(), created: 1 };
        told(self.pool.clone_group(spec, call).await).map(drop)
    }

    /// Deletes snapshots in one step.
    pub async fn delete_together(&self, names: &[String]) -> Result<(), Refusal> {
        let all: Option<Vec<_>> = names.iter().map(|name| self.snapshot_of(name)).collect();
        told(self.pool.delete_snapshots(all.ok_or(Refusal::NotFound)?).await)
    }
}
