//! Requests about drives of pools.

use api::v1::{Drive, DriveReplacement};
use api::value::PoolDrive;
use hyper::Method;

use super::{Asking, Begun, Client, Result, json};

fn drive(of: &PoolDrive, rest: &str) -> String {
    format!("/v1/pools/{}/drives/{}{rest}", of.pool, of.index)
}

impl Client {
    /// The drives of all open pools.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn drives(&self) -> Result<Vec<Drive>> {
        self.get("/v1/drives").await
    }

    /// One drive.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn drive(&self, of: &PoolDrive) -> Result<Drive> {
        self.get(&drive(of, "")).await
    }

    /// Begins to take a drive out of use.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn begin_fail_drive(&self, of: &PoolDrive, asking: &Asking) -> Result<Begun<Drive>> {
        self.begin(Method::POST, &drive(of, "/fail"), Vec::new(), asking).await
    }

    /// Begins to take a drive back that is out.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn begin_rejoin_drive(
        &self,
        of: &PoolDrive,
        asking: &Asking,
    ) -> Result<Begun<Drive>> {
        self.begin(Method::POST, &drive(of, "/rejoin"), Vec::new(), asking).await
    }

    /// Begins to put another drive in a place; what the new one holds is lost.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn begin_replace_drive(
        &self,
        of: &PoolDrive,
        new: &DriveReplacement,
        asking: &Asking,
    ) -> Result<Begun<Drive>> {
        self.begin(Method::POST, &drive(of, "/replace"), json(new)?, asking).await
    }
}
