//! Waiting for a connection manager that may have nothing more to say: of a connection that this end gives up there are
//! no events any more.

use core::future::Future;
use std::sync::Arc;

use reactor::cross_core::Watch;
use reactor::event::Descriptor;

use crate::race;

/// Waits for events; false when there will be none: they fail, or `over` came first.
pub async fn hear(events: &Descriptor, over: impl Future<Output = ()>) -> bool {
    let over = async {
        over.await;
        false
    };
    race(async { events.readable().await.is_ok() }, over).await
}

/// A connection that somebody uses, maybe on another thread. Dropped, nobody waits any more for what there is to hear of
/// it.
#[derive(Default)]
pub struct Used(Arc<Watch<bool>>);

impl Used {
    /// Waits until there is something to hear, or nobody uses it.
    pub fn until_over(&self, events: Descriptor) -> impl Future<Output = ()> + use<> {
        let dropped = Arc::clone(&self.0);
        async move {
            hear(&events, dropped.until(|dropped| dropped.then_some(()))).await;
        }
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        self.0.change(|dropped| *dropped = true);
    }
}

#[cfg(test)]
mod tests {
    use std::io::pipe;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    /// One task and one descriptor stayed for each window that was replaced.
    #[test]
    fn nobody_waits_for_events_of_a_connection_that_is_not_used_any_more() {
        reactor::run(reactor::Config::default(), async {
            let (silent, mut says) = pipe().unwrap();
            let used = Used::default();
            let over = used.until_over(Descriptor::of(silent.as_fd()).unwrap());
            let over = reactor::spawn(over);
            std::thread::spawn(move || drop(used)).join().unwrap();
            reactor::timeout(Duration::from_secs(10), over).await.unwrap();
            // And whoever still uses it hears.
            let used = Used::default();
            let over = used.until_over(Descriptor::of(silent.as_fd()).unwrap());
            std::io::Write::write_all(&mut says, b"!").unwrap();
            reactor::timeout(Duration::from_secs(10), over).await.unwrap();
        })
        .unwrap();
    }
}
