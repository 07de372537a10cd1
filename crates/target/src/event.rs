//! Asynchronous events of one controller (Base 2.1 section 5.1.2): which are pending, which the
//! host was told of and has not acknowledged, and the requests parked to carry them.

use std::collections::VecDeque;

use nvme::cqe::Cqe;
use nvme::status::Status;
use stdx::num::usize32;

use crate::limits::ASYNC_EVENT_REQUESTS_MAX;

/// What a host can be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Error status, Persistent Internal Error: the controller failed.
    PersistentInternalError,
    /// SMART / Health status: the subsystem's reliability is compromised.
    Reliability,
    /// SMART / Health status: a temperature is at or over (below) its threshold.
    Temperature,
    /// SMART / Health status: available spare fell below its threshold.
    Spare,
    /// Notice, Namespace Attribute Changed.
    NamespaceAttribute,
    /// Notice, Discovery Log Page Change.
    DiscoveryLog,
    /// I/O command specific status, Reservation Log Page Available.
    ReservationLog,
}

/// Log page identifiers named in completions of Asynchronous Event Request.
mod lid {
    pub const ERROR: u32 = 0x01;
    pub const HEALTH: u32 = 0x02;
    pub const CHANGED_NAMESPACES: u32 = 0x04;
    pub const DISCOVERY: u32 = 0x70;
    pub const RESERVATION: u32 = 0x80;
}

impl Event {
    const ALL: [Self; 7] = [
        Self::PersistentInternalError,
        Self::Reliability,
        Self::Temperature,
        Self::Spare,
        Self::NamespaceAttribute,
        Self::DiscoveryLog,
        Self::ReservationLog,
    ];

    /// Completion Dword 0: type in bits 2:0, information in bits 15:8, log page in bits 23:16.
    #[must_use]
    pub const fn dword0(self) -> u32 {
        let (kind, information, log) = match self {
            Self::PersistentInternalError => (0, 0x03, lid::ERROR),
            Self::Reliability => (1, 0x00, lid::HEALTH),
            Self::Temperature => (1, 0x01, lid::HEALTH),
            Self::Spare => (1, 0x02, lid::HEALTH),
            Self::NamespaceAttribute => (2, 0x00, lid::CHANGED_NAMESPACES),
            Self::DiscoveryLog => (2, 0xf0, lid::DISCOVERY),
            Self::ReservationLog => (6, 0x00, lid::RESERVATION),
        };
        kind | information << 8 | log << 16
    }

    /// The bit of the Asynchronous Event Configuration feature that must be set for the event to
    /// be sent; `None` when the feature does not cover it.
    const fn configuration_bit(self) -> Option<u32> {
        match self {
            Self::PersistentInternalError | Self::ReservationLog => None,
            Self::Spare => Some(1),
            Self::Temperature => Some(1 << 1),
            Self::Reliability => Some(1 << 2),
            Self::NamespaceAttribute => Some(1 << 8),
            Self::DiscoveryLog => Some(1 << 31),
        }
    }

    const fn bit(self) -> u8 {
        1 << match self {
            Self::PersistentInternalError => 0,
            Self::Reliability => 1,
            Self::Temperature => 2,
            Self::Spare => 3,
            Self::NamespaceAttribute => 4,
            Self::DiscoveryLog => 5,
            Self::ReservationLog => 6,
        }
    }
}

/// The events and parked requests of one controller. Bounded: an event is pending at most once,
/// because its log page says everything that happened.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Command identifiers of parked Asynchronous Event Requests, oldest first.
    parked: VecDeque<u16>,
    /// Requests to complete as aborted.
    aborted: VecDeque<u16>,
    /// Events to report, oldest first.
    pending: VecDeque<Event>,
    /// Events reported and masked until their log page is read with RAE cleared.
    masked: u8,
}

impl Events {
    /// Parks a request; `false` when the limit the controller advertises (AERL) is reached.
    pub fn park(&mut self, cid: u16) -> bool {
        if self.parked.len() >= usize32(ASYNC_EVENT_REQUESTS_MAX) {
            return false;
        }
        self.parked.push_back(cid);
        true
    }

    /// Notes an event, if `configuration` (feature 0Bh) lets it through. Returns whether there is
    /// now something to complete.
    pub fn raise(&mut self, event: Event, configuration: u32) -> bool {
        let enabled = event.configuration_bit().is_none_or(|bit| configuration & bit != 0);
        if !enabled || self.masked & event.bit() != 0 || self.pending.contains(&event) {
            return false;
        }
        self.pending.push_back(event);
        !self.parked.is_empty()
    }

