//! Where the target can be reached: its listeners, and other discovery services it refers to.

use std::net::IpAddr;

use fabric::TransportAddress;
use nvme::ana;
use nvme::discovery::TransportType;
use nvme::nqn::Nqn;

/// Number of a listener; its PORTID in discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u16);

/// A listener, as discovery describes it (Base 2.1 section 5.1.12.3.1). Which sockets accept is
/// not this module's concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerInfo {
    /// Transport Type (TRTYPE).
    pub trtype: TransportType,
    /// Address the listener is bound to; the unspecified address stands for every local one.
    pub traddr: IpAddr,
    /// Port (TRSVCID).
    pub trsvcid: u16,
    /// Address and port told to hosts in place of the above, for networks that translate
    /// addresses; the family is that of the address.
    pub advertise: Option<(IpAddr, u16)>,
    /// Serves the discovery service only, as on port 8009.
    pub discovery_only: bool,
    /// ANA state of the namespaces for hosts that connect here.
    pub ana: ana::State,
}

impl ListenerInfo {
    /// A listener for discovery and NVM subsystems.
    #[must_use]
    pub const fn new(address: TransportAddress) -> Self {
        Self {
            trtype: address.trtype(),
            traddr: address.traddr(),
            trsvcid: address.trsvcid(),
            advertise: None,
            discovery_only: false,
            ana: ana::State::Optimized,
        }
    }

    /// Address and port to tell a host that connected to `local`, which may be another listener's
    /// address. `None` when there is no address of this listener that the host could use.
    #[must_use]
    pub fn reachable_at(&self, local: IpAddr, is_own: bool) -> Option<(IpAddr, u16)> {
        if let Some(advertised) = self.advertise {
            return Some(advertised);
        }
        if is_own || self.covers(local) {
            return Some((local.to_canonical(), self.trsvcid));
        }
        let usable = !self.traddr.is_unspecified()
            && (!self.traddr.is_loopback() || local.to_canonical().is_loopback());
        usable.then_some((self.traddr, self.trsvcid))
    }

    /// Whether a connection to `local` could have come through this listener's address.
    fn covers(&self, local: IpAddr) -> bool {
        let local = local.to_canonical();
        match self.traddr {
            IpAddr::V4(any) if any.is_unspecified() => local.is_ipv4(),
            // A socket on :: takes IPv4 as well.
            IpAddr::V6(any) if any.is_unspecified() => true,
            own => own.to_canonical() == local,
        }
    }
}

/// A referral: another discovery service hosts are told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Its NQN: the well-known one, or its own.
    pub nqn: Nqn,
    pub address: TransportAddress,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn at(text: &str) -> ListenerInfo {
        ListenerInfo::new(TransportAddress::Tcp(text.parse().unwrap()))
    }

    #[test]
    fn hosts_are_told_an_address_they_can_use() {
        let wild = at("0.0.0.0:4420");
        assert_eq!(wild.reachable_at(ip("10.1.2.3"), true), Some((ip("10.1.2.3"), 4420)));
        assert_eq!(wild.reachable_at(ip("10.1.2.3"), false), Some((ip("10.1.2.3"), 4420)));
        assert_eq!(wild.reachable_at(ip("fd00::1"), false), None);
        let dual = at("[::]:4420");
        assert_eq!(dual.reachable_at(ip("::ffff:10.1.2.3"), false), Some((ip("10.1.2.3"), 4420)));
        let bound = at("10.9.9.9:4421");
        assert_eq!(bound.reachable_at(ip("10.1.2.3"), false), Some((ip("10.9.9.9"), 4421)));
        let inside = at("127.0.0.1:4420");
        assert_eq!(inside.reachable_at(ip("10.1.2.3"), false), None);
        let told = ListenerInfo { advertise: Some((ip("192.0.2.7"), 5000)), ..bound };
        assert_eq!(told.reachable_at(ip("10.9.9.9"), true), Some((ip("192.0.2.7"), 5000)));
    }
}
