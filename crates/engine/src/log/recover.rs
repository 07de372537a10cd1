//! Finding what a log holds after a crash: from the record after the last trim, as far as sequences
//! and checksums go.

use super::control::Control;
use super::device::{Store, commit_len};
use super::expected::expected;
use super::lane::Lane;
use super::limits::PAGE;
use super::loss::Losses;
use super::rebuild::Anew;
use super::record::{HEADER, Record};
use super::{Found, Opened};
use crate::address::Key;
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use stdx::num::{u64_of, usize64};

/// The newest control block, if it is this log's.
async fn newest_control(store: &Store, ring: u64, lane: u64) -> Result<Control> {
    let (found, wrong) = store.read_controls().await;
    if found.is_empty() {
        let missing = || Error::new(Kind::Missing, "there is no commit log");
        let wrong = wrong.unwrap_or_else(missing);
        return Err(super::rebuild::without_control(store, ring, lane, wrong).await);
    }
    let (own, others): (Vec<&Control>, Vec<_>) = found.iter().partition(|c| c.lane == lane);
    // Beside this log's, another one in the zone of a drive is what was to be written over when this one was made,
    // and the drive forgot that. Memory has no label to say whose it is.
    let is_leftover = !store.is_memory() && !own.is_empty();
    if !others.is_empty() && !is_leftover {
        return Err(Error::new(
            Kind::Missing,
            "this is another pool's commit log, or a part of one",
        ));
    }
    let newest = own[0];
    if newest.ring != ring {
        let context = format!("the commit log's ring has {} bytes, not {ring}", newest.ring);
        return Err(Error::new(Kind::Invalid, context));
    }
    Ok(*newest)
}

/// The record at the lane's head, if the image has its header.
fn find_header(lane: &Lane, epoch: u32, store: &Store) -> Result<Option<Record>> {
    let expected = expected(lane, epoch);
    let header = store.with(lane.at(lane.head.position), HEADER, Record::decode)?;
    Ok(header.filter(|r| expected.matches(r)))
}

/// The record at the lane's head, if the image has it whole.
fn find(lane: &Lane, epoch: u32, store: &Store) -> Result<Option<Record>> {
    let at = lane.at(lane.head.position);
    let Some(record) = find_header(lane, epoch, store)? else { return Ok(None) };
    // All of it at once: a header on one device and what follows it on another are no record.
    let is_it = |bytes: &[u8]| {
        let (header, body) = bytes.split_at(HEADER);
        Record::decode(header).is_some_and(|other| other == record) && record.is_whole(body)
    };
    let whole = store.with(at, HEADER + usize64(record.body_bytes()), is_it)?;
    Ok(whole.then_some(record))
}

