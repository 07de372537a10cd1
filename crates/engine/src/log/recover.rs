//! Finding what a log holds after a crash: from the record after the last trim, as far as sequences
//! and checksums go.

use super::control::Control;
use super::device::{Store, commit_len};
use super::expected::expected;
use super::limits::PAGE;
use super::loss::Losses;
use super::rebuild::Rebuilt;
use super::record::{HEADER, Record};
use super::ring::Ring;
use super::{Found, Opened};
use crate::address::Key;
use crate::canary::{self, Step};
use crate::error::{Error, Kind, Result};
use stdx::num::{u64_of, usize64};

/// The newest control block, if it is this log's.
async fn newest_control(store: &Store, ring_bytes: u64, ring: u64) -> Result<Control> {
    let (found, wrong) = store.read_controls().await;
    if found.is_empty() {
        let missing = || Error::new(Kind::Missing, "there is no commit log");
        let wrong = wrong.unwrap_or_else(missing);
        return Err(super::rebuild::without_control(store, ring_bytes, ring, wrong).await);
    }
    let (own, others): (Vec<&Control>, Vec<_>) = found.iter().partition(|c| c.ring == ring);
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
    if newest.ring_bytes != ring_bytes {
        let context =
            format!("the commit log's ring has {} bytes, not {ring_bytes}", newest.ring_bytes);
        return Err(Error::new(Kind::Invalid, context));
    }
    Ok(*newest)
}

/// The record at the ring's head, if the image has its header.
fn find_header(ring: &Ring, epoch: u32, store: &Store) -> Result<Option<Record>> {
    let expected = expected(ring, epoch);
    let header = store.with(ring.at(ring.head.position), HEADER, Record::decode)?;
    Ok(header.filter(|r| expected.matches(r)))
}

/// The record at the ring's head, if the image has it whole.
fn find(ring: &Ring, epoch: u32, store: &Store) -> Result<Option<Record>> {
    let at = ring.at(ring.head.position);
    let Some(record) = find_header(ring, epoch, store)? else { return Ok(None) };
    // All of it at once: a header on one device and what follows it on another are no record.
    let is_it = |bytes: &[u8]| {
        let (header, body) = bytes.split_at(HEADER);
        Record::decode(header).is_some_and(|other| other == record) && record.is_whole(body)
    };
    let whole = store.with(at, HEADER + usize64(record.body_bytes()), is_it)?;
    Ok(whole.then_some(record))
}

