//! Addresses as C has them.
#![allow(unsafe_code, reason = "a union of C")]

use core::ptr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The address as C has it.
pub fn to_c(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all of it is integers, for which zeros are a value.
    let mut storage: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    match address {
        SocketAddr::V4(v4) => {
            let sin = libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: storage is large and aligned enough for every address.
            unsafe { ptr::from_mut(&mut storage).cast::<libc::sockaddr_in>().write(sin) };
        }
        SocketAddr::V6(v6) => {
            let sin6 = libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { ptr::from_mut(&mut storage).cast::<libc::sockaddr_in6>().write(sin6) };
        }
    }
    storage
}

/// The address of what C has; `None` for one of another family.
pub fn from_c(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one, and the storage is large and aligned enough.
            let sin = unsafe { ptr::from_ref(storage).cast::<libc::sockaddr_in>().read() };
            let ip = IpAddr::V4(Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes()));
            Some(SocketAddr::new(ip, u16::from_be(sin.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let s = unsafe { ptr::from_ref(storage).cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(s.sin6_addr.s6_addr);
            let port = u16::from_be(s.sin6_port);
            Some(SocketAddrV6::new(ip, port, s.sin6_flowinfo, s.sin6_scope_id).into())
        }
        _ => None,
    }
}

fn family(family: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in ["192.0.2.7:4420", "[2001:db8::1]:4421", "0.0.0.0:0", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_c(&to_c(address)), Some(address));
        }
    }
}
