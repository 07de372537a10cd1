//! One seed: all lives of one array.

use crate::array::Seen;
use crate::life::{Counts, Run, crash, live, lose_log};
use crate::mode::Mode;
use crate::model::Violation;
use crate::network::{self, Truth};
use crate::plan::{Ending, Plan};
use crate::world::{Subject, World};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use stdx::num::u64_of;

/// How often drives go elsewhere after each life.
const FORKS: u64 = 2;

/// How a run went.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// Two runs of a seed have the same.
    pub trace: u64,
    pub events: u64,
    pub counts: Counts,
    pub seen: Seen,
    /// What went wrong, and in which life.
    pub failure: Option<(usize, String)>,
}

/// Runs what `seed` means on `subject`. With `echo` every event is printed.
pub fn run(subject: Subject, seed: u64, echo: bool) -> Report {
    carry_out(subject, Mode::Plain.plan(seed), echo)
}

/// Carries out a plan on `subject`. With `echo` every event is printed.
pub fn carry_out(subject: Subject, plan: Plan, echo: bool) -> Report {
    if echo {
        println!("{plan:#?}");
    }
    let world = World::new(subject, &plan);
    let run = Run::new(plan, world, echo);
    if let Subject::Host(canary) = subject {
        run.windows.plant(canary);
    }
    let failure = lives(&run);
    let trace = run.trace.borrow();
    let counts = *run.counts.borrow();
    let seen = run.world.seen();
    Report { trace: trace.hash(), events: trace.events(), counts, seen, failure }
}

fn lives(run: &Rc<Run>) -> Option<(usize, String)> {
    let truth = Rc::new(Truth::default());
    for (number, &ending) in run.plan.lives.iter().enumerate() {
        let seed = run.plan.seed ^ (u64_of(number) + 1) << 48;
        let life = || {
            lose_log(run, number);
            if one(run, &truth, seed, number, ending)? {
                crash(run, number, ending);
            } else {
                run.end_hosts();
            }
            run.end_process(number);
            let world = Rc::clone(run);
            reactor::simulate(seed, async move { world.world.check().await }).map_err(Violation)?;
            start_anew(run, seed, number).map_err(Violation)
        };
        match catch_unwind(AssertUnwindSafe(life)) {
            Ok(Ok(())) => {}
            Ok(Err(violation)) => return Some((number, violation.0)),
            Err(panic) => return Some((number, format!("panicked: {}", message(&*panic)))),
        }
    }
    None
}

/// A daemon starts with whatever is there after a life, and so does one on another machine: on copies.
fn start_anew(run: &Rc<Run>, seed: u64, number: usize) -> Result<(), String> {
    let model = run.model.borrow().clone();
    for start in run.world.starts(&model, number) {
        let run = Rc::clone(run);
        reactor::simulate(seed, async move { run.world.try_start(start).await })?;
    }
    for nth in 0..FORKS {
        if let Some(fork) = run.world.fork(&model, number, nth) {
            let both = fork.play(seed)?;
            run.counts.borrow_mut().forks += u64::from(both);
        }
    }
    Ok(())
}

/// One life: whether it ended in a crash.
fn one(
    run: &Rc<Run>,
    truth: &Rc<Truth>,
    seed: u64,
    number: usize,
    ending: Ending,
) -> Result<bool, Violation> {
    let Plan { reactors, network, .. } = run.plan;
    let (order, run) = (run.plan.order(), Rc::clone(run));
    if network {
        let truth = Rc::clone(truth);
        let life = |reactors| network::live(run, truth, reactors, number, ending);
        return reactor::simulate_on(seed, order, reactors, life);
    }
    let life = |reactors| live(run, reactors, number, ending);
    reactor::simulate_on(seed, order, reactors, life)
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests;
