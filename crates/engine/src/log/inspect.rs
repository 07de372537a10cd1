//! Looking at a log as it lies on its devices. Changes nothing, unlike opening it.

use super::Device;
use super::control::Control;
use super::device::{Store, commit_len};
use super::limits::CONTROL_BYTES;
use super::record::{HEADER, Kind, Record};
use super::recover::{Expected, proves_loss};
use super::ring_of;
use crate::address::Key;
use crate::error::Result;
use stdx::num::{u64_of, usize64};

/// A control slot of one device.
#[derive(Debug)]
pub(crate) struct SlotSeen {
    pub device: usize,
    pub slot: u64,
    /// Whose it is, or what is wrong with it.
    pub lane: std::result::Result<u64, String>,
}

/// A record that is still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSeen {
    pub sequence: u64,
    /// In bytes since the log was created.
    pub position: u64,
    pub epoch: u32,
    pub what: RecordWhat,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordWhat {
    Write {
        key: Key,
        blocks: u64,
    },
    Hole {
        key: Key,
        blocks: u64,
    },
    /// Blocks that have the contents of others.
    References {
        key: Key,
        blocks: u64,
    },
    Padding,
}

/// A record that one device does not have whole although another has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lacking {
    pub device: usize,
    pub sequence: u64,
    /// From the beginning of the log on the device, in bytes.
    pub at: u64,
}

/// What lies in a log.
#[derive(Debug, Default)]
pub(crate) struct Inspection {
    pub devices: usize,
    pub slots: Vec<SlotSeen>,
    /// What holds: the newest slot of this log. Without it nothing else is known.
    pub control: Option<Control>,
    /// Bytes of the ring that records take.
    pub bytes: u64,
    /// Records, padding included, and blocks of contents in them.
    pub records: u64,
    pub blocks: u64,
    /// The records one by one, where that was asked for.
    pub list: Vec<RecordSeen>,
    pub lacking: Vec<Lacking>,
    /// A record that was acknowledged and is whole on no device: its sequence, and where it was.
    pub lost: Option<Lacking>,
}

impl Inspection {
    /// Stripes up to this sequence were durable when the log was last trimmed.
    pub fn durable_stripe(&self) -> Option<u64> {
        self.control.map(|control| control.durable_stripe)
    }
}

/// Looks at all of a log of `bytes` bytes that was created as `lane`; with `list` tells its records
/// one by one.
///
/// # Errors
/// `Invalid` for a device that does not fit.
pub(crate) async fn inspect(
    device: Device,
    bytes: u64,
    lane: u64,
    list: bool,
) -> Result<Inspection> {
    let ring = ring_of(bytes)?;
    let store = Store::new(device, bytes)?;
    let mut seen = Inspection { devices: store.devices(), ..Inspection::default() };
    for device in 0..store.devices() {
        for slot in 0..2 {
            let found = match store.read_slot(device, slot).await {
                Ok(bytes) => Control::decode(&bytes).map_err(|bad| bad.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Ok(control) = found
                && control.lane == lane
                && control.ring == ring
                && seen.control.is_none_or(|newest| newest.generation < control.generation)
            {
                seen.control = Some(control);
            }
            seen.slots.push(SlotSeen { device, slot, lane: found.map(|control| control.lane) });
        }
    }
    if let Some(control) = seen.control {
        read_records(&store, control, list, &mut seen).await?;
    }
    Ok(seen)
}

/// Follows the records as opening would.
async fn read_records(
    store: &Store,
    control: Control,
    list: bool,
    seen: &mut Inspection,
) -> Result<()> {
    let (mut position, mut epoch, mut settled) = (control.position, 0, control.trimmed);
    let mut sequence = control.trimmed.saturating_add(1);
    loop {
        let at = position % control.ring;
        let expected = Expected {
            lane: control.lane,
            sequence,
            epoch_from: epoch,
            epoch_to: control.epoch,
            to_end: control.ring - at,
            free: control.ring - seen.bytes,
        };
        let mut found = None;
        let mut lacking = Vec::new();
        for device in 0..store.devices() {
            match whole(store, device, at, &expected).await? {
                Some(record) => found = Some(record),
                None => lacking.push(Lacking { device, sequence, at: CONTROL_BYTES + at }),
            }
        }
        let Some(record) = found else { break };
        seen.lacking.append(&mut lacking);
        (epoch, settled) = (record.epoch, record.settled.max(settled));
        let one = seen_of(&record, position);
        seen.records += 1;
        seen.blocks += one.blocks();
        if list {
            seen.list.push(one);
        }
        seen.bytes += record.kind.bytes();
        position = position.wrapping_add(record.kind.bytes());
        sequence = sequence.wrapping_add(1);
    }
    // What was in flight may be on one device only.
    seen.lacking.retain(|lacking| lacking.sequence <= settled);
    if is_lost(store, &control, sequence).await? {
        let at = CONTROL_BYTES + position % control.ring;
        seen.lost = Some(Lacking { device: 0, sequence, at });
    }
    Ok(())
}

/// The record at a place of one device's ring, if it is the one expected and whole.
async fn whole(
    store: &Store,
    device: usize,
    at: u64,
    expected: &Expected,
) -> Result<Option<Record>> {
    if expected.to_end.min(expected.free) < u64_of(HEADER) {
        return Ok(None);
    }
    let Some(header) = store.read_copy(device, at, HEADER).await? else { return Ok(None) };
    let Some(record) = Record::decode(&header).filter(|r| expected.matches(r)) else {
        return Ok(None);
    };
    let body = usize64(record.body_bytes());
    let read = store.read_copy(device, at + u64_of(HEADER), body).await?;
    Ok(read.filter(|body| record.is_whole(body)).map(|_| record))
}

/// Whether a record that is nowhere whole was acknowledged: a later one knows it as durable.
async fn is_lost(store: &Store, control: &Control, missing: u64) -> Result<bool> {
    let mut at = 0;
    while at < control.ring {
        let len = commit_len(at, control.ring - at, control.ring);
        for device in 0..store.devices() {
            let copy = store.read_copy(device, at, len).await?;
            if copy.is_some_and(|bytes| proves_loss(&bytes, control.lane, missing)) {
                return Ok(true);
            }
        }
        at += u64_of(len);
    }
    Ok(false)
}

fn seen_of(record: &Record, position: u64) -> RecordSeen {
    let what = match record.kind {
        Kind::Write { key, blocks } => RecordWhat::Write { key, blocks: u64_of(blocks) },
        Kind::Hole { key, count } => RecordWhat::Hole { key, blocks: count },
        Kind::Refer { key, blocks } => RecordWhat::References { key, blocks: u64_of(blocks) },
        Kind::Pad { .. } => RecordWhat::Padding,
    };
    RecordSeen { sequence: record.sequence, position, epoch: record.epoch, what }
}

impl RecordSeen {
    /// Blocks of contents in it.
    const fn blocks(&self) -> u64 {
        match self.what {
            RecordWhat::Write { blocks, .. } => blocks,
            RecordWhat::Hole { .. } | RecordWhat::References { .. } | RecordWhat::Padding => 0,
        }
    }
}
