//! Claims of blocks, by many at once.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use nvme::nvm::LbaRange;

use super::woken::Woken;
use crate::command::fence::{Ask, Claim, Core, Fence, Hold};
use crate::limits::HOLDS_MAX;

fn range(first: u64) -> LbaRange {
    LbaRange::new(stdx::Lba::new(first), 1).unwrap()
}

fn poll(claim: Pin<&mut Claim<'_>>) -> Option<Hold> {
    match claim.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(hold) => Some(hold),
        Poll::Pending => None,
    }
}

/// One host's compares and writes held any number of ranges, each of which every command of every host was
/// compared with.
#[test]
fn no_more_than_some_ranges_are_held_and_the_rest_wait_their_turn() {
    let (fence, own) = (Fence::default(), Arc::<Core>::default());
    let claim = |first| poll(pin!(fence.claim(range(first))));
    let holds: Vec<_> = (0..1000).map_while(claim).collect();
    assert_eq!(holds.len(), HOLDS_MAX);
    let mut late = pin!(fence.claim(range(5000)));
    assert!(poll(late.as_mut()).is_none());
    fence.release(holds[3].id, &own);
    let held = poll(late.as_mut()).unwrap();
    assert!(claim(3).is_none(), "full again");
    fence.release(held.id, &own);
    assert!(claim(5).is_none(), "held by another");
    assert!(claim(3).is_some());
}

/// Who joined those who waited looked through all of them, under a lock that the cores share.
#[test]
fn waiting_costs_the_same_however_many_wait() {
    struct Own;
    impl std::task::Wake for Own {
        fn wake(self: Arc<Self>) {}
    }
    let fence = Fence::default();
    let hold = poll(pin!(fence.claim(range(0)))).unwrap();
    let before = reactor::thread_usage().user;
    let mut claims: Vec<_> = (0..100_000).map(|_| Box::pin(fence.claim(range(0)))).collect();
    for claim in &mut claims {
        let waker = Waker::from(Arc::new(Own));
        assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    fence.release(hold.id, &Arc::default());
    let first = poll(claims[0].as_mut()).unwrap();
    assert!(poll(claims[1].as_mut()).is_none());
    drop(claims);
    fence.release(first.id, &Arc::default());
    assert!(fence.is_idle());
    let spent = reactor::thread_usage().user - before;
    assert!(spent < std::time::Duration::from_secs(5), "{spent:?}");
}

const MANY: u64 = 50_000;

type Claims<'a> = Vec<Pin<Box<Claim<'a>>>>;

/// Begins so many claims, which wait.
fn wait<'a>(fence: &'a Fence, woken: &Woken, many: u64, of: fn(u64) -> u64) -> Claims<'a> {
    let mut claims: Claims = (0..many).map(|n| Box::pin(fence.claim(range(of(n))))).collect();
    for (claim, n) in claims.iter_mut().zip(0..) {
        assert!(woken.poll(n, claim.as_mut()).is_none());
    }
    claims
}

/// Anything that was kept for a lost queue had all who waited woken by the end of any hold.
#[test]
fn the_end_of_a_hold_wakes_one_also_where_something_is_kept() {
    let (fence, own, woken) = (Fence::default(), Arc::<Core>::default(), Woken::default());
    let kept = fence.keep(vec![range(7)], &own);
    let mut held = poll(pin!(fence.claim(range(0)))).unwrap();
    let elsewhere = poll(pin!(fence.claim(range(1)))).unwrap();
    let mut claims = wait(&fence, &woken, MANY, |_| 0);
    fence.release(elsewhere.id, &own);
    assert_eq!(woken.take(), [], "it was not what they wait for");
    for (n, next) in claims.iter_mut().enumerate().take(100) {
        fence.release(held.id, &own);
        assert_eq!(woken.take(), [n], "the next one, in the order in which they came");
        held = poll(next.as_mut()).unwrap();
    }
    fence.release_kept(&[kept[0].id], &own);
    assert_eq!(woken.take(), []);
    fence.release(held.id, &own);
    drop(claims);
    assert!(fence.is_idle());
}

/// Once it is not kept any more, as many may hold a part of it as there may be holds.
#[test]
fn the_end_of_what_is_kept_wakes_few_of_many_who_wait_for_it() {
    let (fence, own, woken) = (Fence::default(), Arc::<Core>::default(), Woken::default());
    let stretch = LbaRange::new(stdx::Lba::new(0), 100_000).unwrap();
    let kept = fence.keep(vec![stretch], &own);
    // Half of them want the same block.
    let of = |n: u64| if n.is_multiple_of(2) { 0 } else { n };
    let mut claims = wait(&fence, &woken, MANY, of);
    fence.release_kept(&[kept[0].id], &own);
    let mut next = woken.take();
    assert_eq!(next.len(), HOLDS_MAX);
    let (mut polls, mut done) = (0, 0);
    while let Some(n) = next.pop() {
        polls += 1;
        let hold = woken.poll(n, claims[n].as_mut()).expect("who is woken has it");
        assert_eq!(hold.range, range(of(n.try_into().unwrap())));
        done += 1;
        fence.release(hold.id, &own);
        let also = woken.take();
        assert!(also.len() <= 1, "{}", also.len());
        next.extend(also);
    }
    assert_eq!((done, polls), (MANY, MANY));
    assert!(fence.is_idle());
}

