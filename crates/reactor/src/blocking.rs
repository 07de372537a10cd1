//! Blocking calls on helper threads: for what the ring cannot do, never for the I/O path.

use crate::driver::require_real;
use crate::error::Gone;
use crate::handle::call_slot;
use crate::limits::BLOCKING_MAX;
use crate::timer::sleep;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

struct Place;

impl Place {
    fn take() -> Option<Self> {
        let more = |n| (n < BLOCKING_MAX).then_some(n + 1);
        RUNNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `call` on a helper thread, waiting while `BLOCKING_MAX` of them are busy.
///
/// # Errors
/// What the call says; that no thread is to be had; always in a simulation.
pub async fn run<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    require_real()?;
    let place = loop {
        match Place::take() {
            Some(place) => break place,
            None => sleep(Duration::from_millis(1)).await,
        }
    };
    run_apart(move || {
        let value = call();
        drop(place);
        value
    })
    .await
}

/// Runs `call` on a thread of its own, which is none of the `BLOCKING_MAX`: whoever calls this bounds how many there
/// are, and by what one of them may hang.
///
/// # Errors
/// As [`run`].
pub(crate) async fn run_apart<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    require_real()?;
    let (mut reply, answer) = call_slot();
    std::thread::Builder::new().name("blocking".into()).spawn(move || reply.give(Ok(call())))?;
    answer.await.unwrap_or_else(|Gone| Err(io::Error::other("a helper thread panicked")))
}
