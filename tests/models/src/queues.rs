//! Where queues of other reactors come to a shard: nobody who came is forgotten, nor that it closes.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::task::Poll;

use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use crate::explore;
use crate::reception::Reception;

/// Serves until the shard closes, or so many came.
fn serve(reception: &Reception<u32>, enough: usize) -> (Vec<u32>, bool) {
    let mut came = Vec::new();
    block_on(poll_fn(|cx| match reception.look(cx, |end| came.push(end)) {
        ControlFlow::Break(()) => Poll::Ready((std::mem::take(&mut came), true)),
        ControlFlow::Continue(()) if came.len() >= enough => {
            Poll::Ready((std::mem::take(&mut came), false))
        }
        ControlFlow::Continue(()) => Poll::Pending,
    }))
}

/// A server that is not woken waits for ever, which loom finds.
#[test]
fn who_comes_to_a_shard_is_served() {
    explore(|| {
        let reception = Arc::new(Reception::default());
        let theirs = Arc::clone(&reception);
        let other = thread::spawn(move || {
            assert!(theirs.join(1));
            assert!(theirs.join(2));
        });
        assert_eq!(serve(&reception, 2), (vec![1, 2], false));
        other.join().unwrap();
    });
}

#[test]
fn a_shard_that_closes_serves_no_more() {
    explore(|| {
        let reception = Arc::new(Reception::default());
        let theirs = Arc::clone(&reception);
        let other = thread::spawn(move || {
            assert!(theirs.join(1));
            theirs.close();
            assert!(!theirs.join(2));
        });
        let (came, is_closed) = serve(&reception, 2);
        assert!(is_closed && came.len() < 2);
        other.join().unwrap();
    });
}

/// Its sender waits until nobody has its end any more.
#[test]
fn who_comes_as_a_shard_closes_is_refused_or_let_go() {
    explore(|| {
        let reception = Arc::new(Reception::default());
        let theirs = Arc::clone(&reception);
        let end = Arc::new(());
        let given = Arc::clone(&end);
        let other = thread::spawn(move || theirs.join(given));
        reception.close();
        let _ = other.join().unwrap();
        assert_eq!(Arc::strong_count(&end), 1, "nobody hears that it is gone");
    });
}
