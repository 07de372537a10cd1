//! Where a subsystem is, and as whom it is asked.

use std::str::FromStr;
use std::time::Duration;

use crate::Error;
use crate::association::Options;
use crate::controller::Controller;
use crate::host::HostIdentity;

/// Whom to ask, and who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Transport address: an IP address or a host name.
    pub traddr: String,
    /// Transport service: the TCP port.
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
    /// IP address or host name.
    pub traddr: String,
    /// TCP port; none is that of the first path.
    pub trsvcid: Option<u16>,
}

/// `ADDR`, `ADDR:PORT`, or `[IPV6]:PORT`.
impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = || Self { traddr: text.to_owned(), trsvcid: None };
        // More than one colon is an IPv6 address, with a port behind brackets only.
        let has_port =
            !text.ends_with(']') && (text.starts_with('[') || text.matches(':').count() == 1);
        let Some((traddr, port)) = text.rsplit_once(':').filter(|_| has_port) else {
            return Ok(whole());
        };
        match port.parse() {
            Ok(port) if !traddr.is_empty() => {
                Ok(Self { traddr: traddr.to_owned(), trsvcid: Some(port) })
            }
            _ => Err("write an address, such as 192.0.2.11, 192.0.2.11:4420 or [fd00::1]:4420"
                .to_owned()),
        }
    }
}

impl Remote {
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
