//! Where a controller is.

use core::fmt;
use std::net::{IpAddr, SocketAddr};

use nvme::discovery::TransportType;

/// The address of a controller, with the transport it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportAddress {
    /// NVMe/TCP: IP address and port.
    Tcp(SocketAddr),
    /// NVMe/RDMA: IP address of an RDMA device, and port.
    Rdma(SocketAddr),
}

impl TransportAddress {
    /// Transport Type (TRTYPE).
    #[must_use]
    pub const fn trtype(&self) -> TransportType {
        match self {
            Self::Tcp(_) => TransportType::Tcp,
            Self::Rdma(_) => TransportType::Rdma,
        }
    }

    /// Transport Address (TRADDR).
    #[must_use]
    pub const fn traddr(&self) -> IpAddr {
        self.socket().ip()
    }

    /// Transport Service Identifier (TRSVCID).
    #[must_use]
    pub const fn trsvcid(&self) -> u16 {
        self.socket().port()
    }

    /// IP address and port.
    #[must_use]
    pub const fn socket(&self) -> SocketAddr {
        match self {
            Self::Tcp(socket) | Self::Rdma(socket) => *socket,
        }
    }
}

impl fmt::Display for TransportAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(socket) => socket.fmt(out),
            Self::Rdma(socket) => write!(out, "rdma://{socket}"),
        }
    }
}
