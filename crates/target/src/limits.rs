//! Limits of the target, each with its reason.

/// Registrants of one namespace. Clusters that fence by reservation have tens of nodes; the bound
/// keeps a host that invents Host Identifiers from growing the state without end.
pub const MAX_REGISTRANTS: usize = 128;

/// Unread Reservation Notification log pages of one controller. The page's own count of further
/// pages is a byte, and a host that has missed this many has to ask for a report anyway.
pub const MAX_RESERVATION_NOTICES: usize = 64;
const _: () = assert!(MAX_RESERVATION_NOTICES <= 256);
