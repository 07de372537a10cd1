//! Requests to a shard of another reactor: what they cost, and every order in which the two may end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use reactor::{Config, Counts, Handle, Order, Reactor, counts, join_all, simulate_on};

use super::*;
use crate::limits::{REQUESTS_MAX, VOLUMES_KNOWN};

/// On the pool's reactor.
async fn make(on: Vec<Handle>, log_bytes: u64) -> (Pool, Volume) {
    let drives = drives(6, 64 * MIB);
    let log = LogSpec::Bbu(vec![pmem(log_bytes)]);
    let spec = PoolSpec { shards: Some(1), au_bytes: Some(MIB), ..spec(&drives, log) };
    let pool = Pool::create(spec, &on).await.unwrap();
    let volume = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
    (pool, volume)
}

thread_local! {
    static POOL: Cell<Option<Pool>> = const { Cell::new(None) };
}

/// Makes the pool on one of two reactors, and keeps it there.
fn make_on(home: &Handle, other: &Handle, log_bytes: u64) -> reactor::Call<Volume> {
    let on = vec![home.clone(), other.clone()];
    home.call(move || async move {
        let (pool, volume) = make(on, log_bytes).await;
        POOL.set(Some(pool));
        volume
    })
}

async fn close_on(home: &Handle) {
    let closed = home.call(async || POOL.take().unwrap().close().await.unwrap());
    closed.await.unwrap();
}

/// What so many requests, after some that warm the way up, took of locks and atomic read-modify-writes on the asking
/// thread and on the shard's.
async fn ask(volume: &Volume, home: &Handle, requests: u64) -> [Counts; 2] {
    let data = block(0, 1);
    let mut out = vec![0; BLOCK];
    let mut all = async |requests| {
        for n in 0..requests {
            let offset = n % 64 * BLOCK as u64;
            volume.write(offset, &data).await.unwrap();
            volume.read(offset, &mut out).await.unwrap();
            assert!(out == data, "what was written is read");
        }
    };
    all(200).await;
    let count = async || home.call(async || counts()).await.unwrap();
    let theirs = count().await;
    let mine = counts();
    all(requests).await;
    let mine = since(counts(), mine);
    [mine, since(count().await, theirs)]
}

fn since(now: Counts, before: Counts) -> Counts {
    Counts { locks: now.locks - before.locks, changes: now.changes - before.changes }
}

/// The same, and what this thread, which is that of the first reactor, allocates in all.
fn cost(asks: usize, requests: u64) -> (u64, [Counts; 2]) {
    let mut counted = None;
    let allocated = allocation_counter::measure(|| {
        let done = simulate_on(1, Order::Arrival, 2, |on| async move {
            let (home, asking) = (on[1 - asks].clone(), on[asks].clone());
            let volume = make_on(&home, &asking, 16 * MIB).await.unwrap();
            let theirs = home.clone();
            let asked = asking.call(move || async move { ask(&volume, &theirs, requests).await });
            let asked = asked.await.unwrap();
            close_on(&home).await;
            asked
        });
        counted = Some(done);
    });
    (allocated.count_total, counted.unwrap())
}

#[test]
fn a_request_to_another_reactor_takes_no_lock_and_allocates_nothing() {
    for asks in 0..2 {
        let (few, [_, base]) = cost(asks, 0);
        let (many, [mine, theirs]) = cost(asks, 500);
        assert_eq!(mine, Counts::default(), "on the asking thread");
        assert_eq!(theirs, base, "on the shard's thread");
        // Of 1000 requests. What the log knows of grows by doubling, once in a while.
        let allocations = many.saturating_sub(few);
        assert!(allocations < 10, "{allocations} allocations of reactor 0; {asks} asks");
    }
}

#[test]
fn more_requests_than_there_are_at_a_time_wait_for_their_turn() {
    simulate_on(2, Order::Shuffled, 2, |on| async move {
        let volume = make_on(&on[1], &on[0], 16 * MIB).await.unwrap();
        let blocks = 4 * REQUESTS_MAX as u64;
        let write = |at| {
            let volume = volume.clone();
            async move { volume.write(at * BLOCK as u64, &block(at, 1)).await }
        };
        for done in join_all((0..blocks).map(write)).await {
            done.unwrap();
        }
        let model = (0..blocks).map(|at| (at, 1)).collect();
        verify(&volume, &model).await;
        close_on(&on[1]).await;
    });
}

/// Volumes whose numbers fall on one place are told apart.
#[test]
fn more_volumes_than_both_ends_know_are_not_mixed_up() {
    simulate_on(3, Order::Arrival, 2, |on| async move {
        let first = make_on(&on[1], &on[0], 16 * MIB).await.unwrap();
        let more = on[1].call(|| async move {
            let pool = POOL.take().unwrap();
            let mut volumes = Vec::new();
            for n in 0..VOLUMES_KNOWN as u64 {
                let id = (u128::from(n) + 2).to_le_bytes();
                let spec = VolumeSpec { id, ..volume(&format!("v{n}"), MIB) };
                volumes.push(pool.create_volume(spec).await.unwrap());
            }
            POOL.set(Some(pool));
            volumes
        });
        let last = more.await.unwrap().pop().unwrap();
        for version in 0..20 {
            let (one, other) = (block(0, version), block(1, version));
            first.write(0, &one).await.unwrap();
            last.write(0, &other).await.unwrap();
            let mut out = vec![0; BLOCK];
            first.read(0, &mut out).await.unwrap();
            assert!(out == one);
            last.read(0, &mut out).await.unwrap();
            assert!(out == other);
        }
        close_on(&on[1]).await;
    });
}

