//! Looking at a log as it lies on its devices. Changes nothing, unlike opening it.

use super::control::{Control, Holder, SLOT};
use super::device::{Store, commit_len, read_slot};
use super::expected::Expected;
use super::limits::{CONTROL_BYTES, PAGE};
use super::loss::{Search, newest_settled};
use super::record::{HEADER, Kind, Record};
use super::ring::Mark;
use super::ring_of;
use super::{Device, LogDevice, MemberId, RemoteLog};
use crate::address::Key;
use crate::error::Result;
use stdx::num::{u64_of, usize64};

/// A control slot of one device.
#[derive(Debug)]
pub(crate) struct SlotSeen {
    pub device: usize,
    pub slot: u64,
    /// Whose it is, or what is wrong with it.
    pub ring: std::result::Result<u64, String>,
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
    /// Blocks lost with a record that was found damaged when the log was opened.
    Lost {
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
    /// Blocks given back, in any case: where they begin, and how many.
    pub holes: Vec<(Key, u64)>,
    pub lacking: Vec<Lacking>,
    /// Records that were acknowledged, of which no device has more than the header whole.
    pub damaged: Vec<Lacking>,
    /// Those without a header: nothing tells which blocks they were of. And what is said of each.
    pub unnamed: Vec<(Lacking, String)>,
}

impl Inspection {
    /// Stripes up to this sequence were durable when the log was last trimmed.
    pub fn durable_stripe(&self) -> Option<u64> {
        self.control.map(|control| control.durable_stripe)
    }
}

/// Looks at all of a log of `bytes` bytes that was created as `ring`; with `list` tells its records
/// one by one. Only the devices that are `current` count, or all where none is named.
///
/// # Errors
/// `Invalid` for a device that does not fit.
pub(crate) async fn inspect(
    device: Device,
    bytes: u64,
    ring: u64,
    current: &[MemberId],
    list: bool,
) -> Result<Inspection> {
    let ring_bytes = ring_of(bytes)?;
    let store = Store::new(device.into(), bytes)?;
    let mut seen = Inspection { devices: store.devices(), ..Inspection::default() };
    for device in 0..store.devices() {
        for slot in 0..2 {
            let found = match store.read_slot(device, slot).await {
                Ok(bytes) => match Control::decode(&bytes) {
                    Ok((_, holder)) if !current.is_empty() && !current.contains(&holder.member) => {
                        Err("it is of a device that is not current".into())
                    }
                    read => read.map(|(control, _)| control).map_err(|bad| bad.to_string()),
                },
                Err(error) => Err(error.to_string()),
            };
            if let Ok(control) = found
                && control.ring == ring
                && control.ring_bytes == ring_bytes
                && seen.control.is_none_or(|newest| newest.generation < control.generation)
            {
                seen.control = Some(control);
            }
            seen.slots.push(SlotSeen { device, slot, ring: found.map(|control| control.ring) });
        }
    }
    if let Some(control) = seen.control {
        read_records(&store, control, list, &mut seen).await?;
    }
    Ok(seen)
}

/// How many records are left in the logs that lie one behind another in `device`, one for each shard of a pool,
/// whichever that is; none where there is no log. What cannot be read counts: it may be needed.
///
/// # Errors
/// What the device says.
pub async fn records_left(device: &LogDevice) -> Result<Option<u64>> {
    let (mut offset, mut left) = (0, None);
    while let Some((control, _)) = control_at(device, offset).await? {
        let bytes = control.ring_bytes.saturating_add(CONTROL_BYTES);
        let place = Device::Both(vec![device.place(offset)]);
        let seen = inspect(place, bytes, control.ring, &[], false).await;
        let records = seen.map_or(1, |seen| {
            seen.records + u64_of(seen.damaged.len()) + u64_of(seen.unnamed.len())
        });
        left = Some(left.unwrap_or(0) + records);
        offset = offset.saturating_add(bytes);
    }
    Ok(left)
}

/// The pool whose log `device` has; none where there is no log.
///
/// # Errors
/// What the device says.
pub async fn pool_of(device: &LogDevice) -> Result<Option<[u8; 16]>> {
    Ok(control_at(device, 0).await?.map(|(_, holder)| holder.pool))
}

/// Whether a namespace of another target begins with the log of this pool, and nothing else, as somebody may have it by now:
/// the connection by which that was seen.
///
/// # Errors
/// What the namespace says.
pub async fn is_of_pool_alone(remote: &RemoteLog, pool: [u8; 16]) -> Result<Option<u64>> {
    let drive = &remote.drive;
    // It connects where it has to.
    drop(drive.read(0, usize64(PAGE)).await?);
    let by = drive.connection();
    let (mut has, mut other) = (false, false);
    for slot in 0..2 {
        let page = drive.read_by(by, slot * PAGE, usize64(PAGE)).await?;
        let bytes: [u8; SLOT] = std::array::from_fn(|n| page[n]);
        match Control::decode(&bytes) {
            Ok((_, holder)) => {
                has |= holder.pool == pool;
                other |= holder.pool != pool;
            }
            Err(_) => other |= Control::remains(&bytes, pool) == Some(false),
        }
        other |= page[SLOT..].iter().any(|byte| *byte != 0);
    }
    Ok(by.filter(|_| has && !other))
}

/// The newest control slot at `offset`, whosever it is.
async fn control_at(device: &LogDevice, offset: u64) -> Result<Option<(Control, Holder)>> {
    device.answers().await?;
    if device.capacity().is_none_or(|bytes| bytes.saturating_sub(offset) < CONTROL_BYTES) {
        return Ok(None);
    }
    let mut found = None;
    for slot in 0..2 {
        let bytes = read_slot(&device.place(offset), slot).await?;
        let seen = Control::decode(&bytes).ok();
        found = seen.into_iter().chain(found).max_by_key(|(control, _)| control.generation);
    }
    Ok(found)
}

/// Follows the records as opening would.
async fn read_records(
    store: &Store,
    control: Control,
    list: bool,
    seen: &mut Inspection,
) -> Result<()> {
    let mut reader = Reader { store, control, epoch: 0, settled: control.trimmed };
    let mut mark = Mark { sequence: control.trimmed.saturating_add(1), position: control.position };
    let mut newest = None;
    loop {
        let expected = reader.expected(mark, seen.bytes);
        let record = match reader.whole_anywhere(mark, &expected, seen).await? {
            Some(record) => record,
            None => {
                let newest = match newest {
                    Some(newest) => newest,
                    None => *newest.insert(reader.newest_settled().await?),
                };
                // One that nobody was told of was being written when power failed.
                if newest < mark.sequence {
                    break;
                }
                let at = CONTROL_BYTES + mark.position % control.ring_bytes;
                let damaged = Lacking { device: 0, sequence: mark.sequence, at };
                if let Some(record) = reader.header_anywhere(mark, &expected).await? {
                    seen.damaged.push(damaged);
                    record
                } else {
                    let search = Search::from(mark, expected, control.ring_bytes);
                    let next = search.next(store).await?;
                    seen.unnamed.push((damaged, search.describe(next.as_ref())));
                    let Some(next) = next else { break };
                    seen.bytes += next.position - mark.position;
                    mark = Mark { sequence: next.record.sequence, position: next.position };
                    continue;
                }
            }
        };
        (reader.epoch, reader.settled) = (record.epoch, record.settled.max(reader.settled));
        let one = seen_of(&record, mark.position);
        seen.records += 1;
        seen.blocks += one.blocks();
        if let RecordWhat::Hole { key, blocks } = one.what {
            seen.holes.push((key, blocks));
        }
        if list {
            seen.list.push(one);
        }
        seen.bytes += record.kind.bytes();
        mark.position = mark.position.wrapping_add(record.kind.bytes());
        mark.sequence = mark.sequence.wrapping_add(1);
    }
    // What was in flight may be on one device only.
    seen.lacking.retain(|lacking| lacking.sequence <= reader.settled);
    Ok(())
}

/// Reads a log from its devices as they are.
struct Reader<'a> {
    store: &'a Store,
    control: Control,
    /// Of the record before.
    epoch: u32,
    settled: u64,
}

