//! A target for the tests of hosts: one namespace in memory, on a reactor of its own, at a port of this machine.
#![allow(clippy::unwrap_used, reason = "a test says what it met by failing there")]

pub mod peer;
pub mod script;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use fabric::TransportAddress;
use fabric::controller::Listener;
use media::memory::{Region, RegionOptions};
use nvme::nqn::Nqn;
use reactor::{Config, Handle, PollPolicy, Reactor};

use crate::listener::ListenerInfo;
use crate::namespace::{Backend, Namespace, NamespaceSpec};
use crate::subsystem::SubsystemSpec;
use crate::{Identity, Target, serve_connection};

/// The target. It ends when dropped.
pub struct Peer {
    /// Its reactor.
    pub handle: Handle,
    /// What is on namespace 1.
    pub region: Arc<Region>,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    subnqn: &'static str,
    block: u32,
    target: Arc<Target>,
}

impl Peer {
    /// Serves `bytes` in blocks of `block` bytes as namespace 1 of `subnqn`, on a free port.
    ///
    /// # Panics
    /// When anything of that fails.
    #[must_use]
    pub fn start(subnqn: &'static str, bytes: u64, block: u32) -> Self {
        let options = RegionOptions { block_size: block, shared: true, committed: false };
        let region = Arc::new(Region::new(bytes, options).unwrap());
        let (target, handle, port) = listen(&region, subnqn, block, 0);
        Self { handle, region, port, subnqn, block, target }
    }

    /// For each controller, whether its host asked to be told of delays between attempts (ACRE).
    #[must_use]
    pub fn delay_retries(&self) -> Vec<bool> {
        self.target.controllers().iter().map(|one| one.delays_retries()).collect()
    }

    /// Ends without a word; what was written stays.
    pub fn stop(&self) {
        self.handle.stop();
        let _ = self.handle.join();
    }

    /// Serves again, where it did.
    ///
    /// # Panics
    /// When that fails.
    pub fn serve_again(&mut self) {
        (self.target, self.handle, _) = listen(&self.region, self.subnqn, self.block, self.port);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Serves `region` on a reactor of its own.
fn listen(region: &Arc<Region>, subnqn: &str, block: u32, port: u16) -> (Arc<Target>, Handle, u16) {
    let served = Target::new(Identity::default());
    let nqn = Nqn::new(subnqn).unwrap();
    served.add_subsystem(SubsystemSpec::new(nqn.clone())).unwrap();
    let spec = NamespaceSpec::new(Backend::Memory(Arc::clone(region)), block);
    served.add_namespace(&nqn, &spec).unwrap();
    let config = Config { cpu: None, poll: PollPolicy::Interrupt, name: "target".to_owned() };
    let handle = Reactor::start(config).unwrap();
    let its = Arc::clone(&served);
    let port = handle.call(move || serve(its, port)).wait().unwrap();
    (served, handle, port)
}

/// A namespace of `blocks` blocks, of which its backend may have more.
///
/// # Panics
/// When there is no such namespace.
#[must_use]
pub fn namespace(nsid: u32, backend: Backend, block: u32, blocks: u64) -> Namespace {
    let subsystem = Nqn::new("nqn.2026-11.io.flashloom:test").unwrap();
    let namespace = Namespace::new(&subsystem, nsid, &NamespaceSpec::new(backend, block)).unwrap();
    namespace.set_blocks(blocks);
    namespace
}

/// Listens on `port` of 127.0.0.1, or a free one when that is 0, accepts in a task of its own, and tells the port.
///
/// # Panics
/// When it cannot listen, and outside a reactor.
pub async fn serve(served: Arc<Target>, port: u16) -> u16 {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let listener = Listener::bind(TransportAddress::Tcp(SocketAddr::new(ip, port))).unwrap();
    let address = listener.address().unwrap();
    let id = served.add_listener(ListenerInfo::new(address)).unwrap();
    reactor::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            reactor::spawn(serve_connection(Arc::clone(&served), accepted, id, || {}));
        }
    });
    address.trsvcid()
}
