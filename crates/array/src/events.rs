//! What happened: logged, and kept in the state directory; the latest are in memory for the management API.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use api::v1::{Event, Severity};

use crate::limits::{EVENTS, EVENTS_BYTES};
use crate::state::{append_file, read_file};

/// The newest events, a JSON document a line, and those before them: the file that the newest replaced.
const FILES: [&str; 2] = ["events.jsonl", "events.1.jsonl"];

thread_local! {
    /// On whose behalf this thread works.
    static CALLER: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Works on behalf of `who`: what is recorded meanwhile says so.
pub fn on_behalf_of<T>(who: Option<String>, work: impl FnOnce() -> T) -> T {
    let before = CALLER.replace(who);
    let done = work();
    CALLER.set(before);
    done
}

/// On whose behalf this thread works, if it does.
pub fn caller() -> Option<String> {
    CALLER.with_borrow(Clone::clone)
}

/// Milliseconds since 1970-01-01 00:00:00 UTC.
pub fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// The events of a node.
#[derive(Debug)]
pub struct Events {
    /// Whoever records waits for the file, whoever reads does not.
    file: Mutex<Journal>,
    kept: Mutex<VecDeque<Event>>,
}

/// Where they are kept.
#[derive(Debug)]
struct Journal {
    dir: PathBuf,
    /// `None` when it cannot be written: that was logged.
    file: Option<File>,
    bytes: u64,
    next_id: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The events in a file. One that was being written when the machine stopped is left out.
fn read(file: &Path) -> Vec<Event> {
    // A line longer than the bound may be at its end.
    match read_file(file, 2 * EVENTS_BYTES) {
        Ok(text) => text
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            tracing::warn!("{} is not read: {error}", file.display());
            Vec::new()
        }
    }
}

impl Events {
    /// Those that the state directory `dir` has, to go on with.
    pub fn open(dir: &Path) -> Self {
        let [newest, before] = FILES.map(|name| dir.join(name));
        let mut kept: VecDeque<_> = read(&before).into_iter().chain(read(&newest)).collect();
        kept.drain(..kept.len().saturating_sub(EVENTS));
        let next_id = kept.back().map_or(0, |event| event.id + 1);
        let mut journal = Journal { dir: dir.to_owned(), file: None, bytes: 0, next_id };
        journal.open();
        Self { file: Mutex::new(journal), kept: Mutex::new(kept) }
    }

    /// Logs and keeps an event; the oldest makes room.
    pub fn record(&self, severity: Severity, message: impl Into<String>) {
        let message = message.into();
        match severity {
            Severity::Info => tracing::info!("{message}"),
            Severity::Warning => tracing::warn!("{message}"),
            Severity::Error => tracing::error!("{message}"),
        }
        let mut journal = locked(&self.file);
        let id = journal.next_id;
        journal.next_id += 1;
        let event = Event { id, time_ms: now_ms(), severity, message, by: caller() };
        // Readers see it before the file has it.
        let mut kept = locked(&self.kept);
        if kept.len() == EVENTS {
            kept.pop_front();
        }
        kept.push_back(event.clone());
        drop(kept);
        journal.write(&event);
    }

    /// The kept events with an id of `from` or more.
    pub fn since(&self, from: u64) -> Vec<Event> {
        locked(&self.kept).iter().filter(|event| event.id >= from).cloned().collect()
    }
}

impl Journal {
    fn open(&mut self) {
        let path = self.dir.join(FILES[0]);
        let opened = append_file(&path).and_then(|mut file| {
            let bytes = file.metadata()?.len();
            // What was torn is a line of its own.
            if bytes > 0 {
                file.write_all(b"\n")?;
            }
            Ok((file, bytes))
        });
        match opened {
            Ok((file, bytes)) => (self.file, self.bytes) = (Some(file), bytes),
            Err(error) => {
                self.file = None;
                tracing::error!("events are not kept over a restart: {}: {error}", path.display());
            }
        }
    }

    /// Not synced: what a power cut takes is in the log.
    fn write(&mut self, event: &Event) {
        if self.bytes >= EVENTS_BYTES {
            let [newest, before] = FILES.map(|name| self.dir.join(name));
            if let Err(error) = fs::rename(newest, before) {
                tracing::error!("events are not kept apart: {error}");
            }
            self.bytes = 0;
            self.open();
        }
        let Some(file) = &mut self.file else { return };
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        match file.write_all(&line) {
            Ok(()) => self.bytes += stdx::num::u64_of(line.len()),
            Err(error) => {
                self.file = None;
                tracing::error!("events are not kept over a restart any more: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_event_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::open(dir.path());
        for number in 0..EVENTS + 3 {
            events.record(Severity::Info, format!("event {number}"));
        }
        let all = events.since(0);
        assert_eq!((all.len(), all[0].id), (EVENTS, 3));
        assert_eq!(events.since(all[0].id + 1).len(), EVENTS - 1);
    }

    /// Events were gone with every restart, and their ids began anew.
    #[test]
    fn events_go_on_after_a_restart_and_say_who_did_it() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::open(dir.path());
        events.record(Severity::Info, "first");
        on_behalf_of(Some("uid 7".to_owned()), || events.record(Severity::Warning, "second"));
        drop(events);
        // The machine stopped in the midst of a third.
        append_file(&dir.path().join(FILES[0])).unwrap().write_all(b"{\"id\": 2, \"ti").unwrap();
        let events = Events::open(dir.path());
        events.record(Severity::Info, "third");
        drop(events);
        let all = Events::open(dir.path()).since(0);
        let told: Vec<_> = all.iter().map(|e| (e.id, &*e.message, e.by.as_deref())).collect();
        assert_eq!(told, [(0, "first", None), (1, "second", Some("uid 7")), (2, "third", None)]);
    }

    #[test]
    fn files_of_events_stay_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::open(dir.path());
        let long = "x".repeat(64 << 10);
        let most = 3 * EVENTS_BYTES / (64 << 10);
        (0..most).for_each(|_| events.record(Severity::Info, &*long));
        let bytes = FILES.map(|name| fs::metadata(dir.path().join(name)).unwrap().len());
        assert!(bytes.iter().all(|bytes| *bytes <= EVENTS_BYTES + (65 << 10)), "{bytes:?}");
        drop(events);
        let all = Events::open(dir.path()).since(0);
        assert_eq!(all.last().unwrap().id, most - 1);
    }
}
