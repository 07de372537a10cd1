//! A namespace of another target.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use super::address::PORT;
use super::{Nqn, Refused};

/// A namespace of another target, written `tcp://ADDR[:PORT]/SUBNQN/NSID` or `rdma://ADDR[:PORT]/SUBNQN/NSID`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemoteNamespace {
    /// It is reached by NVMe/RDMA, not NVMe/TCP.
    pub rdma: bool,
    /// Address of the target: a name would make what is stored there depend on who resolves it.
    pub traddr: IpAddr,
    /// Port of the target.
    pub trsvcid: u16,
    /// The subsystem.
    pub subnqn: Nqn,
    /// The namespace there.
    pub nsid: u32,
}

const TCP: &str = "tcp://";
const RDMA: &str = "rdma://";

const RIGHT: &str = "write tcp://ADDR[:PORT]/SUBNQN/NSID, or rdma:// in place of tcp://, such as \
                     tcp://10.0.0.2/nqn.2026-11.io.flashloom:logs/1 or \
                     rdma://[fd00::2]:4421/nqn.2026-11.io.flashloom:logs/1";

fn refuse<T>(wrong: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::new(wrong, RIGHT))
}

impl RemoteNamespace {
    /// Whether a text means to be one, rather than a path.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(TCP) || text.starts_with(RDMA)
    }
}

impl FromStr for RemoteNamespace {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let (rdma, rest) = match (text.strip_prefix(TCP), text.strip_prefix(RDMA)) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => {
                return refuse(format!("\"{text}\" is not a namespace of another target"));
            }
        };
        // An NQN may have slashes, the others have none.
        let Some((place, rest)) = rest.split_once('/') else {
            return refuse(format!("\"{text}\" names no subsystem"));
        };
        let Some((subnqn, nsid)) = rest.rsplit_once('/') else {
            return refuse(format!("\"{text}\" names no namespace of the subsystem"));
        };
        let (traddr, trsvcid) = place_of(place)?;
        let subnqn: Nqn = subnqn.parse()?;
        if subnqn.is_discovery() {
            return refuse("the discovery subsystem has no namespaces");
        }
        let nsid = match nsid.parse::<u32>() {
            // FFFFFFFFh is all of them (NVMe Base 2.1, section 3.2.1.2); a sign, or zeroes before it, are none of it.
            Ok(id) if id != 0 && id != u32::MAX && id.to_string() == nsid => id,
            _ => return refuse(format!("\"{nsid}\" is not a namespace identifier")),
        };
        Ok(Self { rdma, traddr, trsvcid, subnqn, nsid })
    }
}

/// `ADDR`, `ADDR:PORT`, `[IPV6]` or `[IPV6]:PORT`.
fn place_of(text: &str) -> Result<(IpAddr, u16), Refused> {
    let (address, port) = if let Ok(socket) = text.parse::<SocketAddr>() {
        (socket.ip(), socket.port())
    } else if let Ok(v4) = text.parse::<Ipv4Addr>() {
        (v4.into(), PORT)
    } else {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        match bare.map(str::parse) {
            Some(Ok(v6)) => (IpAddr::V6(v6), PORT),
            _ => return refuse(format!("\"{text}\" is not the address of a target")),
        }
    };
    if port == 0 || address.is_unspecified() || address.is_multicast() {
        return refuse(format!("nobody can be reached at \"{text}\""));
    }
    Ok((address, port))
}

impl fmt::Display for RemoteNamespace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rdma, traddr, trsvcid, subnqn, nsid } = self;
        let transport = if *rdma { RDMA } else { TCP };
        let socket = SocketAddr::new(*traddr, *trsvcid);
        out.pad(&format!("{transport}{socket}/{subnqn}/{nsid}"))
    }
}

super::text_value!(
    RemoteNamespace,
    "tcp://10.0.0.2:4420/nqn.2026-11.io.flashloom:logs/1",
    "A namespace of another target: tcp://ADDR[:PORT]/SUBNQN/NSID, or the same with rdma://."
);
