//! What waking and polling a task costs: pairs of tasks that wake each other in turn, on our
//! executor and on tokio's.

use reactor::sync::Notify;
use reactor::{Config, PollPolicy, now_exact};
use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use tokio::task::LocalSet;

const PAIRS: usize = 64;
const WAKES: usize = 20_000;

/// Nanoseconds of each wake and the poll it leads to.
fn each(nanos: u64) -> f64 {
    let wakes = f64::from(stdx::num::u32_of(2 * PAIRS * WAKES));
    std::time::Duration::from_nanos(nanos).as_secs_f64() * 1e9 / wakes
}

async fn partner(mine: Rc<Notify>, other: Rc<Notify>) {
    for _ in 0..WAKES {
        mine.notified().await;
        other.notify();
    }
}

fn ours() -> Result<f64, reactor::Error> {
    let config = Config { poll: PollPolicy::Busy, ..Config::default() };
    reactor::run(config, async {
        let begun = now_exact();
        let mut tasks = Vec::new();
        for _ in 0..PAIRS {
            let (a, b) = (Rc::new(Notify::new()), Rc::new(Notify::new()));
            tasks.push(reactor::spawn(partner(Rc::clone(&a), Rc::clone(&b))));
            tasks.push(reactor::spawn(partner(b, Rc::clone(&a))));
            a.notify();
        }
        for task in tasks {
            task.await;
        }
        each(now_exact() - begun)
    })
}

fn tokios() -> Result<f64, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = Rc::new(Cell::new(0.0));
    let out = Rc::clone(&result);
    LocalSet::new().block_on(&runtime, async move {
        let begun = now_exact();
        let mut tasks = Vec::new();
        for _ in 0..PAIRS {
            // Our own notice on both: it is the executors that are compared.
            let (a, b) = (Rc::new(Notify::new()), Rc::new(Notify::new()));
            tasks.push(tokio::task::spawn_local(partner(Rc::clone(&a), Rc::clone(&b))));
            tasks.push(tokio::task::spawn_local(partner(b, Rc::clone(&a))));
            a.notify();
        }
        for task in tasks {
            let _ = task.await;
        }
        out.set(each(now_exact() - begun));
    });
    Ok(result.get())
}

pub fn run(rounds: usize) -> Result<(), Box<dyn Error>> {
    let mut figures = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        figures.0.push(ours()?);
        figures.1.push(tokios()?);
    }
    for list in [&mut figures.0, &mut figures.1] {
        list.sort_by(f64::total_cmp);
    }
    let (a, b) = (figures.0[rounds / 2], figures.1[rounds / 2]);
    println!("a wake and its poll: ours {a:.1} ns, tokio {b:.1} ns, ratio {:.2}", a / b);
    Ok(())
}
