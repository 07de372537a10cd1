//! Requests about snapshots.

use api::v1::{
    Changed, Consent, Losses, NewMapping, NewRollback, NewSnapshots, RolledBack, Snapshot,
    SnapshotChanges,
};
use api::value::{Name, SnapshotPath, VolumePath};
use hyper::Method;

use super::pools::volume;
use super::{Client, Result};

fn snapshot(path: &SnapshotPath, rest: &str) -> String {
    volume(&path.volume, &format!("/snapshots/{}{rest}", path.snapshot))
}

impl Client {
    /// All snapshots.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        self.get("/v1/snapshots").await
    }

    /// The snapshots of the volumes of a pool.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn snapshots_in(&self, pool: &Name) -> Result<Vec<Snapshot>> {
        self.get(&format!("/v1/snapshots?pool={pool}")).await
    }

    /// The snapshots of a volume, the oldest first.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn snapshots_of(&self, volume: &VolumePath) -> Result<Vec<Snapshot>> {
        self.get(&format!("/v1/snapshots?volume={volume}")).await
    }

    /// One snapshot.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn snapshot(&self, path: &SnapshotPath) -> Result<Snapshot> {
        self.get(&snapshot(path, "")).await
    }

    /// Takes snapshots, all at one instant.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn take_snapshots(&self, new: &NewSnapshots) -> Result<Vec<Snapshot>> {
        self.post("/v1/snapshots", new).await
    }

    /// What a snapshot has otherwise than an older one, or all that it has without one, from a byte on: a part, which
    /// says where to go on.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn snapshot_changes(
        &self,
        path: &SnapshotPath,
        from: Option<&Name>,
        start: u64,
    ) -> Result<SnapshotChanges> {
        let from = from.map_or_else(String::new, |from| format!("&from={from}"));
        self.get(&snapshot(path, &format!("/changes?start={start}{from}"))).await
    }

    /// Gives a volume what one of its snapshots has.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn roll_back(
        &self,
        path: &SnapshotPath,
        new: &NewRollback,
        consent: Consent,
    ) -> Result<Changed<RolledBack>> {
        self.change(Method::POST, &snapshot(path, "/rollback"), new, consent).await
    }

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn delete_snapshot(&self, path: &SnapshotPath, consent: Consent) -> Result<Losses> {
        self.remove(&snapshot(path, ""), consent).await
    }

    /// Maps a snapshot as a namespace that cannot be changed.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn map_snapshot(&self, path: &SnapshotPath, new: &NewMapping) -> Result<Snapshot> {
        self.post(&snapshot(path, "/mapping"), new).await
    }

    /// Takes a snapshot from the hosts.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn unmap_snapshot(&self, path: &SnapshotPath, consent: Consent) -> Result<Losses> {
        self.remove(&snapshot(path, "/mapping"), consent).await
    }
}
