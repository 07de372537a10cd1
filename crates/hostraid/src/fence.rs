//! A set for oneself: on one machine one program, among hosts the one that holds the members' reservations.
//!
//! Each member is registered with and reserved as Write Exclusive (NVMe Base 2.1, section 8.1.22): another host can
//! look at it, and its writes end with Reservation Conflict, which stops its set at once.
//!
//! That fences other hosts, not a program of this one that was killed: what it had in flight may be executed late. It
//! left its registration, which a set that ends in order takes back. Where one is found, or the target may have forgotten
//! it, nothing is concluded from what the member holds, and nothing written, until the controller must have noticed
//! (decision record 0009).
//!
//! Nor does it fence a program with the same Host Identifier that the machine's lock does not know, as in another
//! container. Each program has a key of its own, and whoever comes later puts its in the place of the other's, which
//! looks for that more often than the later one waits for what it may have in flight.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::rc::Rc;

use reactor::join_all;

use crate::Error;
use crate::claim::{Before, Claim};
use crate::member::{Member, is_fenced};

/// A set that is held. The machine's lock ends with it, or with the program.
pub struct Held {
    pub claim: Claim,
    _lock: Option<UnixListener>,
}

impl Held {
    /// Takes the set `id`, whose `members` those are, and waits until nobody else changes them.
    ///
    /// # Errors
    /// When another program or host has it.
    pub async fn take(claim: Claim, id: [u8; 16], members: &[Rc<Member>]) -> Result<Self, Error> {
        #[cfg(test)]
        let is_locked = !claim.unlocked;
        #[cfg(not(test))]
        let is_locked = true;
        let held = Self { claim, _lock: is_locked.then(|| lock(id)).transpose()? };
        let (mut fresh, mut doubtful) = (Vec::new(), Vec::new());
        for (index, member) in members.iter().enumerate() {
            match held.reserve(index, member).await {
                Ok(before) => {
                    if before != Before::Somebody {
                        fresh.push(Rc::clone(member));
                    }
                    if before != Before::Nobody {
                        doubtful.push(member);
                    }
                }
                Err(error) => {
                    // The registrations that were found still tell whoever comes next to wait.
                    held.release(&fresh).await;
                    return Err(error);
                }
            }
        }
        if !doubtful.is_empty() {
            tracing::info!(
                "waiting until what a program before this one may have in flight has ended"
            );
        }
        join_all(doubtful.into_iter().map(|member| member.outlive())).await;
        Ok(held)
    }

    /// Takes one more member, as [`Held::take`] does. One that this set had before has nobody else's commands.
    ///
    /// # Errors
    /// When another host has it.
    pub async fn take_one(&self, member: &Member, had: bool) -> Result<(), Error> {
        let before = self.reserve(0, member).await?;
        if before != Before::Nobody && !had {
            member.outlive().await;
        }
        Ok(())
    }

    async fn reserve(&self, index: usize, member: &Member) -> Result<Before, Error> {
        member.reserve(self.claim).await.map_err(|error| {
            if is_fenced(&error) {
                Error::refused(
                    format!("another host holds member {index}"),
                    "end the set there first; if that host is gone for good, --take-over takes its members",
                )
            } else {
                Error::member(index)(error)
            }
        })
    }

    /// Leaves members to others, in order. One that does not answer keeps its reservation, which this host takes up again.
    pub async fn release(&self, members: &[Rc<Member>]) {
        join_all(members.iter().map(|member| member.unreserve(self.claim.key))).await;
    }
}

/// A name that one program of the machine can have, for as long as it lives.
fn lock(id: [u8; 16]) -> Result<UnixListener, Error> {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = SocketAddr::from_abstract_name(format!("flashloom-raid-{hex}"))?;
    UnixListener::bind_addr(&name).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => Error::refused(
            "another program of this machine uses the set",
            "end that first: a set is used by one program at a time",
        ),
        _ => Error::Memory(error),
    })
}
