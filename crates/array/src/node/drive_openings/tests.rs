//! How long a start waits for drives.

use std::cell::Cell;

use super::*;

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
        let opening = Opening { place, def, is_waited_for: true, answers, came: None };
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
