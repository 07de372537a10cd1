//! How a host's connection comes to be.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use nvme::rdma::{AcceptData, RejectData, Request};
use reactor::event::Descriptor;
use verbs::{Answer, Dial, Domain, Endpoint, Memory, Reach};
use zerocopy::IntoBytes;

use super::super::dial::{self, Way};
use super::layout::Layout;
use crate::TransportAddress;
use crate::error::Error;
use crate::limits::{
    RDMA_HOST_ADMIN_STAGING_BYTES, RDMA_HOST_STAGING_BYTES, RDMA_IN_CAPSULE_BYTES,
};
use crate::options::Options;

/// A connection that the controller has taken.
pub struct Opened {
    pub endpoint: Endpoint,
    /// Readable when the connection manager has something to say.
    pub events: Descriptor,
    pub layout: Layout,
    /// Commands that the controller has room for.
    pub most: u16,
}

/// Connects to `peer`.
pub async fn open(peer: SocketAddr, options: &Options) -> Result<Opened, Error> {
    let address = TransportAddress::Rdma(peer);
    let failed = |source: io::Error| Error::Connect { address, source };
    // Each of the two steps to the way, so that what failed is told before the time is over.
    let patience = options.timeout / 4;
    let Way { dial, events } = Way::to(peer, patience).await.map_err(failed)?;
    let asked = options.rdma;
    let in_capsule = asked.in_capsule.min(RDMA_IN_CAPSULE_BYTES);
    let layout = Layout::of(options.commands.max(1), in_capsule);
    let commands = options.commands.max(1);
    let request = Request { qid: asked.qid, commands, responses: commands };
    let staging =
        if asked.qid == 0 { RDMA_HOST_ADMIN_STAGING_BYTES } else { RDMA_HOST_STAGING_BYTES };
    let private = request.data(asked.cntlid);
    let endpoint = reactor::blocking(move || ask(dial, layout, staging, private.as_bytes())).await;
    let endpoint = endpoint.map_err(failed)?;
    let most = answered(&endpoint, &events, address).await?;
    Ok(Opened { endpoint, events, layout, most })
}

/// Makes the endpoint, with all its receives posted, and asks for the connection.
fn ask(dial: Dial, layout: Layout, staging: usize, private: &[u8]) -> io::Result<Endpoint> {
    let local = dial.local().ok_or(io::ErrorKind::NotConnected)?;
    let domain = Arc::new(Domain::open(local.ip())?);
    let sizes = layout.sizes();
    if sizes.sends.max(sizes.receives) > domain.work_most() {
        return Err(io::Error::other("the RDMA device has no queues that are so long"));
    }
    let shared = Arc::new(Memory::register(&domain, staging, Reach::Peers)?);
    let endpoint = Endpoint::to_connect(dial, &domain, &shared, sizes, 0, false)?;
    for slot in 0..layout.receives() {
        endpoint.post_receive(u64::from(slot), layout.receive(slot))?;
    }
    endpoint.connect(private)?;
    Ok(endpoint)
}

/// Waits for the controller's answer; how many commands it takes.
async fn answered(
    endpoint: &Endpoint,
    events: &Descriptor,
    address: TransportAddress,
) -> Result<u16, Error> {
    let failed = |source: io::Error| Error::Connect { address, source };
    match dial::answer(endpoint, events).await.map_err(failed)? {
        Answer::Taken(private) => AcceptData::parse(&private).ok_or_else(|| {
            Error::Protocol("NVMe/RDMA: no private data that takes a connection".to_owned())
        }),
        Answer::Refused(private) => {
            Err(Error::Rejected { address, status: RejectData::parse(&private) })
        }
        other => Err(failed(dial::failure(&other))),
    }
}
