//! What keeps a set's bytes: a namespace, or in simulation what behaves like one at its worst.

use initiator::{Buffer, Deallocate, Error, Fua, Namespace};
use nvme::reservation::Type;
use nvme::status::Status;
use stdx::num::low32;

use crate::claim::{Before, Claim, Kept};

/// One member's bytes. Offsets and lengths are multiples of its logical block, lengths no more than its largest
/// transfer.
#[derive(Clone)]
pub enum Member {
    /// A namespace of a target.
    Namespace(Namespace),
    /// A drive of the simulator.
    #[cfg(test)]
    Simulated(simulated::Drive),
}

/// What a set needs to know of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    pub block: u32,
    pub capacity: u64,
    /// Largest transfer, bytes.
    pub transfer_max: u32,
    pub write_zeroes: bool,
    /// Zeroes may give space back.
    pub zeroes_deallocate: bool,
    /// A completed write may be lost with power until a flush.
    pub volatile_cache: bool,
    pub read_only: bool,
}

/// Whether the bytes could not be read where others may: they can be had from the other members, and be
/// written again.
pub fn is_medium(error: &Error) -> bool {
    const MEDIUM: [Status; 2] = [Status::UNRECOVERED_READ_ERROR, Status::GUARD_CHECK_ERROR];
    matches!(error, Error::Command { status, .. } if MEDIUM.iter().any(|&kind| status.is(kind)))
}

/// Whether another host has taken the member: this one must stop, not go on without it.
pub fn is_fenced(error: &Error) -> bool {
    matches!(error, Error::Command { status, .. } if status.is(Status::RESERVATION_CONFLICT))
}

impl Member {
    #[must_use]
    pub fn traits(&self) -> Traits {
        match self {
            Self::Namespace(namespace) => {
                let geometry = namespace.geometry();
                Traits {
                    block: geometry.block_bytes,
                    capacity: geometry.blocks.saturating_mul(geometry.block_bytes.into()),
                    transfer_max: geometry.transfer_max_bytes,
                    write_zeroes: geometry.supports.write_zeroes,
                    zeroes_deallocate: geometry.supports.zeroes_deallocate,
                    volatile_cache: geometry.volatile_cache,
                    read_only: geometry.read_only,
                }
            }
            #[cfg(test)]
            Self::Simulated(drive) => Traits {
                block: 512,
                capacity: drive.capacity(),
                transfer_max: 1 << 20,
                write_zeroes: true,
                zeroes_deallocate: true,
                volatile_cache: true,
                read_only: false,
            },
        }
    }

    /// Waits until what a program of this host had in flight that was killed has ended.
    pub async fn outlive(&self) {
        match self {
            Self::Namespace(namespace) => namespace.outlive().await,
            #[cfg(test)]
            Self::Simulated(_) => {}
        }
    }

