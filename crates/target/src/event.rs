//! Asynchronous events of one controller (Base 2.1 section 5.1.2): which are pending, which the
//! host was told of and has not acknowledged, and the requests parked to carry them.

use std::collections::VecDeque;

use nvme::cqe::Cqe;
pub use nvme::event::Event;
use nvme::event::Type;
use nvme::feature::async_event;
use nvme::log::Smart;
use nvme::status::Status;
use stdx::num::usize32;

use crate::limits::ASYNC_EVENT_REQUESTS_MAX;

/// The bits of the Asynchronous Event Configuration feature (0Bh) of which one must be set for the
/// event to be sent; `None` when the feature does not cover it.
const fn configuration_bits(event: Event) -> Option<u32> {
    match event {
        Event::Spare => Some(SPARE),
        Event::Temperature => Some(TEMPERATURE),
        Event::Reliability => Some(RELIABILITY | READ_ONLY),
        Event::NamespaceAttribute => Some(async_event::NAMESPACE_ATTRIBUTE),
        Event::FirmwareActivation => Some(async_event::FIRMWARE_ACTIVATION),
        Event::AnaChange => Some(async_event::ANA_CHANGE),
        Event::DiscoveryChange => Some(async_event::DISCOVERY_CHANGE),
        Event::NormalShutdown => Some(async_event::NORMAL_SHUTDOWN),
        Event::Error(_) | Event::ReservationLog => None,
    }
}

/// Critical warnings as bits of the configuration: they stand where SMART / Health has them.
const SPARE: u32 = Smart::WARNING_SPARE as u32;
const TEMPERATURE: u32 = Smart::WARNING_TEMPERATURE as u32;
const RELIABILITY: u32 = Smart::WARNING_RELIABILITY as u32;
const READ_ONLY: u32 = Smart::WARNING_READ_ONLY as u32;

/// The events that tell of critical warnings.
const WARNINGS: [(u32, Event); 3] = [
    (SPARE, Event::Spare),
    (TEMPERATURE, Event::Temperature),
    (RELIABILITY | READ_ONLY, Event::Reliability),
];

fn is_enabled(event: Event, configuration: u32) -> bool {
    configuration_bits(event).is_none_or(|bits| configuration & bits != 0)
}

