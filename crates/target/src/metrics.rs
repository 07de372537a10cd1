//! What a reactor counts, by subsystem, host and namespace: plain numbers of one core, added up
//! when somebody asks.

use core::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::{Rc, Weak};

use nvme::opcode::io;
use nvme::status::Status;
use stdx::histogram::Histogram;

use crate::counters::QueueCounters;
use crate::limits::{PAST_HOSTS_MAX, PAST_LABELS_MAX};
use crate::queue::request::Request;

/// The host label under which hosts are counted that have no series of their own.
pub const OTHER_HOSTS: &str = "others";

/// Status Code Type of Media and Data Integrity Errors.
pub(crate) const MEDIA_ERRORS: u8 = 2;

/// What a set of counters belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels {
    /// Subsystem NQN.
    pub subsystem: String,
    /// Host NQN.
    pub host: String,
    pub nsid: u32,
}

/// Commands are counted by what they do to the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    /// Dataset Management and Write Zeroes.
    Deallocate,
    Flush,
    /// Everything else.
    Other,
}

impl Kind {
    pub const ALL: [Self; 5] =
        [Self::Read, Self::Write, Self::Deallocate, Self::Flush, Self::Other];

    /// As it is labelled in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Deallocate => "deallocate",
            Self::Flush => "flush",
            Self::Other => "other",
        }
    }

    fn of(opcode: u8) -> Self {
        match opcode {
            io::READ => Self::Read,
            io::WRITE => Self::Write,
            io::DATASET_MANAGEMENT | io::WRITE_ZEROES => Self::Deallocate,
            io::FLUSH => Self::Flush,
            _ => Self::Other,
        }
    }
}

/// Sums for one kind of command.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub operations: u64,
    /// Bytes moved for the host; of successful commands.
    pub bytes: u64,
    pub errors: u64,
    /// From the turn that received the command to the turn that completed it, nanoseconds.
    pub latency: Histogram,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency.merge(&other.latency);
    }
}

/// One row of what a reactor has counted.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Index: [`Kind::ALL`].
    pub sums: [Sums; Kind::ALL.len()],
    /// Commands outstanding now.
    pub outstanding: u64,
}

impl Row {
    /// Adds another reactor's, or another queue's, numbers.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.sums.iter_mut().zip(&other.sums) {
            mine.add(theirs);
        }
        self.outstanding += other.outstanding;
    }
}

/// The counters of one host on one namespace, on one core.
pub struct Counters {
    labels: Labels,
    row: RefCell<Row>,
    outstanding: Cell<u64>,
}

thread_local! {
    static LIVE: RefCell<HashMap<Labels, Weak<Counters>>> = RefCell::new(HashMap::new());
    static PAST: RefCell<Past> = RefCell::default();
}

/// What counters that are gone had counted.
#[derive(Default)]
struct Past {
    rows: HashMap<Labels, Row>,
    /// Subsystem and host of those with a name of their own.
    hosts: HashSet<(String, String)>,
}

impl Past {
    fn keep(&mut self, mut labels: Labels, row: &Row) {
        let host = (labels.subsystem.clone(), labels.host.clone());
        let full = self.rows.len() >= PAST_LABELS_MAX && !self.rows.contains_key(&labels);
        if full || (self.hosts.len() >= PAST_HOSTS_MAX && !self.hosts.contains(&host)) {
            labels.host = OTHER_HOSTS.to_owned();
        } else {
            self.hosts.insert(host);
        }
        self.rows.entry(labels).or_default().add(row);
    }
}

impl Counters {
    /// This core's counters of these labels, shared by all queues that have them.
    #[must_use]
    pub fn of(labels: Labels) -> Rc<Self> {
        LIVE.with_borrow_mut(|live| {
            if let Some(counters) = live.get(&labels).and_then(Weak::upgrade) {
                return counters;
            }
            let counters = Rc::new(Self {
                labels: labels.clone(),
                row: RefCell::default(),
                outstanding: Cell::default(),
            });
            live.insert(labels, Rc::downgrade(&counters));
            counters
        })
    }

