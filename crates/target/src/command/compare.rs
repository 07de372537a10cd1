//! Compare, and Compare and Write fused (NVM Command Set 1.1, sections 3.3.1 and 2.1.4).

use nvme::nvm::{Command, Compare, Write};
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::budget::Grant;

use super::blocks::Blocks;
use super::gather::{Gathered, charge, fetched, gather, kept};
use super::{Attached, Reply, Slot, beyond};
use crate::limits::ATOMIC_COMPARE_WRITE_BLOCKS;
use crate::reservation::CommandGroup;
use crate::windows::NotEnded;

pub async fn compare(
    at: &Attached,
    command: &Compare,
    sqe: &Sqe,
    slot: &impl Slot,
) -> Result<Reply, Status> {
    let run = at.transfer(command.range, sqe)?;
    at.permit(CommandGroup::Read)?;
    let expected = gather(sqe, slot, run.bytes()).await?;
    let _place = slot.place(at, run.bytes()).await?;
    at.permit(CommandGroup::Read)?;
    at.compare(run.offset, expected).await?;
    Ok(Reply::SUCCESS)
}

/// Executes a fused Compare and Write, `first` and `second` being the two commands in the order in
/// which they were submitted. Returns the replies in that order.
///
/// No other write changes the blocks between compare and write. Both commands must name the same
/// blocks, else both fail with Invalid Field; when the compare fails the write is aborted with
/// Failed Fused Command, and the other way round when the write cannot start.
pub async fn compare_and_write<S: Slot>(
    at: &Attached,
    first: (&Sqe, &S),
    second: (&Sqe, &S),
) -> (Reply, Reply) {
    let (compare, write) = match prepare(at, first.0, second.0) {
        Ok((run, write)) => match take_data(run.bytes(), first, second).await {
            Ok(both) => match beyond::mended(at, second.1).await {
                Ok(mended) => {
                    let at = mended.as_deref().unwrap_or(at);
                    exchange(at, run, &write, both, [first.1, second.1]).await
                }
                Err(status) => (Err(FAILED_FUSED), Err(status)),
            },
            Err((compare, write)) => (Err(compare), Err(write)),
        },
        Err((compare, write)) => (Err(compare), Err(write)),
    };
    let reply = |done: Result<(), Status>| match done {
        Ok(()) => Reply::SUCCESS,
        Err(status) => Reply::failed(status),
    };
    (reply(compare), reply(write))
}

const FAILED_FUSED: Status = Status::ABORTED_FAILED_FUSED;

/// Checks both commands; the error is the status of each.
fn prepare(at: &Attached, first: &Sqe, second: &Sqe) -> Result<(Blocks, Write), (Status, Status)> {
    let both = |status: Status| (status, status);
    let of_compare = |status: Status| (status, FAILED_FUSED);
    let of_write = |status: Status| (FAILED_FUSED, status);
    at.permit_access().map_err(of_compare)?;
    let compare = Command::parse(first).map_err(|refusal| of_compare(refusal.status()))?;
    let write = Command::parse(second).map_err(|refusal| of_write(refusal.status()))?;
    let (Command::Compare(compare @ Compare { fused: true, .. }), Command::Write(write)) =
        (compare, write)
    else {
        return Err(both(Status::INVALID_FIELD.with_dnr()));
    };
    if !write.fused || compare.range != write.range {
        return Err(both(Status::INVALID_FIELD.with_dnr()));
    }
    let run = at.transfer(compare.range, first).map_err(of_compare)?;
    at.transfer(write.range, second).map_err(of_write)?;
    if compare.range.blocks() > ATOMIC_COMPARE_WRITE_BLOCKS {
        return Err(of_compare(Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_dnr()));
    }
    at.permit(CommandGroup::Read).map_err(of_compare)?;
    at.permit_change().map_err(of_write)?;
    Ok((run, write))
}

