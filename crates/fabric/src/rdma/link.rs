//! A connection that the host was told is there, and that nobody listens to yet.

use std::net::SocketAddr;
use std::rc::Rc;

use reactor::budget::Grant;
use verbs::Endpoint;

use super::layout::Layout;
use super::site::Site;

/// A connection of this reactor: the host has been told so.
pub struct Link {
    pub endpoint: Endpoint,
    pub site: Rc<Site>,
    pub layout: Layout,
    /// Memory to receive into, as long as there is.
    pub receives: Grant,
}

impl Link {
    /// This end's address.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.endpoint.local()
    }

    /// The host's address.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.endpoint.peer()
    }
}
