//! Living under a service manager: readiness, watchdog, signals.

use std::sync::Arc;
use std::time::Duration;

use api::v1::{Kind, Severity};
use array::limits::{SILENCE, STOP};
use array::node::Node;
use control::MetricsServer;
use sd_notify::NotifyState;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure, Outcome};

/// Time from one look at whether reactors live to the next, while the node stops.
const PULSE: Duration = Duration::from_secs(1);

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
    /// A hang-up is the end of the terminal that the daemon was started in.
    ends_with_terminal: bool,
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
    /// Takes the signals over from now on; with `ends_with_terminal` a hang-up stops.
    pub fn new(ends_with_terminal: bool) -> Outcome<Self> {
        let take = |kind| signal(kind).map_err(|error| Failure::new(Exit::Failed, error));
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hang_up: take(SignalKind::hangup())?,
            ends_with_terminal,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.hang_up.recv() => match self.ends_with_terminal {
                true => Asked::Stop,
                false => Asked::Reload,
            },
        }
    }
}

impl Signals {
    /// Waits until it is asked to stop.
    pub async fn stop(&mut self) {
        while self.next().await != Asked::Stop {}
    }
}

/// Pets the watchdog for as long as every reactor answers in time. Returns at once when there is
/// no watchdog.
pub async fn watchdog(node: Arc<Node>) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let period = (limit / 3).max(Duration::from_millis(10));
    loop {
        match tokio::time::timeout(period, all_answer(&node)).await {
            Ok(true) => notify(&[NotifyState::Watchdog]),
            Ok(false) => return,
            Err(_) => tracing::error!("a reactor has not answered for {} ms", period.as_millis()),
        }
        tokio::time::sleep(period).await;
    }
}

/// Serves metrics over TCP, where the configuration says so. An address that is not there is waited for.
pub async fn serve_metrics(node: Arc<Node>) {
    let Some(address) = node.metrics_address() else { return };
    let mut was_told = false;
    let server = loop {
        match MetricsServer::bind(address).await {
            Ok(server) => break server,
            Err(error) if !was_told => {
                let words = format!("metrics cannot be served on {address} yet: {error}");
                tell(&node, Severity::Error, words).await;
                was_told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(array::limits::SPACE).await;
    };
    let bound = server.local_addr().unwrap_or(address);
    let (severity, who) = match bound.ip().is_loopback() {
        true => (Severity::Info, ""),
        false => {
            (Severity::Warning, ", for whoever reaches it: names of hosts and volumes are in it")
        }
    };
    tell(&node, severity, format!("metrics are served on http://{bound}/metrics{who}")).await;
    if let Err(error) = server.serve(Arc::clone(&node)).await {
        tell(&node, Severity::Error, format!("metrics are no longer served: {error}")).await;
    }
}

/// Records an event, which may wait for the state directory.
pub async fn tell(node: &Arc<Node>, severity: Severity, words: String) {
    let node = Arc::clone(node);
    let _ = tokio::task::spawn_blocking(move || node.tell(severity, words)).await;
}

/// Waits for a sign of life of every reactor; false when one has ended.
async fn all_answer(node: &Node) -> bool {
    let mut all = true;
    for call in node.pulse() {
        all &= call.await.is_ok();
    }
    all
}

/// Waits until an orderly end is waited for no longer, and says why.
pub async fn out_of_patience(node: &Node) -> Outcome<Failure> {
    let mut signals = Signals::new(false)?;
    let silent = async {
        while tokio::time::timeout(SILENCE, all_answer(node)).await.is_ok() {
            tokio::time::sleep(PULSE).await;
        }
    };
    let failure = tokio::select! {
        () = signals.stop() => Failure::new(Exit::Failed, "asked to stop again: ended at once"),
        () = silent => {
            let seconds = SILENCE.as_secs();
            let words = format!("a reactor has not answered for {seconds} s: ended without an order");
            Failure::new(Exit::Reactor, words)
        }
        () = tokio::time::sleep(STOP) => {
            let words = format!("could not end in order within {} s", STOP.as_secs());
            Failure::new(Exit::Failed, words)
        }
    };
    Ok(failure.help("what was acknowledged is in the commit logs, which the next start replays"))
}

/// Has the node look at how its pools are doing and keep what happened, and beside that take up what is late,
/// until it stops. Not on the thread that signals come to: a change that is under way is waited for.
pub async fn watch(node: Arc<Node>) {
    let (looking, runtime) = (Arc::clone(&node), Handle::current());
    let looks = again_and_again(array::limits::SPACE, move || {
        runtime.block_on(looking.look_at_space())?;
        looking.keep_events()?;
        looking.finish_changes()?;
        looking.look_at_hosts()?;
        looking.tell_refused()
    });
    let late = Arc::clone(&node);
    let openings = async {
        tokio::time::sleep(array::limits::SPACE).await;
        // Places that hang hold up nothing but this.
        again_and_again(array::limits::SPACE, move || late.open_late_pools()).await;
    };
    let jobs = async {
        loop {
            tokio::time::sleep(array::limits::JOB_BRIEF).await;
            let keeping = Arc::clone(&node);
            if node.has_jobs_to_keep() {
                // The state directory may hang, too.
                let _ = tokio::task::spawn_blocking(move || keeping.keep_jobs()).await;
            }
        }
    };
    let asking = Arc::clone(&node);
    let hardware = again_and_again(array::limits::SPACE, move || asking.look_at_hardware());
    let running = Arc::clone(&node);
    let schedules =
        again_and_again(array::limits::SCHEDULE_LOOK, move || running.begin_due_schedules());
    tokio::join!(looks, openings, jobs, hardware, schedules);
}

/// Looks, on a thread that may wait, until the node stops. Whatever else goes wrong is told, and is no reason never to look
/// again.
async fn again_and_again(
    pause: Duration,
    look: impl Fn() -> array::Result<()> + Clone + Send + 'static,
) {
    let mut told = String::new();
    loop {
        let wrong = match tokio::task::spawn_blocking(look.clone()).await {
            Ok(Ok(())) => String::new(),
            Ok(Err(error)) if error.kind == Kind::Stopping => return,
            Ok(Err(error)) => error.to_string(),
            Err(ended) if ended.is_panic() => "it panicked".to_owned(),
            Err(_) => return,
        };
        if wrong != told && !wrong.is_empty() {
            tracing::error!("a look at the node's pools failed: {wrong}");
        }
        told = wrong;
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use array::Error;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Drives that came were not taken up for as long as the daemon lived, once one look had failed.
    #[tokio::test]
    async fn one_look_that_fails_is_not_the_last() {
        let looks = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&looks);
        again_and_again(Duration::ZERO, move || match count.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Error::new(Kind::Failed, "no room")),
            1 => panic!("a look that panics, as this test wants"),
            2 => Ok(()),
            _ => Err(Error::new(Kind::Stopping, "the node stops")),
        })
        .await;
        assert_eq!(looks.load(Ordering::Relaxed), 4);
    }
}
