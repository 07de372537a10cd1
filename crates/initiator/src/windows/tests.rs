//! Windows against a target's end in the same process.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stdx::num::u64_of;
use stdx::prng::Prng;
use window::page::{PHASE_AT, TAKEN_AT};
use window::record::bytes_of;
use window::{DATA_BYTES_MAX, Phase, RING_BYTES_MIN};

use super::*;
use crate::testing::{Taker, grant};

const RING: u64 = RING_BYTES_MIN;

/// A window of one ring in so many copies, with credit for all of it.
fn window(copies: usize) -> (DirectWindow, Taker) {
    let grant = grant(1, RING);
    let (mut taker, descriptors) = Taker::new(&grant, 0, copies);
    taker.give_all();
    let window = DirectWindow::map(grant, vec![descriptors], Arc::default()).unwrap();
    (window, taker)
}

fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    Prng::new(seed).fill(&mut data);
    data
}

/// Waits until a record is in a ring that had none.
fn await_record(taker: &Taker) {
    let mut header = [0; 4];
    while header != *b"FLDW" {
        taker.memory(0).read(0, &mut header).unwrap();
        std::thread::yield_now();
    }
}

fn is_ringing(taker: &Taker) -> bool {
    let mut file = std::fs::File::from(taker.bell().as_fd().try_clone_to_owned().unwrap());
    std::io::Read::read(&mut file, &mut [0; 8]).is_ok()
}

#[test]
fn what_is_written_is_there_to_be_taken() {
    let (mut window, mut taker) = window(1);
    let data = random(1, 4096);
    assert_eq!(window.write(8192, &data), Written::Done);
    assert_eq!(window.write(512, &data[..512]), Written::Done);
    let mut seen = Vec::new();
    taker.take(|offset, data| seen.push((offset, data.to_vec()))).unwrap();
    assert_eq!(seen, [(8192, data.clone()), (512, data[..512].to_vec())]);
}

/// Lengths of all kinds over many laps, while another thread takes them: all of them, in order, and whole.
#[test]
fn a_ring_goes_round_while_it_is_taken_from() {
    let (mut window, mut taker) = window(2);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let mut seen = Vec::new();
            loop {
                let last = over.load(Ordering::Acquire);
                taker.take(|offset, data| seen.push((offset, data.len()))).unwrap();
                taker.give_all();
                if last {
                    return seen;
                }
            }
        });
        let mut prng = Prng::new(3);
        let mut done = Vec::new();
        while done.len() < 3000 {
            let length = (1 + usize::try_from(prng.below(128)).unwrap()) * 512;
            let offset = prng.below(1 << 20) * 512;
            match window.write(offset, &random(offset, length)) {
                Written::Done => done.push((offset, length)),
                Written::NotDone(NotDone::Credit) => std::thread::yield_now(),
                other => panic!("{other:?}"),
            }
        }
        over.store(true, Ordering::Release);
        assert!(taking.join().unwrap() == done);
    });
}

#[test]
fn both_copies_have_all_of_it() {
    let (mut window, mut taker) = window(2);
    let long = random(2, 65_024);
    let mut end = 0;
    // The last of them goes over the end: padding is stored in both, too.
    for n in 0..5 {
        assert_eq!(
            window.write(n << 16, &long[usize::try_from(n).unwrap() * 512..]),
            Written::Done
        );
        taker.take(|_, _| {}).unwrap();
        taker.give_all();
        end = taker.position();
    }
    assert!(end > RING);
    let contents =
        |copy| taker.memory(copy).with(0, usize::try_from(RING).unwrap(), <[u8]>::to_vec);
    assert!(contents(0).unwrap() == contents(1).unwrap());
}

