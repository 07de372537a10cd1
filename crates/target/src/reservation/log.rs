//! The Reservation Notification log of one controller (log page 80h) and its mask (feature 82h).

use std::collections::VecDeque;

use super::NoticeKind;
use crate::limits::MAX_RESERVATION_NOTICES;

/// Reservation Notification Mask of one namespace: a set bit suppresses that kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoticeMask(u32);

impl NoticeMask {
    /// Bits 1 to 3: registration preempted, reservation released, reservation preempted.
    const DEFINED: u32 = 0b1110;

    /// `None` when a reserved bit is set.
    pub const fn from_cdw11(raw: u32) -> Option<Self> {
        if raw & !Self::DEFINED == 0 { Some(Self(raw)) } else { None }
    }

    pub const fn to_dw0(self) -> u32 {
        self.0
    }

    pub const fn suppresses(self, kind: NoticeKind) -> bool {
        self.0 & (1 << kind.log_page_type()) != 0
    }
}

impl NoticeKind {
    /// Reservation Notification Log Page Type; 0 is the empty page.
    pub const fn log_page_type(self) -> u8 {
        match self {
            Self::RegistrationPreempted => 1,
            Self::ReservationReleased => 2,
            Self::ReservationPreempted => 3,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    count: u64,
    kind: NoticeKind,
    nsid: u32,
}

/// The notices a controller has not yet handed to its host, oldest first.
#[derive(Debug, Default)]
pub struct NotificationLog {
    /// Log Page Count of the newest notice: starts at 1, skips 0 when it wraps.
    count: u64,
    unread: VecDeque<Entry>,
}

impl NotificationLog {
    /// Bytes of the log page.
    pub const PAGE: usize = 64;

    /// Adds a notice. When the log is full the oldest is lost; the host sees that by the gap in
    /// Log Page Count. Returns whether an asynchronous event is due: one per page that becomes
    /// available.
    pub fn push(&mut self, nsid: u32, kind: NoticeKind, mask: NoticeMask) -> bool {
        if mask.suppresses(kind) {
            return false;
        }
        self.count = self.count.checked_add(1).unwrap_or(1);
        if self.unread.len() == MAX_RESERVATION_NOTICES {
            self.unread.pop_front();
        }
        self.unread.push_back(Entry { count: self.count, kind, nsid });
        true
    }

    /// Takes the oldest notice as a log page; an empty page (all zero) when there is none.
    pub fn take_page(&mut self) -> [u8; Self::PAGE] {
        let mut page = [0; Self::PAGE];
        if let Some(entry) = self.unread.pop_front() {
            page[0..8].copy_from_slice(&entry.count.to_le_bytes());
            page[8] = entry.kind.log_page_type();
            page[9] = u8::try_from(self.unread.len()).unwrap_or(u8::MAX);
            page[12..16].copy_from_slice(&entry.nsid.to_le_bytes());
        }
        page
    }

    pub fn is_empty(&self) -> bool {
        self.unread.is_empty()
    }
}
