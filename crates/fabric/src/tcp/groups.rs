//! Queue groups: the connections of one core come by one queue of the network card, those of another core by another
//! queue, so that a core that polls, or is interrupted, has to do with one queue of the card and shares it with nobody.
//!
//! The card chooses the queue of a connection, by addresses and ports (receive side scaling). So a connection is made
//! from one local port after another until it comes by the right queue.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use reactor::net::TcpStream;

use crate::limits::GROUP_DIALS;

/// Which queue of a card a core's connections come by, on the card that has the address.
#[derive(Debug)]
struct Claim {
    owner: ThreadId,
    local: IpAddr,
    napi: u32,
}

#[derive(Debug)]
struct Claims(Vec<Claim>);

impl Claims {
    /// Whether a connection of `owner` may come by this queue: the one that its others come by, or, for the first, one
    /// that nobody has, which is the owner's from then on.
    fn takes(&mut self, owner: ThreadId, local: IpAddr, napi: u32) -> bool {
        let own = self.0.iter().find(|claim| (claim.owner, claim.local) == (owner, local));
        if let Some(own) = own {
            return own.napi == napi;
        }
        let free = self.0.iter().all(|claim| claim.napi != napi);
        if free {
            self.0.push(Claim { owner, local, napi });
        }
        free
    }

    /// Has `owner` share a queue with others, if it has none: there are more cores than queues.
    fn share(&mut self, owner: ThreadId, local: IpAddr, napi: u32) {
        if !self.0.iter().any(|claim| (claim.owner, claim.local) == (owner, local)) {
            self.0.push(Claim { owner, local, napi });
        }
    }

    fn release(&mut self, owner: ThreadId) {
        self.0.retain(|claim| claim.owner != owner);
    }
}

static CLAIMS: Mutex<Claims> = Mutex::new(Claims(Vec::new()));

fn claims() -> MutexGuard<'static, Claims> {
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a core's queues back when its thread ends.
struct Lease(ThreadId);

impl Drop for Lease {
    fn drop(&mut self) {
        claims().release(self.0);
    }
}

thread_local!(static LEASE: Lease = Lease(thread::current().id()));

/// Connects by the queue of this core. Where there is no card's queue, as within a machine, or none of many attempts
/// finds the right one, any will do.
///
/// # Errors
/// Those of connecting.
pub async fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let owner = LEASE.with(|lease| lease.0);
    let mut stream = TcpStream::connect(addr).await?;
    for _ in 1..GROUP_DIALS {
        let Some(napi) = stream.napi_id()? else { return Ok(stream) };
        if claims().takes(owner, stream.local_addr()?.ip(), napi) {
            return Ok(stream);
        }
        // The port of the last one is taken until there is another.
        stream = TcpStream::connect(addr).await?;
    }
    if let Some(napi) = stream.napi_id()? {
        claims().share(owner, stream.local_addr()?.ip(), napi);
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn thread() -> ThreadId {
        std::thread::spawn(|| std::thread::current().id()).join().unwrap()
    }

    #[test]
    fn each_core_has_a_queue_of_its_own_on_each_card() {
        let (a, b, c) = (thread(), thread(), thread());
        let [east, west] = [1, 2].map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)));
        let mut claims = Claims(Vec::new());
        assert!(claims.takes(a, east, 7) && claims.takes(a, east, 7));
        assert!(!claims.takes(a, east, 8), "its connections come by one queue");
        assert!(claims.takes(a, west, 20), "another card");
        assert!(!claims.takes(b, east, 7), "it is another core's");
        assert!(claims.takes(b, east, 8));
        assert!(!claims.takes(c, east, 7) && !claims.takes(c, east, 8));
        claims.share(c, east, 8);
        assert!(claims.takes(c, east, 8) && !claims.takes(c, east, 7));
        claims.share(c, east, 7);
        assert!(!claims.takes(c, east, 7), "it has one already");
        claims.release(a);
        assert!(!claims.takes(c, west, 8) && claims.takes(c, west, 20));
    }
}
