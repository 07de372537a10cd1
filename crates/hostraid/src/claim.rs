//! As whom a set is used, and who used it before.

use initiator::Namespace;

/// As whom a set is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The host's Host Identifier.
    pub host: [u8; 16],
    /// Reservation key: of this program alone, not 0.
    pub key: u64,
    /// Take members from a host that holds them.
    pub take_over: bool,
    /// Without the machine's lock, as programs in different network namespaces are.
    #[cfg(test)]
    pub unlocked: bool,
    /// Over simulated targets, which cannot keep registrations, as if they did.
    #[cfg(test)]
    pub kept: bool,
}

/// Who may have commands in flight to a member, besides other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// No program of this host that did not end in order.
    Nobody,
    /// Such a program: its registration was there.
    Somebody,
    /// Nothing tells, as the target keeps no registrations. The next one is told nothing either, and waits as well.
    Unknown,
}

/// Whose a member is that this program reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Ours,
    /// Of one with the same Host Identifier.
    AnotherPrograms,
    /// Another host had it, and may have it still.
    Taken,
}

impl Claim {
    /// That of a program on the host with Host Identifier `host`. Nobody else has its identity `program`.
    #[must_use]
    pub fn new(host: [u8; 16], program: [u8; 16], take_over: bool) -> Self {
        let (front, back) = program.split_at(8);
        let number = |half: &[u8]| half.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let key = number(front) ^ number(back).rotate_left(1) | 1;
        Self {
            host,
            key,
            take_over,
            #[cfg(test)]
            unlocked: false,
            #[cfg(test)]
            kept: false,
        }
    }

    /// Whether a namespace keeps registrations through a loss of power.
    pub(crate) fn is_kept_by(self, namespace: &Namespace) -> bool {
        #[cfg(test)]
        if self.kept {
            return true;
        }
        namespace.geometry().supports.reservations_persist
    }
}
