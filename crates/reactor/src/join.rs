//! Waiting for several futures at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

enum Joined<F: Future> {
    Running(Pin<Box<F>>),
    Done(F::Output),
}

/// Runs all of them at once on this task and gives their values in order. Meant for a few at a time:
/// each wake polls every one that still runs.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<Joined<F>> =
        futures.into_iter().map(|f| Joined::Running(Box::pin(f))).collect();
    poll_fn(|cx| {
        let mut running = false;
        for one in &mut all {
            if let Joined::Running(future) = one {
                match future.as_mut().poll(cx) {
                    Poll::Ready(value) => *one = Joined::Done(value),
                    Poll::Pending => running = true,
                }
            }
        }
        if running { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    let values = all.into_iter().filter_map(|one| match one {
        Joined::Done(value) => Some(value),
        Joined::Running(_) => None,
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, run, yield_now};

    #[test]
    fn values_come_in_order_whoever_ends_first() {
        let values = run(Config::default(), async {
            join_all((0..5).map(|n| async move {
                for _ in n..5 {
                    yield_now().await;
                }
                n
            }))
            .await
        });
        assert_eq!(values.unwrap(), [0, 1, 2, 3, 4]);
    }
}
