//! Requests about pools, their drives and their volumes.

use api::v1::{
    Changed, Consent, FoundPool, LogChange, LogMove, LogMoved, Losses, NewMapping, NewPool,
    NewVolume, Pool, PoolImport, PoolPlan, Volume, VolumeChange,
};
use api::value::{Name, VolumePath};

use hyper::Method;

use super::{Asking, Begun, Client, Result, json};

pub(super) fn volume(path: &VolumePath, rest: &str) -> String {
    // Names have no characters that a path would escape.
    format!("/v1/pools/{}/volumes/{}{rest}", path.pool, path.volume)
}

impl Client {
    /// All pools.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn pools(&self) -> Result<Vec<Pool>> {
        self.get("/v1/pools").await
    }

    /// One pool.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn pool(&self, name: &Name) -> Result<Pool> {
        self.get(&format!("/v1/pools/{name}")).await
    }

    /// Makes a pool; what its drives hold is lost.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn create_pool(&self, new: &NewPool) -> Result<Pool> {
        self.post("/v1/pools", new).await
    }

    /// What would be made of such a request, which says `dry_run`.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn plan_pool(&self, new: &NewPool) -> Result<PoolPlan> {
        self.post("/v1/pools", new).await
    }

    /// Opens a pool from its drives.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn import_pool(&self, from: &PoolImport) -> Result<Pool> {
        self.post("/v1/pool-imports", from).await
    }

    /// The pools that an import would find; nothing is changed.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn found_pools(&self, from: &PoolImport) -> Result<Vec<FoundPool>> {
        self.post("/v1/pool-imports/look", from).await
    }

    /// Closes a pool to be moved.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn export_pool(&self, name: &Name) -> Result<()> {
        self.send(hyper::Method::POST, &format!("/v1/pools/{name}/export"), Vec::new())
            .await
            .map(drop)
    }

    /// Deletes a pool and all its volumes, or says what that would lose.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn delete_pool(&self, name: &Name, consent: Consent) -> Result<Losses> {
        self.remove(&format!("/v1/pools/{name}"), consent).await
    }

    /// Changes what becomes of writes while a pool's commit log has too few devices.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn change_log(&self, name: &Name, change: &LogChange) -> Result<Pool> {
        self.request(Method::PATCH, &format!("/v1/pools/{name}/log"), json(change)?).await
    }

    /// Moves a pool's commit log, or says what that would do.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn move_log(&self, name: &Name, change: &LogMove) -> Result<LogMoved> {
        self.post(&format!("/v1/pools/{name}/log/move"), change).await
    }

    /// The volumes of all open pools.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn volumes(&self) -> Result<Vec<Volume>> {
        self.get("/v1/volumes").await
    }

    /// One volume.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn volume(&self, path: &VolumePath) -> Result<Volume> {
        self.get(&volume(path, "")).await
    }

    /// Makes a volume.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn create_volume(&self, pool: &Name, new: &NewVolume) -> Result<Volume> {
        self.post(&format!("/v1/pools/{pool}/volumes"), new).await
    }

    /// Changes a volume's size or name.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn change_volume(
        &self,
        path: &VolumePath,
        change: &VolumeChange,
        consent: Consent,
    ) -> Result<Changed<Volume>> {
        self.change(Method::PATCH, &volume(path, ""), change, consent).await
    }

    /// Begins to give a volume what it shares with what it was made of as its own.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn begin_detach_volume(
        &self,
        path: &VolumePath,
        asking: &Asking,
    ) -> Result<Begun<Volume>> {
        self.begin(Method::POST, &volume(path, "/detach"), Vec::new(), asking).await
    }

    /// Deletes a volume and what it holds.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn delete_volume(&self, path: &VolumePath, consent: Consent) -> Result<Losses> {
        self.remove(&volume(path, ""), consent).await
    }

    /// Maps a volume as a namespace.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn map_volume(&self, path: &VolumePath, new: &NewMapping) -> Result<Volume> {
        self.post(&volume(path, "/mapping"), new).await
    }

    /// Takes a volume from the hosts.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn unmap_volume(&self, path: &VolumePath, consent: Consent) -> Result<Losses> {
        self.remove(&volume(path, "/mapping"), consent).await
    }
}
