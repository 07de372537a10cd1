//! What happened: logged, and the latest kept for the management API.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use api::v1::{Event, Severity};

use crate::limits::EVENTS;

/// The latest events, oldest first.
#[derive(Debug, Default)]
pub struct Events {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    next_id: u64,
    events: VecDeque<Event>,
}

impl Events {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs and keeps an event; the oldest makes room.
    pub fn record(&self, severity: Severity, message: impl Into<String>) {
        let message = message.into();
        match severity {
            Severity::Info => tracing::info!("{message}"),
            Severity::Warning => tracing::warn!("{message}"),
            Severity::Error => tracing::error!("{message}"),
        }
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        let mut kept = self.kept();
        let id = kept.next_id;
        kept.next_id += 1;
        if kept.events.len() == EVENTS {
            kept.events.pop_front();
        }
        kept.events.push_back(Event { id, time_ms, severity, message });
    }

    /// The kept events with an id of `from` or more.
    pub fn since(&self, from: u64) -> Vec<Event> {
        self.kept().events.iter().filter(|event| event.id >= from).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_event_makes_room() {
        let events = Events::default();
        for number in 0..EVENTS + 3 {
            events.record(Severity::Info, format!("event {number}"));
        }
        let all = events.since(0);
        assert_eq!((all.len(), all[0].id), (EVENTS, 3));
        assert_eq!(events.since(all[0].id + 1).len(), EVENTS - 1);
    }
}
