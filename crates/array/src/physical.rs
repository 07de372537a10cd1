//! What the machine says of physical drives in use, those of open pools, their spares, and those that are namespaces by
//! themselves: who is behind each place, how it is, what it warns of.
//!
//! A drive that is sick may keep whoever asks it for a minute and longer. So each is asked by a thread of its own, one at
//! a time for each path: one that hangs holds up neither the others nor anything else, and takes no second thread.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use api::v1::{
    Drive, DriveHardware, DriveState, Finding, HardwareState, Health, Namespace, Pool, Severity,
    Spare,
};
use api::value::{Backend, Name};
use hardware::Machine;
use reactor::Nanos;
use uuid::Uuid;

use crate::limits::{HARDWARE_EVERY, HARDWARE_PATIENCE, HARDWARE_READERS, HARDWARE_STACK};

mod concern;
mod read;

use concern::{Advice, Concern, MediaErrors, Place};
pub use read::read;

/// A drive that is read.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    id: Uuid,
    health: DriveState,
    facts: DriveHardware,
    /// When it is read next.
    due: Nanos,
    /// The reading that is under way, by its number.
    reading: Option<u64>,
    is_silent: bool,
    media_errors: MediaErrors,
    /// What was told of it, in words.
    told: BTreeMap<Concern, String>,
    advice: Advice,
}

impl Watched {
    fn new(path: &Path, id: Uuid, health: DriveState, now: Nanos) -> Self {
        Self {
            path: path.to_owned(),
            id,
            health,
            facts: DriveHardware::default(),
            due: now,
            reading: None,
            is_silent: false,
            media_errors: MediaErrors::default(),
            told: BTreeMap::new(),
            advice: Advice::default(),
        }
    }

    /// Takes what a reading that began at `since` brought; `is_all` of it, or what could be learnt without asking the drive.
    fn learn(&mut self, facts: DriveHardware, is_all: bool, since: Nanos) {
        let both = self.facts.serial.as_ref().zip(facts.serial.as_ref());
        let is_another = both.is_some_and(|(before, now)| before != now);
        if is_another {
            self.told.clear();
            self.media_errors = MediaErrors::default();
        }
        let is_known = matches!(self.facts.state, HardwareState::Known | HardwareState::Silent);
        if !is_all && is_known && !is_another {
            return;
        }
        if let Some(smart) = &facts.smart {
            self.media_errors.see(smart.media_errors, since);
        }
        self.facts = facts;
        if is_all {
            (self.reading, self.is_silent) = (None, false);
            if self.facts.state == HardwareState::None {
                // What is no drive does not become one at the same path, but for another in the same place.
                self.due = Nanos::MAX;
            }
        }
    }

    fn fall_silent(&mut self) {
        self.is_silent = true;
        let facts = &mut self.facts;
        (facts.state, facts.temperature_celsius, facts.smart) = (HardwareState::Silent, None, None);
        facts.why = Some("it was asked how it is, and has not answered yet".to_owned());
    }

    fn document(&self) -> DriveHardware {
        DriveHardware { warnings: self.told.values().cloned().collect(), ..self.facts.clone() }
    }
}

/// A thread that reads.
#[derive(Clone, Copy, Debug)]
struct Reading {
    number: u64,
    since: Nanos,
}

#[derive(Debug, Default)]
struct Book {
    drives: BTreeMap<Place, Watched>,
    /// Threads under way, by what they read.
    readings: BTreeMap<PathBuf, Reading>,
    numbers: u64,
}

/// The drives that may be physical.
#[derive(Debug, Default)]
pub struct InUse {
    pub pools: Vec<Pool>,
    pub spares: Vec<Spare>,
    pub namespaces: Vec<Namespace>,
}

/// The physical drives of a node.
#[derive(Debug)]
pub struct Physical {
    machine: Machine,
    /// Held for as long as it takes to note something, never while anything is waited for.
    book: Arc<Mutex<Book>>,
}

