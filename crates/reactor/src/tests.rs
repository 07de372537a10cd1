use crate::sync::{Notify, Semaphore, Signal};
use crate::*;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

fn go<F: Future + 'static>(future: F) -> F::Output
where
    F::Output: 'static,
{
    run(Config::default(), future).unwrap()
}

fn start(name: &str) -> Handle {
    Reactor::start(Config { name: name.into(), ..Config::default() }).unwrap()
}

#[test]
fn tasks_run_join_and_abort() {
    go(async {
        let task = spawn(async { 7 });
        assert_eq!(task.await, Some(7));
        let never = spawn(std::future::pending::<()>());
        yield_now().await;
        assert!(!never.is_finished());
        never.abort();
        assert!(never.is_finished());
        assert_eq!(never.await, None);
    });
}

#[test]
fn an_aborted_task_drops_what_it_holds_and_may_spawn_meanwhile() {
    struct Bomb(Rc<Cell<u32>>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            let seen = Rc::clone(&self.0);
            drop(spawn(async move { seen.set(seen.get() + 1) }));
        }
    }
    let seen = Rc::new(Cell::new(0));
    let inside = Rc::clone(&seen);
    go(async move {
        let bomb = Bomb(Rc::clone(&inside));
        let task = spawn(async move {
            let _bomb = bomb;
            std::future::pending::<()>().await;
        });
        yield_now().await;
        task.abort();
        yield_now().await;
        yield_now().await;
        assert_eq!(inside.get(), 1);
        // Left alive at the end of `run`: its destructor spawns into a reactor that is ending.
        let bomb = Bomb(Rc::clone(&inside));
        drop(spawn(async move {
            let _bomb = bomb;
            std::future::pending::<()>().await;
        }));
    });
    assert_eq!(seen.get(), 1);
}

#[test]
fn a_task_that_aborts_itself_ends_when_it_is_next_pending() {
    go(async {
        let own: Rc<RefCell<Option<Task<()>>>> = Rc::default();
        let after = Rc::new(Cell::new(false));
        let (inner, flag) = (Rc::clone(&own), Rc::clone(&after));
        let task = spawn(async move {
            yield_now().await;
            inner.borrow().as_ref().unwrap().abort();
            flag.set(true);
            yield_now().await;
            unreachable!("aborted");
        });
        *own.borrow_mut() = Some(task);
        for _ in 0..5 {
            yield_now().await;
        }
        assert!(after.get());
        assert!(own.borrow().as_ref().unwrap().is_finished());
    });
}

#[test]
fn turn_end_tasks_run_after_everything_that_could_run() {
    go(async {
        let log: Rc<RefCell<Vec<&str>>> = Rc::default();
        let bell = Rc::new(Notify::new());
        let (l, b) = (Rc::clone(&log), Rc::clone(&bell));
        drop(spawn_late(async move {
            loop {
                b.notified().await;
                l.borrow_mut().push("flush");
            }
        }));
        yield_now().await;
        // The first wakes the flusher, and then a chain of three more that run before it.
        let (l, b) = (Rc::clone(&log), Rc::clone(&bell));
        drop(spawn(async move {
            l.borrow_mut().push("a");
            b.notify();
            let l2 = Rc::clone(&l);
            let b2 = Rc::clone(&b);
            drop(spawn(async move {
                l2.borrow_mut().push("b");
                b2.notify();
                drop(spawn(async move { l2.borrow_mut().push("c") }));
            }));
        }));
        yield_now().await;
        yield_now().await;
        assert_eq!(*log.borrow(), ["a", "b", "c", "flush"]);
    });
}

#[test]
fn sleeping_takes_its_time_and_timeouts_end_waits() {
    go(async {
        let begun = now_exact();
        // Sleeps: that is what is tested.
        sleep(Duration::from_millis(5)).await;
        assert!(now_exact() - begun >= 5_000_000);
        let late = timeout(Duration::from_millis(2), std::future::pending::<()>()).await;
        assert_eq!(late, Err(Elapsed));
        assert_eq!(timeout(Duration::from_secs(60), async { 3 }).await, Ok(3));
        let order: Rc<RefCell<Vec<u64>>> = Rc::default();
        let tasks: Vec<_> = [3u64, 1, 2]
            .map(|ms| {
                let order = Rc::clone(&order);
                spawn(async move {
                    // Sleeps: that is what is tested.
                    sleep(Duration::from_millis(ms)).await;
                    order.borrow_mut().push(ms);
                })
            })
            .into();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.borrow(), [1, 2, 3]);
    });
}