/// Looks for the record at the ring's head on every device, and copies it into the image from the
/// first that has it whole. False when none has.
async fn fetch(ring: &Ring, epoch: u32, store: &Store) -> Result<bool> {
    let expected = expected(ring, epoch);
    let at = ring.at(ring.head.position);
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
            let ahead = commit_len(at, expected.free, ring.control.ring_bytes);
            store.load_from(n, at, ahead).await?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes every device hold what was found, and begins an epoch, so that what is left of a torn tail
/// never fits after the records to come.
async fn begin_epoch(ring: &mut Ring, settled: u64, store: &Store) -> Result<()> {
    store.found(&ring.control);
    let control = ring.control.after_open();
    store.write_control(&control).await?;
    ring.keep_control(control);
    store.apply()?;
    // What was in flight may be on one device only, or not be durable yet. Nobody has seen it so
    // far; from now on everybody may.
    let unsettled = ring.mark_after(settled.max(control.trimmed), store)?.position;
    if !store.is_memory() {
        ring.pad_page(store)?;
    }
    let step = if store.is_memory() { PAGE } else { u64::MAX };
    let mut position = ring.tail.position / PAGE * PAGE;
    while position < ring.head.position {
        let at = ring.at(position);
        let rest = (ring.head.position - position).min(step);
        let len = commit_len(at, rest, control.ring_bytes);
        position += u64_of(len);
        if position > unsettled || !store.is_everywhere(at, len).await? {
            store.rewrite(at, len).await?;
        }
    }
    if !canary::skips(Step::RecoverFence) {
        store.fence();
    }
    ring.settled = ring.head;
    let control = ring.control.after_settling(ring.head.sequence - 1);
    store.write_control(&control).await?;
    ring.keep_control(control);
    assert_eq!(ring.stretches_pending, 0, "all that was found can be looked up");
    Ok(())
}

/// How many of these blocks are what the log has: nothing newer came over them.
fn current(ring: &Ring, blocks: &[(Key, u64)]) -> u64 {
    let is_current = |(key, position): &&(Key, u64)| match ring.lookup(*key, 1).0 {
        Found::Data(data) => data.position == *position,
        Found::Lost => true,
        Found::Hole | Found::Refers { .. } | Found::Nothing => false,
    };
    u64_of(blocks.iter().filter(is_current).count())
}

/// What a log holds, as it was found; nothing is changed so far.
pub(super) struct Recovered {
    ring: Ring,
    /// The last record known as durable.
    settled: u64,
    pub opened: Opened,
}

impl Recovered {
    /// The ring, ready for appends of a new epoch, once every device holds what was found.
    pub async fn begin(mut self, store: &Store) -> Result<Ring> {
        begin_epoch(&mut self.ring, self.settled, store).await?;
        Ok(self.ring)
    }
}

/// As [`recover`], from devices that give what they have. One that did not is left out by whoever begins again: what
/// was read of it, and nobody was told of, is on no other perhaps.
pub(super) async fn recover_surely(
    store: &Store,
    ring_bytes: u64,
    ring: u64,
    accept_loss: bool,
    rebuilt: Option<Rebuilt>,
) -> Result<Recovered> {
    loop {
        let before = store.failed();
        let recovered = recover(store, ring_bytes, ring, accept_loss, rebuilt).await?;
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
    let ring = &recovered.ring;
    let settled = recovered.settled.max(ring.control.trimmed);
    let mut position = ring.mark_after(settled, store)?.position;
    while position < ring.head.position {
        let at = ring.at(position);
        let len = commit_len(at, ring.head.position - position, ring.control.ring_bytes);
        let bytes = store.with(at, len, <[u8]>::to_vec)?;
        store.amend(at, &bytes)?;
        position += u64_of(len);
    }
    Ok(())
}

/// Finds everything the log holds. What was acknowledged and is damaged is known as lost; with
/// `accept_loss` also where nothing tells what it was. `rebuilt` is what those know who open a log that lost its
/// control block.
async fn recover(
    store: &Store,
    ring_bytes: u64,
    ring: u64,
    accept_loss: bool,
    rebuilt: Option<Rebuilt>,
) -> Result<Recovered> {
    let control = match rebuilt {
        Some(rebuilt) => super::rebuild::control_rebuilt(store, ring_bytes, ring, rebuilt).await?,
        None => newest_control(store, ring_bytes, ring).await?,
    };
    store.load(ring_bytes).await?;
    let mut ring = Ring::new(control);
    let (mut epoch, mut settled, mut repaired) = (0, control.trimmed, 0);
    let mut losses = Losses::default();
    loop {
        let mut record = find(&ring, epoch, store)?;
        if record.is_none() && fetch(&ring, epoch, store).await? {
            repaired += 1;
            record = find(&ring, epoch, store)?;
            if record.is_none() {
                let context = "the commit log's memory does not keep what is stored in it";
                return Err(Error::new(Kind::Failed, context));
            }
        }
        // One that nobody was told of was being written when power failed.
        if record.is_none() && losses.prove(&ring, store, repaired > 0).await? {
            losses.take(&ring, epoch, store, accept_loss).await?;
            record = find_header(&ring, epoch, store)?;
        }
        let Some(record) = record else { break };
        (epoch, settled) = (record.epoch, record.settled);
        ring.recover(&record, store)?;
    }
    if store.is_in_doubt(losses.through > 0) {
        // What was acknowledged may be there, and would be written over.
        let context =
            "a device of the commit log did not answer when it was read: open the pool again";
        return Err(Error::new(Kind::Failed, context));
    }
    let opened = Opened {
        durable_stripe: control.durable_stripe,
        trimmed: control.trimmed,
        records: ring.head.sequence - ring.tail.sequence,
        bytes: ring.used(),
        repaired,
        lost_blocks: current(&ring, &losses.blocks),
        lost_through: losses.through,
    };
    Ok(Recovered { ring, settled, opened })
}
