//! Requests that begin jobs, and what becomes of those.

use api::v1::{
    Consent, Job, LogMove, LogMoved, NewPool, NewVolume, Pool, PoolImport, Volume, VolumeChange,
};
use api::value::{Name, VolumePath};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;

use super::pools::volume;
use super::{Client, Error, Result, json};

/// How to ask for a job.
#[derive(Clone, Debug, Default)]
pub struct Asking {
    /// The same request with the same key, under way or done, is the same job.
    pub key: Option<String>,
    /// Seconds that the answer may wait for the end of the job, of which the daemon takes 300 at most; 0 to be answered
    /// at once.
    pub wait: u64,
}

/// What a request that begins a job is answered with.
#[derive(Clone, Debug)]
pub enum Begun<T> {
    /// It was over in time; what came of it.
    Over(T),
    /// The job, which goes on, or was not to be waited for.
    Job(Box<Job>),
}

impl<T> Begun<T> {
    pub(super) fn map<U>(self, over: impl FnOnce(T) -> U) -> Begun<U> {
        match self {
            Self::Over(what) => Begun::Over(over(what)),
            Self::Job(job) => Begun::Job(job),
        }
    }
}

impl Client {
    /// Begins a job whose outcome has a document.
    pub(super) async fn begin<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        asking: &Asking,
    ) -> Result<Begun<T>> {
        match self.begin_bytes(method, path, body, asking).await? {
            Begun::Over(answer) => {
                serde_json::from_slice(&answer).map(Begun::Over).map_err(garbled)
            }
            Begun::Job(job) => Ok(Begun::Job(job)),
        }
    }

    pub(super) async fn begin_bytes(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        Asking { key, wait }: &Asking,
    ) -> Result<Begun<Bytes>> {
        let prefer = format!("respond-async, wait={wait}");
        let key = key.as_deref().map(|key| ("idempotency-key", key));
        let headers: Vec<_> = [("prefer", &*prefer)].into_iter().chain(key).collect();
        match self.send_with(method, path, body, &headers).await? {
            (StatusCode::ACCEPTED, job) => {
                serde_json::from_slice(&job).map(Begun::Job).map_err(garbled)
            }
            (_, answer) => Ok(Begun::Over(answer)),
        }
    }

    /// Begins to make a pool; what its drives hold is lost.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_create_pool(&self, new: &NewPool, asking: &Asking) -> Result<Begun<Pool>> {
        self.begin(Method::POST, "/v1/pools", json(new)?, asking).await
    }

    /// Begins to open a pool from its drives.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_import_pool(
        &self,
        from: &PoolImport,
        asking: &Asking,
    ) -> Result<Begun<Pool>> {
        self.begin(Method::POST, "/v1/pool-imports", json(from)?, asking).await
    }

    /// Begins to close a pool to be moved.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_export_pool(&self, name: &Name, asking: &Asking) -> Result<Begun<()>> {
        let path = format!("/v1/pools/{name}/export");
        let begun = self.begin_bytes(Method::POST, &path, Vec::new(), asking).await?;
        Ok(begun.map(drop))
    }

    /// Begins to delete a pool.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_delete_pool(
        &self,
        name: &Name,
        consent: Consent,
        asking: &Asking,
    ) -> Result<Begun<()>> {
        let path = format!("/v1/pools/{name}{}", consent.query());
        let begun = self.begin_bytes(Method::DELETE, &path, Vec::new(), asking).await?;
        Ok(begun.map(drop))
    }

    /// Begins to move a pool's commit log.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_move_log(
        &self,
        name: &Name,
        to: &LogMove,
        asking: &Asking,
    ) -> Result<Begun<LogMoved>> {
        self.begin(Method::POST, &format!("/v1/pools/{name}/log/move"), json(to)?, asking).await
    }

    /// Begins to make a volume.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_create_volume(
        &self,
        pool: &Name,
        new: &NewVolume,
        asking: &Asking,
    ) -> Result<Begun<Volume>> {
        self.begin(Method::POST, &format!("/v1/pools/{pool}/volumes"), json(new)?, asking).await
    }

    /// Begins to change a volume's size or name.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_change_volume(
        &self,
        path: &VolumePath,
        change: &VolumeChange,
        consent: Consent,
        asking: &Asking,
    ) -> Result<Begun<Volume>> {
        let path = volume(path, &consent.query());
        self.begin(Method::PATCH, &path, json(change)?, asking).await
    }

    /// Begins to delete a volume and what it holds.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn begin_delete_volume(
        &self,
        path: &VolumePath,
        consent: Consent,
        asking: &Asking,
    ) -> Result<Begun<()>> {
        let path = volume(path, &consent.query());
        let begun = self.begin_bytes(Method::DELETE, &path, Vec::new(), asking).await?;
        Ok(begun.map(drop))
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

fn garbled(error: serde_json::Error) -> Error {
    Error::Garbled(error.to_string())
}