#[test]
fn calls_from_other_threads_are_answered() {
    let reactor = start("calls");
    for n in 0..100u32 {
        assert_eq!(reactor.call(move || async move { n + 1 }).wait(), Ok(n + 1));
    }
    let slow = reactor.call(|| async {
        // Sleeps: an answer that takes time.
        sleep(Duration::from_millis(3)).await;
        "slept"
    });
    assert_eq!(slow.wait(), Ok("slept"));
    reactor.stop();
    reactor.join().unwrap();
}

/// Each scrape of the counters left a thread behind that waited for a stuck reactor for ever.
#[test]
fn who_does_not_answer_is_not_waited_for() {
    let reactor = start("stuck");
    let never = reactor.call(|| async {
        std::future::pending::<()>().await;
        1
    });
    let answered = reactor.call(|| async { 2 });
    let (gone, _) = (start("ends"), ());
    let ended = gone.call(|| async { std::future::pending::<u32>().await });
    gone.stop();
    gone.join().unwrap();
    let answers = wait_for(vec![never, answered, ended], Duration::from_millis(50));
    assert_eq!(answers[0], None);
    assert!(matches!(answers[1], None | Some(Ok(2))));
    assert_eq!(answers[2], Some(Err(Gone)));
    reactor.stop();
    reactor.join().unwrap();
}

#[test]
fn a_stopped_reactor_says_it_is_gone() {
    let reactor = start("gone");
    let never = reactor.call(std::future::pending::<()>);
    reactor.stop();
    assert_eq!(never.wait(), Err(Gone));
    reactor.join().unwrap();
    assert_eq!(reactor.call(|| async {}).wait(), Err(Gone));
    assert_eq!(reactor.spawn(|| async {}), Err(Gone));
}

#[test]
fn a_panic_is_reported_by_join() {
    let reactor = start("panics");
    let call = reactor.call(|| async { panic!("on purpose") });
    assert_eq!(call.wait(), Err::<(), _>(Gone));
    assert!(matches!(reactor.join(), Err(Error::Panicked(name)) if name == "panics"));
}

/// A reactor that panicked was noticed by nobody but whoever joined it: the others waited for it for ever.
#[test]
fn a_panic_is_told_before_anything_is_dropped() {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            assert_eq!(TOLD.load(Ordering::SeqCst), 1, "told first");
            TOLD.store(2, Ordering::SeqCst);
        }
    }
    let tell = |name: &str, why: &str| {
        assert_eq!((name, why), ("told", "on purpose"));
        TOLD.fetch_add(1, Ordering::SeqCst);
    };
    let config = Config { name: "told".into(), ..Config::default() };
    let reactor = Reactor::start_watched(config, tell).unwrap();
    reactor
        .call(|| async {
            let last = Last;
            drop(spawn(async move {
                let _last = last;
                std::future::pending::<()>().await;
            }));
        })
        .wait()
        .unwrap();
    let _ = reactor.call(|| async { panic!("on {}", "purpose") }).wait();
    assert!(reactor.join().is_err());
    assert_eq!(TOLD.load(Ordering::SeqCst), 2);
}

/// A host's writes that waited for data were a task each: at `TASKS_MAX` the reactor panicked.
#[test]
fn tasks_without_number_are_refused_and_leave_room_for_others() {
    go(async {
        let tasks: Vec<_> =
            std::iter::from_fn(|| try_spawn(std::future::pending::<()>())).collect();
        assert_eq!(tasks.len() + 1, TASKS_MAX - crate::limits::TASKS_SPARED);
        assert_eq!(spawn(async { 7 }).await, Some(7));
        tasks[0].abort();
        assert!(try_spawn(async {}).is_some());
    });
}

