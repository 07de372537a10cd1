//! Requests about the configuration as a whole.

use api::v1::{Consent, KeptConfiguration, Losses};
use hyper::Method;

use super::{Client, Error, Result, escape};

impl Client {
    async fn text(&self, path: &str) -> Result<String> {
        let text = self.send(Method::GET, path, Vec::new()).await?;
        String::from_utf8(text.into()).map_err(|error| Error::Garbled(error.to_string()))
    }

    /// A configuration file that asks for what is served.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn export_configuration(&self) -> Result<String> {
        self.text("/v1/configuration").await
    }

    /// Serves what a configuration file asks for, and nothing else.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn import_configuration(
        &self,
        name: &str,
        text: &str,
        consent: Consent,
    ) -> Result<Losses> {
        let path = format!("/v1/configuration{}&name={}", consent.query(), escape(name));
        self.request(Method::PUT, &path, text.as_bytes().to_vec()).await
    }

    /// What was served before, the newest first.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn configuration_history(&self) -> Result<Vec<KeptConfiguration>> {
        self.get("/v1/configuration/history").await
    }

    /// A configuration file that asks for what was served before.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn kept_configuration(&self, id: u64) -> Result<String> {
        self.text(&format!("/v1/configuration/history/{id}")).await
    }
}
