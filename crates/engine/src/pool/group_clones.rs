//! Clones of all volumes of a group, of one instant as their snapshots are, and the group of these.

use super::Pool;
use super::clones::CloneSpec;
use super::groups::{GroupSpec, find_group, members};
use super::volumes::invalid;
use crate::error::{Error, Kind, Result};
use crate::format::catalog::{Catalog, Object};

/// Clones to be made of the volumes of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCloneSpec {
    /// The group whose volumes they are of, and the name of the snapshot of each of these.
    pub group: String,
    pub snapshot: String,
    /// The name of the group that they are in: no volume and no other group has it.
    pub name: String,
    /// What identifies that for ever; drawn at random.
    pub id: [u8; 16],
    /// Seconds since 1970.
    pub created: u64,
}

/// The clones of a group's volumes that are to be made.
fn clones_of(
    catalog: &Catalog,
    spec: &GroupCloneSpec,
    call: impl Fn(&str) -> (String, [u8; 16]),
) -> Result<Vec<CloneSpec>> {
    let GroupCloneSpec { group, snapshot, .. } = spec;
    let of_volume = |volume: &Object| {
        let (name, id) = call(&volume.name);
        let (volume, snapshot) = (volume.name.to_string(), snapshot.clone());
        CloneSpec { volume, snapshot, name, id, bytes: None, quota: None, reservation: None }
    };
    let view = find_group(catalog, group)?.view;
    let specs: Vec<_> = members(catalog, view).map(of_volume).collect();
    if specs.is_empty() {
        return Err(invalid(format!("group {group} has no volumes, of which to make clones")));
    }
    Ok(specs)
}

impl Pool {
    /// Makes a clone of each volume that a group has by then, of its snapshot of this name, and a group of the clones: all
    /// or none. Copies nothing. `call` gives the name of the clone of a volume, and what identifies it for ever. Gives the
    /// names of the clones.
    ///
    /// # Errors
    /// `NotFound` without the group, or where one of its volumes has no such snapshot; `Exists` for a name that is taken, or
    /// was given twice; `Invalid` for a group without volumes; and otherwise as [`clone_volume`](Self::clone_volume).
    pub async fn clone_group(
        &self,
        spec: GroupCloneSpec,
        call: impl Fn(&str) -> (String, [u8; 16]) + 'static,
    ) -> Result<Vec<String>> {
        // To its end, also where nobody waits for it any more: what is in the catalog can be used.
        let pool = self.clone();
        let cloning = reactor::spawn(async move {
            // Who came into the group before this needs a snapshot, too.
            let _turn = pool.turn().await?;
            let clones =
                pool.0.common.superblock.catalog(|catalog| clones_of(catalog, &spec, call))?;
            let GroupCloneSpec { name, id, created, .. } = spec;
            let group = GroupSpec { name, id, created, volumes: Vec::new(), quota: None };
            pool.clone_each(&clones, Some(&group)).await?;
            Ok(clones.into_iter().map(|clone| clone.name).collect())
        });
        cloning.await.unwrap_or_else(|| Err(Error::new(Kind::Gone, "the reactor has stopped")))
    }
}
