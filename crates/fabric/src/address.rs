//! Where a controller is.

use core::fmt;
use std::net::{IpAddr, SocketAddr};

use nvme::discovery::TransportType;

use crate::limits::{IN_CAPSULE_ADMIN_BYTES, RDMA_IN_CAPSULE_BYTES, TRANSFER_BYTES};

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

    /// In-capsule data that every controller takes on its admin queue, bytes. TCP has 8 KiB (NVMe TCP Transport
    /// Specification 1.1, section 3.3.2); over RDMA the capsules of an admin queue are entries alone.
    #[must_use]
    pub const fn admin_in_capsule(&self) -> u32 {
        match self {
            Self::Tcp(_) => IN_CAPSULE_ADMIN_BYTES,
            Self::Rdma(_) => 0,
        }
    }

    /// The most in-capsule data that a host sends on an I/O queue, whatever the controller takes, bytes.
    #[must_use]
    pub const fn in_capsule_most(&self) -> u32 {
        match self {
            Self::Tcp(_) => u32::MAX,
            Self::Rdma(_) => RDMA_IN_CAPSULE_BYTES,
        }
    }

    /// The most data that a host's command moves, whatever the controller says, bytes.
    #[must_use]
    pub const fn transfer_most(&self) -> u64 {
        match self {
            Self::Tcp(_) => u64::MAX,
            Self::Rdma(_) => TRANSFER_BYTES as u64,
        }
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
