//! Requests about groups of volumes.

use api::v1::{
    Changed, Consent, Group, GroupChange, Losses, NewGroup, NewGroupClone, NewGroupSnapshot,
    NewRollback, RolledBack, Snapshot,
};
use api::value::{GroupPath, GroupSnapshotPath, Name};
use hyper::Method;

use super::jobs::{Asking, Begun};
use super::{Client, Result, json};

fn group(path: &GroupPath, rest: &str) -> String {
    // Names have no characters that a path would escape.
    format!("/v1/pools/{}/groups/{}{rest}", path.pool, path.group)
}

impl Client {
    /// All groups, or those of a pool.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn groups(&self, pool: Option<&Name>) -> Result<Vec<Group>> {
        let of = pool.map_or_else(String::new, |pool| format!("?pool={pool}"));
        self.get(&format!("/v1/groups{of}")).await
    }

    /// One group.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn group(&self, path: &GroupPath) -> Result<Group> {
        self.get(&group(path, "")).await
    }

    /// Makes a group.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn create_group(&self, new: &NewGroup) -> Result<Group> {
        self.post("/v1/groups", new).await
    }

    /// Changes which volumes a group has, or its name.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn change_group(&self, path: &GroupPath, change: &GroupChange) -> Result<Group> {
        self.request(Method::PATCH, &group(path, ""), json(change)?).await
    }

    /// Deletes a group; its volumes stay.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn delete_group(&self, path: &GroupPath, consent: Consent) -> Result<Losses> {
        self.remove(&group(path, ""), consent).await
    }

    /// Takes a snapshot of each volume of a group, all at one instant.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn take_group_snapshots(&self, path: &GroupSnapshotPath) -> Result<Vec<Snapshot>> {
        let new = NewGroupSnapshot { name: path.snapshot.clone() };
        self.post(&group(&path.group, "/snapshots"), &new).await
    }

    /// Deletes the snapshot of this name of each volume of a group that has one.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn delete_group_snapshots(
        &self,
        path: &GroupSnapshotPath,
        consent: Consent,
    ) -> Result<Losses> {
        let rest = format!("/snapshots/{}", path.snapshot);
        self.remove(&group(&path.group, &rest), consent).await
    }

    /// Gives each volume of a group what its snapshot of this name has: all of them, or none.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn roll_group_back(
        &self,
        path: &GroupSnapshotPath,
        new: &NewRollback,
        consent: Consent,
    ) -> Result<Changed<Vec<RolledBack>>> {
        let rest = format!("/snapshots/{}/rollback", path.snapshot);
        self.change(Method::POST, &group(&path.group, &rest), new, consent).await
    }

    /// Begins to make clones of the snapshot of this name of each volume of a group, and a group of them.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn begin_clone_group(
        &self,
        path: &GroupSnapshotPath,
        new: &NewGroupClone,
        asking: &Asking,
    ) -> Result<Begun<Group>> {
        let path = group(&path.group, &format!("/snapshots/{}/clone", path.snapshot));
        self.begin(Method::POST, &path, json(new)?, asking).await
    }
}