fn locked(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a reading, however it comes.
struct Ending {
    book: Arc<Mutex<Book>>,
    path: PathBuf,
}

impl Drop for Ending {
    fn drop(&mut self) {
        locked(&self.book).readings.remove(&self.path);
    }
}

impl Physical {
    pub fn new(machine: Machine) -> Self {
        Self { machine, book: Arc::default() }
    }

    /// What says how drives are, and which they are.
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Takes notice of which drives there are, has those read that are due, and gives what is to be told. Waits for
    /// nobody.
    pub fn look(&self, in_use: &InUse, now: Nanos) -> Vec<(Severity, String)> {
        let mut book = locked(&self.book);
        book.follow(in_use, now);
        for place in book.due(now) {
            self.begin(&mut book, &place, now);
        }
        book.note_silent(now);
        book.news(now)
    }

    /// Has a drive read.
    fn begin(&self, book: &mut Book, place: &Place, now: Nanos) {
        let Some(path) = book.drives.get(place).map(|drive| drive.path.clone()) else { return };
        book.numbers += 1;
        let (number, machine, shared) =
            (book.numbers, self.machine.clone(), Arc::clone(&self.book));
        let (of, at) = (place.clone(), path.clone());
        let reading = move || {
            let ending = Ending { book: shared, path: at };
            let learn = |facts, is_all| locked(&ending.book).learn(&of, number, facts, is_all);
            if let Some((drive, facts)) = read::identify(&machine, &ending.path, &learn) {
                learn(read::examine(&machine, &drive, facts), true);
            }
        };
        let builder = thread::Builder::new().name("hardware".to_owned()).stack_size(HARDWARE_STACK);
        let begun = builder.spawn(reading);
        let Some(drive) = book.drives.get_mut(place) else { return };
        drive.due = now.saturating_add(HARDWARE_EVERY);
        match begun {
            Ok(_) => {
                drive.reading = Some(number);
                book.readings.insert(path, Reading { number, since: now });
            }
            Err(error) => {
                drive.facts.why = Some(format!("there is no thread to read it: {error}"));
            }
        }
    }

    /// Writes what is known of their hardware into documents of pools.
    pub fn fill(&self, pools: &mut [Pool]) {
        let book = locked(&self.book);
        let drives = pools.iter_mut().filter_map(|pool| pool.status.as_mut());
        for drive in drives.flat_map(|status| &mut status.drives) {
            let place = Place::Pool(drive.pool.clone(), drive.index);
            if let Some(watched) = book.at(&place, path_of(drive)) {
                drive.hardware = watched.document();
            }
        }
    }

    /// Likewise into documents of spares.
    pub fn fill_spares(&self, spares: &mut [Spare]) {
        let book = locked(&self.book);
        for spare in spares {
            if let Some(watched) = book.at(&spare_place(spare), Some(Path::new(&spare.path))) {
                spare.hardware = watched.document();
            }
        }
    }

    /// Likewise into documents of namespaces that are drives.
    pub fn fill_namespaces<'a>(&self, namespaces: impl IntoIterator<Item = &'a mut Namespace>) {
        let book = locked(&self.book);
        for namespace in namespaces {
            let Some(path) = drive_of(namespace) else { continue };
            let watched = book.at(&namespace_place(namespace), Some(path));
            namespace.hardware = Some(watched.map(Watched::document).unwrap_or_default());
        }
    }

    /// Threads that read.
    #[cfg(test)]
    pub fn under_way(&self) -> usize {
        locked(&self.book).readings.len()
    }

    /// What needs to be looked at.
    pub fn findings(&self) -> Vec<Finding> {
        let book = locked(&self.book);
        let drives = book.drives.iter();
        let findings = drives.flat_map(|(place, drive)| {
            drive.told.iter().map(move |(concern, words)| Finding {
                health: Health::Degraded,
                subject: place.subject(),
                why: format!("{}: {words}", who(&drive.facts)),
                help: Some(concern.help(place, drive.advice)),
            })
        });
        findings.collect()
    }
}

impl Book {
    /// The drive at a place, if it is that at `path`.
    fn at(&self, place: &Place, path: Option<&Path>) -> Option<&Watched> {
        self.drives.get(place).filter(|watched| path == Some(&watched.path))
    }

    /// Takes notice of the drives there are. Those of a pool that does not answer stay as they were.
    fn follow(&mut self, in_use: &InUse, now: Nanos) {
        self.follow_pools(&in_use.pools, now);
        let mut others = BTreeSet::new();
        for spare in &in_use.spares {
            let place = spare_place(spare);
            self.watch(&place, Path::new(&spare.path), spare.id, spare.health, now);
            others.insert(place);
        }
        for namespace in &in_use.namespaces {
            let Some(path) = drive_of(namespace) else { continue };
            let health = if namespace.served { DriveState::Online } else { DriveState::Missing };
            let place = namespace_place(namespace);
            self.watch(&place, path, namespace.uuid, health, now);
            others.insert(place);
        }
        self.drives.retain(|place, _| matches!(place, Place::Pool(..)) || others.contains(place));
    }

