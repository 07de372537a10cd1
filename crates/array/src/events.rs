//! What happened: logged, and kept in the state directory; the latest are in memory for the management API.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::v1::{Event, Severity};

use crate::limits::{EVENTS, EVENTS_BYTES};
use crate::state::{append_file, read_file, set_aside};

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
    kept: Mutex<Kept>,
    /// There is a new one, or no more come.
    news: Condvar,
}

/// The latest.
#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Event>,
    /// The node has stopped: nobody needs to wait for more.
    ended: bool,
}

impl Kept {
    /// Those with an id of `from` or more that matter as much as `least`, the newest first.
    fn newest(&self, from: u64, least: Severity) -> impl Iterator<Item = &Event> {
        let since = self.events.iter().rev().take_while(move |event| event.id >= from);
        since.filter(move |event| event.severity >= least)
    }

    fn since(&self, from: u64, least: Severity) -> Vec<Event> {
        let mut all: Vec<_> = self.newest(from, least).cloned().collect();
        all.reverse();
        all
    }
}

/// Where they are kept.
#[derive(Debug)]
struct Journal {
    dir: PathBuf,
    /// `None` until it is written to, and when that failed.
    file: Option<File>,
    bytes: u64,
    next_id: u64,
    /// It was told that it cannot be written.
    was_told: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The events in a file, and how many of its lines are none: one that was being written when the machine stopped, or
/// more where somebody wrote over them.
fn read(file: &Path) -> io::Result<(Vec<Event>, usize)> {
    let text = match read_file(file, 2 * EVENTS_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        text => text?,
    };
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let (mut events, mut others) = (Vec::new(), 0);
    for line in lines {
        match serde_json::from_slice::<Event>(line) {
            // Whoever counts on from there does not come to the end.
            Ok(event) if event.id <= u64::MAX / 2 => events.push(event),
            _ => others += 1,
        }
    }
    match events.is_empty() && others > 1 {
        true => Err(io::Error::other("it has no events")),
        false => Ok((events, others)),
    }
}

impl Events {
    /// Those that the state directory `dir` has, to go on with. A file that is none of them is set aside, and told of.
    pub fn open(dir: &Path) -> Self {
        let (mut kept, mut said) = (VecDeque::new(), Vec::new());
        // Those before the newest first.
        for name in FILES.into_iter().rev() {
            let file = dir.join(name);
            match read(&file) {
                Ok((events, others)) => {
                    kept.extend(events);
                    if others > 1 {
                        said.push(format!(
                            "{others} lines of {} are no events, and left out",
                            file.display()
                        ));
                    }
                }
                Err(error) => said.push(set_aside(&file, &error)),
            }
        }
        kept.drain(..kept.len().saturating_sub(EVENTS));
        let newest = kept.iter().map(|event: &Event| event.id).max();
        let next_id = newest.map_or(0, |id| id + 1);
        let journal =
            Journal { dir: dir.to_owned(), file: None, bytes: 0, next_id, was_told: false };
        let kept = Mutex::new(Kept { events: kept, ended: false });
        let events = Self { file: Mutex::new(journal), kept, news: Condvar::new() };
        said.into_iter().for_each(|words| events.record(Severity::Warning, words));
        events
    }

    /// Logs and keeps an event; the oldest makes room.
    pub fn record(&self, severity: Severity, message: impl Into<String>) {
        let mut journal = locked(&self.file);
        let event = journal.next(severity, message.into());
        // Readers see it before the file has it.
        self.keep(event.clone());
        let Err(error) = journal.write(&event) else {
            journal.was_told = false;
            return;
        };
        // Once: every event would say it.
        if !std::mem::replace(&mut journal.was_told, true) {
            let words = format!("events are not kept over a restart for now: {error}");
            let told = journal.next(Severity::Error, words);
            self.keep(told);
        }
    }

    fn keep(&self, event: Event) {
        let mut kept = locked(&self.kept);
        if kept.events.len() == EVENTS {
            kept.events.pop_front();
        }
        kept.events.push_back(event);
        self.news.notify_all();
    }

    /// Says that no more come: whoever waits for one is answered.
    pub fn end(&self) {
        locked(&self.kept).ended = true;
        self.news.notify_all();
    }

