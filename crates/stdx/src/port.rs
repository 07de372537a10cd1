//! Loopback ports for programs that are started, ended and started again on the same one.

use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

/// The ports that are claimed: above those of common services, below those that Linux gives to clients
/// (`ip_local_port_range`), one of whose connections may take a port between two starts of its program.
const FIRST: u16 = 10_240;
const COUNT: u16 = 22_000;

/// A port of 127.0.0.1 that nothing listens on, and that no other caller gets, here or in another process, until
/// this process ends.
///
/// # Errors
/// When every port is taken, or the system refuses sockets.
pub fn claim() -> io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    // Each process begins elsewhere, so that it need not pass what another has claimed.
    let begin = std::process::id().wrapping_mul(97) % u32::from(COUNT);
    for _ in 0..COUNT {
        let turn = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port =
            FIRST + u16::try_from((begin + turn) % u32::from(COUNT)).map_err(io::Error::other)?;
        // An abstract name has one owner, and loses it with the process, however that ends.
        let name = SocketAddr::from_abstract_name(format!("flashloom-port-{port}"))?;
        let claim = match UnixListener::bind_addr(&name) {
            Ok(claim) => claim,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
            Err(error) => return Err(error),
        };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no loopback port is free"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_a_port_twice_nor_one_that_clients_use() {
        let clients = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let clients: u16 = clients.split_whitespace().next().unwrap().parse().unwrap();
        let ports: std::collections::BTreeSet<_> = (0..100).map(|_| claim().unwrap()).collect();
        assert_eq!(ports.len(), 100);
        assert!(ports.iter().all(|port| (1024..clients).contains(port)), "{ports:?}");
    }

    #[test]
    fn a_claim_holds_in_other_processes_and_leaves_the_port_free() {
        let port = claim().unwrap();
        let name = SocketAddr::from_abstract_name(format!("flashloom-port-{port}")).unwrap();
        assert!(UnixListener::bind_addr(&name).is_err(), "another process could claim {port}");
        let _listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
}