/// Looks for the record at the lane's head on every device, and copies it into the image from the
/// first that has it whole. False when none has.
async fn fetch(lane: &Lane, epoch: u32, store: &Store) -> Result<bool> {
    let expected = expected(lane, epoch);
    let at = lane.at(lane.head.position);
    for n in 0..store.devices() {
        let Some(header) = store.read_copy(n, at, HEADER).await? else { continue };
        let Some(record) = Record::decode(&header).filter(|r| expected.matches(r)) else {
            continue;
        };
        let len = HEADER + usize64(record.body_bytes());
        let Some(bytes) = store.read_copy(n, at, len).await? else { continue };
        if record.is_whole(&bytes[HEADER..]) {
            store.amend(at, &bytes)?;
            // What follows is likely to be better there too: a drive that was away for a while has
            // nothing of it.
            let ahead = commit_len(at, expected.free, lane.control.ring);
            store.load_from(n, at, ahead).await?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes every device hold what was found, and begins an epoch, so that what is left of a torn tail
/// never fits after the records to come.
async fn begin_epoch(lane: &mut Lane, settled: u64, store: &Store) -> Result<()> {
    let control = lane.control.after_open();
    store.write_control(&control).await?;
    lane.control = control;
    store.apply()?;
    // What was in flight may be on one device only, or not be durable yet. Nobody has seen it so
    // far; from now on everybody may.
    let unsettled = lane.mark_after(settled.max(control.trimmed), store)?.position;
    if !store.is_memory() {
        lane.pad_page(store)?;
    }
    let step = if store.is_memory() { PAGE } else { u64::MAX };
    let mut position = lane.tail.position / PAGE * PAGE;
    while position < lane.head.position {
        let at = lane.at(position);
        let rest = (lane.head.position - position).min(step);
        let len = commit_len(at, rest, control.ring);
        position += u64_of(len);
        if position > unsettled || !store.is_everywhere(at, len).await? {
            store.rewrite(at, len).await?;
        }
    }
    if !canary::skips(Step::RecoverFence) {
        store.fence();
    }
    lane.settled = lane.head;
    let control = lane.control.after_settling(lane.head.sequence - 1);
    store.write_control(&control).await?;
    lane.control = control;
    Ok(())
}

/// How many of these blocks are what the log has: nothing newer came over them.
fn current(lane: &Lane, blocks: &[(Key, u64)]) -> u64 {
    let is_current = |(key, position): &&(Key, u64)| match lane.lookup(*key, 1).0 {
        Found::Data(data) => data.position == *position,
        Found::Lost => true,
        Found::Hole | Found::Refers { .. } | Found::Nothing => false,
    };
    u64_of(blocks.iter().filter(is_current).count())
}

/// What a log holds, as it was found; nothing is changed so far.
pub(super) struct Recovered {
    lane: Lane,
    /// The last record known as durable.
    settled: u64,
    pub opened: Opened,
}

impl Recovered {
    /// The lane, ready for appends of a new epoch, once every device holds what was found.
    pub async fn begin(mut self, store: &Store) -> Result<Lane> {
        begin_epoch(&mut self.lane, self.settled, store).await?;
        Ok(self.lane)
    }
}

/// As [`recover`], from devices that give what they have. One that did not is left out by whoever begins again: what
/// was read of it, and nobody was told of, is on no other perhaps.
pub(super) async fn recover_surely(
    store: &Store,
    ring: u64,
    lane: u64,
    accept_loss: bool,
    anew: Option<Anew>,
) -> Result<Recovered> {
    loop {
        let before = store.failed();
        let recovered = recover(store, ring, lane, accept_loss, anew).await?;
        // What only a device had that is lost by now may not be found any more, which is no failure.
        let kept = keep_unsettled(&recovered, store);
        if store.failed() == before {
            return kept.map(|()| recovered);
        }
        store.forget_amended();
    }
}

/// Keeps what nobody was told of so far, and everybody may see from now on: the one device that has it may be lost
/// before the others have it, too.
fn keep_unsettled(recovered: &Recovered, store: &Store) -> Result<()> {
    if !store.is_memory() {
        return Ok(());
    }
    let lane = &recovered.lane;
    let settled = recovered.settled.max(lane.control.trimmed);
    let mut position = lane.mark_after(settled, store)?.position;
    while position < lane.head.position {
        let at = lane.at(position);
        let len = commit_len(at, lane.head.position - position, lane.control.ring);
        let bytes = store.with(at, len, <[u8]>::to_vec)?;
        store.amend(at, &bytes)?;
        position += u64_of(len);
    }
    Ok(())
}

/// Finds everything the log holds. What was acknowledged and is damaged is known as lost; with
/// `accept_loss` also where nothing tells what it was. `anew` is what those know who open a log that lost its
/// control block.
async fn recover(
    store: &Store,
    ring: u64,
    lane: u64,
    accept_loss: bool,
    anew: Option<Anew>,
) -> Result<Recovered> {
    let control = match anew {
        Some(anew) => super::rebuild::control_anew(store, ring, lane, anew).await?,
        None => newest_control(store, ring, lane).await?,
    };
    store.load(ring).await?;
    let mut lane = Lane::new(control);
    let (mut epoch, mut settled, mut repaired) = (0, control.trimmed, 0);
    let mut losses = Losses::default();
    loop {
        let mut record = find(&lane, epoch, store)?;
        if record.is_none() && fetch(&lane, epoch, store).await? {
            repaired += 1;
            record = find(&lane, epoch, store)?;
            if record.is_none() {
                let context = "the commit log's memory does not keep what is stored in it";
                return Err(Error::new(Kind::Failed, context));
            }
        }
        // One that nobody was told of was being written when power failed.
        if record.is_none() && losses.prove(&lane, store, repaired > 0).await? {
            losses.take(&lane, epoch, store, accept_loss).await?;
            record = find_header(&lane, epoch, store)?;
        }
        let Some(record) = record else { break };
        (epoch, settled) = (record.epoch, record.settled);
        lane.recover(&record, store)?;
    }
    let opened = Opened {
        durable_stripe: control.durable_stripe,
        trimmed: control.trimmed,
        records: lane.head.sequence - lane.tail.sequence,
        bytes: lane.used(),
        repaired,
        lost_blocks: current(&lane, &losses.blocks),
        lost_through: losses.through,
    };
    Ok(Recovered { lane, settled, opened })
}
