//! Who has a window, and what its end is waited for by.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use window::Grant;

use super::stub::Stub;
use super::{Asker, NotEnded, Refused, Shared, Wanted, Who, Windows};
use crate::limits::{WINDOW_END_PAUSE, WINDOW_GRANT_EVERY, WINDOW_GRANTS_AT_ONCE};
use crate::reservation::HostId;

fn who(host: u8) -> Who {
    Who { host: HostId([host; 16]), association: Arc::default() }
}

struct Place {
    shared: Arc<Shared>,
    stub: Arc<Stub>,
}

impl Place {
    fn new() -> Self {
        Self { shared: Arc::default(), stub: Arc::default() }
    }

    fn asker(&self, who: &Who) -> Asker {
        let windows = Arc::clone(&self.stub) as Arc<dyn Windows>;
        let wanted = Wanted { fabric: nvme::window::Fabric::Shm, ring_bytes: None, flushes: false };
        Asker { who: who.clone(), windows, volume: [1; 16], wanted }
    }

    async fn ask(&self, who: &Who) -> Result<Grant, Refused> {
        self.shared.grant(self.asker(who), || Ok(())).await
    }

    /// Asks in a task of its own, up to where it waits.
    async fn begin(&self, who: &Who) -> reactor::Task<Result<Grant, Refused>> {
        let (shared, asker) = (Arc::clone(&self.shared), self.asker(who));
        let task = reactor::spawn(async move { shared.grant(asker, || Ok(())).await });
        settle().await;
        task
    }

    /// Notes when there is no window.
    fn end(&self) -> Leaver {
        let leaver = Leaver::default();
        self.shared.end(Box::new(leaver.clone()));
        leaver
    }
}

/// Tells when all of its kind, but the one that is kept, were dropped.
#[derive(Clone, Default)]
struct Leaver(Arc<()>);