/// The data of both commands. No pool buffer is held while another is waited for, and both capsules
/// are read before anything is waited for.
async fn take_data<S: Slot>(
    length: usize,
    first: (&Sqe, &S),
    second: (&Sqe, &S),
) -> Result<Both, (Status, Status)> {
    let of_compare = |status: Status| (status, FAILED_FUSED);
    let of_write = |status: Status| (FAILED_FUSED, status);
    let expected = kept(first.0, first.1, length).map_err(of_compare)?;
    let data = kept(second.0, second.1, length).map_err(of_write)?;
    // For both together: with the data of one in hand nobody waits for his turn to ask for the other's.
    let asked = expected.is_none() || data.is_none();
    let held = match asked {
        true => {
            let hold = second.1.hold(2 * charge(length));
            Some(first.1.unless_aborted(hold).await.map_err(of_compare)?.map_err(of_write)?)
        }
        false => None,
    };
    let expected = match expected {
        Some(kept) => kept,
        None => Gathered::of_heap(fetched(first.1, length).await.map_err(of_compare)?, None),
    };
    let data = match data {
        Some(kept) => kept,
        None => Gathered::of_heap(fetched(second.1, length).await.map_err(of_write)?, None),
    };
    Ok(Both { expected, data, _held: held })
}

/// The data of a Compare and Write, and what is held for what was asked for of it.
struct Both {
    expected: Gathered,
    data: Gathered,
    _held: Option<Grant>,
}

type Done = Result<(), Status>;

/// Waits for what others have unless one of the two is aborted, and the other with it.
async fn unless_aborted<F: Future>(
    [first, second]: [&impl Slot; 2],
    wait: F,
) -> Result<F::Output, (Done, Done)> {
    match first.unless_aborted(second.unless_aborted(wait)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(status)) => Err((Err(FAILED_FUSED), Err(status))),
        Err(status) => Err((Err(status), Err(FAILED_FUSED))),
    }
}

async fn exchange(
    at: &Attached,
    run: Blocks,
    write: &Write,
    both: Both,
    slots: [&impl Slot; 2],
) -> (Done, Done) {
    let slot = slots[1];
    // However many of one host's wait for blocks, others' have a place.
    let _place = match unless_aborted(slots, slot.share_of(at.ranges().holding(), 1)).await {
        Ok(Ok(place)) => place,
        Ok(Err(status)) => return (Err(FAILED_FUSED), Err(status)),
        Err(aborted) => return aborted,
    };
    let _held = match unless_aborted(slots, at.ranges().hold(run.range)).await {
        Ok(held) => held,
        Err(aborted) => return aborted,
    };
    // What is held back are commands: a window is written by without any, between the two as well.
    let bar = at.namespace().window.bar();
    match unless_aborted(slots, bar.clear()).await {
        Ok(Ok(())) => {}
        Ok(Err(NotEnded)) => return (Err(Status::INTERNAL_ERROR), Err(FAILED_FUSED)),
        Err(aborted) => return aborted,
    }
    // A reservation may have come while the data was on its way.
    if let Err(status) = at.permit(CommandGroup::Read) {
        return (Err(status), Err(FAILED_FUSED));
    }
    if let Err(status) = slot.permit().and_then(|()| at.permit_change()) {
        return (Err(FAILED_FUSED), Err(status));
    }
    // Over both: who waits until the backend has nothing of this host's any more waits for the write too.
    let in_use = match at.use_backend(run.offset, run.length) {
        Ok(in_use) => in_use,
        Err(status) => return (Err(status), Err(FAILED_FUSED)),
    };
    if let Err(status) = at.check_equal(run.offset, &both.expected).await {
        return (Err(status), Err(FAILED_FUSED));
    }
    let stored = match slot.permit() {
        Ok(()) => at.store(run.offset, both.data, write.fua).await,
        ended => ended,
    };
    drop(in_use);
    drop(bar);
    (Ok(()), stored)
}
