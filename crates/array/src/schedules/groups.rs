//! Schedules of groups: each run is of the volumes that the group has by then.

use std::collections::{BTreeMap, BTreeSet};

use api::value::{GroupPath, VolumePath};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Schedule, Schedules};

/// The group of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfGroup {
    /// What identifies it for ever.
    pub id: Uuid,
    /// What it was called when it was seen last.
    pub path: GroupPath,
    /// Volumes that left it and have snapshots yet that the schedule made, and what they were called when they were seen
    /// last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub former: BTreeMap<Uuid, VolumePath>,
}

impl Schedule {
    /// All volumes that may have snapshots that it made.
    pub fn made_of(&self) -> impl Iterator<Item = (&Uuid, &VolumePath)> {
        let former = self.group.iter().flat_map(|group| &group.former);
        self.volumes.iter().chain(former)
    }

    /// Forgets volumes that left its group and have nothing any more that it made. `volume_of` tells which volume has a
    /// snapshot, if it is there.
    pub fn forget_former<'a>(&mut self, volume_of: impl Fn(&Uuid) -> Option<&'a VolumePath>) {
        let Some(group) = &mut self.group else { return };
        let made = self.rules.values().flat_map(|rule| &rule.made);
        let made = made.flat_map(|made| &made.snapshots);
        let having: BTreeSet<&VolumePath> = made.filter_map(volume_of).collect();
        group.former.retain(|_, path| having.contains(path));
    }

    /// How many volumes it has by name; a group's is of one thing, whoever is in that.
    pub(super) fn named_volumes(&self) -> usize {
        if self.group.is_some() { 1 } else { self.volumes.len() }
    }
}

impl Schedules {
    /// The schedule of a group.
    pub fn of_group(&self, group: &Uuid) -> Option<(Uuid, &Schedule)> {
        let is_its = |of: &Schedule| of.group.as_ref().is_some_and(|of| of.id == *group);
        self.0.iter().find(|(_, of)| is_its(of)).map(|(id, of)| (*id, of))
    }
}
