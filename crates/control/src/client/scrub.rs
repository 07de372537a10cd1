//! Requests about scrubs.

use api::v1::{RateLimit, Scrub};
use api::value::Name;
use hyper::Method;

use super::{Asking, Begun, Client, Result, json};

impl Client {
    /// A pool's scrub: the one that is under way, or the last one.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn scrub(&self, pool: &Name) -> Result<Scrub> {
        self.get(&format!("/v1/pools/{pool}/scrub")).await
    }

    /// Begins to check what a pool's drives hold, or goes on with it.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn begin_scrub(
        &self,
        pool: &Name,
        how: &RateLimit,
        asking: &Asking,
    ) -> Result<Begun<Scrub>> {
        let path = format!("/v1/pools/{pool}/scrub");
        self.begin(Method::POST, &path, json(how)?, asking).await
    }

    /// Changes how fast that goes.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn limit_scrub(&self, pool: &Name, how: &RateLimit) -> Result<Scrub> {
        self.request(Method::PATCH, &format!("/v1/pools/{pool}/scrub"), json(how)?).await
    }

    /// Has it wait where it is.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn pause_scrub(&self, pool: &Name) -> Result<Scrub> {
        self.request(Method::POST, &format!("/v1/pools/{pool}/scrub/pause"), Vec::new()).await
    }

    /// Ends it.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn stop_scrub(&self, pool: &Name) -> Result<Scrub> {
        self.request(Method::POST, &format!("/v1/pools/{pool}/scrub/stop"), Vec::new()).await
    }
}
