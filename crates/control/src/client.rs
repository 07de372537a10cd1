//! A client of the management API: what the command line speaks with, and other programs may.

use std::io;
use std::path::{Path, PathBuf};

use api::v1::{
    Changed, Consent, Controller, Event, Host, Listener, ListenerChange, Losses, Metrics,
    Namespace, NamespaceChange, NewHost, NewListener, NewNamespace, NewSubsystem, NodeHealth,
    Problem, Referral, Status, Subsystem, SubsystemChange,
};
use api::value::{Address, Nqn};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::limits::RESPONSE_BYTES;

mod configuration;
mod drives;
mod groups;
mod jobs;
mod pools;
mod schedules;
mod scrub;
mod snapshots;
mod spares;

pub use jobs::{Asking, Begun};

/// Why there is no answer, or not the one hoped for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No daemon answers on the socket.
    #[error("no daemon answers at {}: {source}", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// Why it cannot be connected to.
        source: io::Error,
    },
    /// This user may not use the socket, whether a daemon answers there or not.
    #[error("this user may not use the management socket {}: {source}", path.display())]
    Denied {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The daemon refused.
    #[error(transparent)]
    Refused(Problem),
    /// The daemon answered with something that is not of this API.
    #[error("the daemon's answer is not understood: {0}")]
    Garbled(String),
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

/// Speaks to one daemon. Each request has a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the daemon with the management socket `socket`.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Sends a request; returns the answer's bytes.
    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Bytes> {
        self.send_with(method, path, body, &[]).await.map(|(_, answer)| answer)
    }

    /// Likewise, with headers beside the usual ones; returns the status, too.
    async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        headers: &[(&str, &str)],
    ) -> Result<(StatusCode, Bytes)> {
        let unreachable = |source: io::Error| {
            let path = self.socket.clone();
            match source.kind() {
                io::ErrorKind::PermissionDenied => Error::Denied { path, source },
                _ => Error::Unreachable { path, source },
            }
        };
        let stream = UnixStream::connect(&self.socket).await.map_err(unreachable)?;
        let garbled = |error: hyper::Error| Error::Garbled(error.to_string());
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(garbled)?;
        let request = Request::builder().method(method);
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request
            .uri(path)
            .header(header::HOST, "flashloom")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Error::Garbled(error.to_string()))?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(garbled)?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES).collect().await;
            let body = body.map_err(|error| Error::Garbled(error.to_string()))?.to_bytes();
            if head.status.is_success() {
                return Ok((head.status, body));
            }
            Err(match serde_json::from_slice(&body) {
                Ok(problem) => Error::Refused(problem),
                Err(_) => Error::Garbled(format!("status {}", head.status)),
            })
        };
        let mut connection = std::pin::pin!(connection);
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            // The connection ends once the answer has come or has become impossible.
            _ = &mut connection => answer.await,
        }
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T> {
        let answer = self.send(method, path, body).await?;
        serde_json::from_slice(&answer).map_err(|error| Error::Garbled(error.to_string()))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.request(Method::GET, path, Vec::new()).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, document: &impl Serialize) -> Result<T> {
        self.request(Method::POST, path, json(document)?).await
    }

    /// Removes what no loss is told of.
    async fn delete(&self, path: &str) -> Result<()> {
        self.send(Method::DELETE, path, Vec::new()).await.map(drop)
    }

    /// Removes what may be missed; what would be lost, with `dry_run`.
    async fn remove(&self, path: &str, consent: Consent) -> Result<Losses> {
        let path = format!("{path}{}", consent.query());
        match self.send_with(Method::DELETE, &path, Vec::new(), &[]).await? {
            (StatusCode::NO_CONTENT, _) => Ok(Losses::default()),
            (_, answer) => {
                serde_json::from_slice(&answer).map_err(|error| Error::Garbled(error.to_string()))
            }
        }
    }

    /// Makes a change that may take something away.
    async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        document: &impl Serialize,
        consent: Consent,
    ) -> Result<Changed<T>> {
        let path = format!("{path}{}", consent.query());
        let answer = self.send(method, &path, json(document)?).await?;
        let read = match consent.dry_run {
            true => serde_json::from_slice(&answer).map(Changed::WouldLose),
            false => serde_json::from_slice(&answer).map(Changed::Made),
        };
        read.map_err(|error| Error::Garbled(error.to_string()))
    }

    /// Counters in the Prometheus text format.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn metrics(&self) -> Result<String> {
        let text = self.send(Method::GET, "/metrics", Vec::new()).await?;
        String::from_utf8(text.into()).map_err(|error| Error::Garbled(error.to_string()))
    }

    /// The description of the API that the daemon serves.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn openapi(&self) -> Result<serde_json::Value> {
        self.get("/openapi.json").await
    }

    /// The daemon's status.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn status(&self) -> Result<Status> {
        self.get("/v1/status").await
    }

    /// What needs to be looked at.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn health(&self) -> Result<NodeHealth> {
        self.get("/v1/health").await
    }

    /// All counters.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn counters(&self) -> Result<Metrics> {
        self.get("/v1/counters").await
    }

    /// Events with an id of `from` or more.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn events(&self, from: u64) -> Result<Vec<Event>> {
        self.get(&format!("/v1/events?from={from}")).await
    }

    /// Likewise, once there is one, or none after `seconds`, of which the daemon takes 300 at most.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn wait_for_events(&self, from: u64, seconds: u64) -> Result<Vec<Event>> {
        self.get(&format!("/v1/events?from={from}&wait={seconds}")).await
    }

    /// Live controllers.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn controllers(&self) -> Result<Vec<Controller>> {
        self.get("/v1/controllers").await
    }

    /// All subsystems.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn subsystems(&self) -> Result<Vec<Subsystem>> {
        self.get("/v1/subsystems").await
    }

    /// Adds a subsystem.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn add_subsystem(&self, new: &NewSubsystem) -> Result<Subsystem> {
        self.post("/v1/subsystems", new).await
    }

    /// Changes who may connect to a subsystem.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn change_subsystem(
        &self,
        nqn: &Nqn,
        change: &SubsystemChange,
        consent: Consent,
    ) -> Result<Changed<Subsystem>> {
        self.change(Method::PATCH, &subsystem(nqn, ""), change, consent).await
    }

    /// Removes a subsystem.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn remove_subsystem(&self, nqn: &Nqn, consent: Consent) -> Result<Losses> {
        self.remove(&subsystem(nqn, ""), consent).await
    }

    /// Adds a namespace.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn add_namespace(&self, nqn: &Nqn, new: &NewNamespace) -> Result<Namespace> {
        self.post(&subsystem(nqn, "/namespaces"), new).await
    }

    /// Changes a namespace's size.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn resize_namespace(
        &self,
        nqn: &Nqn,
        nsid: u32,
        change: &NamespaceChange,
        consent: Consent,
    ) -> Result<Changed<Namespace>> {
        self.change(Method::PATCH, &subsystem(nqn, &format!("/namespaces/{nsid}")), change, consent)
            .await
    }

    /// Removes a namespace.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn remove_namespace(&self, nqn: &Nqn, nsid: u32, consent: Consent) -> Result<Losses> {
        self.remove(&subsystem(nqn, &format!("/namespaces/{nsid}")), consent).await
    }

    /// Hosts that may connect to a subsystem.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn hosts(&self, nqn: &Nqn) -> Result<Vec<Host>> {
        self.get(&subsystem(nqn, "/hosts")).await
    }

    /// Lets a host connect to a subsystem.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn add_host(&self, nqn: &Nqn, new: &NewHost) -> Result<Host> {
        self.post(&subsystem(nqn, "/hosts"), new).await
    }

    /// Takes a host off a subsystem's list.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn remove_host(&self, nqn: &Nqn, host: &Nqn, consent: Consent) -> Result<Losses> {
        let path = subsystem(nqn, &format!("/hosts/{}", escape(host.as_str())));
        self.remove(&path, consent).await
    }

    /// Addresses listened on.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn listeners(&self) -> Result<Vec<Listener>> {
        self.get("/v1/listeners").await
    }

    /// Listens on one more address.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn add_listener(&self, new: &NewListener) -> Result<Listener> {
        self.post("/v1/listeners", new).await
    }

    /// Other discovery services that hosts are told of.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn referrals(&self) -> Result<Vec<Referral>> {
        self.get("/v1/referrals").await
    }

    /// Tells hosts of another discovery service.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn add_referral(&self, new: &Referral) -> Result<Referral> {
        self.post("/v1/referrals", new).await
    }

    /// Tells hosts no longer of another discovery service.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn remove_referral(&self, address: Address) -> Result<()> {
        self.delete(&format!("/v1/referrals/{}", escape(&address.to_string()))).await
    }

    /// Changes the ANA state for hosts that are connected through a listener.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn change_listener(
        &self,
        address: Address,
        change: &ListenerChange,
        consent: Consent,
    ) -> Result<Changed<Listener>> {
        let path = format!("/v1/listeners/{}", escape(&address.to_string()));
        self.change(Method::PATCH, &path, change, consent).await
    }

    /// Stops listening on an address.
    ///
    /// # Errors
    /// As every request: [`Error`].
    pub async fn remove_listener(&self, address: Address, consent: Consent) -> Result<Losses> {
        self.remove(&format!("/v1/listeners/{}", escape(&address.to_string())), consent).await
    }
}

fn json(document: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(document).map_err(|error| Error::Garbled(error.to_string()))
}

fn subsystem(nqn: &Nqn, rest: &str) -> String {
    format!("/v1/subsystems/{}{rest}", escape(nqn.as_str()))
}

/// `text` as one segment of a path (RFC 3986, 2.1).
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}
