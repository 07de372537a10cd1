//! Addresses as people write them.

use std::fmt;
use std::str::FromStr;

/// An address, maybe with a port: one more path to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// IP address or host name; of NVMe/RDMA with `rdma://` before it.
    pub traddr: String,
    /// Port; none is that of the first path.
    pub trsvcid: Option<u16>,
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { traddr, trsvcid } = self;
        // An IPv6 address without brackets has no port.
        match trsvcid {
            Some(port) => write!(out, "{traddr}:{port}"),
            None => out.write_str(traddr),
        }
    }
}

/// What a transport address of NVMe/RDMA begins with.
pub(crate) const RDMA: &str = "rdma://";

impl Address {
    /// The same with a port: `usual` if it has none.
    #[must_use]
    pub fn with_port(&self, usual: u16) -> Self {
        Self { trsvcid: self.trsvcid.or(Some(usual)), ..self.clone() }
    }
}

/// `ADDR`, `ADDR:PORT`, or `[IPV6]:PORT`; each of them with `rdma://` before it.
impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let place = text.strip_prefix(RDMA);
        let (prefix, place) = place.map_or(("", text), |place| (RDMA, place));
        // More than one colon is an IPv6 address, with a port behind brackets only.
        let has_port =
            !place.ends_with(']') && (place.starts_with('[') || place.matches(':').count() == 1);
        let (traddr, port) = match place.rsplit_once(':').filter(|_| has_port) {
            Some((traddr, port)) => (traddr, Some(port.parse())),
            None => (place, None),
        };
        // A slash is of something else: another transport, or a path.
        match port.transpose() {
            Ok(trsvcid) if !traddr.is_empty() && !traddr.contains('/') => {
                Ok(Self { traddr: format!("{prefix}{traddr}"), trsvcid })
            }
            _ => Err("write an address, such as 192.0.2.11, 192.0.2.11:4420 or [fd00::1]:4420; of RDMA with \
                      rdma:// before it"
                .to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_transport_and_its_port() {
        let read = |text: &str| text.parse::<Address>().map(|read| (read.traddr, read.trsvcid));
        for (text, traddr, trsvcid) in [
            ("192.0.2.1", "192.0.2.1", None),
            ("192.0.2.1:4421", "192.0.2.1", Some(4421)),
            ("[fd00::1]:4421", "[fd00::1]", Some(4421)),
            ("fd00::1", "fd00::1", None),
            ("rdma://192.0.2.1", "rdma://192.0.2.1", None),
            ("rdma://192.0.2.1:4421", "rdma://192.0.2.1", Some(4421)),
            ("rdma://[fd00::1]:4421", "rdma://[fd00::1]", Some(4421)),
            ("rdma://db.example:9", "rdma://db.example", Some(9)),
        ] {
            assert_eq!(read(text), Ok((traddr.to_owned(), trsvcid)), "{text}");
        }
        for text in ["", "rdma://", "rdma://:9", "tcp://192.0.2.1", "192.0.2.1:x", "rdma://a:70000"]
        {
            assert!(read(text).unwrap_err().contains("rdma://"), "{text}");
        }
    }
}