/// Polls until every one of these waits, or is done.
async fn begin<F: Future>(asked: &mut [std::pin::Pin<Box<F>>]) {
    poll_fn(|cx| {
        for one in &mut *asked {
            let _ = one.as_mut().poll(cx);
        }
        std::task::Poll::Ready(())
    })
    .await;
}

#[test]
fn whoever_waits_for_a_shard_that_closes_is_told() {
    for seed in 0..20 {
        simulate_on(seed, Order::Shuffled, 2, |on| async move {
            // Next to no log: most of them have to wait.
            let volume = make_on(&on[1], &on[0], 4 * MIB).await.unwrap();
            let asked = (0..2 * REQUESTS_MAX as u64).map(|at| {
                let volume = volume.clone();
                reactor::spawn(async move {
                    let all = (0..8).map(|n| block(at * 8 + n, 1)).collect::<Vec<_>>().concat();
                    volume.write(at * 8 * BLOCK as u64, &all).await
                })
            });
            let asked: Vec<_> = asked.collect();
            reactor::sleep(Duration::from_micros(20 * seed)).await;
            close_on(&on[1]).await;
            for one in asked {
                let done = one.await.unwrap();
                assert!(done.is_ok() || done.unwrap_err().kind == Kind::Gone);
            }
            let mut out = vec![0; BLOCK];
            assert_eq!(volume.read(0, &mut out).await.unwrap_err().kind, Kind::Gone);
        });
    }
}

#[test]
fn requests_whose_senders_are_gone_are_free_again() {
    simulate_on(4, Order::Shuffled, 2, |on| async move {
        let volume = make_on(&on[1], &on[0], 4 * MIB).await.unwrap();
        for round in 0..8 {
            let asked = (0..REQUESTS_MAX as u64).map(|at| {
                let volume = volume.clone();
                Box::pin(async move { volume.write(at * BLOCK as u64, &block(at, round)).await })
            });
            let mut asked: Vec<_> = asked.collect();
            begin(&mut asked).await;
            reactor::sleep(Duration::from_micros(5 * round)).await;
            drop(asked);
        }
        // Each is there again.
        let again = |at: u64| volume.write(at * BLOCK as u64, SEVEN);
        for done in join_all((0..REQUESTS_MAX as u64).map(again)).await {
            done.unwrap();
        }
        let mut out = vec![0; REQUESTS_MAX * BLOCK];
        volume.read(0, &mut out).await.unwrap();
        assert!(out.iter().all(|byte| *byte == 7), "nothing of what was given up came after");
        close_on(&on[1]).await;
    });
}

const SEVEN: &[u8] = &[7; BLOCK];

fn start(name: &str) -> Handle {
    Reactor::start(Config { name: name.to_owned(), ..Config::default() }).unwrap()
}

fn end(reactor: &Handle) {
    reactor.stop();
    reactor.join().unwrap();
}

/// Writes and reads without an end, until it is told that the shard is gone.
async fn ask_on(volume: Volume) -> Kind {
    let (data, mut out) = (block(0, 1), vec![0; BLOCK]);
    loop {
        let done = volume.write(0, &data).await;
        if let Err(error) = done.and(volume.read(0, &mut out).await) {
            return error.kind;
        }
    }
}

/// Has a reactor ask until the shard is gone; it is served when this returns.
fn keep_asking(asking: &Handle, volume: &Volume) -> Vec<reactor::Call<Kind>> {
    let ask = || {
        let volume = volume.clone();
        asking.call(move || ask_on(volume))
    };
    let asked = (0..8).map(|_| ask()).collect();
    let volume = volume.clone();
    let served = asking.call(move || async move { volume.read(0, &mut [0; BLOCK]).await });
    served.wait().unwrap().unwrap();
    asked
}

#[test]
fn whoever_waits_for_a_reactor_that_ends_is_told() {
    for _ in 0..10 {
        let (home, asking) = (start("home"), start("asking"));
        let volume = make_on(&home, &asking, 16 * MIB).wait().unwrap();
        let asked = keep_asking(&asking, &volume);
        end(&home);
        for one in asked {
            assert_eq!(one.wait().unwrap(), Kind::Gone);
        }
        end(&asking);
    }
}

#[test]
fn a_shard_outlives_those_who_ask() {
    let home = start("home");
    let asking = start("asking");
    let volume = make_on(&home, &asking, 16 * MIB).wait().unwrap();
    let mut askers = vec![asking];
    for n in 0..10 {
        let asking = askers.pop().unwrap_or_else(|| start(&format!("asking {n}")));
        let asked = keep_asking(&asking, &volume);
        end(&asking);
        for one in asked {
            one.wait().unwrap_err();
        }
    }
    home.call(async || POOL.take().unwrap().close().await.unwrap()).wait().unwrap();
    end(&home);
}

/// A write whose command had been aborted while it waited for its turn once came after, and over, what the host wrote
/// next.
#[test]
fn what_is_given_up_does_not_happen_any_more() {
    for seed in 0..50 {
        simulate_on(seed, Order::Shuffled, 2, |on| async move {
            let volume = make_on(&on[1], &on[0], 16 * MIB).await.unwrap();
            {
                let old = block(0, 1);
                let mut given_up = pin!(volume.write(0, &old));
                let brief = Duration::from_nanos(1 + 700 * seed);
                let _ = reactor::timeout(brief, &mut given_up).await;
            }
            let new = block(0, 2);
            volume.write(0, &new).await.unwrap();
            reactor::sleep(Duration::from_millis(5)).await;
            let mut out = vec![0; BLOCK];
            volume.read(0, &mut out).await.unwrap();
            assert!(out == new, "what was given up came after");
            close_on(&on[1]).await;
        });
    }
}