#[test]
fn what_a_window_does_not_take_goes_as_a_command() {
    let (mut window, mut taker) = window(1);
    let data = vec![7; DATA_BYTES_MAX + 512];
    assert_eq!(window.write(0, &data), Written::NotDone(NotDone::TooLong));
    for (offset, length) in [(0, 0), (1, 512), (512, 100), (1 << 30, 512), ((1 << 30) - 512, 1024)]
    {
        let written = window.write(offset, &data[..length]);
        assert_eq!(written, Written::NotDone(NotDone::NotOneRing), "{length} at {offset}");
    }
    taker.set_credit(bytes_of(4096));
    assert_eq!(
        window.write(0, &data[..4096]),
        Written::Done,
        "credit is looked at when it is needed"
    );
    taker.set_credit(bytes_of(4096) + bytes_of(512) - 64);
    // What was read before is still good: credit only grows.
    while window.write(0, &data[..DATA_BYTES_MAX]) == Written::Done {}
    assert_eq!(window.write(0, &data[..DATA_BYTES_MAX]), Written::NotDone(NotDone::Credit));
    assert!(!window.has_ended());
}

#[test]
fn no_more_is_stored_than_there_is_credit_for() {
    let grant = grant(1, RING);
    let (mut taker, descriptors) = Taker::new(&grant, 0, 1);
    let mut window = DirectWindow::map(grant, vec![descriptors], Arc::default()).unwrap();
    assert_eq!(window.write(0, &[1; 512]), Written::NotDone(NotDone::Credit));
    taker.set_credit(bytes_of(512));
    assert_eq!(window.write(0, &[1; 512]), Written::Done);
    assert_eq!(window.write(0, &[1; 512]), Written::NotDone(NotDone::Credit));
    assert_eq!(taker.take(|_, _| {}), Ok(1));
    taker.set_credit(2 * bytes_of(512));
    assert_eq!(window.write(0, &[1; 512]), Written::Done);
}

#[test]
fn volumes_of_several_shards_have_a_ring_for_each() {
    let mut grant = grant(2, RING);
    grant.placement = 1;
    let (mut first, one) = Taker::new(&grant, 0, 1);
    let (mut second, two) = Taker::new(&grant, 1, 1);
    first.give_all();
    second.give_all();
    let mut window = DirectWindow::map(grant, vec![one, two], Arc::default()).unwrap();
    assert_eq!(window.write(0, &[1; 512]), Written::Done);
    assert_eq!(window.write(1 << 20, &[2; 512]), Written::Done);
    let several = window.write((1 << 20) - 512, &[3; 1024]);
    assert_eq!(several, Written::NotDone(NotDone::NotOneRing));
    assert_eq!(first.take(|offset, _| assert_eq!(offset, 1 << 20)), Ok(1));
    assert_eq!(second.take(|offset, _| assert_eq!(offset, 0)), Ok(1));
}

#[test]
fn the_bell_is_rung_at_each_quarter() {
    let (mut window, mut taker) = window(1);
    let mut write = |bytes: u64| {
        let mut left = bytes;
        while left >= bytes_of(4096) {
            assert_eq!(window.write(0, &[5; 4096]), Written::Done);
            left -= bytes_of(4096);
        }
    };
    write(RING / 4 - 4096);
    assert!(!is_ringing(&taker), "less than a quarter");
    write(2 * 4160);
    assert!(is_ringing(&taker), "a quarter");
    write(RING / 4 - 3 * 4160);
    assert!(!is_ringing(&taker), "not twice for the same");
    write(4 * 4160);
    assert!(is_ringing(&taker), "a half");
    assert!(taker.take(|_, _| {}).unwrap() > 0);
    taker.give_all();
    write(RING / 4 - 4096);
    assert!(!is_ringing(&taker), "all of it was taken");
    write(2 * 4160);
    assert!(is_ringing(&taker), "a quarter again");
}

