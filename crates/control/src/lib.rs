//! REST server, metrics endpoint and client of the management API.
//!
//! The API is HTTP/1.1 with JSON over the Unix socket `api.sock` in the state directory. Its
//! description is generated from the code and served at `/openapi.json`; counters are at
//! `/metrics` in the Prometheus text format.

mod bounded;
pub mod client;
mod describe;
mod extract;
pub mod limits;
mod metrics;
mod routes;
pub mod server;

pub use client::Client;
pub use server::{MetricsServer, Server, openapi};

#[cfg(test)]
mod tests;