    /// Whether the other is a clone of this one.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Namespace(one), Self::Namespace(other)) => one.is(other),
            #[cfg(test)]
            (Self::Simulated(one), Self::Simulated(other)) => one.is(other),
            #[cfg(test)]
            _ => false,
        }
    }

    /// Reads `len` bytes at `offset` into the start of `buffer`.
    ///
    /// # Errors
    /// The member's.
    pub async fn read(&self, offset: u64, len: u32, buffer: &mut Buffer) -> Result<(), Error> {
        match self {
            Self::Namespace(namespace) => {
                let block = namespace.geometry().block_bytes;
                namespace.read(offset / u64::from(block), len / block, buffer).await
            }
            #[cfg(test)]
            Self::Simulated(drive) => drive.read(offset, len, buffer).await,
        }
    }

    /// Writes the first `len` bytes of `buffer` at `offset`.
    ///
    /// # Errors
    /// The member's.
    pub async fn write(
        &self,
        offset: u64,
        len: u32,
        buffer: &mut Buffer,
        fua: Fua,
    ) -> Result<(), Error> {
        match self {
            Self::Namespace(namespace) => {
                let block = namespace.geometry().block_bytes;
                namespace.write(offset / u64::from(block), len / block, buffer, fua).await
            }
            #[cfg(test)]
            Self::Simulated(drive) => drive.write(offset, len, buffer, fua).await,
        }
    }

    /// Writes zeroes.
    ///
    /// # Errors
    /// The member's.
    pub async fn zero(
        &self,
        offset: u64,
        len: u64,
        deallocate: Deallocate,
        fua: Fua,
    ) -> Result<(), Error> {
        match self {
            Self::Namespace(namespace) => {
                let geometry = namespace.geometry();
                let block = u64::from(geometry.block_bytes);
                let frees = geometry.supports.zeroes_deallocate;
                let deallocate = if frees { deallocate } else { Deallocate::No };
                let (mut lba, end) = (offset / block, (offset + len) / block);
                while lba < end {
                    let blocks = (end - lba).min(1 << 16);
                    namespace.write_zeroes(lba, low32(blocks), deallocate, fua).await?;
                    lba += blocks;
                }
                Ok(())
            }
            #[cfg(test)]
            Self::Simulated(drive) => drive.zero(offset, len, fua).await,
        }
    }

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// The member's.
    pub async fn flush(&self) -> Result<(), Error> {
        match self {
            Self::Namespace(namespace) => namespace.flush().await,
            #[cfg(test)]
            Self::Simulated(drive) => drive.flush().await,
        }
    }

    /// Reserves it for this host alone to write to; says who was there before.
    ///
    /// # Errors
    /// Reservation Conflict when another host has it, and the member's.
    pub async fn reserve(&self, claim: Claim) -> Result<Before, Error> {
        match self {
            Self::Namespace(namespace) => {
                if !namespace.geometry().supports.reservations {
                    tracing::warn!(
                        "a member knows no reservations: nothing keeps other hosts from it, or tells whether this \
                         one's last program ended in order"
                    );
                    return Ok(Before::Unknown);
                }
                reserve(namespace, claim).await
            }
            #[cfg(test)]
            Self::Simulated(_) => Ok(Before::Nobody),
        }
    }

    /// Looks whether it is still reserved for this program, and reserves it again where its target may have forgotten
    /// that, if then `is_wanted`.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub async fn keep(&self, claim: Claim, is_wanted: impl Fn() -> bool) -> Result<Kept, Error> {
        match self {
            Self::Namespace(namespace) if namespace.geometry().supports.reservations => {
                keep(namespace, claim, is_wanted).await
            }
            Self::Namespace(_) => Ok(Kept::Ours),
            #[cfg(test)]
            Self::Simulated(_) => Ok(Kept::Ours),
        }
    }

    /// Whether its target forgets reservations: nothing tells then that another host had it for a while.
    pub fn forgets(&self, claim: Claim) -> bool {
        match self {
            Self::Namespace(namespace) => !claim.is_kept_by(namespace),
            #[cfg(test)]
            Self::Simulated(_) => false,
        }
    }

    /// Leaves it to others, if it answers.
    pub async fn unreserve(&self, key: u64) {
        match self {
            Self::Namespace(namespace) => {
                // One that cannot be told keeps it for this host, which may have it again.
                let _ = namespace.unregister(key).await;
            }
            #[cfg(test)]
            Self::Simulated(_) => {}
        }
    }

    /// Ends its association.
    pub async fn shut_down(&self) {
        match self {
            Self::Namespace(namespace) => {
                // Nothing is lost by a controller that is not shut down: it notices by itself.
                let _ = namespace.shut_down().await;
            }
            #[cfg(test)]
            Self::Simulated(_) => {}
        }
    }
}

const KIND: Type = Type::WriteExclusive;

async fn reserve(namespace: &Namespace, claim: Claim) -> Result<Before, Error> {
    let registrants = namespace.registrants().await;
    let persists = claim.is_kept_by(namespace);
    let before = match registrants {
        Ok(all) if all.iter().any(|one| one.host == claim.host) => Before::Somebody,
        Ok(_) if persists => Before::Nobody,
        // One that cannot report may have one, which is taken for found: the next one must find it as well.
        Err(_) if persists => Before::Somebody,
        _ => Before::Unknown,
    };
    namespace.register(claim.key).await?;
    let taken = take(namespace, claim).await;
    if taken.is_err() && before != Before::Somebody {
        // One that cannot be told keeps it for this host, which may have it again.
        let _ = namespace.unregister(claim.key).await;
    }
    taken.map(|()| before)
}

async fn take(namespace: &Namespace, claim: Claim) -> Result<(), Error> {
    let acquired = namespace.acquire(claim.key, KIND).await;
    if !claim.take_over || !acquired.as_ref().is_err_and(is_fenced) {
        return acquired;
    }
    let registrants = namespace.registrants().await?;
    match registrants.iter().find(|one| one.holds) {
        Some(holder) => namespace.preempt(claim.key, holder.key, KIND).await,
        None => namespace.acquire(claim.key, KIND).await,
    }
}

async fn keep(
    namespace: &Namespace,
    claim: Claim,
    is_wanted: impl Fn() -> bool,
) -> Result<Kept, Error> {
    let registrants = namespace.registrants().await?;
    match registrants.iter().find(|one| one.host == claim.host) {
        Some(own) if own.key != claim.key => return Ok(Kept::AnotherPrograms),
        Some(own) if own.holds => return Ok(Kept::Ours),
        // A target that keeps registrations lost none: somebody removed it, to have the member.
        _ if claim.is_kept_by(namespace) => return Ok(Kept::Taken),
        _ => {}
    }
    // Nobody's any more, or another host's. A set that has ended takes it back itself.
    if is_wanted() {
        namespace.register(claim.key).await?;
        let acquired = namespace.acquire(claim.key, KIND).await;
        if acquired.as_ref().is_err_and(is_fenced) {
            let _ = namespace.unregister(claim.key).await;
        }
        acquired?;
    }
    Ok(Kept::Ours)
}

#[cfg(test)]
pub mod simulated;
