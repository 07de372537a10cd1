//! A mapping of which a page cannot be had: the core that met it puts zeroes there, and no other takes these for contents.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::explore;
use crate::marks::Marks;

/// What a copy finds in a page; `None` where it is known to have nothing.
fn copy(marks: &Marks, page: &AtomicUsize) -> Option<usize> {
    if marks.has(0..1) {
        return None;
    }
    let found = page.load(Ordering::Relaxed);
    (!marks.has(0..1)).then_some(found)
}

#[test]
fn what_took_a_page_s_place_is_no_contents() {
    explore(|| {
        let shared = Arc::new((Marks::new(2), AtomicUsize::new(7)));
        let theirs = Arc::clone(&shared);
        // The signal's handler, and the kernel, which has another page be there.
        let other = thread::spawn(move || {
            theirs.0.mark(0..1);
            theirs.1.store(0, Ordering::Relaxed);
        });
        let found = copy(&shared.0, &shared.1);
        assert_ne!(found, Some(0), "zeroes are taken for what was there");
        other.join().unwrap();
        assert_eq!(copy(&shared.0, &shared.1), None);
        assert!(!shared.0.has(1..2), "another page has what it had");
    });
}
