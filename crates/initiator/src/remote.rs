//! Where a subsystem is, and as whom it is asked.

use std::time::Duration;

use crate::Error;
use crate::address::{Address, RDMA};
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
