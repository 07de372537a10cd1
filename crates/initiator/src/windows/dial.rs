//! From a grant to its rings by RDMA: each is asked for by a connection of its own, and looked at.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fabric::TransportAddress;
use fabric::ring::{RemoteRing, Wanted};
use window::{Grant, Identity};

use super::attach::{is_of, wrong};
use super::copies::Copies;
use super::direct::DirectWindow;
use super::ring::Ring;
use super::standing::Standing;
use crate::limits::WINDOW_PATIENCE;

/// Asks for the rings of a grant where the controller is that granted it, and looks whether they are its.
pub(crate) async fn dial(
    grant: Grant,
    address: TransportAddress,
    standing: Arc<Standing>,
) -> io::Result<DirectWindow> {
    let TransportAddress::Rdma(address) = address else { return Err(wrong("no address by RDMA")) };
    let (mut rings, mut first) = (Vec::with_capacity(grant.rings), None);
    for index in 0..grant.rings {
        let wanted = Wanted { token: grant.token, ring: index, ring_bytes: grant.ring_bytes };
        let dialed = reactor::timeout(WINDOW_PATIENCE, RemoteRing::dial(address, wanted)).await;
        let (remote, over) = dialed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        let told = Arc::downgrade(&standing);
        // An end that nobody writes under is heard of, too: the next write does not wait for a card to give up.
        reactor::spawn(async move {
            over.await;
            if let Some(told) = told.upgrade() {
                told.hold();
            }
        });
        let (checked, pages) = reactor::blocking(move || {
            let mut remote = remote;
            let pages = remote.identities(&in_time)?;
            Ok((remote, pages))
        })
        .await?;
        if !pages.iter().all(|page| is_of(&grant, index, Identity::decode(page), &mut first)) {
            return Err(wrong("a ring of another direct write window"));
        }
        rings.push(Ring::new(&grant, Copies::Remote(Box::new(checked))));
    }
    Ok(DirectWindow::new(grant, rings.into(), standing))
}

fn in_time(waited: Duration) -> bool {
    waited < WINDOW_PATIENCE
}
