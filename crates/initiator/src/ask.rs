//! Single questions for callers without a reactor: each connects, asks, disconnects, and blocks meanwhile.

use std::future::Future;

use nvme::identify::{IdentifyController, IdentifyNamespace};
use reactor::{Config, PollPolicy};

use crate::Error;
use crate::discovery::DiscoveryLog;
use crate::remote::Remote;

/// Reads the discovery log. The remote's subsystem NQN is that of a discovery subsystem, the well-known
/// [`nvme::nqn::DISCOVERY`] or a unique one.
///
/// # Errors
/// Any of [`Error`].
pub fn discover(remote: &Remote) -> Result<DiscoveryLog, Error> {
    let remote = remote.briefly();
    blocking(async move {
        let controller = remote.connect().await?;
        let log = controller.discovery_log().await?;
        let _ = controller.shut_down().await;
        Ok(log)
    })
}

/// Identify Controller.
///
/// # Errors
/// Any of [`Error`].
pub fn identify_controller(remote: &Remote) -> Result<Box<IdentifyController>, Error> {
    let remote = remote.briefly();
    blocking(async move {
        let controller = remote.connect().await?;
        let identity = Box::new(controller.identity().clone());
        let _ = controller.shut_down().await;
        Ok(identity)
    })
}

/// Identify Namespace of an active namespace.
///
/// # Errors
/// Any of [`Error`].
pub fn identify_namespace(remote: &Remote, nsid: u32) -> Result<Box<IdentifyNamespace>, Error> {
    let remote = remote.briefly();
    blocking(async move {
        let controller = remote.connect().await?;
        let namespace = controller.namespace(nsid).await?;
        let _ = controller.shut_down().await;
        Ok(namespace)
    })
}

/// Runs a question on a reactor of this thread.
fn blocking<T: 'static>(
    question: impl Future<Output = Result<T, Error>> + 'static,
) -> Result<T, Error> {
    let config = Config { cpu: None, poll: PollPolicy::Interrupt, name: "ask".to_owned() };
    reactor::run(config, question)?
}