    /// The kept events with an id of `from` or more.
    pub fn since(&self, from: u64) -> Vec<Event> {
        self.wait_since(from, Severity::Info, Duration::ZERO)
    }

    /// Likewise those that matter as much as `least` or more. Waits until there is one, no more come, or `limit` has
    /// passed: there is none then.
    pub fn wait_since(&self, from: u64, least: Severity, limit: Duration) -> Vec<Event> {
        let is_awaited = |kept: &mut Kept| !kept.ended && kept.newest(from, least).next().is_none();
        let waited = self.news.wait_timeout_while(locked(&self.kept), limit, is_awaited);
        let (kept, _) = waited.unwrap_or_else(PoisonError::into_inner);
        kept.since(from, least)
    }
}

impl Journal {
    fn next(&mut self, severity: Severity, message: String) -> Event {
        match severity {
            Severity::Info => tracing::info!("{message}"),
            Severity::Warning => tracing::warn!("{message}"),
            Severity::Error => tracing::error!("{message}"),
        }
        let id = self.next_id;
        self.next_id += 1;
        Event { id, time_ms: now_ms(), severity, message, by: caller() }
    }

    /// Opens the file if need be.
    fn file(&mut self) -> io::Result<&mut File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let mut file = append_file(&self.dir.join(FILES[0]))?;
                self.bytes = file.metadata()?.len();
                // What was torn is a line of its own.
                if self.bytes > 0 {
                    file.write_all(b"\n")?;
                }
                file
            }
        };
        Ok(self.file.insert(file))
    }

    /// Not synced: what a power cut takes is in the log. What fails is tried again with the next event.
    fn write(&mut self, event: &Event) -> io::Result<()> {
        if self.bytes >= EVENTS_BYTES {
            let [newest, before] = FILES.map(|name| self.dir.join(name));
            (self.file, self.bytes) = (None, 0);
            fs::rename(newest, before)?;
        }
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        let written = self.file()?.write_all(&line);
        match &written {
            Ok(()) => self.bytes += stdx::num::u64_of(line.len()),
            Err(_) => self.file = None,
        }
        written
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
    fn who_waits_for_events_is_told_at_once_and_waits_for_none_after_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::open(dir.path());
        let long = Duration::from_secs(600);
        events.record(Severity::Info, "first");
        assert_eq!(events.wait_since(1, Severity::Info, Duration::ZERO), []);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| events.wait_since(0, Severity::Warning, long));
            events.record(Severity::Info, "second");
            events.record(Severity::Error, "third");
            let told: Vec<_> = waiter.join().unwrap().into_iter().map(|e| e.message).collect();
            assert_eq!(told, ["third"]);
            let waiter = scope.spawn(|| events.wait_since(3, Severity::Info, long));
            events.end();
            assert_eq!(waiter.join().unwrap(), []);
        });
        assert_eq!(events.wait_since(3, Severity::Info, long), []);
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
    /// What somebody had written over the files, or put in their place, must not keep a daemon from starting.
    #[test]
    fn files_that_are_not_of_events_are_set_aside_and_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::write(dir.join(FILES[0]), b"\0\xff\nnothing\nof this\n").unwrap();
        fs::create_dir(dir.join(FILES[1])).unwrap();
        let events = Events::open(dir);
        let all = events.since(0);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(FILES.iter().all(|name| dir.join(format!("{name}.damaged")).exists()));
        drop(events);
        assert_eq!(Events::open(dir).since(0), all, "told once");
    }

    #[test]
    fn events_are_written_again_when_they_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("away");
        let events = Events::open(&dir);
        events.record(Severity::Info, "first");
        events.record(Severity::Info, "second");
        let said: Vec<_> = events.since(0).into_iter().map(|event| event.message).collect();
        assert_eq!((said.len(), &*said[0], &*said[2]), (3, "first", "second"));
        assert!(said[1].contains("not kept over a restart"), "{said:?}");
        fs::create_dir(&dir).unwrap();
        events.record(Severity::Info, "third");
        drop(events);
        let kept = Events::open(&dir).since(0);
        assert_eq!((kept.len(), &*kept[0].message, kept[0].id), (1, "third", 3));
    }
}
