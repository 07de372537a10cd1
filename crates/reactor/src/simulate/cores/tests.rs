use crate::cross_core::{AsyncMutex, Lock, Watch};
use crate::{Handle, Order, id, join_all, now, random, sleep, spawn, yield_now};
use crate::{simulate_in, simulate_on};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

type Trace = Arc<Lock<Vec<(u64, u64, u64)>>>;

/// Tasks of several cores that sleep, take turns and call each other; what they did, in order.
fn story(seed: u64, order: Order, cores: usize) -> Vec<(u64, u64, u64)> {
    let trace = Trace::default();
    let all = Arc::clone(&trace);
    simulate_on(seed, order, cores, move |handles| async move {
        let turn = Arc::new(AsyncMutex::default());
        let tasks = (0..12u64).map(|n| {
            let at = usize::try_from(n).unwrap() % handles.len();
            let (trace, turn, handles) = (Arc::clone(&all), Arc::clone(&turn), handles.clone());
            handles[at].clone().call(move || wander(n, trace, turn, handles))
        });
        assert!(join_all(tasks).await.iter().all(Result::is_ok));
    });
    std::mem::take(&mut *trace.lock())
}

async fn wander(n: u64, trace: Trace, turn: Arc<AsyncMutex>, handles: Vec<Handle>) {
    for step in 0..10 {
        let chance = random();
        trace.lock().push((now(), n, chance));
        match chance % 4 {
            0 => sleep(Duration::from_nanos(chance % 100_000)).await,
            1 => yield_now().await,
            2 => drop(turn.hold().await),
            _ => {
                let to = handles[step % handles.len()].call(|| async { now() });
                assert!(to.await.unwrap() <= now());
            }
        }
    }
}

#[test]
fn a_seed_replays_bit_for_bit_on_several_cores() {
    for order in [Order::Arrival, Order::Shuffled] {
        let first = story(7, order, 3);
        assert_eq!(first.len(), 120);
        for _ in 0..5 {
            assert_eq!(first, story(7, order, 3));
        }
        assert_ne!(first, story(8, order, 3));
        assert_ne!(first, story(7, order, 2));
    }
}

#[test]
fn one_core_is_as_alone() {
    let steps = || async {
        let mut steps = Vec::new();
        for _ in 0..20 {
            let chance = random();
            sleep(Duration::from_nanos(chance % 100_000)).await;
            steps.push((now(), chance, crate::metrics::here().turns));
        }
        steps
    };
    let alone = simulate_in(5, Order::Shuffled, steps());
    assert_eq!(
        alone,
        simulate_on(5, Order::Shuffled, 1, |handles| {
            assert_eq!(handles.len(), 1);
            steps()
        })
    );
}

#[test]
fn cores_have_threads_and_numbers_of_their_own() {
    thread_local! {
        static HERE: Cell<u32> = const { Cell::new(0) };
    }
    simulate_on(1, Order::Arrival, 3, |handles| async move {
        HERE.set(7);
        let mut ids: Vec<u32> = Vec::new();
        for handle in &handles {
            let (there, local) = handle.call(|| async { (id(), HERE.get()) }).await.unwrap();
            assert_eq!(there, handle.id());
            assert_eq!(local == 7, there == id());
            ids.push(there);
        }
        ids.dedup();
        assert_eq!(ids.len(), 3);
    });
}

/// All of them have the same time, which goes on when nobody has anything to do.
#[test]
fn a_wake_crosses_cores_and_time_is_shared() {
    simulate_on(2, Order::Arrival, 2, |handles| async move {
        let (begun, watched) = (now(), Arc::new(Watch::new(0)));
        let theirs = Arc::clone(&watched);
        let woken = handles[1].call(move || async move {
            theirs.until(|value| (*value == 1).then_some(())).await;
            now()
        });
        sleep(HOUR).await;
        watched.change(|value| *value = 1);
        let changed = now();
        let woken = woken.await.unwrap();
        assert!(woken >= changed && woken < changed + 10_000_000, "{}", woken - changed);
        assert!(changed >= begun + 3_600_000_000_000);
    });
}

#[test]
#[should_panic(expected = "as planned")]
fn a_panic_on_another_core_ends_the_run_with_it() {
    simulate_on(3, Order::Arrival, 3, |handles| async move {
        handles[2].spawn(|| async { panic!("as planned") }).unwrap();
        sleep(HOUR).await;
    });
}

#[test]
#[should_panic(expected = "as planned here")]
fn a_panic_on_the_first_core_ends_the_others() {
    simulate_on(3, Order::Arrival, 3, |handles| async move {
        for handle in &handles[1..] {
            handle.spawn(std::future::pending::<()>).unwrap();
        }
        panic!("as planned here");
    });
}

#[test]
#[should_panic(expected = "deadlock in simulation: 2 tasks wait and no timer is armed (seed 9,")]
fn a_deadlock_of_all_cores_is_told() {
    simulate_on(9, Order::Arrival, 2, |handles| async move {
        let never = handles[1].call(std::future::pending::<()>);
        let _ = never.await;
    });
}

/// Says in which order it was dropped, and where.
struct Told {
    dropped: Arc<Lock<Vec<usize>>>,
    core: usize,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.dropped.lock().push(self.core);
    }
}

/// As a kill: what is under way on other cores goes no further, and is dropped in a defined order.
#[test]
fn the_end_drops_calls_under_way_on_all_cores() {
    let (dropped, done) = (Arc::<Lock<Vec<usize>>>::default(), Arc::new(AtomicUsize::new(0)));
    let (told, after) = (Arc::clone(&dropped), Arc::clone(&done));
    simulate_on(4, Order::Shuffled, 3, move |handles| async move {
        for (core, handle) in handles.iter().enumerate() {
            let (told, after) = (Told { dropped: Arc::clone(&told), core }, Arc::clone(&after));
            let call = handle.call(move || async move {
                let _told = told;
                sleep(HOUR).await;
                after.fetch_add(1, Ordering::Relaxed);
            });
            spawn(async move {
                let _ = call.await;
            });
        }
        sleep(HOUR / 2).await;
    });
    assert_eq!(*dropped.lock(), [0, 1, 2]);
    assert_eq!(done.load(Ordering::Relaxed), 0);
}

#[test]
fn a_core_that_is_asked_to_end_answers_no_more() {
    simulate_on(5, Order::Arrival, 3, |handles| async move {
        let waiting = handles[1].call(std::future::pending::<()>);
        handles[1].stop();
        assert!(waiting.await.is_err());
        assert!(handles[1].call(|| async {}).await.is_err());
        assert!(handles[2].call(|| async {}).await.is_ok());
    });
}

/// Tasks of one core must not have another wait for ever, nor always be ahead of it.
#[test]
fn cores_go_on_side_by_side() {
    simulate_on(6, Order::Arrival, 2, |handles| async move {
        let counts = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        for (handle, count) in handles.iter().zip(&counts) {
            let count = Arc::clone(count);
            let spin = move || async move {
                loop {
                    count.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            };
            handle.spawn(spin).unwrap();
        }
        let mut leads = [false; 2];
        for _ in 0..1000 {
            sleep(Duration::from_micros(10)).await;
            let [a, b] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            leads = [leads[0] | (a > b), leads[1] | (b > a)];
        }
        assert_eq!(leads, [true; 2]);
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 1000));
    });
}