    /// Notes that a command has begun.
    pub fn begin(&self) {
        self.outstanding.set(self.outstanding.get() + 1);
    }

    /// Counts a command that has ended.
    pub(crate) fn count(&self, request: &Request, status: Status) {
        self.outstanding.set(self.outstanding.get() - 1);
        let kind = Kind::of(request.sqe().opcode);
        let mut row = self.row.borrow_mut();
        let sums = &mut row.sums[kind as usize];
        sums.operations += 1;
        if status.is_success() {
            sums.bytes += request.sgl_bytes() as u64;
        } else {
            sums.errors += 1;
        }
        sums.latency.record(reactor::now().saturating_sub(request.arrived()));
    }

    fn snapshot(&self) -> Row {
        let mut row = self.row.borrow().clone();
        row.outstanding = self.outstanding.get();
        row
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let mut row = self.snapshot();
        row.outstanding = 0;
        // At the end of a thread there is nobody left to ask.
        let _ = PAST.try_with(|past| {
            past.borrow_mut().keep(self.labels.clone(), &row);
        });
        let _ = LIVE.try_with(|live| live.borrow_mut().remove(&self.labels));
    }
}

/// Counts a command among those that SMART / Health reports (Base 2.1, section 5.1.12.1.3).
pub(crate) fn count_health(counters: &QueueCounters, request: &Request, status: Status) {
    let bytes = if status.is_success() { request.sgl_bytes() as u64 } else { 0 };
    match request.sqe().opcode {
        io::READ => {
            counters.read_commands.add(1);
            counters.bytes_read.add(bytes);
        }
        io::COMPARE | io::VERIFY => counters.read_commands.add(1),
        io::WRITE => {
            counters.write_commands.add(1);
            counters.bytes_written.add(bytes);
        }
        io::WRITE_ZEROES | io::COPY => counters.write_commands.add(1),
        _ => {}
    }
    // Data that differs, or that may not be read, is there all the same.
    let sound = [Status::COMPARE_FAILURE, Status::ACCESS_DENIED].iter().any(|&s| status.is(s));
    if status.code_type() == MEDIA_ERRORS && !sound {
        counters.media_errors.add(1);
    }
}

/// Everything counted on this core so far. For a reactor's handle to call.
#[must_use]
pub fn collect() -> Vec<(Labels, Row)> {
    let mut rows = PAST.with_borrow(|past| past.rows.clone());
    let live: Vec<_> = LIVE.with_borrow(|live| live.values().filter_map(Weak::upgrade).collect());
    for counters in live {
        rows.entry(counters.labels.clone()).or_default().add(&counters.snapshot());
    }
    rows.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts that connected under ever new names made 600 000 lines of what a scrape reads, and 750 MiB of memory.
    #[test]
    fn hosts_of_ever_new_names_are_counted_together() {
        for number in 0..10 * PAST_HOSTS_MAX {
            for nsid in 1..=2 {
                let host = format!("nqn.2026-11.io.flashloom:host{number}");
                let counters = Counters::of(Labels { subsystem: "s".into(), host, nsid });
                counters.row.borrow_mut().sums[0].operations = 1;
            }
        }
        let rows = collect();
        let hosts: HashSet<_> = rows.iter().map(|(labels, _)| &labels.host).collect();
        assert_eq!(hosts.len(), PAST_HOSTS_MAX + 1);
        // None is lost.
        let operations: u64 = rows.iter().map(|(_, row)| row.sums[0].operations).sum();
        assert_eq!(operations, 20 * stdx::num::u64_of(PAST_HOSTS_MAX));
        // One that comes back goes on where it was.
        let host = "nqn.2026-11.io.flashloom:host0".to_owned();
        let labels = Labels { subsystem: "s".into(), host, nsid: 1 };
        let again = Counters::of(labels.clone());
        again.row.borrow_mut().sums[0].operations = 2;
        let rows: HashMap<_, _> = collect().into_iter().collect();
        assert_eq!(rows[&labels].sums[0].operations, 3);
    }
}
