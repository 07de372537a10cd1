//! A life of the host: from putting the set together to whatever ends it.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use reactor::{Order, join_all, simulate_in, sleep, timeout};
use stdx::Prng;
use stdx::num::u64_of;
use stdx::num::usize64;

use super::Outcome;
use super::work::{disturb, join_missing, read, work};
use super::world::World;
use crate::{Assemble, Set};

/// How a life of the host ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    Closed,
    /// The host is gone; the members go on.
    Killed(Duration),
    /// Power fails everywhere.
    PowerCut(Duration),
}

pub(super) fn ending(world: &World, last: bool) -> Ending {
    let span = Duration::from_micros(200 + world.below(30_000));
    match world.below(5) {
        _ if last => Ending::Closed,
        0 => Ending::Closed,
        1 | 2 => Ending::Killed(span),
        _ => Ending::PowerCut(span),
    }
}

pub(super) fn one_life(world: &Rc<World>, seed: u64, ending: Ending) -> Outcome {
    let last = matches!(ending, Ending::Closed);
    world.connect();
    // Some die, and some come back, while nobody looks.
    for slot in 0..world.members.len() {
        if world.dead.borrow()[slot] && (last || world.chance(50)) {
            world.revive(slot);
        }
    }
    let spare = world.tolerates().saturating_sub(world.members.len() - world.alive().len());
    if !last && spare > 0 && !world.damaged.get() && world.chance(25) {
        let alive = world.alive();
        world.kill(alive[usize64(world.below(u64_of(alive.len())))]);
    }
    let in_it = Rc::clone(world);
    let ended = simulate_in(seed, Order::Shuffled, async move {
        match ending {
            Ending::Closed => body(&in_it, true).await,
            Ending::Killed(span) | Ending::PowerCut(span) => {
                timeout(span, until_doom(&in_it, body(&in_it, false))).await.unwrap_or(Ok(()))
            }
        }
    });
    world.model.borrow_mut().crash();
    if let Ending::PowerCut(_) = ending {
        for (slot, member) in world.members.iter().enumerate() {
            let seed = world.prng.borrow_mut().next_u64();
            if !world.dead.borrow()[slot] {
                member.power_cut(&mut Prng::new(seed));
                member.power_on();
            }
        }
    }
    world.count(|c| c.crashes += u64::from(!last));
    ended
}

/// Runs a life, which may end early.
async fn until_doom(world: &World, life: impl Future<Output = Outcome>) -> Outcome {
    let doomed = Rc::clone(&world.doomed.borrow());
    let (mut life, mut doom) = (pin!(life), pin!(doomed.until(|| world.doom.get())));
    poll_fn(|cx| match doom.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(Ok(())),
        Poll::Pending => life.as_mut().poll(cx),
    })
    .await
}

async fn assemble(world: &World) -> Result<Set, String> {
    world.keep_the_newest();
    let members = || world.alive().into_iter().map(|slot| world.member(slot)).collect();
    let how = Assemble { degraded: false, claim: None, canary: world.canary };
    match Set::assemble(members(), how).await {
        Ok(set) => Ok(set),
        Err(_) => {
            world.count(|c| c.degraded += 1);
            world.keep_the_newest();
            Set::assemble(members(), Assemble { degraded: true, ..how })
                .await
                .map_err(|error| format!("cannot be put together: {error}"))
        }
    }
}

async fn body(world: &Rc<World>, last: bool) -> Outcome {
    let (set, ()) = join(assemble(world), strike(world, last)).await;
    let set = match set {
        Ok(set) => set,
        // Members that left one after another while others were dead: they are needed.
        Err(_) if world.alive().len() < world.members.len() => return Ok(()),
        Err(error) => return Err(error),
    };
    world.note("assembled");
    verify(world, &set).await?;
    if world.damaged.get() && set.inner.all_in_sync() {
        compare(world, &set).await?;
        world.damaged.set(false);
    }
    if last {
        bring_all_back(world, &set).await?;
        verify(world, &set).await?;
        compare(world, &set).await?;
    }
    let worker = || work(world, &set, if last { 20 } else { u64::MAX });
    let disturber = async { if last { Ok(()) } else { disturb(world, &set).await } };
    let (work, disturbed) = join(join_all([worker(), worker(), worker()]), disturber).await;
    disturbed?;
    work.into_iter().collect::<Outcome>()?;
    if last {
        verify(world, &set).await?;
        compare(world, &set).await?;
        set.shut_down().await.map_err(|error| format!("closing failed: {error}"))?;
    }
    Ok(())
}

/// Now and then a member dies while the set is put together.
async fn strike(world: &World, last: bool) {
    let spare = world.tolerates().saturating_sub(world.members.len() - world.alive().len());
    if last || spare == 0 || world.damaged.get() || !world.chance(25) {
        return;
    }
    sleep(Duration::from_micros(world.below(5_000))).await;
    let alive = world.alive();
    let slot = alive[usize64(world.below(u64_of(alive.len())))];
    world.note(("strike", slot));
    world.kill(slot);
}

async fn join<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (first, second) = (Cell::new(None), Cell::new(None));
    let one: std::pin::Pin<Box<dyn Future<Output = ()>>> =
        Box::pin(async { first.set(Some(a.await)) });
    let two: std::pin::Pin<Box<dyn Future<Output = ()>>> =
        Box::pin(async { second.set(Some(b.await)) });
    join_all([one, two]).await;
    (first.take().unwrap(), second.take().unwrap())
}

/// Reads all of it.
async fn verify(world: &World, set: &Set) -> Outcome {
    let sectors = world.model.borrow().sectors();
    let mut first = 0;
    while first < sectors {
        let range = first..sectors.min(first + 64);
        read(world, set, &range).await?;
        first = range.end;
    }
    Ok(())
}

/// Parity and copies are what the data says.
async fn compare(world: &World, set: &Set) -> Outcome {
    let found = set.check(false, None, |_, _| {}).await;
    if set.inner.usable().is_err() {
        return Ok(());
    }
    let found = found.map_err(|error| format!("the check failed: {error}"))?;
    world.count(|c| c.checks += 1);
    let differs = found.mismatched > 0 || found.degraded > 0;
    if differs { Err(format!("the check found {found:?}")) } else { Ok(()) }
}

async fn bring_all_back(world: &World, set: &Set) -> Outcome {
    for _ in 0..3 {
        join_missing(world, set).await?;
    }
    if set.inner.all_in_sync() { Ok(()) } else { Err(format!("not whole: {:?}", set.status())) }
}