    /// The log page `page` was read with Retain Asynchronous Event cleared: its events are
    /// acknowledged, and may be reported again when they happen again.
    pub fn acknowledge(&mut self, page: u8) {
        for event in Event::ALL {
            if (event.dword0() >> 16) & 0xff == u32::from(page) {
                self.masked &= !event.bit();
                self.pending.retain(|&other| other != event);
            }
        }
    }

    /// Takes a parked request out because the host aborts it; `false` when it is not parked.
    pub fn abort(&mut self, cid: u16) -> bool {
        let Some(at) = self.parked.iter().position(|&parked| parked == cid) else { return false };
        self.parked.remove(at);
        self.aborted.push_back(cid);
        true
    }

    /// Whether a request with this identifier is parked (a duplicate is a Command ID Conflict).
    pub fn is_parked(&self, cid: u16) -> bool {
        self.parked.contains(&cid)
    }

    /// A Controller Level Reset: outstanding requests end as aborted, events are forgotten.
    pub fn reset(&mut self) {
        self.aborted.append(&mut self.parked);
        self.pending.clear();
        self.masked = 0;
    }

    /// The next completion due, if any. SQHD is the caller's to fill in.
    pub fn next(&mut self) -> Option<Cqe> {
        if let Some(cid) = self.aborted.pop_front() {
            return Some(Cqe::new(cid, Status::ABORT_REQUESTED));
        }
        if self.pending.is_empty() {
            return None;
        }
        let cid = self.parked.pop_front()?;
        let event = self.pending.pop_front()?;
        self.masked |= event.bit();
        let mut cqe = Cqe::new(cid, Status::SUCCESS);
        cqe.dw0 = event.dword0().into();
        Some(cqe)
    }

    /// Whether [`Self::next`] has a completion.
    pub fn due(&self) -> bool {
        !self.aborted.is_empty() || (!self.pending.is_empty() && !self.parked.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_ON: u32 = u32::MAX;

    #[test]
    fn an_event_waits_for_a_request_and_a_request_for_an_event() {
        let mut events = Events::default();
        assert!(!events.raise(Event::NamespaceAttribute, ALL_ON));
        assert_eq!(events.next(), None);
        assert!(events.park(7));
        let cqe = events.next().unwrap();
        assert_eq!((cqe.cid.get(), cqe.dw0.get()), (7, 0x0004_0002));
        assert!(events.park(8));
        assert_eq!(events.next(), None);
        assert!(events.raise(Event::DiscoveryLog, ALL_ON));
        assert_eq!(events.next().unwrap().dw0.get(), 0x0070_f002);
    }

    #[test]
    fn a_reported_event_is_masked_until_its_page_is_read() {
        let mut events = Events::default();
        for cid in 0..3 {
            assert!(events.park(cid));
        }
        assert!(events.raise(Event::NamespaceAttribute, ALL_ON));
        assert!(events.next().is_some());
        assert!(!events.raise(Event::NamespaceAttribute, ALL_ON));
        events.acknowledge(0x02);
        assert!(!events.raise(Event::NamespaceAttribute, ALL_ON));
        events.acknowledge(0x04);
        assert!(events.raise(Event::NamespaceAttribute, ALL_ON));
    }

    #[test]
    fn the_configuration_feature_holds_events_back() {
        let mut events = Events::default();
        assert!(events.park(1));
        assert!(!events.raise(Event::NamespaceAttribute, 0));
        assert!(!events.raise(Event::Temperature, 1 << 8));
        assert!(events.raise(Event::PersistentInternalError, 0));
    }

    #[test]
    fn the_limit_is_kept_and_reset_aborts_what_is_parked() {
        let mut events = Events::default();
        let limit = u16::try_from(ASYNC_EVENT_REQUESTS_MAX).unwrap();
        for cid in 0..limit {
            assert!(events.park(cid));
        }
        assert!(!events.park(99));
        assert!(events.abort(0));
        assert!(!events.abort(0));
        events.reset();
        for _ in 0..limit {
            assert_eq!(events.next().unwrap().status(), Status::ABORT_REQUESTED);
        }
        assert!(!events.due());
    }
}
