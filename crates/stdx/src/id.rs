//! Identifiers as types of their own, so that a queue id is never passed for a command id.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name($raw);

        impl $name {
            #[must_use]
            pub const fn new(raw: $raw) -> Self {
                Self(raw)
            }

            #[must_use]
            pub const fn get(self) -> $raw {
                self.0
            }
        }

        impl From<$raw> for $name {
            fn from(raw: $raw) -> Self {
                Self(raw)
            }
        }

        impl From<$name> for $raw {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// Namespace identifier.
    Nsid(u32)
}
id! {
    /// Command identifier, unique among the commands outstanding on one submission queue.
    Cid(u16)
}
id! {
    /// Queue identifier; 0 is the admin queue.
    Qid(u16)
}
id! {
    /// Controller identifier within a subsystem.
    Cntlid(u16)
}
id! {
    /// Logical block address.
    Lba(u64)
}
id! {
    /// The core (reactor) that owns a piece of state.
    CoreId(u16)
}

impl Nsid {
    /// Addresses every namespace of the controller.
    pub const BROADCAST: Self = Self(0xffff_ffff);
}

impl Qid {
    /// The admin queue.
    pub const ADMIN: Self = Self(0);

    #[must_use]
    pub const fn is_admin(self) -> bool {
        self.0 == 0
    }
}

impl Lba {
    /// The address `blocks` further on, or `None` past the end of the address space.
    #[must_use]
    pub const fn checked_add(self, blocks: u64) -> Option<Self> {
        match self.0.checked_add(blocks) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_show_and_compare_as_their_number() {
        assert_eq!(Nsid::new(7).to_string(), "7");
        assert!(Lba::new(3) < Lba::new(4));
        assert_eq!(u16::from(Cid::from(9)), 9);
        assert!(Qid::ADMIN.is_admin());
        assert!(!Qid::new(1).is_admin());
        assert_eq!(format!("{:#x}", Nsid::BROADCAST.get()), "0xffffffff");
    }

    #[test]
    fn lba_addition_stops_at_the_end_of_the_address_space() {
        assert_eq!(Lba::new(1).checked_add(2), Some(Lba::new(3)));
        assert_eq!(Lba::new(u64::MAX).checked_add(1), None);
    }
}
