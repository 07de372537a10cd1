//! Connects that were refused: counted by reason, and told to the operator, who has only the host's bare status to go
//! by else. A host that tries without end, or a stranger, fills neither memory nor the list of events.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvme::fabrics::ConnectData;
use nvme::nqn::field_str;
use reactor::Nanos;

use crate::fabrics::Why;
use crate::limits::{REFUSALS_TOLD, REFUSALS_WINDOW_NANOS};

/// A refused Connect, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The host's name as it gave it, or as much of it as can be shown.
    pub host: String,
    /// The subsystem it asked for.
    pub subsystem: String,
    pub peer: SocketAddr,
    pub why: Why,
}

impl Refused {
    pub(crate) fn new(data: &ConnectData, peer: SocketAddr, why: Why) -> Self {
        Self { host: shown(&data.hostnqn), subsystem: shown(&data.subnqn), peer, why }
    }

    /// Whether to tell both would say the same twice: a host tries from ever new ports.
    fn is_like(&self, other: &Self) -> bool {
        self.why == other.why
            && self.peer.ip() == other.peer.ip()
            && self.host == other.host
            && self.subsystem == other.subsystem
    }
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { host, subsystem, peer, why } = self;
        write!(f, "host {host:?} at {peer} was refused by {subsystem:?}: {}", why.words())
    }
}

/// A name as a stranger gave it, whatever it is, without its padding.
fn shown(field: &[u8; nvme::limits::NQN_FIELD_BYTES]) -> String {
    field_str(field).map_or_else(|_| String::from("?"), str::to_owned)
}

/// What was refused since the target was made.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    counts: [u64; Why::COUNT],
    /// Told in this window, to those who ask or still to be asked for.
    window: Vec<Refused>,
    began: Nanos,
    /// Of the window, taken already.
    taken: usize,
    /// Of this window, not told.
    more: u64,
    /// Of windows that are over.
    untold: u64,
}

/// What is to be told of refused Connects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    pub refused: Vec<Refused>,
    /// Further ones of the last while.
    pub more: u64,
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one, and keeps it to be told unless the like of it was, or many were.
    pub fn note(&self, refused: Refused, now: Nanos) {
        let mut state = self.lock();
        state.turn(now);
        state.counts[refused.why.index()] += 1;
        if state.window.len() < REFUSALS_TOLD && !state.window.iter().any(|r| r.is_like(&refused)) {
            state.window.push(refused);
        } else {
            state.more += 1;
        }
    }

    /// What has not been told yet.
    pub fn news(&self, now: Nanos) -> News {
        let mut state = self.lock();
        state.turn(now);
        let refused = state.window[state.taken..].to_vec();
        state.taken = state.window.len();
        News { refused, more: core::mem::take(&mut state.untold) }
    }

    /// How many there were, by reason.
    pub fn counts(&self) -> [u64; Why::COUNT] {
        self.lock().counts
    }
}

impl State {
    /// Begins another window when this one is over and its refusals were told.
    fn turn(&mut self, now: Nanos) {
        if now.saturating_sub(self.began) >= REFUSALS_WINDOW_NANOS
            && self.taken == self.window.len()
        {
            self.untold += core::mem::take(&mut self.more);
            self.window.clear();
            (self.taken, self.began) = (0, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, port: u16, why: Why) -> Refused {
        Refused {
            host: host.to_owned(),
            subsystem: String::from("s"),
            peer: SocketAddr::from(([10, 0, 0, 1], port)),
            why,
        }
    }

    #[test]
    fn a_host_that_tries_without_end_is_told_of_once_in_a_while() {
        let refusals = Refusals::default();
        for port in 0..1000 {
            refusals.note(refused("a", port, Why::HostNotAllowed), 5);
        }
        let news = refusals.news(6);
        assert_eq!(news.refused, [refused("a", 0, Why::HostNotAllowed)]);
        assert_eq!((news.more, refusals.news(7)), (0, News::default()));
        let later = REFUSALS_WINDOW_NANOS + 5;
        let news = refusals.news(later);
        assert_eq!(news, News { refused: Vec::new(), more: 999 });
        refusals.note(refused("a", 2000, Why::HostNotAllowed), later);
        assert_eq!(refusals.news(later).refused.len(), 1);
        assert_eq!(refusals.counts()[Why::HostNotAllowed.index()], 1001);
    }

    #[test]
    fn ever_new_names_are_counted_and_not_kept() {
        let refusals = Refusals::default();
        for name in 0..10_000 {
            refusals.note(refused(&name.to_string(), 1, Why::NoSubsystem), 5);
        }
        assert_eq!(refusals.news(5).refused.len(), REFUSALS_TOLD);
        assert_eq!(refusals.counts()[Why::NoSubsystem.index()], 10_000);
    }
}
