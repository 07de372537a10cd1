//! Groups of the machine by their names. They may be a directory service's, which may be slow, or away: the C library
//! waits for it as long as it is configured to, or for ever.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::limits::{GROUP_LOOKUPS, GROUP_PATIENCE};

/// Lookups that were not answered yet.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// The number of the group `name`; `None` where there is none.
///
/// # Errors
/// As [`reactor::group`]; `TimedOut` where that takes too long.
pub fn look_up(name: &str) -> io::Result<Option<u32>> {
    let name = name.to_owned();
    within(&UNDER_WAY, GROUP_PATIENCE, move || reactor::group(&name))?
}

/// What `look` gives, on a thread of its own, of which there are a few at most.
fn within<T: Send + 'static>(
    under_way: &'static AtomicUsize,
    patience: Duration,
    look: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "there is no answer");
    if under_way.fetch_add(1, Ordering::Relaxed) >= GROUP_LOOKUPS {
        under_way.fetch_sub(1, Ordering::Relaxed);
        return Err(late());
    }
    let (told, answer) = mpsc::sync_channel(1);
    let looking = thread::Builder::new().name("look-up-group".to_owned()).spawn(move || {
        let found = look();
        under_way.fetch_sub(1, Ordering::Relaxed);
        // Nobody may be waiting any more.
        let _ = told.send(found);
    });
    if let Err(error) = looking {
        under_way.fetch_sub(1, Ordering::Relaxed);
        return Err(error);
    }
    answer.recv_timeout(patience).map_err(|_| late())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is asked at each start and each reload.
    #[test]
    fn a_directory_service_that_does_not_answer_is_waited_for_a_moment_and_has_few_threads() {
        static UNANSWERED: AtomicUsize = AtomicUsize::new(0);
        let (hold, held) = mpsc::channel::<()>();
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
        for _ in 0..2 * GROUP_LOOKUPS {
            let held = std::sync::Arc::clone(&held);
            let hangs = move || held.lock().unwrap().recv().is_err();
            let late = within(&UNANSWERED, Duration::from_millis(1), hangs).unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
            assert!(UNANSWERED.load(Ordering::Relaxed) <= GROUP_LOOKUPS);
        }
        drop(hold);
        while UNANSWERED.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        let patient = Duration::from_secs(60);
        assert_eq!(within(&UNANSWERED, patient, || 7).unwrap(), 7);
        assert_eq!(look_up("root").unwrap(), Some(0));
    }
}
