//! Transport addresses: where to listen, and what discovery returns instead.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use super::Refused;

/// Port of I/O controllers (IANA, NVMe/TCP and NVMe/RDMA transports).
pub const PORT: u16 = 4420;

/// How hosts reach an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// NVMe/TCP.
    Tcp,
    /// NVMe/RDMA.
    Rdma,
}

impl Transport {
    /// The name that hosts give it: nvme-cli's `-t`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
        }
    }
}

/// An address to listen on: IP address and port; the port is 4420 when left out. Of RDMA it begins with `rdma://`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    transport: Transport,
    socket: SocketAddr,
}

const RIGHT: &str = "write an IP address and port, such as 127.0.0.1:4420, 0.0.0.0:4420 or \
                     [::]:4420; for RDMA with rdma:// before it, such as rdma://10.0.0.1:4420";

/// What an address of RDMA begins with.
const RDMA: &str = "rdma://";

impl Address {
    /// An address of a transport.
    pub const fn new(transport: Transport, socket: SocketAddr) -> Self {
        Self { transport, socket }
    }

    /// How hosts reach it.
    pub const fn transport(self) -> Transport {
        self.transport
    }

    /// The address and port.
    pub const fn socket(self) -> SocketAddr {
        self.socket
    }

    /// Loopback at `port`: where an ad hoc target listens unless told otherwise.
    pub const fn loopback(port: u16) -> Self {
        Self::new(Transport::Tcp, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Self {
        Self::new(Transport::Tcp, socket)
    }
}

impl FromStr for Address {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let (transport, text) = match text.strip_prefix(RDMA) {
            Some(rest) => (Transport::Rdma, rest),
            None => (Transport::Tcp, text),
        };
        if let Ok(socket) = text.parse() {
            return Ok(Self::new(transport, socket));
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse() {
            return Ok(Self::new(transport, SocketAddr::new(ip, PORT)));
        }
        let wrong = match text.rsplit_once(':') {
            Some((host, port)) if host.parse::<Ipv4Addr>().is_ok() => {
                let kind = if transport == Transport::Tcp { "TCP port" } else { "port" };
                format!("\"{port}\" is not a {kind}")
            }
            _ => format!("\"{text}\" is not an address to listen on"),
        };
        Err(Refused::new(wrong, RIGHT))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            Transport::Tcp => out.pad(&self.socket.to_string()),
            Transport::Rdma => out.pad(&format!("{RDMA}{}", self.socket)),
        }
    }
}

/// What discovery log entries return in place of the address that the host connected to, for
/// hosts that reach the listener through a translation: an IP address, with or without a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Advertise {
    /// The address to return (TRADDR).
    pub ip: IpAddr,
    /// The port to return (TRSVCID); the listener's own when absent.
    pub port: Option<u16>,
}

impl FromStr for Advertise {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Ok(Self { ip: socket.ip(), port: Some(socket.port()) });
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        bare.parse().map(|ip| Self { ip, port: None }).map_err(|_| {
            Refused::new(
                format!("\"{text}\" is not an address to advertise"),
                "write the IP address that hosts reach, with or without a port, such as 10.0.2.2",
            )
        })
    }
}

impl fmt::Display for Advertise {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => out.pad(&SocketAddr::new(self.ip, port).to_string()),
            None => out.pad(&self.ip.to_string()),
        }
    }
}

super::text_value!(
    Address,
    "0.0.0.0:4420",
    "An IP address and port to listen on; of RDMA with rdma:// before it."
);
super::text_value!(
    Advertise,
    "10.0.2.2",
    "The address, and maybe port, that discovery returns in place of the listener's."
);
