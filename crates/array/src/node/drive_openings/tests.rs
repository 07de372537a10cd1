//! How long a start waits for drives.

use std::cell::Cell;

use api::v1::PollPolicy;
use hardware::{Answer, Script};

use super::*;
use crate::change::Step;
use crate::config::Settings;
use crate::seen::Seen;
use crate::serving::Serving;

thread_local! {
    /// How long a node that this thread starts waits for drives that may hang when they are opened.
    pub static START: Cell<Duration> = const { Cell::new(Duration::from_secs(120)) };
}

/// Hosts found their namespaces absent whose drives a killed daemon still had writes for.
#[test]
fn a_drive_that_answers_is_waited_for_longer_than_one_that_hangs() {
    let book = Arc::<Book>::default();
    let place = |nsid| ("nqn.2026-11.io.flashloom:a".parse().unwrap(), nsid);
    let def =
        NamespaceDef { backend: "drive:/dev/none".parse().unwrap(), block_size: 512, uuid: None };
    for (number, answers) in [(1, false), (2, true)] {
        let (place, def) = (place(1), def.clone());
        let opening =
            Opening { place, def, is_asked: false, is_waited_for: true, answers, came: None };
        book.lock().insert(number, opening);
    }
    let begun = BTreeSet::from([1, 2]);
    let limit = Limit { all: Duration::ZERO, more: Duration::from_secs(120) };
    let came = Some(Err(Error::new(Kind::Failed, "none")));
    let ending = Ending { book: Arc::clone(&book), number: 2, came };
    let all = book.lock();
    // It ends as soon as it is waited for, and no sooner.
    let ends = thread::spawn(|| drop(ending));
    let all = book.wait(all, &begun, now_exact(), limit);
    assert!(all[&2].came.is_some() && all[&1].came.is_none());
    drop(all);
    ends.join().unwrap();
}

/// What was opened for an operator, who had given up, was served as what hosts knew by that name: nobody had looked which
/// drive it is.
#[test]
fn what_was_opened_for_an_operator_is_not_taken_up_later() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("sda");
    std::fs::File::create(&name).unwrap().set_len(1 << 20).unwrap();
    let settings = Settings { poll: PollPolicy::Interrupt, ..Settings::default() };
    let node = crate::identity::new_node();
    let mut serving = Serving::start(&settings, node, dir.path(), Seen::default()).unwrap();
    let script = Arc::<Script>::default();
    let machine = Machine::scripted(Arc::clone(&script));
    let backend = format!("drive:{}", name.display()).parse().unwrap();
    let def = NamespaceDef { backend, block_size: 512, uuid: None };
    let step =
        Step::AddNamespace { nqn: "nqn.2026-11.io.flashloom:a".parse().unwrap(), nsid: 1, def };
    let late = [LateDrive::of(&step, &Seen::default()).unwrap()];
    let asked = serving.asked_drives(&[step]).unwrap();
    let (openings, opener) = (DriveOpenings::default(), serving.pools().opener());
    let open = |drives: &[LateDrive]| {
        let at_once = Limit { all: Duration::ZERO, more: Duration::ZERO };
        openings.open(drives, (&machine, &opener), at_once)
    };
    script.set(&name, "S1", Answer::Never);
    assert!(open(&asked).is_empty());
    script.set(&name, "S1", Answer::Denied);
    let has_come = || openings.book.lock().values().all(|opening| opening.came.is_some());
    while !has_come() {
        thread::yield_now();
    }
    script.set(&name, "S1", Answer::Never);
    assert!(open(&late).is_empty());
    script.set(&name, "S1", Answer::Denied);
    while !has_come() {
        thread::yield_now();
    }
    assert_eq!(open(&late).len(), 1);
    serving.stop();
}