impl Leaver {
    fn has_left(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// Lets every task go on until it waits.
async fn settle() {
    for _ in 0..10 {
        reactor::yield_now().await;
    }
}

fn run(test: impl Future<Output = ()> + 'static) {
    reactor::simulate(1, test);
}

#[test]
fn one_host_has_it_and_is_given_another_in_its_place() {
    run(async {
        let place = Place::new();
        let (mine, theirs) = (who(1), who(2));
        assert_eq!(place.ask(&mine).await.unwrap().number, 1);
        assert_eq!(place.ask(&theirs).await, Err(Refused::Busy));
        assert_eq!(place.stub.standing(), Some(1), "as it was");
        assert_eq!(place.ask(&mine).await.unwrap().number, 2);
        let elsewhere = Who { association: Arc::default(), ..mine };
        assert_eq!(place.ask(&elsewhere).await.unwrap().number, 3, "by another controller");
        place.stub.end_of_itself();
        assert_eq!(place.ask(&theirs).await.unwrap().number, 4, "its pool had ended it");
    });
}

#[test]
fn hosts_without_an_identifier_are_not_one() {
    run(async {
        let place = Place::new();
        let (one, other) = (who(0), who(0));
        place.ask(&one).await.unwrap();
        assert_eq!(place.ask(&other).await, Err(Refused::Busy));
        assert_eq!(place.shared.give_back(&other, 1).await, Err(Refused::Busy));
        assert!(place.ask(&one).await.is_ok());
    });
}

#[test]
fn what_is_given_back_has_ended_and_nobody_gives_back_anothers() {
    run(async {
        let place = Place::new();
        let (mine, theirs) = (who(1), who(2));
        place.ask(&mine).await.unwrap();
        assert_eq!(place.shared.give_back(&theirs, 1).await, Err(Refused::Busy));
        assert_eq!(place.shared.give_back(&mine, 7).await, Ok(()), "there is none");
        assert!(place.stub.ended().is_empty());
        assert_eq!(place.shared.give_back(&mine, 1).await, Ok(()));
        assert_eq!(place.stub.standing(), None);
        assert_eq!(place.shared.give_back(&mine, 1).await, Ok(()), "no more");
        assert_eq!(place.stub.ended(), [1]);
        assert!(place.ask(&theirs).await.is_ok());
    });
}

#[test]
fn whoever_wants_none_waits_until_what_is_being_granted_has_ended() {
    run(async {
        let place = Place::new();
        let mine = who(1);
        place.stub.hold(true);
        let asked = place.begin(&mine).await;
        let bar = place.shared.bar();
        assert!(!bar.is_clear());
        let clear = Rc::new(Cell::new(false));
        let told = Rc::clone(&clear);
        let waits = reactor::spawn(async move {
            bar.clear().await.unwrap();
            told.set(true);
            bar
        });
        settle().await;
        assert_eq!(place.ask(&mine).await, Err(Refused::Busy), "while it is barred");
        assert!(!clear.get());
        place.stub.hold(false);
        assert_eq!(asked.await.unwrap().unwrap().number, 1);
        let bar = waits.await.unwrap();
        assert!(clear.get() && bar.is_clear());
        assert_eq!((place.stub.ended(), place.stub.standing()), (vec![1], None));
        assert_eq!(place.ask(&mine).await, Err(Refused::Busy));
        drop(bar);
        assert!(place.ask(&mine).await.is_ok());
    });
}

#[test]
fn who_waits_for_an_end_is_told_when_it_has_ended() {
    run(async {
        let place = Place::new();
        let mine = who(1);
        assert!(place.end().has_left(), "there is none");
        place.ask(&mine).await.unwrap();
        place.stub.hold(true);
        let leaver = place.end();
        assert!(!leaver.has_left());
        assert_eq!(place.ask(&mine).await, Err(Refused::Busy), "it is ending");
        place.stub.hold(false);
        assert!(leaver.has_left());
        assert!(place.ask(&mine).await.is_ok());
    });
}

#[test]
fn a_namespace_that_is_gone_never_has_one_again() {
    run(async {
        let place = Place::new();
        let mine = who(1);
        place.stub.hold(true);
        let asked = place.begin(&mine).await;
        let leaver = Leaver::default();
        place.shared.close(Box::new(leaver.clone()));
        assert!(!leaver.has_left());
        place.stub.hold(false);
        asked.await.unwrap().unwrap();
        assert!(leaver.has_left());
        assert_eq!(place.stub.standing(), None);
        assert_eq!(place.ask(&mine).await, Err(Refused::Busy));
    });
}

#[test]
fn the_end_of_an_association_ends_what_it_has_and_what_it_is_being_granted() {
    run(async {
        for is_granted in [true, false] {
            let place = Place::new();
            let (mine, other) = (who(1), who(2));
            place.stub.hold(!is_granted);
            let asked = place.begin(&mine).await;
            let (of_other, of_mine) = (Leaver::default(), Leaver::default());
            place.shared.end_of(&other.association, Box::new(of_other.clone()));
            assert!(of_other.has_left(), "it has none");
            assert!(place.stub.ended().is_empty());
            mine.association.end();
            assert!(mine.association.has_asked() && !other.association.has_asked());
            place.shared.end_of(&mine.association, Box::new(of_mine.clone()));
            assert_eq!(of_mine.has_left(), is_granted);
            place.stub.hold(false);
            assert!(of_mine.has_left());
            assert!(asked.await.unwrap().is_ok());
            assert_eq!((place.stub.ended(), place.stub.standing()), (vec![1], None));
            assert_eq!(place.ask(&mine).await, Err(Refused::Busy));
            assert!(place.ask(&other).await.is_ok());
        }
    });
}

/// Its controller looked for what there was to end before the grant was there, and the grant looked at the controller before
/// it ended: neither may miss the other.
#[test]
fn a_window_granted_to_an_association_that_is_over_ends() {
    run(async {
        let place = Place::new();
        let mine = who(1);
        place.stub.hold(true);
        let asked = place.begin(&mine).await;
        mine.association.end();
        place.stub.hold(false);
        assert!(asked.await.unwrap().is_ok());
        assert_eq!((place.stub.ended(), place.stub.standing()), (vec![1], None));
    });
}

#[test]
fn one_that_could_not_be_ended_is_tried_again() {
    run(async {
        let place = Place::new();
        let (mine, theirs) = (who(1), who(2));
        place.ask(&mine).await.unwrap();
        place.stub.cannot_end(true);
        let bar = place.shared.bar();
        assert_eq!(bar.clear().await, Err(NotEnded));
        assert!(!bar.is_clear());
        drop(bar);
        assert_eq!(place.shared.give_back(&mine, 1).await, Err(Refused::Failed));
        let leaver = place.end();
        assert_eq!(place.ask(&theirs).await, Err(Refused::Busy));
        assert!(!leaver.has_left(), "it may stand");
        place.stub.cannot_end(false);
        // Whoever asks has it tried again.
        assert_eq!(place.ask(&theirs).await, Err(Refused::Busy));
        assert!(leaver.has_left());
        assert!(place.ask(&theirs).await.is_ok());
    });
}

/// A controller reset that waited for it never completed: its host asked for nothing else.
#[test]
fn one_that_could_not_be_ended_once_is_ended_later_though_nobody_asks() {
    run(async {
        let place = Place::new();
        place.ask(&who(1)).await.unwrap();
        place.stub.cannot_end(true);
        let leaver = place.end();
        reactor::sleep(3 * WINDOW_END_PAUSE).await;
        assert!(!leaver.has_left(), "it may stand");
        place.stub.cannot_end(false);
        reactor::sleep(2 * WINDOW_END_PAUSE).await;
        assert!(leaver.has_left());
    });
}

#[test]
fn what_is_dropped_without_an_answer_was_none() {
    run(async {
        let place = Place::new();
        let mine = who(1);
        place.stub.hold(true);
        let asked = place.begin(&mine).await;
        place.stub.forget();
        assert_eq!(asked.await.unwrap(), Err(Refused::Failed));
        place.stub.hold(false);
        place.ask(&mine).await.unwrap();
        place.stub.hold(true);
        let leaver = place.end();
        place.stub.forget();
        assert!(!leaver.has_left(), "nobody says that it ended");
        place.stub.hold(false);
        let bar = place.shared.bar();
        assert_eq!(bar.clear().await, Ok(()));
        assert!(leaver.has_left());
    });
}

#[test]
fn a_refusal_keeps_what_still_stands_and_nothing_else() {
    run(async {
        let place = Place::new();
        let (mine, theirs) = (who(1), who(2));
        let refused = place.shared.grant(place.asker(&mine), || Err(Refused::Never)).await;
        assert_eq!(refused, Err(Refused::Never));
        assert!(place.stub.asked().is_empty(), "it was looked at once more first");
        place.ask(&mine).await.unwrap();
        // The one before is ended for it, and then there is no room.
        place.stub.refuse(Some(Refused::Busy));
        assert_eq!(place.ask(&mine).await, Err(Refused::Busy));
        assert!(!place.shared.is_held());
        place.stub.refuse(None);
        assert!(place.ask(&theirs).await.is_ok());
        assert!(place.shared.is_held());
    });
}

/// The command may be gone with its connection by then.
#[test]
fn a_grant_that_nobody_waits_for_any_more_is_noted_all_the_same() {
    run(async {
        let place = Place::new();
        let (mine, theirs) = (who(1), who(2));
        place.stub.hold(true);
        let asked = place.begin(&mine).await;
        asked.abort();
        settle().await;
        place.stub.hold(false);
        assert!(place.shared.is_held());
        assert_eq!(place.ask(&theirs).await, Err(Refused::Busy));
    });
}

/// Each that is granted has the pool's catalog written: a host that asked in a loop had it be written without bound.
#[test]
fn a_host_that_asks_without_end_is_granted_one_now_and_then() {
    run(async {
        let place = Place::new();
        let (mine, theirs) = (who(1), who(2));
        for _ in 0..WINDOW_GRANTS_AT_ONCE {
            place.ask(&mine).await.unwrap();
        }
        let last = place.stub.standing();
        for _ in 0..1000 {
            assert_eq!(place.ask(&mine).await, Err(Refused::Busy));
        }
        assert_eq!(place.stub.asked().len(), WINDOW_GRANTS_AT_ONCE, "nobody is asked for those");
        assert_eq!(place.stub.standing(), last, "as it was");
        reactor::sleep(WINDOW_GRANT_EVERY).await;
        assert!(place.ask(&mine).await.is_ok());
        assert_eq!(place.ask(&mine).await, Err(Refused::Busy));
        // What is refused anyway does not count.
        reactor::sleep(WINDOW_GRANT_EVERY).await;
        for _ in 0..100 {
            assert_eq!(place.ask(&theirs).await, Err(Refused::Busy));
            let refused = place.shared.grant(place.asker(&mine), || Err(Refused::Never)).await;
            assert_eq!(refused, Err(Refused::Never));
        }
        assert!(place.ask(&mine).await.is_ok());
        // Another namespace's are its own.
        assert!(Place::new().ask(&mine).await.is_ok());
        reactor::sleep(WINDOW_GRANT_EVERY * 100).await;
        for _ in 0..WINDOW_GRANTS_AT_ONCE {
            place.ask(&mine).await.unwrap();
        }
        assert_eq!(place.ask(&mine).await, Err(Refused::Busy), "no more than that at once");
    });
}
