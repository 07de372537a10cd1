//! Which commands a reservation lets through ("Command Behavior in the Presence of a
//! Reservation", NVMe Base 2.1 section 8.1.22 and NVM Command Set section on reservations).

use super::{HostId, State, Type, concerns_registrants};

/// How the specification groups commands for the access matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandGroup {
    /// Read, Compare, Verify, and what Copy does to its sources.
    Read,
    /// Write, Write Uncorrectable, Write Zeroes, Dataset Management, Flush, and what Copy does to
    /// its destination; of the admin commands Format NVM, Sanitize, Namespace Management and
    /// Attachment, Security Send.
    Write,
}

/// What one host may do on a namespace: the matrix's row for it, ready to be cached by a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    read: bool,
    write: bool,
}

impl Access {
    /// Without a reservation everything is allowed.
    pub const FULL: Self = Self { read: true, write: true };

    pub const fn allows(self, group: CommandGroup) -> bool {
        match group {
            CommandGroup::Read => self.read,
            CommandGroup::Write => self.write,
        }
    }
}

impl State {
    /// What `host` may do now.
    pub fn access(&self, host: HostId) -> Access {
        let Some(held) = self.held() else { return Access::FULL };
        let kind = held.kind();
        let shares = concerns_registrants(kind) && self.is_registrant(host);
        if self.is_holder(host) || shares {
            return Access::FULL;
        }
        let read = match kind {
            Type::WriteExclusive
            | Type::WriteExclusiveRegistrantsOnly
            | Type::WriteExclusiveAllRegistrants => true,
            Type::ExclusiveAccess
            | Type::ExclusiveAccessRegistrantsOnly
            | Type::ExclusiveAccessAllRegistrants => false,
        };
        Access { read, write: false }
    }
}