#[test]
fn wakes_cross_threads_in_both_directions() {
    // Two reactors and a plain thread pass a number round, each waking the next.
    let a = start("a");
    let b = start("b");
    let total = Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (a, b, total) = (a.clone(), b.clone(), Arc::clone(&total));
            std::thread::spawn(move || {
                for _ in 0..200 {
                    let (b, total) = (b.clone(), Arc::clone(&total));
                    let answer = a.call(move || async move {
                        let seen = b.call(|| async { 1 }).await.unwrap();
                        total.fetch_add(seen, Ordering::Relaxed);
                    });
                    answer.wait().unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().unwrap();
    }
    assert_eq!(total.load(Ordering::Relaxed), 800);
    for reactor in [a, b] {
        reactor.stop();
        reactor.join().unwrap();
    }
}

#[test]
fn an_idle_reactor_sleeps() {
    let reactor = start("idle");
    reactor
        .call(|| async {
            // Sleeps: it has to be idle for so long, and then measured for so long.
            sleep(Duration::from_millis(20)).await;
            let before = metrics::here();
            // Sleeps: as above.
            sleep(Duration::from_millis(100)).await;
            let after = metrics::here();
            let slept = after.sleep_nanos - before.sleep_nanos;
            assert!(slept > 90_000_000, "slept only {slept} ns of 100 ms");
            assert!(after.turns - before.turns < 10_000);
        })
        .wait()
        .unwrap();
    reactor.stop();
    reactor.join().unwrap();
}

#[test]
fn a_semaphore_serves_in_order_and_forgets_the_impatient() {
    go(async {
        let semaphore = Rc::new(Semaphore::new(2));
        let order: Rc<RefCell<Vec<u32>>> = Rc::default();
        semaphore.acquire(2).await;
        let mut tasks = Vec::new();
        for (n, amount) in [(0, 2), (1, 1), (2, 1)] {
            let (s, o) = (Rc::clone(&semaphore), Rc::clone(&order));
            tasks.push(spawn(async move {
                s.acquire(amount).await;
                o.borrow_mut().push(n);
            }));
        }
        yield_now().await;
        assert!(!semaphore.try_acquire(1));
        tasks[0].abort();
        semaphore.release(1);
        yield_now().await;
        yield_now().await;
        assert_eq!(*order.borrow(), [1]);
        semaphore.release(1);
        yield_now().await;
        yield_now().await;
        assert_eq!(*order.borrow(), [1, 2]);
        assert_eq!(semaphore.available(), 0);
    });
}

/// 65 000 writes that waited for buffers cost a reactor seconds when they came and when they left: each looked for its
/// place among all the others.
#[test]
fn a_long_line_costs_its_length() {
    struct Own;
    impl std::task::Wake for Own {
        fn wake(self: Arc<Self>) {}
    }
    let (semaphore, signal) = (Semaphore::new(0), Signal::new());
    let before = thread_usage().user;
    let mut waits: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for n in 0..2 * LONG {
        waits.push(match n % 2 {
            0 => Box::pin(semaphore.acquire(1)),
            _ => Box::pin(signal.until(|| false)),
        });
    }
    let wakers: Vec<_> = waits.iter().map(|_| Waker::from(Arc::new(Own))).collect();
    for _ in 0..2 {
        for (wait, waker) in waits.iter_mut().zip(&wakers) {
            assert!(wait.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
    }
    // The impatient leave from the middle, then from the end.
    let mut rest = waits.split_off(waits.len() / 2);
    drop(waits);
    while rest.pop().is_some() {}
    assert!(semaphore.try_acquire(0));
    // Some hundred milliseconds; half a minute and more where each step looks at all of them.
    let spent = thread_usage().user - before;
    assert!(spent < Duration::from_secs(5), "{spent:?}");
}

const LONG: usize = 150_000;

#[test]
fn two_reactors_on_one_thread_are_refused() {
    go(async {
        let inner = std::panic::catch_unwind(|| run(Config::default(), async {}));
        assert!(inner.is_err());
    });
    // The thread is free again.
    go(async {});
}

#[test]
fn an_impossible_cpu_is_named() {
    let config = Config { cpu: Some(100_000), ..Config::default() };
    assert!(matches!(run(config, async {}), Err(Error::Pin { cpu: 100_000, .. })));
}