/// The events and parked requests of one controller. Bounded: an event is pending at most once,
/// because its log page says everything that happened.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Command identifiers of parked Asynchronous Event Requests, oldest first.
    parked: VecDeque<u16>,
    /// Requests to complete as aborted.
    aborted: VecDeque<u16>,
    /// Requests that a reset ended without a completion, and that their queue has not let go yet.
    dropped: Vec<u16>,
    /// Events to report, oldest first.
    pending: VecDeque<Event>,
    /// Events reported and masked until their log page is read with RAE cleared.
    masked: Vec<Event>,
    /// Notices that the host has not asked for, of log pages that it has not read since.
    withheld: Vec<Event>,
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
        if !is_enabled(event, configuration) {
            self.withhold(event);
            return false;
        }
        if self.masked.contains(&event) || self.pending.contains(&event) {
            return false;
        }
        self.pending.push_back(event);
        !self.parked.is_empty()
    }

    /// Notes critical warnings (bits of SMART / Health) that apply, those that `configuration` lets
    /// through.
    pub fn warn(&mut self, warnings: u8, configuration: u32) {
        let asked = u32::from(warnings) & configuration;
        for (bits, event) in WARNINGS {
            if asked & bits != 0 {
                self.raise(event, configuration);
            }
        }
    }

    /// The host has set `configuration`. What it no longer wants is not sent; a notice whose log page
    /// changed before it asked, and that it has not read since, is (section 5.1.25.1.5: "If the
    /// condition for an event is true when the corresponding notice is enabled"). Critical warnings
    /// come and go: whoever knows the health tells of them with [`warn`](Self::warn).
    pub fn configure(&mut self, configuration: u32) {
        let pending = core::mem::take(&mut self.pending);
        let withheld = core::mem::take(&mut self.withheld);
        for event in pending.into_iter().chain(withheld) {
            self.raise(event, configuration);
        }
    }

    /// Keeps a notice in case the host asks for it. An Immediate event is for those who wait for it,
    /// and a critical warning may be over by then.
    fn withhold(&mut self, event: Event) {
        if event.event_type() == Type::Notice && !self.withheld.contains(&event) {
            self.withheld.push(event);
        }
    }

    /// The log page `page` was read with Retain Asynchronous Event cleared: its events are
    /// acknowledged, and may be reported again when they happen again. Gives those that there were.
    pub fn acknowledge(&mut self, page: u8) -> Vec<Event> {
        let all = self.masked.iter().chain(&self.pending).chain(&self.withheld);
        let told = all.copied().filter(|event| event.log_page() == page).collect();
        self.masked.retain(|event| event.log_page() != page);
        self.pending.retain(|event| event.log_page() != page);
        self.withheld.retain(|event| event.log_page() != page);
        told
    }

    /// Takes a parked request out because the host aborts it; `false` when it is not parked.
    pub fn abort(&mut self, cid: u16) -> bool {
        let Some(at) = self.parked.iter().position(|&parked| parked == cid) else { return false };
        self.parked.remove(at);
        self.aborted.push_back(cid);
        true
    }

    /// Drops a parked request: the host has used its identifier for another command, so it no longer
    /// waits for this one.
    pub fn forget(&mut self, cid: u16) {
        self.parked.retain(|&parked| parked != cid);
        self.aborted.retain(|&aborted| aborted != cid);
        self.dropped.retain(|&dropped| dropped != cid);
    }

    /// Whether a request with this identifier is parked (a duplicate is a Command ID Conflict).
    pub fn is_parked(&self, cid: u16) -> bool {
        self.parked.contains(&cid)
    }

    /// A Controller Level Reset: events are forgotten, and outstanding requests aborted, which "shall
    /// not return a CQE" (section 5.1.2).
    pub fn reset(&mut self) {
        self.dropped.extend(self.parked.drain(..).chain(self.aborted.drain(..)));
        self.pending.clear();
        self.masked.clear();
        self.withheld.clear();
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
        self.masked.push(event);
        let mut cqe = Cqe::new(cid, Status::SUCCESS);
        cqe.dw0 = event.to_dw0().into();
        Some(cqe)
    }

    /// The next request that ended without a completion.
    pub fn next_dropped(&mut self) -> Option<u16> {
        self.dropped.pop()
    }

    /// Whether [`Self::next`] has a completion, or [`Self::next_dropped`] a request.
    pub fn due(&self) -> bool {
        let ended = !self.aborted.is_empty() || !self.dropped.is_empty();
        ended || (!self.pending.is_empty() && !self.parked.is_empty())
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
        assert!(events.raise(Event::DiscoveryChange, ALL_ON));
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
        assert!(events.raise(Event::Error(3), 0));
    }

    #[test]
    fn a_notice_that_came_before_it_was_asked_for_is_sent_then() {
        let mut events = Events::default();
        assert!(events.park(1) && events.park(2) && events.park(3));
        assert!(!events.raise(Event::NamespaceAttribute, 0));
        assert!(!events.raise(Event::AnaChange, 0));
        assert!(!events.raise(Event::Spare, 0));
        events.acknowledge(Event::AnaChange.log_page());
        events.configure(ALL_ON);
        assert_eq!(events.next().unwrap().dw0.get(), 0x0004_0002);
        assert_eq!(events.next(), None, "one page was read, a warning may be over");
        events.configure(0);
        events.configure(ALL_ON);
        assert_eq!(events.next(), None, "told, and its page not read");
    }

    #[test]
    fn what_the_host_no_longer_wants_is_not_sent() {
        let mut events = Events::default();
        assert!(!events.raise(Event::NamespaceAttribute, ALL_ON));
        events.warn(Smart::WARNING_SPARE, ALL_ON);
        events.configure(0);
        assert!(events.park(1));
        assert_eq!(events.next(), None);
        events.configure(ALL_ON);
        assert_eq!(events.next().unwrap().dw0.get(), 0x0004_0002);
    }

    #[test]
    fn each_warning_has_its_event_and_its_bit() {
        for (warning, told) in [
            (Smart::WARNING_SPARE, 0x0002_0201),
            (Smart::WARNING_TEMPERATURE, 0x0002_0101),
            (Smart::WARNING_RELIABILITY, 0x0002_0001),
            (Smart::WARNING_READ_ONLY, 0x0002_0001),
        ] {
            let mut events = Events::default();
            assert!(events.park(1));
            events.warn(warning, 0xff & !u32::from(warning));
            events.warn(!warning, warning.into());
            assert_eq!(events.next(), None, "{warning:#x}");
            events.warn(warning, warning.into());
            assert_eq!(events.next().unwrap().dw0.get(), told, "{warning:#x}");
        }
    }

    #[test]
    fn the_limit_is_kept_and_reset_drops_what_is_parked() {
        let mut events = Events::default();
        let limit = u16::try_from(ASYNC_EVENT_REQUESTS_MAX).unwrap();
        for cid in 0..limit {
            assert!(events.park(cid));
        }
        assert!(!events.park(99));
        assert!(events.abort(0));
        assert!(!events.abort(0));
        events.reset();
        assert_eq!(events.next(), None);
        events.forget(1);
        let mut dropped = Vec::new();
        while events.due() {
            dropped.extend(events.next_dropped());
        }
        dropped.sort_unstable();
        let expected: Vec<_> = (0..limit).filter(|&cid| cid != 1).collect();
        assert_eq!(dropped, expected, "all but the one whose identifier is used again");
    }
}
