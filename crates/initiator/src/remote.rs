//! Where a subsystem is, and as whom it is asked.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Error;
use crate::association::Options;
use crate::controller::Controller;
use crate::host::HostIdentity;

/// Whom to ask, and who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Transport address: an IP address or a host name; of NVMe/RDMA with `rdma://` before it.
    pub traddr: String,
    /// Transport service: the port.
    pub trsvcid: u16,
    /// Subsystem NQN.
    pub subnqn: String,
    /// The asking host.
    pub host: HostIdentity,
    /// Digests and times.
    pub options: Options,
}

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

impl Remote {
    /// Goes to this address from now on, and to its port if it has one.
    pub fn go_to(&mut self, address: &Address) {
        self.traddr.clone_from(&address.traddr);
        self.trsvcid = address.trsvcid.unwrap_or(self.trsvcid);
    }

    /// Whether it is gone to by RDMA.
    #[must_use]
    pub fn is_rdma(&self) -> bool {
        self.traddr.starts_with(RDMA)
    }

    /// This path, and the same subsystem at these addresses.
    #[must_use]
    pub fn with_paths(&self, others: &[Address]) -> Vec<Self> {
        let others = others.iter().map(|path| Self {
            traddr: path.traddr.clone(),
            trsvcid: path.trsvcid.unwrap_or(self.trsvcid),
            ..self.clone()
        });
        [self.clone()].into_iter().chain(others).collect()
    }

    /// The same for a single question: no keep alive timer (KATO 0), as nothing would feed it and the connection
    /// ends with the answer.
    pub(crate) fn briefly(&self) -> Self {
        let options = Options { keep_alive: Duration::ZERO, ..self.options.clone() };
        Self { options, ..self.clone() }
    }

    /// Connects to the controller.
    ///
    /// # Errors
    /// As [`Controller::connect`].
    pub async fn connect(&self) -> Result<Controller, Error> {
        let Self { traddr, trsvcid, subnqn, host, options } = self;
        Controller::connect(traddr, *trsvcid, subnqn, host, options).await
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