    fn follow_pools(&mut self, pools: &[Pool], now: Nanos) {
        let known: BTreeSet<&Name> = pools.iter().map(|pool| &pool.name).collect();
        self.drives
            .retain(|place, _| !matches!(place, Place::Pool(pool, _) if !known.contains(pool)));
        for pool in pools {
            let Some(status) = &pool.status else { continue };
            let is_left = |place: &Place| matches!(place, Place::Pool(of, index) if *of == pool.name && *index >= status.drives.len());
            self.drives.retain(|place, _| !is_left(place));
            let works = status.drives.iter().filter(|drive| drive.health == DriveState::Online);
            let can_evacuate =
                works.count() > usize::from(status.data) + usize::from(status.parity);
            for drive in &status.drives {
                let place = Place::Pool(drive.pool.clone(), drive.index);
                let Some(path) = path_of(drive) else {
                    self.drives.remove(&place);
                    continue;
                };
                let watched = self.watch(&place, path, drive.id, drive.health, now);
                watched.advice = Advice { can_evacuate, is_leaving: drive.leaving };
            }
        }
    }

    /// Takes notice of the drive at a place.
    fn watch(
        &mut self,
        place: &Place,
        path: &Path,
        id: Uuid,
        health: DriveState,
        now: Nanos,
    ) -> &mut Watched {
        let watched =
            self.drives.entry(place.clone()).or_insert_with(|| Watched::new(path, id, health, now));
        if watched.path != path || watched.id != id {
            *watched = Watched::new(path, id, health, now);
        }
        if std::mem::replace(&mut watched.health, health) != health {
            // It came back, or went: somebody may have had it in hands.
            watched.due = now;
        }
        watched
    }

    /// The drives that are to be read now, as far as there are threads for them.
    fn due(&self, now: Nanos) -> Vec<Place> {
        let free = HARDWARE_READERS.saturating_sub(self.readings.len());
        let is_due = |drive: &Watched| {
            drive.due <= now && drive.reading.is_none() && !self.readings.contains_key(&drive.path)
        };
        let due = self.drives.iter().filter(|(_, drive)| is_due(drive));
        due.take(free).map(|(place, _)| place.clone()).collect()
    }

    /// Takes what a reading brought, unless another drive has the place by now.
    fn learn(&mut self, place: &Place, number: u64, facts: DriveHardware, is_all: bool) {
        let drive = self.drives.get_mut(place).filter(|drive| drive.reading == Some(number));
        let Some(drive) = drive else { return };
        if let Some(reading) = self.readings.get(&drive.path) {
            drive.learn(facts, is_all, reading.since);
        }
    }

    fn note_silent(&mut self, now: Nanos) {
        for drive in self.drives.values_mut() {
            let reading = self.readings.get(&drive.path);
            let reading = reading.filter(|reading| drive.reading == Some(reading.number));
            match reading {
                Some(reading) if reading.since.saturating_add(HARDWARE_PATIENCE) <= now => {
                    drive.fall_silent();
                }
                // Its thread has ended; without a word, if need be.
                None => drive.reading = None,
                Some(_) => {}
            }
        }
    }

    /// What has come of drives' warnings, and what has gone.
    fn news(&mut self, now: Nanos) -> Vec<(Severity, String)> {
        let mut news = Vec::new();
        for (place, drive) in &mut self.drives {
            let before = std::mem::take(&mut drive.told);
            drive.media_errors.forget(now);
            drive.told = concern::of(&drive.facts, &drive.media_errors, drive.is_silent, &before);
            let of = format!("{place} ({})", who(&drive.facts));
            for (concern, words) in drive.told.iter().filter(|(new, _)| !before.contains_key(new)) {
                let help = concern.help(place, drive.advice);
                news.push((Severity::Warning, format!("{of} warns: {words}; {help}")));
            }
            for (_, words) in before.iter().filter(|(old, _)| !drive.told.contains_key(old)) {
                news.push((Severity::Info, format!("{of} no longer warns: {words}")));
            }
        }
        news
    }
}

/// Where a drive is, if it is there.
fn path_of(drive: &Drive) -> Option<&Path> {
    let is_there = !matches!(drive.health, DriveState::Missing | DriveState::Vacant);
    drive.path.as_deref().map(Path::new).filter(|_| is_there)
}

fn spare_place(spare: &Spare) -> Place {
    Place::Spare(spare.pool.clone(), spare.path.clone())
}

fn namespace_place(namespace: &Namespace) -> Place {
    Place::Namespace(namespace.subsystem.clone(), namespace.nsid)
}

/// Where the drive is that a namespace is by itself.
fn drive_of(namespace: &Namespace) -> Option<&Path> {
    match &namespace.backend {
        Backend::Drive { path, .. } | Backend::Passthrough { path } => Some(path),
        Backend::Memory { .. } | Backend::Volume(_) | Backend::Snapshot(_) => None,
    }
}

/// Which drive that is, in words.
fn who(facts: &DriveHardware) -> String {
    match (&facts.model, &facts.serial) {
        (Some(model), Some(serial)) => format!("{model}, serial {serial}"),
        (Some(model), None) => model.clone(),
        (None, Some(serial)) => format!("serial {serial}"),
        (None, None) => "of which nothing else is known".to_owned(),
    }
}
