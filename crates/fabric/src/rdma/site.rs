//! What a reactor has of a device: a protection domain, and registered memory for data on its way.

use core::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use reactor::budget::Grant;
use verbs::{Device, Domain, Memory, Reach};

use super::shares::Shares;
use super::staging::Staging;
use crate::limits::{RDMA_RECEIVES_BYTES, STAGING_BYTES};

/// A device, as one reactor uses it: as long as it has a connection there.
pub struct Site {
    pub domain: Arc<Domain>,
    pub memory: Arc<Memory>,
    pub staging: Rc<Staging>,
}

thread_local! {
    static SITES: RefCell<HashMap<Device, Weak<Site>>> = RefCell::default();
    /// Memory of this reactor's connections to receive into.
    static RECEIVES: Shares = Shares::new(RDMA_RECEIVES_BYTES);
}

impl Site {
    /// This reactor's, of the device that a connection to `local` came by.
    ///
    /// # Errors
    /// No memory may be locked, in words for an administrator; the device is gone.
    pub async fn of(device: Device, local: IpAddr) -> io::Result<Rc<Self>> {
        let known = || SITES.with(|sites| sites.borrow().get(&device)?.upgrade());
        if let Some(site) = known() {
            return Ok(site);
        }
        let (domain, memory) = reactor::blocking(move || open(local)).await?;
        // Another connection may have made it meanwhile: one device has one.
        if let Some(site) = known() {
            return Ok(site);
        }
        let site = Rc::new(Self { domain, memory, staging: Staging::new(STAGING_BYTES) });
        SITES.with(|sites| {
            let mut sites = sites.borrow_mut();
            sites.retain(|_, site| site.strong_count() > 0);
            sites.insert(site.domain.device(), Rc::downgrade(&site));
        });
        Ok(site)
    }
}

/// Opens the device that has the address, and registers memory there.
pub fn open(local: IpAddr) -> io::Result<(Arc<Domain>, Arc<Memory>)> {
    let domain = Arc::new(Domain::open(local)?);
    let memory = Arc::new(Memory::register(&domain, STAGING_BYTES, Reach::Ours)?);
    Ok((domain, memory))
}

/// Takes memory to receive into for a peer; `None` where its address, or all together, have too much.
pub fn take_receives(peer: IpAddr, bytes: usize) -> Option<Grant> {
    RECEIVES.with(|receives| receives.account(peer).try_take(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn one_address_does_not_take_all_memory_to_receive_into() {
        let at = |last| IpAddr::from(Ipv4Addr::new(192, 0, 2, last));
        let queue = 4 << 20;
        let greedy: Vec<_> = std::iter::from_fn(|| take_receives(at(1), queue)).collect();
        assert!(!greedy.is_empty() && greedy.len() * queue <= RDMA_RECEIVES_BYTES * 2 / 3 + queue);
        let other = take_receives(at(2), queue);
        assert!(other.is_some());
        drop((greedy, other));
        assert!(take_receives(at(2), RDMA_RECEIVES_BYTES / 2).is_some());
    }
}
