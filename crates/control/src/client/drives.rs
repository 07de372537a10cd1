//! Requests about drives of pools.

use api::v1::{
    Consent, Drive, DriveRemoval, DriveReplacement, Losses, NewDrives, RateLimit, Rebuild, Rejoin,
};
use api::value::{Name, PoolDrive};
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

    /// Begins to add drives to a pool; what they hold is lost.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn begin_add_drives(
        &self,
        pool: &Name,
        new: &NewDrives,
        asking: &Asking,
    ) -> Result<Begun<Vec<Drive>>> {
        self.begin(Method::POST, &format!("/v1/pools/{pool}/drives"), json(new)?, asking).await
    }

    /// How drives of a pool are being emptied.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn rebuild(&self, pool: &Name) -> Result<Rebuild> {
        self.get(&format!("/v1/pools/{pool}/rebuild")).await
    }

    /// Changes how fast that goes.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn limit_rebuild(&self, pool: &Name, how: &RateLimit) -> Result<Rebuild> {
        self.request(Method::PATCH, &format!("/v1/pools/{pool}/rebuild"), json(how)?).await
    }

    /// How drives of a pool are made whole.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn rejoin(&self, pool: &Name) -> Result<Rejoin> {
        self.get(&format!("/v1/pools/{pool}/rejoin")).await
    }

    /// Changes how fast that goes.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn limit_rejoin(&self, pool: &Name, how: &RateLimit) -> Result<Rejoin> {
        self.request(Method::PATCH, &format!("/v1/pools/{pool}/rejoin"), json(how)?).await
    }

    /// Has that wait, or go on.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn pause_rejoin(&self, pool: &Name, paused: bool) -> Result<Rejoin> {
        let verb = if paused { "pause" } else { "resume" };
        self.request(Method::POST, &format!("/v1/pools/{pool}/rejoin/{verb}"), Vec::new()).await
    }

    /// Begins to move what drives had that are gone onto the others.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn begin_rebuild(
        &self,
        pool: &Name,
        how: &RateLimit,
        asking: &Asking,
    ) -> Result<Begun<Rebuild>> {
        let path = format!("/v1/pools/{pool}/rebuild");
        self.begin(Method::POST, &path, json(how)?, asking).await
    }

    /// Has that wait until it is resumed.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn pause_rebuild(&self, pool: &Name) -> Result<Rebuild> {
        self.request(Method::POST, &format!("/v1/pools/{pool}/rebuild/pause"), Vec::new()).await
    }

    /// Goes on with it.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn begin_resume_rebuild(
        &self,
        pool: &Name,
        asking: &Asking,
    ) -> Result<Begun<Rebuild>> {
        let path = format!("/v1/pools/{pool}/rebuild/resume");
        self.begin(Method::POST, &path, Vec::new(), asking).await
    }

    /// Ends it.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn stop_rebuild(&self, pool: &Name) -> Result<()> {
        let path = format!("/v1/pools/{pool}/rebuild/stop");
        self.send(Method::POST, &path, Vec::new()).await.map(drop)
    }

    /// Begins to move what a drive has onto the others.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn begin_evacuate_drive(
        &self,
        of: &PoolDrive,
        how: &RateLimit,
        asking: &Asking,
    ) -> Result<Begun<Drive>> {
        self.begin(Method::POST, &drive(of, "/evacuate"), json(how)?, asking).await
    }

    /// What the removal of a drive would take away.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn losses_of_drive(&self, of: &PoolDrive) -> Result<Losses> {
        self.remove(&drive(of, ""), Consent::DRY_RUN).await
    }

    /// Begins to take a drive out of its pool for good.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn begin_remove_drive(
        &self,
        of: &PoolDrive,
        how: &DriveRemoval,
        asking: &Asking,
    ) -> Result<Begun<()>> {
        let path = format!("{}{}", drive(of, ""), how.query());
        let begun = self.begin_bytes(Method::DELETE, &path, Vec::new(), asking).await?;
        Ok(begun.map(drop))
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