impl Reader<'_> {
    /// What the record at `mark` must be, after so many bytes of records.
    const fn expected(&self, mark: Mark, bytes: u64) -> Expected {
        let ring_bytes = self.control.ring_bytes;
        Expected {
            ring: self.control.ring,
            sequence: mark.sequence,
            epoch_from: self.epoch,
            epoch_to: self.control.epoch,
            to_end: ring_bytes - mark.position % ring_bytes,
            free: ring_bytes - bytes,
        }
    }

    /// The record, if a device has it whole; notes those that have not.
    async fn whole_anywhere(
        &self,
        mark: Mark,
        expected: &Expected,
        seen: &mut Inspection,
    ) -> Result<Option<Record>> {
        let at = mark.position % self.control.ring_bytes;
        let (mut found, mut lacking) = (None, Vec::new());
        for device in 0..self.store.devices() {
            match whole(self.store, device, at, expected).await? {
                Some(record) => found = Some(record),
                None => {
                    let at = CONTROL_BYTES + at;
                    lacking.push(Lacking { device, sequence: mark.sequence, at });
                }
            }
        }
        if found.is_some() {
            seen.lacking.append(&mut lacking);
        }
        Ok(found)
    }

    /// The record as its header tells it, if a device has that.
    async fn header_anywhere(&self, mark: Mark, expected: &Expected) -> Result<Option<Record>> {
        let at = mark.position % self.control.ring_bytes;
        for device in 0..self.store.devices() {
            if let Some(record) = header(self.store, device, at, expected).await? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The newest record that the control block or any record on the devices knows as durable.
    async fn newest_settled(&self) -> Result<u64> {
        let ring_bytes = self.control.ring_bytes;
        let (mut at, mut newest) = (0, self.control.settled);
        while at < ring_bytes {
            let len = commit_len(at, ring_bytes - at, ring_bytes);
            for device in 0..self.store.devices() {
                let copy = self.store.read_copy(device, at, len).await?.unwrap_or_default();
                newest = newest.max(newest_settled(&copy, self.control.ring));
            }
            at += u64_of(len);
        }
        Ok(newest)
    }
}

/// The header at a place of one device's ring, if it is that of the record expected.
async fn header(
    store: &Store,
    device: usize,
    at: u64,
    expected: &Expected,
) -> Result<Option<Record>> {
    if expected.to_end.min(expected.free) < u64_of(HEADER) {
        return Ok(None);
    }
    let header = store.read_copy(device, at, HEADER).await?;
    let record = header.and_then(|header| Record::decode(&header));
    Ok(record.filter(|record| expected.matches(record)))
}

/// The record at a place of one device's ring, if it is the one expected and whole.
async fn whole(
    store: &Store,
    device: usize,
    at: u64,
    expected: &Expected,
) -> Result<Option<Record>> {
    let Some(record) = header(store, device, at, expected).await? else { return Ok(None) };
    let body = usize64(record.body_bytes());
    let read = store.read_copy(device, at + u64_of(HEADER), body).await?;
    Ok(read.filter(|body| record.is_whole(body)).map(|_| record))
}

fn seen_of(record: &Record, position: u64) -> RecordSeen {
    let what = match record.kind {
        Kind::Write { key, blocks } => RecordWhat::Write { key, blocks: u64_of(blocks) },
        Kind::Hole { key, count } => RecordWhat::Hole { key, blocks: count },
        Kind::Refer { key, blocks } => RecordWhat::References { key, blocks: u64_of(blocks) },
        Kind::Pad { .. } => RecordWhat::Padding,
        Kind::Lost { key, blocks, .. } => RecordWhat::Lost { key, blocks: u64_of(blocks) },
    };
    RecordSeen { sequence: record.sequence, position, epoch: record.epoch, what }
}

impl RecordSeen {
    /// Blocks of contents in it.
    const fn blocks(&self) -> u64 {
        match self.what {
            RecordWhat::Write { blocks, .. } => blocks,
            RecordWhat::Hole { .. }
            | RecordWhat::References { .. }
            | RecordWhat::Lost { .. }
            | RecordWhat::Padding => 0,
        }
    }
}
