//! What goes wrong with a connection, at either end.

use core::time::Duration;
use std::io;

use nvme::rdma::RejectStatus;

use crate::TransportAddress;

/// Why a connection ended, to its controller.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// The host closed it, or this side did.
    #[error("connection closed")]
    Orderly,
    /// The transport failed.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// The host broke the transport's protocol, and has been told if that is to be.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The host says that this side broke the transport's protocol.
    #[error("terminated by the host: {0}")]
    Terminated(String),
}

/// Why a transfer did not bring its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferError {
    /// The data came damaged: the command fails, the connection goes on.
    DataDigest,
    /// The connection ended.
    Closed,
}

/// Why a connection could not be made, or ended, to its host.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody took the connection.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where to.
        address: TransportAddress,
        /// The socket's word.
        source: io::Error,
    },
    /// The peer took the connection and did not initialize it in time.
    #[error("{address} did not initialize the connection within {} ms", .after.as_millis())]
    Silent {
        /// Where to.
        address: TransportAddress,
        /// How long it had.
        after: Duration,
    },
    /// The controller said that it does not take the connection, before there was one.
    #[error("{address} refused the connection: {}", said(*.status))]
    Rejected {
        /// Where to.
        address: TransportAddress,
        /// Why, as it stands on the wire; `None` when it does not say.
        status: Option<u16>,
    },
    /// The peer closed the connection.
    #[error("the controller closed the connection")]
    Closed,
    /// The transport failed.
    #[error("the connection failed: {0}")]
    Socket(#[from] io::Error),
    /// The peer broke the transport's protocol; it has been told.
    #[error("the controller broke the protocol: {0}")]
    Protocol(String),
    /// The peer says that we broke the transport's protocol.
    #[error("the controller ended the connection: {0}")]
    Terminated(String),
}

/// The words for a status of NVMe/RDMA's refusals.
fn said(status: Option<u16>) -> String {
    match status.map(|raw| (raw, RejectStatus::from_raw(raw))) {
        None => "it does not say why".to_owned(),
        Some((raw, Some(status))) => format!("{status} (status {raw})"),
        Some((raw, None)) => format!("status {raw}, which is reserved"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_with_its_status() {
        let address = TransportAddress::Rdma("192.0.2.7:4420".parse().unwrap());
        let told = |status| Error::Rejected { address, status }.to_string();
        let begin = "rdma://192.0.2.7:4420 refused the connection: ";
        assert_eq!(told(Some(6)), format!("{begin}no resources (status 6)"));
        assert_eq!(told(Some(900)), format!("{begin}status 900, which is reserved"));
        assert_eq!(told(None), format!("{begin}it does not say why"));
    }
}
