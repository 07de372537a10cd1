//! Admin commands of one device: calls that block, each on a thread of its own, one at a time.
//!
//! A drive that hangs keeps one thread, and none of those that others need. Nobody waits for long behind it.

use crate::blocking::run_apart;
use crate::file::timed_out;
use crate::time::now_exact;
use crate::timer::{Elapsed, sleep, timeout};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often is looked whether the one before is done.
const LOOK: Duration = Duration::from_millis(1);

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// When the call began that the drive has, in nanoseconds; 0 while it has none.
    since: AtomicU64,
}

/// The turn of a call; over when dropped.
struct Turn(Arc<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.since.store(0, Ordering::Release);
    }
}

impl Turns {
    /// Runs `call` when it is its turn, and waits for it, both `within` that time.
    ///
    /// # Errors
    /// What the call says; `TimedOut`, at once where the call before has been with the drive for that long already.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        within: Duration,
        call: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let answer = async {
            let turn = self.begin(within).await?;
            run_apart(move || {
                let _turn = turn;
                call()
            })
            .await
        };
        timeout(within, answer).await.unwrap_or_else(|Elapsed| Err(timed_out()))
    }

    async fn begin(self: &Arc<Self>, within: Duration) -> io::Result<Turn> {
        loop {
            let now = now_exact().max(1);
            let since = &self.since;
            match since.compare_exchange(0, now, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Turn(Arc::clone(self))),
                Err(since) if u128::from(now.saturating_sub(since)) >= within.as_nanos() => {
                    return Err(timed_out());
                }
                Err(_) => sleep(LOOK).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, PollPolicy, now, run};
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    fn on_reactor(test: impl Future<Output = ()> + 'static) {
        run(Config { poll: PollPolicy::Interrupt, ..Config::default() }, test).unwrap()
    }

    /// A drive that hangs, until what is returned is dropped.
    fn hanging() -> (mpsc::Sender<()>, impl FnOnce() -> io::Result<()> + Send) {
        let (end, ended) = mpsc::channel::<()>();
        let hang = move || {
            let _ = ended.recv();
            Ok(())
        };
        (end, hang)
    }

    #[test]
    fn what_a_drive_answers_is_given_to_who_asked_and_the_next_is_asked() {
        on_reactor(async {
            let turns = Arc::new(Turns::default());
            let asks = (0..20).map(|n| {
                let turns = Arc::clone(&turns);
                crate::spawn(async move { turns.run(LONG, move || Ok(n)).await })
            });
            for (n, ask) in asks.collect::<Vec<_>>().into_iter().enumerate() {
                assert_eq!(ask.await.unwrap().unwrap(), n);
            }
            let refused = turns.run(LONG, || Err::<(), _>(io::Error::other("refused"))).await;
            assert_eq!(refused.unwrap_err().to_string(), "refused");
            assert_eq!(turns.run(LONG, || Ok(7)).await.unwrap(), 7);
        });
    }

    /// As many as had waited for it would each have had a thread, and their time.
    #[test]
    fn a_drive_that_hangs_is_waited_for_once_and_costs_others_nothing() {
        on_reactor(async {
            let turns = Arc::new(Turns::default());
            let (end, hang) = hanging();
            let late = turns.run(SHORT, hang).await.unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
            // Whoever comes now is refused at once, and is not asked for.
            let began = now();
            for _ in 0..100 {
                let refused = turns.run(SHORT, || -> io::Result<()> { unreachable!() }).await;
                assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
            }
            assert!(u128::from(now() - began) < LONG.as_nanos() / 2);
            // Other drives have threads.
            let others = (0..50).map(|_| {
                crate::spawn(async { Arc::new(Turns::default()).run(LONG, || Ok(())).await })
            });
            for other in others.collect::<Vec<_>>() {
                other.await.unwrap().unwrap();
            }
            drop(end);
            turns.run(LONG, || Ok(())).await.unwrap();
        });
    }

    #[test]
    fn a_call_that_nobody_waits_for_any_more_keeps_its_turn_until_it_ends() {
        on_reactor(async {
            let turns = Arc::new(Turns::default());
            let (end, hang) = hanging();
            assert!(timeout(SHORT, turns.run(LONG, hang)).await.is_err());
            let refused = turns.run(SHORT, || -> io::Result<()> { unreachable!() }).await;
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
            drop(end);
            turns.run(LONG, || Ok(())).await.unwrap();
        });
    }
}