/// Writes once while the window is ending, and ends it with so much taken.
fn ending(taken: u64) -> (Written, bool) {
    let (mut window, taker) = window(1);
    taker.set_phase(Phase::Ending);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let written = window.write(0, &[1; 4096]);
            (written, window.has_ended())
        });
        // Once the record is there the target takes it, or not.
        await_record(&taker);
        assert!(!writing.is_finished());
        taker.state(0).write(TAKEN_AT, &taken.to_le_bytes()).unwrap();
        taker.set_phase(Phase::Ended);
        writing.join().unwrap()
    })
}

#[test]
fn a_write_under_a_window_that_ends_is_what_the_target_took() {
    assert_eq!(ending(bytes_of(4096)), (Written::Done, true));
    assert_eq!(ending(bytes_of(4096) + 64), (Written::Done, true));
    assert_eq!(ending(bytes_of(4096) - 64), (Written::NotDone(NotDone::Ended), true));
    assert_eq!(ending(0), (Written::NotDone(NotDone::Ended), true));
}

#[test]
fn a_window_that_has_ended_takes_nothing() {
    let (mut window, taker) = window(1);
    taker.set_phase(Phase::Ended);
    assert_eq!(window.write(0, &[1; 512]), Written::NotDone(NotDone::Ended));
    assert!(window.has_ended());
    taker.set_phase(Phase::Stands);
    assert_eq!(window.write(0, &[1; 512]), Written::NotDone(NotDone::Ended), "for good");
}

#[test]
fn an_end_shows_without_credit_too() {
    let grant = grant(1, RING);
    let (taker, descriptors) = Taker::new(&grant, 0, 1);
    let mut window = DirectWindow::map(grant, vec![descriptors], Arc::default()).unwrap();
    assert_eq!(window.write(0, &[1; 512]), Written::NotDone(NotDone::Credit));
    assert!(!window.has_ended());
    taker.set_phase(Phase::Ending);
    assert_eq!(window.write(0, &[1; 512]), Written::NotDone(NotDone::Ended));
    assert!(window.has_ended());
}

/// A mirror's one file was left out when the pool was opened again: only the other one told of the end, and writes were
/// reported that nobody took. And what is not taken by the one may be by the other, where an opening went on.
#[test]
fn an_end_is_one_in_all_copies_and_what_either_has_taken_is() {
    for (copy, taken, written) in
        [(0, 0, Written::NotDone(NotDone::Ended)), (0, 576, Written::Done), (1, 576, Written::Done)]
    {
        let (mut window, taker) = window(2);
        taker.state(copy).write(TAKEN_AT, &u64::to_le_bytes(taken)).unwrap();
        for each in [0, 1] {
            let ended = Phase::Ended.word().to_le_bytes();
            taker.state(each).write(PHASE_AT, &ended).unwrap();
        }
        assert_eq!(window.write(0, &[1; 512]), written, "copy {copy} took {taken}");
    }
}

#[test]
fn what_is_held_begins_no_write() {
    let (mut window, mut taker) = window(1);
    window.standing().hold();
    assert_eq!(window.write(0, &[1; 512]), Written::NotDone(NotDone::Ended));
    assert_eq!(taker.take(|_, _| {}), Ok(0));
}

/// The target's file is shortened under the host: that is the window's end, not the host's.
#[test]
fn a_file_that_is_shortened_ends_the_window_and_not_the_host() {
    let grant = grant(1, RING);
    let (mut taker, descriptors) = Taker::new(&grant, 0, 1);
    taker.give_all();
    let files =
        descriptors.copies[0].each_ref().map(|fd| std::fs::File::from(fd.try_clone().unwrap()));
    let mut window = DirectWindow::map(grant, vec![descriptors], Arc::default()).unwrap();
    assert_eq!(window.write(0, &[1; 512]), Written::Done);
    files[1].set_len(0).unwrap();
    assert_eq!(window.write(0, &[1; 512]), Written::NotDone(NotDone::Memory));
    assert!(window.has_ended());
    let (mut window, _taker, state) = {
        let grant = crate::testing::grant(1, RING);
        let (mut taker, descriptors) = Taker::new(&grant, 0, 1);
        taker.give_all();
        let state = std::fs::File::from(descriptors.copies[0][0].try_clone().unwrap());
        (DirectWindow::map(grant, vec![descriptors], Arc::default()).unwrap(), taker, state)
    };
    assert_eq!(window.write(0, &[1; 512]), Written::Done);
    state.set_len(0).unwrap();
    assert_eq!(window.write(0, &[1; 512]), Written::Unknown, "nobody can tell");
    assert!(window.has_ended());
}

