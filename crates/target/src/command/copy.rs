//! Copy (NVM Command Set 1.1, section 3.3.2).

use std::rc::Rc;

use nvme::nvm::{Copy, CopySource, LbaRange};
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::Lba;
use stdx::num::u32_of;

use super::blocks::Blocks;
use super::gather::{Gathered, gather_list};
use super::{Attached, Reply, Slot, beyond};
use crate::limits::{COPY_MAX_BLOCKS, COPY_MAX_RANGE_BLOCKS, COPY_MAX_RANGES, PIECE_BYTES};
use crate::reservation::CommandGroup;

/// A failure, and the first source range that was not copied whole (DW0 of the completion).
struct Failure {
    status: Status,
    range: u32,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self { status, range: 0 }
    }
}

/// One source range, checked: where it is and where it goes.
struct Leg {
    /// `None`: the destination's own namespace.
    from: Option<Rc<Attached>>,
    source: Blocks,
    destination: Blocks,
}

pub async fn copy(at: &Attached, command: &Copy, sqe: &Sqe, slot: &impl Slot) -> Reply {
    match run(at, command, sqe, slot).await {
        Ok(()) => Reply::SUCCESS,
        Err(failure) => Reply { dw0: failure.range, ..Reply::failed(failure.status) },
    }
}

async fn run(at: &Attached, command: &Copy, sqe: &Sqe, slot: &impl Slot) -> Result<(), Failure> {
    let enabled = slot.copy_formats_enabled() & (1 << command.format.raw()) != 0;
    if command.format.names_namespace() && !enabled {
        return Err(Status::INVALID_FIELD.with_dnr().into());
    }
    if command.ranges.count() > COPY_MAX_RANGES {
        return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr().into());
    }
    at.permit_change()?;
    let list = gather_list(sqe, slot, command.data_bytes()).await?;
    let mended = beyond::mended(at, slot).await?;
    let at = mended.as_deref().unwrap_or(at);
    let legs = plan(at, command, &list, slot)?;
    for (leg, index) in legs.iter().zip(0..) {
        move_blocks(at, leg, slot).await.map_err(|status| Failure { status, range: index })?;
    }
    if command.fua {
        at.make_durable().await?;
    }
    Ok(())
}

/// Checks every source range before any is copied.
fn plan(at: &Attached, command: &Copy, list: &[u8], slot: &impl Slot) -> Result<Vec<Leg>, Failure> {
    let sources = command.sources(list).map_err(|refusal| refusal.status())?;
    let mut legs: Vec<Leg> = Vec::with_capacity(sources.len());
    let mut blocks = 0;
    for source in sources {
        let failed = |status| Failure { status, range: u32_of(legs.len()) };
        if source.range.blocks() > COPY_MAX_RANGE_BLOCKS
            || blocks + source.range.blocks() > COPY_MAX_BLOCKS
        {
            return Err(failed(Status::COMMAND_SIZE_LIMIT_EXCEEDED.with_dnr()));
        }
        let leg = check(at, command.destination, &source, blocks, slot).map_err(failed)?;
        blocks += source.range.blocks();
        legs.push(leg);
    }
    // The result would depend on the order in which ranges are copied.
    let whole = LbaRange::new(command.destination, blocks);
    let overlaps = |leg: &Leg| {
        leg.from.is_none() && whole.is_some_and(|whole| leg.source.range.overlaps(whole))
    };
    match legs.iter().position(overlaps) {
        Some(index) => {
            Err(Failure { status: Status::OVERLAPPING_IO_RANGE.with_dnr(), range: u32_of(index) })
        }
        None => Ok(legs),
    }
}

/// Checks one source range, which goes `done` blocks behind the destination's start.
fn check(
    at: &Attached,
    destination: Lba,
    source: &CopySource,
    done: u32,
    slot: &impl Slot,
) -> Result<Leg, Status> {
    let fast_only = source.fast_only;
    let from = match source.nsid.filter(|&nsid| nsid != at.namespace().nsid) {
        None => None,
        Some(nsid) => {
            let other = slot.namespace(nsid);
            Some(other.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr())?)
        }
    };
    let place = from.as_deref().unwrap_or(at);
    if place.namespace().block_size != at.namespace().block_size {
        return Err(Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT.with_dnr());
    }
    let to = destination
        .checked_add(u64::from(done))
        .and_then(|start| LbaRange::new(start, source.range.blocks()))
        .ok_or(Status::LBA_OUT_OF_RANGE.with_dnr())?;
    let (source, destination) = (place.blocks(source.range)?, at.blocks(to)?);
    place.permit(CommandGroup::Read)?;
    // Only what is shared, and not moved, is faster than reading and writing.
    if fast_only && !at.shares_with(place, source.offset, destination.offset, source.length) {
        return Err(Status::FAST_COPY_NOT_POSSIBLE.with_dnr());
    }
    Ok(Leg { from, source, destination })
}

async fn move_blocks(at: &Attached, leg: &Leg, slot: &impl Slot) -> Result<(), Status> {
    let from = leg.from.as_deref().unwrap_or(at);
    let pieces = leg.source.pieces(PIECE_BYTES).zip(leg.destination.pieces(PIECE_BYTES));
    for ((source, length), (destination, _)) in pieces {
        at.after_lost(&[leg.destination.range], slot).await?;
        let _place = slot.place(at, length).await?;
        let _under_way = at.enter(leg.destination.range, slot).await?;
        let _turn = slot.work(4 * length).await?;
        from.permit(CommandGroup::Read)?;
        at.permit_change()?;
        if at.is_beside(from) && at.copy_within(from, source, destination, length).await? {
            reactor::yield_now().await;
            continue;
        }
        let data = Gathered::of_pool(from.load(source, length).await?, None);
        slot.permit()?;
        at.permit_change()?;
        at.store(destination, data, false).await?;
        reactor::yield_now().await;
    }
    Ok(())
}
