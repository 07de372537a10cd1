//! Living under a service manager: readiness, watchdog, signals.

use std::sync::Arc;
use std::time::Duration;

use array::node::Node;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure, Outcome};

/// Tells the service manager, if there is one.
pub fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("the service manager was not told: {error}");
    }
}

/// The signals that a daemon answers.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Stop in order.
    Stop,
    /// Read the configuration file again.
    Reload,
}

impl Signals {
    /// Takes the signals over from now on.
    pub fn new() -> Outcome<Self> {
        let take = |kind| signal(kind).map_err(|error| Failure::new(Exit::Failed, error));
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hang_up: take(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.hang_up.recv() => Asked::Reload,
        }
    }
}

/// Pets the watchdog for as long as every reactor answers in time. Returns at once when there is
/// no watchdog.
pub async fn watchdog(node: Arc<Node>) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let period = (limit / 3).max(Duration::from_millis(10));
    loop {
        let Ok(calls) = node.pulse() else { return };
        let all = async {
            for call in calls {
                if call.await.is_err() {
                    return false;
                }
            }
            true
        };
        match tokio::time::timeout(period, all).await {
            Ok(true) => notify(&[NotifyState::Watchdog]),
            Ok(false) => return,
            Err(_) => tracing::error!("a reactor has not answered for {} ms", period.as_millis()),
        }
        tokio::time::sleep(period).await;
    }
}

/// Has the node look at how its pools are doing and keep what happened, and beside that take up what is late,
/// until it stops.
pub async fn watch(node: Arc<Node>) {
    let looks = async {
        while node.look_at_space().await.is_ok()
            && node.keep_events().is_ok()
            && node.tell_refused().is_ok()
        {
            tokio::time::sleep(array::limits::SPACE).await;
        }
    };
    let openings = async {
        loop {
            tokio::time::sleep(array::limits::SPACE).await;
            let late = Arc::clone(&node);
            // Places that hang hold up nothing but this.
            let open = tokio::task::spawn_blocking(move || late.open_late_pools());
            if !matches!(open.await, Ok(Ok(()))) {
                return;
            }
        }
    };
    tokio::join!(looks, openings);
}
