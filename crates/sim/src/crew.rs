//! Many seeds side by side, with a word now and then on how far they are.

use crate::mode::Mode;
use crate::run::{Report, carry_out};
use crate::world::Subject;
use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often progress is told.
const TELLS: Duration = Duration::from_secs(10);

/// A seed that takes longer goes round in circles: the slowest take some ten seconds.
const ENDLESS: Duration = Duration::from_mins(5);

/// One seed of one workload.
pub type Job = (Mode, u64);

/// What came of it.
pub struct Outcome {
    pub job: Job,
    pub failure: Option<(usize, String)>,
}

#[derive(Default)]
struct Tally {
    done: BTreeMap<Mode, u64>,
    failed: u64,
}

enum Word {
    /// With a number of its own, and since when.
    Begun(u64, Job, Instant),
    Done(u64, Box<(Job, Report)>),
    /// A thread has nothing more to do.
    Idle,
}

/// Runs `jobs` on so many threads, and hands every failure to `failed` as it comes: a seed that does not end is one,
/// and its thread is left to itself. Gives how many seeds were run, and how many of them failed.
pub fn run(
    subject: Subject,
    jobs: impl Iterator<Item = Job> + Send + 'static,
    threads: usize,
    mut failed: impl FnMut(&Outcome),
) -> (u64, u64) {
    let (tell, words) = channel();
    let jobs = Arc::new(Mutex::new((0..).zip(jobs)));
    for _ in 0..threads {
        let (tell, jobs) = (tell.clone(), Arc::clone(&jobs));
        std::thread::spawn(move || work(subject, &jobs, &tell));
    }
    let (begun, mut tally) = (real_now(), Tally::default());
    let (mut running, mut busy, mut told) = (BTreeMap::new(), threads, begun);
    while busy > 0 {
        match words.recv_timeout(TELLS) {
            Ok(Word::Begun(number, job, at)) => _ = running.insert(number, (job, at)),
            Ok(Word::Done(number, done)) => {
                let (job, report) = *done;
                if running.remove(&number).is_some() {
                    tally.add(&Outcome { job, failure: report.failure }, &mut failed);
                }
            }
            Ok(Word::Idle) => busy -= 1,
            Err(_) => {}
        }
        let endless = running.iter().find(|(_, (_, since))| since.elapsed() > ENDLESS);
        if let Some((&number, &(job, _))) = endless {
            running.remove(&number);
            // Its thread is left to itself, and another goes on with the rest.
            let (tell, jobs) = (tell.clone(), Arc::clone(&jobs));
            std::thread::spawn(move || work(subject, &jobs, &tell));
            let failure = Some((0, format!("it does not end within {ENDLESS:?}")));
            tally.add(&Outcome { job, failure }, &mut failed);
        }
        if told.elapsed() >= TELLS {
            told = real_now();
            eprintln!("{}", tally.tell(begun.elapsed()));
        }
    }
    eprintln!("{}", tally.tell(begun.elapsed()));
    (tally.done.values().sum(), tally.failed)
}

/// The time outside of all simulations.
#[allow(clippy::disallowed_methods, reason = "how long people wait is not simulated")]
pub fn real_now() -> Instant {
    Instant::now()
}

fn work(subject: Subject, jobs: &Mutex<impl Iterator<Item = (u64, Job)>>, tell: &Sender<Word>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((number, job)) = next else {
            let _ = tell.send(Word::Idle);
            return;
        };
        let (mode, seed) = job;
        // Nobody listens once it is over.
        let _ = tell.send(Word::Begun(number, job, real_now()));
        let report = carry_out(subject, mode.plan(seed), false);
        let _ = tell.send(Word::Done(number, Box::new((job, report))));
    }
}

impl Tally {
    fn add(&mut self, outcome: &Outcome, failed: &mut impl FnMut(&Outcome)) {
        *self.done.entry(outcome.job.0).or_default() += 1;
        if outcome.failure.is_some() {
            self.failed += 1;
            failed(outcome);
        }
    }

    fn tell(&self, since: Duration) -> String {
        let done: u64 = self.done.values().sum();
        let each: Vec<String> = self.done.iter().map(|(mode, n)| format!("{mode:?} {n}")).collect();
        let rate = rate(done, since);
        let (each, failed) = (each.join(", "), self.failed);
        format!("{done} seeds ({each}) in {} s, {rate} a second, {failed} failed", since.as_secs())
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people to read")]
fn rate(done: u64, since: Duration) -> String {
    format!("{:.1}", done as f64 / since.as_secs_f64().max(0.001))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Lie;

    /// A run of many seeds said nothing until its end, so that nobody knew how many it had made.
    #[test]
    fn every_seed_is_run_once_and_failures_are_handed_on() {
        let jobs = || (0..10).map(|seed| (Mode::Plain, seed));
        let truth = Subject::Reference(Lie::None);
        assert_eq!(run(truth, jobs(), 3, |_| unreachable!("the truth")), (10, 0));
        let mut seen = Vec::new();
        let lie = Subject::Reference(Lie::ForgetsZeroes);
        let (done, failed) = run(lie, jobs(), 3, |outcome| seen.push(outcome.job.1));
        assert_eq!((done, failed), (10, seen.len() as u64));
        assert!(!seen.is_empty());
        let again = seen
            .iter()
            .filter(|seed| carry_out(lie, Mode::Plain.plan(**seed), false).failure.is_some());
        assert_eq!(again.count(), seen.len());
    }
}
