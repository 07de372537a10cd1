use super::*;
use crate::sync::{Notify, Semaphore};
use crate::{
    Config, Reactor, buffer, now, now_exact, sleep, spawn, spawn_late, timeout, yield_now,
};
use std::task::Poll;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn time_jumps_to_the_next_timer() {
    let (slept, late) = simulate(1, async {
        let begun = now();
        let task = spawn(async move {
            sleep(HOUR / 2).await;
            now() - begun
        });
        sleep(HOUR).await;
        assert_eq!(now(), now_exact());
        (task.await.unwrap(), now() - begun)
    });
    let hour = 3_600_000_000_000;
    // A timer may be a few turns late, as a real one.
    assert!(slept >= hour / 2 && slept < hour / 2 + 10 * TURN_NANOS, "{slept}");
    assert!(late >= hour && late < hour + 10 * TURN_NANOS, "{late}");
}

#[test]
fn who_polls_for_a_time_reaches_it() {
    simulate(1, async {
        let deadline = now() + 1_000_000;
        while now() < deadline {
            yield_now().await;
        }
    });
}

/// Many tasks that sleep, take turns, wait for each other and use buffers; what they did, in order.
fn story(seed: u64, order: Order) -> Vec<(u64, u64, u64)> {
    simulate_in(seed, order, async {
        let trace = Rc::new(RefCell::new(Vec::new()));
        let gate = Rc::new(Semaphore::new(2));
        let bell = Rc::new(Notify::new());
        let tasks: Vec<_> = (0..20u64)
            .map(|n| {
                let (trace, gate, bell) = (Rc::clone(&trace), Rc::clone(&gate), Rc::clone(&bell));
                let body = async move {
                    for _ in 0..10 {
                        gate.acquire(1).await;
                        let chance = random();
                        trace.borrow_mut().push((now(), n, chance));
                        let mut space = buffer::alloc(4096).await;
                        space.fill(1);
                        match chance % 3 {
                            0 => sleep(Duration::from_nanos(chance % 100_000)).await,
                            1 => yield_now().await,
                            _ => {
                                let patience = Duration::from_micros(chance % 50);
                                let _ = timeout(patience, bell.notified()).await;
                            }
                        }
                        gate.release(1);
                        bell.notify();
                    }
                };
                if n % 5 == 0 { spawn_late(body) } else { spawn(body) }
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        trace.take()
    })
}

#[test]
fn a_seed_replays_bit_for_bit() {
    for order in [Order::Arrival, Order::Shuffled] {
        let first = story(7, order);
        assert_eq!(first.len(), 200);
        assert_eq!(first, story(7, order));
        assert_ne!(first, story(8, order));
    }
    assert_ne!(story(7, Order::Arrival), story(7, Order::Shuffled));
}

#[test]
fn shuffling_runs_everyone_and_not_in_order() {
    let ran = simulate_in(3, Order::Shuffled, async {
        let ran = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..100)
            .map(|n| {
                let ran = Rc::clone(&ran);
                spawn(async move { ran.borrow_mut().push(n) })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        ran.take()
    });
    let mut sorted = ran.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    assert_ne!(ran, sorted);
}

#[test]
#[should_panic(expected = "deadlock in simulation: 2 tasks wait and no timer is armed (seed 9,")]
fn a_deadlock_is_told() {
    simulate(9, async {
        let never = spawn(std::future::pending::<()>());
        never.await;
    });
}

#[test]
fn other_threads_reach_it_by_wakes() {
    simulate(1, async {
        let (mut reply, call) = crate::handle::call_slot();
        std::thread::spawn(move || reply.give(Ok(7)));
        // Without it, virtual time would find nothing to do while the real thread works.
        let keep = spawn(async {
            loop {
                yield_now().await;
            }
        });
        assert_eq!(call.await, Ok(7));
        keep.abort();
    });
}

#[test]
fn nothing_reaches_out_of_it() {
    let path = std::env::current_exe().unwrap();
    simulate(1, async move {
        let unsupported = std::io::ErrorKind::Unsupported;
        let open = crate::file::File::open(&path, crate::file::OpenOptions::default());
        assert_eq!(open.unwrap_err().kind(), unsupported);
        let socket = crate::net::UnixListener::bind(&path.with_extension("socket"));
        assert_eq!(socket.unwrap_err().kind(), unsupported);
        assert!(Reactor::start(Config::default()).is_err());
        assert!(is_simulated());
    });
    assert!(!is_simulated());
}

/// A file opened outside may not be used inside either: nothing would ever complete it.
#[test]
fn files_from_outside_are_refused_inside() {
    let path = std::env::current_exe().unwrap();
    let options = crate::file::OpenOptions { write: false, direct: false, ..Default::default() };
    let file = crate::file::File::open(&path, options).unwrap();
    simulate(1, async move {
        let (read, buffer) = file.read_at(buffer::alloc(512).await, 0).await;
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::Unsupported);
        assert_eq!(buffer.unwrap().len(), 512);
    });
}

#[test]
#[should_panic(expected = "no seeded chance outside a simulation")]
fn a_real_reactor_has_no_seeded_chance() {
    let _ = crate::run(Config::default(), async { random() });
}

#[test]
fn tasks_left_over_are_dropped_and_the_thread_is_free_again() {
    struct Told(Rc<Cell<bool>>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let told = Rc::new(Cell::new(false));
    let inside = Rc::clone(&told);
    simulate(1, async move {
        let told = Told(inside);
        drop(spawn(async move {
            let _told = told;
            sleep(HOUR).await;
        }));
        yield_now().await;
    });
    assert!(told.get());
    simulate(2, async {});
}

/// The next reactor may well have its place in the registry, and the same slot.
#[test]
fn a_waker_left_over_wakes_nobody_of_the_next() {
    let left = simulate(1, std::future::poll_fn(|cx| Poll::Ready(cx.waker().clone())));
    let polls = simulate(2, async move {
        let mut polls = 0;
        let mut hour = std::pin::pin!(sleep(HOUR));
        std::future::poll_fn(|cx| {
            polls += 1;
            left.wake_by_ref();
            hour.as_mut().poll(cx)
        })
        .await;
        polls
    });
    assert_eq!(polls, 2, "the first and that of the timer");
}
