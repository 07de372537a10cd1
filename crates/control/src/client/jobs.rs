//! Requests that begin jobs, and what becomes of those.

use api::v1::{Job, LogMove, NewPool, NewVolume, PoolImport, VolumeChange};
use api::value::{Name, VolumePath};
use hyper::Method;

use super::pools::volume;
use super::{Client, Error, Result, json};

impl Client {
    /// Begins a job; with the `key` of a request that is under way or done, that is the job.
    async fn begin(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        key: Option<&str>,
    ) -> Result<Job> {
        let key = key.map(|key| ("idempotency-key", key));
        let headers: Vec<_> = [("prefer", "respond-async")].into_iter().chain(key).collect();
        let answer = self.send_with(method, path, body, &headers).await?;
        serde_json::from_slice(&answer).map_err(|error| Error::Garbled(error.to_string()))
    }

    /// Begins to make a pool; what its drives hold is lost.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_create_pool(&self, new: &NewPool, key: Option<&str>) -> Result<Job> {
        self.begin(Method::POST, "/v1/pools", json(new)?, key).await
    }

    /// Begins to open a pool from its drives.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_import_pool(&self, from: &PoolImport, key: Option<&str>) -> Result<Job> {
        self.begin(Method::POST, "/v1/pool-imports", json(from)?, key).await
    }

    /// Begins to close a pool to be moved.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_export_pool(&self, name: &Name, key: Option<&str>) -> Result<Job> {
        self.begin(Method::POST, &format!("/v1/pools/{name}/export"), Vec::new(), key).await
    }

    /// Begins to move a pool's commit log.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_move_log(
        &self,
        name: &Name,
        to: &LogMove,
        key: Option<&str>,
    ) -> Result<Job> {
        self.begin(Method::POST, &format!("/v1/pools/{name}/log/move"), json(to)?, key).await
    }

    /// Begins to make a volume.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_create_volume(
        &self,
        pool: &Name,
        new: &NewVolume,
        key: Option<&str>,
    ) -> Result<Job> {
        self.begin(Method::POST, &format!("/v1/pools/{pool}/volumes"), json(new)?, key).await
    }

    /// Begins to change a volume's size or name.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_change_volume(
        &self,
        path: &VolumePath,
        change: &VolumeChange,
        key: Option<&str>,
    ) -> Result<Job> {
        self.begin(Method::PATCH, &volume(path, ""), json(change)?, key).await
    }

    /// Begins to delete a volume and what it holds.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_delete_volume(&self, path: &VolumePath, key: Option<&str>) -> Result<Job> {
        self.begin(Method::DELETE, &volume(path, "?force=true"), Vec::new(), key).await
    }

    /// The jobs that are under way, and the latest that are over.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        self.get("/v1/jobs").await
    }

    /// One job, once it is over or `seconds` have passed, of which the daemon takes 300 at most.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn job(&self, id: u64, seconds: u64) -> Result<Job> {
        self.get(&format!("/v1/jobs/{id}?wait={seconds}")).await
    }

    /// Asks a job to stop before it changes anything.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn cancel_job(&self, id: u64) -> Result<Job> {
        self.request(Method::POST, &format!("/v1/jobs/{id}/cancel"), Vec::new()).await
    }
}
