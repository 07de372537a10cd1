//! Lines of the log on their way to standard error. Whoever logs, a reactor among them, waits for nobody who should take
//! them: a terminal that was stopped, a pipe that nobody reads, a journal whose disk hangs.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait at most. One more is lost, and counted.
const LINES: usize = 4096;

/// How long the last words of a process are waited for, and errors while lines are taken: what comes next may be its end.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The queue of this process, once there is one.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Where lines go.
#[derive(Clone, Debug)]
pub struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    lines: SyncSender<Item>,
    lost: AtomicU64,
    /// Nobody took the line that was waited for last.
    is_stuck: AtomicBool,
}

enum Item {
    Line(Vec<u8>),
    /// Tells that all before it are written.
    Mark(SyncSender<()>),
}

impl Queue {
    /// A queue whose lines a thread of its own writes to `out`.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn to(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, taken) = mpsc::sync_channel(LINES);
        let shared =
            Arc::new(Shared { lines, lost: AtomicU64::new(0), is_stuck: AtomicBool::new(false) });
        let of = Arc::clone(&shared);
        thread::Builder::new().name("log".to_owned()).spawn(move || write(&of, &taken, out))?;
        Ok(Self(shared))
    }

    /// The queue of this process, to standard error; `None` when there can be none.
    pub fn of_process() -> Option<Self> {
        if QUEUE.get().is_none() {
            let _ = QUEUE.set(Self::to(io::stderr()).ok()?);
        }
        QUEUE.get().cloned()
    }

    fn line(&self, is_error: bool) -> Line {
        Line { queue: self.clone(), text: Vec::new(), is_error }
    }

    fn put(&self, line: Vec<u8>) {
        if self.0.lines.try_send(Item::Line(line)).is_err() {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, for a while.
    fn settle(&self) {
        if self.0.is_stuck.load(Ordering::Relaxed) {
            return;
        }
        let (mark, written) = mpsc::sync_channel(1);
        let is_written = self.0.lines.try_send(Item::Mark(mark)).is_ok()
            && written.recv_timeout(LAST_WORDS).is_ok();
        self.0.is_stuck.store(!is_written, Ordering::Relaxed);
    }
}

/// What was logged is to be written before the process ends.
pub fn settle() {
    if let Some(queue) = QUEUE.get() {
        queue.settle();
    }
}

fn write(shared: &Shared, taken: &Receiver<Item>, mut out: impl Write) {
    loop {
        let item = match taken.try_recv() {
            Ok(item) => item,
            // Not before all is taken: as long as lines wait, nobody waits behind them.
            Err(_) => {
                shared.is_stuck.store(false, Ordering::Relaxed);
                let Ok(item) = taken.recv() else { return };
                item
            }
        };
        match item {
            // A line that cannot be written is told to nobody: there is nowhere else.
            Item::Line(line) => _ = out.write_all(&line),
            Item::Mark(mark) => _ = mark.send(()),
        }
        let lost = shared.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(out, "flashloom: {lost} lines of the log are lost: nobody took them");
        }
    }
}

/// One event.
#[derive(Debug)]
pub struct Line {
    queue: Queue,
    text: Vec<u8>,
    is_error: bool,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.queue.put(std::mem::take(&mut self.text));
        if self.is_error {
            self.queue.settle();
        }
    }
}

impl<'w> MakeWriter<'w> for Queue {
    type Writer = Line;

    fn make_writer(&'w self) -> Line {
        self.line(false)
    }

    fn make_writer_for(&'w self, of: &Metadata<'_>) -> Line {
        self.line(*of.level() == Level::ERROR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes what it is given once it is let.
    struct Gate {
        opens: Receiver<()>,
        is_open: bool,
        taken: SyncSender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.is_open {
                self.opens.recv().unwrap();
                self.is_open = true;
            }
            self.taken.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log(queue: &Queue, text: &str, is_error: bool) {
        let mut line = queue.line(is_error);
        line.write_all(text.as_bytes()).unwrap();
    }

    /// A log that nobody takes halted whoever logged: reactors, and with them hosts.
    #[test]
    fn who_logs_does_not_wait_for_whoever_takes_it() {
        let (open, opens) = mpsc::sync_channel(1);
        let (taken, lines) = mpsc::sync_channel(2 * LINES);
        let queue = Queue::to(Gate { opens, is_open: false, taken }).unwrap();
        // Errors wait for a while, but only until that was in vain once.
        for _ in 0..200 {
            log(&queue, "error\n", true);
        }
        for _ in 0..LINES {
            log(&queue, "line\n", false);
        }
        assert!(queue.0.lost.load(Ordering::Relaxed) >= 199);
        open.send(()).unwrap();
        let mut said = String::new();
        while !said.contains("are lost: nobody took them") {
            said.push_str(&String::from_utf8(lines.recv().unwrap()).unwrap());
        }
        assert!(said.starts_with("error\n"), "{said}");
        // It takes them again: the last words are there when they were waited for.
        log(&queue, "the end\n", true);
        let rest: Vec<u8> = lines.try_iter().flatten().collect();
        assert!(String::from_utf8(rest).unwrap().ends_with("the end\n"));
    }
}