/// Many that cannot have it yet are looked at a few at a time, and nobody behind them is forgotten.
#[test]
fn who_waits_for_two_holds_goes_on_from_the_one_to_the_other() {
    let (fence, own, woken) = (Fence::default(), Arc::<Core>::default(), Woken::default());
    let stretch = LbaRange::new(stdx::Lba::new(0), 60_000).unwrap();
    let kept = fence.keep(vec![stretch, stretch], &own);
    let mut claims = wait(&fence, &woken, MANY, |n| n);
    fence.release_kept(&[kept[0].id], &own);
    let mut polls = 0;
    while let Some(n) = woken.take().pop() {
        polls += 1;
        assert!(woken.poll(n, claims[n].as_mut()).is_none(), "the other is kept");
    }
    let at_once = u64::try_from(HOLDS_MAX).unwrap();
    assert_eq!(polls, (MANY - at_once).div_ceil(at_once), "some at once, and none is left behind");
    fence.release_kept(&[kept[1].id], &own);
    assert_eq!(woken.take().len(), HOLDS_MAX);
}

/// Some have yet to be looked at, which wait for nothing any more.
#[test]
fn who_comes_while_many_are_looked_at_does_not_pass_them() {
    let (fence, own, woken) = (Fence::default(), Arc::<Core>::default(), Woken::default());
    let stretch = |blocks| LbaRange::new(stdx::Lba::new(0), blocks).unwrap();
    let kept = fence.keep(vec![stretch(1000), stretch(200)], &own);
    let mut claims = wait(&fence, &woken, 300, |n| n);
    fence.release_kept(&[kept[0].id], &own);
    let mut late = pin!(fence.claim(range(250)));
    assert!(poll(late.as_mut()).is_none());
    let mut has = None;
    while let Some(n) = woken.take().pop() {
        let hold = woken.poll(n, claims[n].as_mut());
        has = has.or(hold.filter(|hold| hold.range == range(250)));
    }
    has = has.or_else(|| poll(claims[250].as_mut()));
    assert!(poll(late.as_mut()).is_none());
    assert!(has.is_some(), "it came first");
}

/// It was claimed for one who did not hear of it any more.
#[test]
fn who_gives_up_what_was_claimed_for_him_leaves_it_to_the_next() {
    let fence = Fence::default();
    let own = fence.join().core;
    let hold = poll(pin!(fence.claim(range(0)))).unwrap();
    let mut first = Box::pin(fence.claim(range(0)));
    let mut second = pin!(fence.claim(range(0)));
    assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
    fence.release(hold.id, &own);
    assert!(poll(second.as_mut()).is_none());
    let late = fence.join();
    let known = late.holds[0].id;
    drop(first);
    let asked = late.core.poll_asked(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(asked) = asked else { panic!("a core that knows of a hold hears of its end") };
    assert!(matches!(&asked[..], [Ask::Release(ids)] if ids[..] == [known]));
    let hold = poll(second.as_mut()).unwrap();
    fence.release(hold.id, &own);
    assert!(fence.is_idle());
}

/// Blocks that are claimed all the time, and as many as there may be at once, left nothing for anybody else.
#[test]
fn claims_of_different_blocks_take_turns() {
    let (fence, own) = (Fence::default(), Arc::<Core>::default());
    let many = u64::try_from(HOLDS_MAX).unwrap();
    let holds: Vec<_> = (0..many).map(|n| poll(pin!(fence.claim(range(n)))).unwrap()).collect();
    let mut again: Claims = (0..many).map(|n| Box::pin(fence.claim(range(n)))).collect();
    assert!(again.iter_mut().all(|claim| poll(claim.as_mut()).is_none()));
    let mut other = pin!(fence.claim(range(5000)));
    assert!(poll(other.as_mut()).is_none());
    for hold in &holds {
        fence.release(hold.id, &own);
    }
    let mut had = 0;
    for claim in &mut again {
        if let Some(hold) = poll(claim.as_mut()) {
            had += 1;
            fence.release(hold.id, &own);
        }
    }
    let hold = poll(other.as_mut()).expect("its turn came");
    assert!(had >= many - 1);
    fence.release(hold.id, &own);
}

#[test]
fn who_was_there_before_a_bar_passes_it_and_who_came_later_waits() {
    let (fence, own) = (Fence::default(), Arc::<Core>::default());
    let hold = poll(pin!(fence.claim(range(0)))).unwrap();
    let mut before = pin!(fence.claim(range(0)));
    assert!(poll(before.as_mut()).is_none());
    let bar = fence.bar(&[range(0), range(2)]);
    let mut later = pin!(fence.claim(range(0)));
    let mut alone = pin!(fence.claim(range(2)));
    assert!(poll(later.as_mut()).is_none() && poll(alone.as_mut()).is_none());
    assert!(poll(pin!(fence.claim(range(1)))).is_some());
    fence.release(hold.id, &own);
    let hold = poll(before.as_mut()).unwrap();
    fence.release(hold.id, &own);
    assert!(poll(later.as_mut()).is_none() && poll(alone.as_mut()).is_none());
    fence.unbar(bar);
    assert!(poll(later.as_mut()).is_some() && poll(alone.as_mut()).is_some());
}