#[test]
fn rings_of_another_window_are_not_taken_for_its_own() {
    let right = grant(1, RING);
    for wrong in [
        window::Grant { epoch: 1, ..right.clone() },
        window::Grant { number: 1, ..right.clone() },
        window::Grant { ring_bytes: 2 * RING, ..right.clone() },
        window::Grant { rings: 2, ..right.clone() },
    ] {
        let (_taker, descriptors) = Taker::new(&right, 0, 1);
        assert!(DirectWindow::map(wrong, vec![descriptors], Arc::default()).is_err());
    }
    let (_taker, descriptors) = Taker::new(&right, 3, 1);
    assert!(
        DirectWindow::map(right, vec![descriptors], Arc::default()).is_err(),
        "another shard's"
    );
}

#[test]
fn threads_share_a_window_and_none_waits_for_another() {
    let (window, mut taker) = window(1);
    let shared = SharedWindow::default();
    assert_eq!(shared.write(0, &[1; 512]), Written::NotDone(NotDone::Ended), "there is none yet");
    assert!(shared.try_put(&mut Some(window)));
    let written: u64 = std::thread::scope(|scope| {
        let write = |thread: u64| {
            let one =
                |n| shared.write((thread << 20) + n * 512, &[u8::try_from(thread).unwrap(); 512]);
            u64_of((0..100_u64).filter(|&n| one(n) == Written::Done).count())
        };
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || write(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let mut taken = 0;
    let data_is_whole = |offset: u64, data: &[u8]| {
        assert!(data.iter().all(|&byte| u64::from(byte) == offset >> 20));
        taken += 1;
    };
    assert_eq!(u64_of(taker.take(data_is_whole).unwrap()), written);
    assert_eq!((taken, shared.writes()), (written, written));
    taker.set_phase(Phase::Ended);
    assert_eq!(shared.write(0, &[1; 512]), Written::NotDone(NotDone::Ended));
    assert!(!shared.stands());
}

/// Whoever waits for a window's end has it: others send commands meanwhile, and another window is put once it is over.
#[test]
fn nobody_waits_for_who_waits_for_the_end() {
    let (window, taker) = window(1);
    let shared = SharedWindow::default();
    assert!(shared.try_put(&mut Some(window)));
    taker.set_phase(Phase::Ending);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| shared.write(0, &[1; 512]));
        await_record(&taker);
        assert_eq!(shared.write(512, &[1; 512]), Written::NotDone(NotDone::Busy));
        let (next, _other) = self::window(1);
        let mut next = Some(next);
        assert!(!shared.try_put(&mut next) && next.is_some());
        taker.set_phase(Phase::Ended);
        assert_eq!(waiting.join().unwrap(), Written::NotDone(NotDone::Ended));
    });
    let (next, _other) = self::window(1);
    assert!(shared.try_put(&mut Some(next)));
    assert_eq!(shared.write(0, &[1; 512]), Written::Done);
}

#[test]
fn the_outcome_is_unknown_when_nobody_is_left_to_tell() {
    let (mut window, taker) = window(1);
    let standing = Arc::clone(window.standing());
    taker.set_phase(Phase::Ending);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| window.write(0, &[1; 512]));
        await_record(&taker);
        standing.lose();
        assert_eq!(writing.join().unwrap(), Written::Unknown);
    });
}
