//! Transport addresses: where to listen, and what discovery returns instead.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use super::Refused;

/// Port of NVMe/TCP I/O controllers (IANA, NVMe/TCP transport).
pub const PORT: u16 = 4420;

/// An address to listen on: IP address and TCP port; the port is 4420 when left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(SocketAddr);

const RIGHT: &str = "write an IP address and port, such as 127.0.0.1:4420, 0.0.0.0:4420 or \
                     [::]:4420";

impl Address {
    /// The address and port.
    pub const fn socket(self) -> SocketAddr {
        self.0
    }

    /// Loopback at `port`: where an ad hoc target listens unless told otherwise.
    pub const fn loopback(port: u16) -> Self {
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Self {
        Self(socket)
    }
}

impl FromStr for Address {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        if let Ok(socket) = text.parse() {
            return Ok(Self(socket));
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse() {
            return Ok(Self(SocketAddr::new(ip, PORT)));
        }
        let wrong = match text.rsplit_once(':') {
            Some((host, port)) if host.parse::<Ipv4Addr>().is_ok() => {
                format!("\"{port}\" is not a TCP port")
            }
            _ => format!("\"{text}\" is not an address to listen on"),
        };
        Err(Refused::new(wrong, RIGHT))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0.to_string())
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

super::text_value!(Address, "0.0.0.0:4420", "An IP address and TCP port to listen on.");
super::text_value!(
    Advertise,
    "10.0.2.2",
    "The address, and maybe port, that discovery returns in place of the listener's."
);
