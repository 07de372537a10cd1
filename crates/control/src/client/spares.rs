//! Requests about spares.

use api::v1::{NewDrives, Spare};
use api::value::Name;
use hyper::Method;

use super::{Client, Result, json};

impl Client {
    /// The spares of all pools.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn all_spares(&self) -> Result<Vec<Spare>> {
        self.get("/v1/spares").await
    }

    /// The spares of one pool.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn spares(&self, pool: &Name) -> Result<Vec<Spare>> {
        self.get(&format!("/v1/pools/{pool}/spares")).await
    }

    /// Gives a pool spares; what they hold is lost.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn add_spares(&self, pool: &Name, new: &NewDrives) -> Result<Vec<Spare>> {
        self.request(Method::POST, &format!("/v1/pools/{pool}/spares"), json(new)?).await
    }

    /// Takes a spare back.
    ///
    /// # Errors
    /// As every request: [`Error`](super::Error).
    pub async fn remove_spare(&self, spare: &Spare) -> Result<()> {
        let path = format!("/v1/pools/{}/spares/{}", spare.pool, spare.id);
        self.send(Method::DELETE, &path, Vec::new()).await.map(drop)
    }
}
