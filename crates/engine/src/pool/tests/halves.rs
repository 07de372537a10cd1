//! Changes of parts of blocks beside others, and changes that are given up half way: nothing of them takes others back,
//! or comes back itself.

use std::cell::Cell;
use std::time::Duration;

use super::*;
use crate::canary::{Step, misses};

/// A pool whose log takes a while.
async fn pool(seed: u64) -> Pool {
    let (_, drives) = simulated(4, 96 * MIB, seed);
    let scheme = raid::Scheme::Raid5;
    let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, LogSpec::Drives) };
    Pool::create(spec, &[]).await.unwrap()
}

/// A host gave up a write of one half of a block, and it came to light all the same; a write of the other half, begun
/// before that, took it away again.
#[test]
fn what_came_to_light_of_a_change_given_up_is_not_taken_away_by_the_next() {
    let mut came = 0;
    for step in 0..60 {
        came += reactor::simulate(step, async move {
            let pool = pool(step).await;
            let spec = VolumeSpec { block_size: 512, ..volume("db", MIB) };
            let v = pool.create_volume(spec).await.unwrap();
            v.write(0, &[7; BLOCK]).await.unwrap();
            let first = v.write(0, &[1; 512]);
            let _ = reactor::timeout(Duration::from_micros(5 * step), first).await;
            let seen = Rc::new(Cell::new(false));
            let (book, volume) = (Rc::clone(&seen), v.clone());
            let reader = reactor::spawn(async move {
                let mut half = [0; 512];
                while !book.get() {
                    volume.read(0, &mut half).await.unwrap();
                    book.set(half == [1; 512]);
                    reactor::sleep(Duration::from_micros(1)).await;
                }
            });
            v.write(512, &[2; 512]).await.unwrap();
            let came = seen.replace(true);
            reader.await.unwrap();
            let mut both = [0; 1024];
            v.read(0, &mut both).await.unwrap();
            assert_eq!(both[512..], [2; 512]);
            assert!(!came || both[..512] == [1; 512], "step {step}: what was seen is gone");
            u64::from(came)
        });
    }
    assert!(came > 10, "{came} of 60 came to light: the moments are chosen badly");
}

#[test]
fn the_wait_for_what_was_given_up_is_missed() {
    misses(
        Step::PartSettles,
        "is gone",
        what_came_to_light_of_a_change_given_up_is_not_taken_away_by_the_next,
    );
}

/// Who made a volume smaller gave up before what lay beyond its end was taken away. Made larger again, it had that.
#[test]
fn what_was_cut_off_does_not_come_back_when_a_volume_grows() {
    let mut shrunk = 0;
    for step in 0..60 {
        shrunk += reactor::simulate(step, async move {
            let pool = pool(step).await;
            let v = pool.create_volume(volume("db", 4 * MIB)).await.unwrap();
            let at = 3 * MIB;
            v.write(at, &block(3, 1)).await.unwrap();
            let late = v.clone();
            let writer = reactor::spawn(async move {
                // It may come too late.
                for version in 2..40 {
                    let _ = late.write(at, &block(3, version)).await;
                }
            });
            let shrink = pool.resize_volume("db", 2 * MIB);
            let given_up =
                reactor::timeout(Duration::from_micros(10 * step), shrink).await.is_err();
            if !given_up || v.len() > 2 * MIB {
                return 0;
            }
            writer.await.unwrap();
            pool.resize_volume("db", 4 * MIB).await.unwrap();
            let mut got = vec![0; BLOCK];
            v.read(at, &mut got).await.unwrap();
            assert!(got == [0; BLOCK], "step {step}: what was cut off is back");
            1
        });
    }
    assert!(shrunk > 10, "{shrunk} of 60 were given up: the moments are chosen badly");
}

#[test]
fn taking_away_before_a_volume_grows_is_missed() {
    misses(Step::GrowTakesAway, "is back", what_was_cut_off_does_not_come_back_when_a_volume_grows);
}

/// Two hosts wrote the two halves of a block at once, and one of them was gone.
#[test]
fn halves_of_a_block_that_are_written_at_once_are_both_there() {
    for step in 0..10 {
        reactor::simulate(step, async move {
            let pool = pool(step).await;
            let spec = VolumeSpec { block_size: 512, ..volume("db", MIB) };
            let v = pool.create_volume(spec).await.unwrap();
            let other = v.clone();
            let first = reactor::spawn(async move { other.write(0, &[1; 512]).await });
            reactor::sleep(Duration::from_micros(10 * step)).await;
            v.write(512, &[2; 512]).await.unwrap();
            first.await.unwrap().unwrap();
            let mut both = [0; 1024];
            v.read(0, &mut both).await.unwrap();
            assert!(
                both[..512] == [1; 512] && both[512..] == [2; 512],
                "step {step}: a half is gone"
            );
        });
    }
}

#[test]
fn the_turns_of_those_who_change_parts_are_missed() {
    misses(
        Step::PartTurns,
        "a half is gone",
        halves_of_a_block_that_are_written_at_once_are_both_there,
    );
}

/// A host changed a part of a block, and had read the rest, when the volume was deleted: what it wrote behind that was
/// nobody's for ever.
#[test]
fn what_is_written_beside_a_deletion_is_gone_with_the_volume() {
    for step in 0..10 {
        reactor::simulate(step, async move {
            let pool = pool(step).await;
            let spec = VolumeSpec { block_size: 512, ..volume("db", MIB) };
            let v = pool.create_volume(spec).await.unwrap();
            v.write(0, &[7; BLOCK]).await.unwrap();
            assert_eq!(pool.audit_space().await.unwrap().live, 1);
            let writer = reactor::spawn(async move { v.write(0, &[1; 512]).await });
            reactor::sleep(Duration::from_micros(step)).await;
            pool.delete_volume("db").await.unwrap();
            let _ = writer.await.unwrap();
            let live = pool.audit_space().await.unwrap().live;
            assert_eq!(live, 0, "step {step}: blocks of a volume that is gone");
        });
    }
}

#[test]
fn the_wait_for_writers_before_a_volume_is_taken_away_is_missed() {
    misses(
        Step::TakesAwayWriters,
        "that is gone",
        what_is_written_beside_a_deletion_is_gone_with_the_volume,
    );
}
