//! The Persistent Event log of a subsystem (Base 2.1 section 5.1.12.1.14).
//!
//! Events outlive controllers and resets here, and restarts if the subsystem's owner keeps them:
//! [`Target::persistent_events`] gives the bytes to keep, [`Target::restore_events`] takes them back.

use std::collections::VecDeque;

use nvme::feature::Timestamp;
use nvme::identify::set_ascii;
use nvme::log::persistent::{
    ChangeNamespaceEvent, EventHeader, EventKind, HardwareErrorEvent, LogHeader, PowerOnEvent,
    TimestampChangeEvent,
};
use nvme::log::u128_field;
use nvme::nqn::Nqn;
use stdx::num::{u16_of, u32_of, u64_of};
use zerocopy::{FromBytes, IntoBytes};

use crate::limits::{PERSISTENT_EVENT_BYTES_MAX, PERSISTENT_EVENTS_MAX};
use crate::namespace::Namespace;
use crate::registry::{ManageError, Target};
use crate::subsystem::Subsystem;

/// The kinds of events recorded.
const KINDS: [EventKind; 4] = [
    EventKind::TimestampChange,
    EventKind::PowerOn,
    EventKind::HardwareError,
    EventKind::ChangeNamespace,
];

const NANOS_PER_MS: u64 = 1_000_000;
const NANOS_PER_HOUR: u64 = 3_600_000_000_000;

/// Who made an event, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// Controller identifier; 0 when no controller is concerned.
    pub cntlid: u16,
    pub timestamp: Timestamp,
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happened<'a> {
    /// The subsystem came up.
    PowerOn { firmware: &'a str },
    /// A host set the timestamp, which had this value.
    TimestampChange { previous: Timestamp, since_start_ms: u64 },
    /// A controller failed (CSTS.CFS).
    Fatal,
    /// A namespace was created, or (`deleted`) deleted.
    ChangeNamespace { namespace: &'a Namespace, deleted: bool },
}

/// The events of one subsystem as they stand in the log page, newest first.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    records: VecDeque<Vec<u8>>,
    /// Moves with each reporting context.
    generation: u16,
}

impl EventLog {
    /// Records an event; the oldest makes room when the log is full.
    pub fn record(&mut self, source: Source, happened: Happened<'_>) {
        let (kind, data) = encode(happened);
        let header = EventHeader::new(kind, source.cntlid, source.timestamp, u16_of(data.len()));
        let mut record = header.as_bytes().to_vec();
        record.extend_from_slice(&data);
        debug_assert!(record.len() <= PERSISTENT_EVENT_BYTES_MAX, "the bound of the log page");
        self.records.truncate(PERSISTENT_EVENTS_MAX - 1);
        self.records.push_front(record);
    }

    /// Every event, newest first, as in the log page.
    fn bytes(&self) -> Vec<u8> {
        self.records.iter().flatten().copied().collect()
    }

    /// Puts events that were kept behind those there are. What does not read as events is left out.
    fn restore(&mut self, mut bytes: &[u8]) {
        while self.records.len() < PERSISTENT_EVENTS_MAX {
            let Ok((header, rest)) = EventHeader::read_from_prefix(bytes) else { break };
            let Some(data) = rest.get(..usize::from(header.el.get())) else { break };
            let length = size_of::<EventHeader>() + data.len();
            let sound = header.ehl == EventHeader::HEADER_LENGTH
                && EventKind::from_raw(header.etype).is_some()
                && length <= PERSISTENT_EVENT_BYTES_MAX;
            if !sound {
                break;
            }
            let (record, rest) = bytes.split_at(length);
            self.records.push_back(record.to_vec());
            bytes = rest;
        }
    }
}

fn encode(happened: Happened<'_>) -> (EventKind, Vec<u8>) {
    match happened {
        Happened::PowerOn { firmware } => {
            let mut event = PowerOnEvent { fr: [0; 8] };
            set_ascii(&mut event.fr, firmware);
            (EventKind::PowerOn, event.as_bytes().to_vec())
        }
        Happened::TimestampChange { previous, since_start_ms } => {
            let event = TimestampChangeEvent { previous, since_reset: since_start_ms.into() };
            (EventKind::TimestampChange, event.as_bytes().to_vec())
        }
        Happened::Fatal => {
            let code = HardwareErrorEvent::CONTROLLER_FATAL.into();
            let event = HardwareErrorEvent { code, ..HardwareErrorEvent::default() };
            (EventKind::HardwareError, event.as_bytes().to_vec())
        }
        Happened::ChangeNamespace { namespace, deleted } => {
            let blocks = if deleted { 0 } else { namespace.blocks() };
            let event = ChangeNamespaceEvent {
                select: u32::from(deleted).into(),
                nsze: blocks.into(),
                ncap: blocks.into(),
                nmic: 1,
                anagrpid: namespace.ana_group().into(),
                nsid: namespace.nsid.into(),
                ..ChangeNamespaceEvent::default()
            };
            (EventKind::ChangeNamespace, event.as_bytes().to_vec())
        }
    }
}

impl Subsystem {
    /// The whole log page as of now: what a reporting context holds still.
    pub fn event_page(&mut self, timestamp: Timestamp, hours: u64) -> Vec<u8> {
        let log = &mut self.events;
        log.generation = log.generation.wrapping_add(1);
        let events = log.bytes();
        let mut header = LogHeader::new(&KINDS);
        header.tnev = u32_of(log.records.len()).into();
        header.tll = u64_of(size_of::<LogHeader>() + events.len()).into();
        header.timestamp = timestamp;
        header.poh = u128_field(hours.into());
        header.pcc = 1.into();
        set_ascii(&mut header.sn, &self.spec.serial);
        set_ascii(&mut header.mn, &self.spec.model);
        header.subnqn = self.spec.nqn.to_field();
        header.generation = log.generation.into();
        let mut page = header.as_bytes().to_vec();
        page.extend_from_slice(&events);
        page
    }
}

impl Target {
    /// When an event happens that no controller makes.
    pub(crate) fn event_source(&self) -> Source {
        let elapsed = reactor::now().saturating_sub(self.started()) / NANOS_PER_MS;
        Source { cntlid: 0, timestamp: Timestamp::new(elapsed, Timestamp::ORIGIN_RESET) }
    }

    /// Whole hours since the target started.
    pub(crate) fn hours(&self, now: u64) -> u64 {
        now.saturating_sub(self.started()) / NANOS_PER_HOUR
    }

    /// A subsystem's events, to be kept over a restart.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn persistent_events(&self, nqn: &Nqn) -> Result<Vec<u8>, ManageError> {
        let mut registry = self.lock();
        Ok(registry.subsystem(nqn)?.events.bytes())
    }

    /// Takes back what [`Self::persistent_events`] gave before a restart.
    ///
    /// # Errors
    /// There is no such subsystem.
    pub fn restore_events(&self, nqn: &Nqn, kept: &[u8]) -> Result<(), ManageError> {
        let mut registry = self.lock();
        registry.subsystem(nqn)?.events.restore(kept);
        Ok(())
    }
}
