//! Waiting for whichever of two comes first.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Runs both futures until one is done, the first one first, and drops the other.
pub async fn race<T>(first: impl Future<Output = T>, second: impl Future<Output = T>) -> T {
    let mut first = pin!(first);
    let mut second = pin!(second);
    poll_fn(|cx| match first.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(value),
        Poll::Pending => second.as_mut().poll(cx),
    })
    .await
}
