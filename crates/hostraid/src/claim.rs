//! As whom a set is used, and who used it before.

/// As whom a set is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Reservation key: the same for every program of a host, another for another host, not 0.
    pub key: u64,
    /// Take members from a host that holds them.
    pub take_over: bool,
}

/// Who may have commands in flight to a member, besides other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// No program of this host that did not end in order.
    Nobody,
    /// Such a program, or nothing tells that there was none.
    Somebody,
}

impl Claim {
    /// That of the host with Host Identifier `id`.
    #[must_use]
    pub fn of_host(id: [u8; 16], take_over: bool) -> Self {
        let (front, back) = id.split_at(8);
        let number = |half: &[u8]| half.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        Self { key: number(front) ^ number(back).rotate_left(1) | 1, take_over }
    }
}
