//! What is given back, or forgotten, while somebody still has it in hand.

use std::time::Duration;

use media::drive::SimulatedOptions;

use super::*;
use crate::address::{Key, Location, SegmentId, SharedBlockId, Stored, Version, View};
use crate::canary::{Step, misses};
use crate::log::Append;
use crate::map::{Contents, Extents};
use crate::segment::Stream;
use crate::segment_table::Segment;
use crate::shard::candidates::Candidates;

const BLOCKS: u64 = 4096;

/// A moment in which everything that waits for nobody is done.
const WHILE: Duration = Duration::from_secs(1);

/// A pool of one shard whose drives are slow, with a volume that is on them.
async fn filled() -> (Vec<Arc<Simulated>>, Pool, View) {
    let slow = Duration::from_millis(20);
    let options = |n| SimulatedOptions {
        capacity: 96 * MIB,
        seed: n,
        transfer: slow..slow,
        ..Default::default()
    };
    let media: Vec<_> = (0..4).map(|n| Simulated::new(options(n))).collect();
    let drives: Vec<_> = media.iter().map(|d| Arc::new(Drive::Simulated(Arc::clone(d)))).collect();
    let spec = spec(&drives, LogSpec::Bbu(vec![pmem(8 * MIB)]));
    let spec = PoolSpec { scheme: raid::Scheme::Raid5, au_bytes: Some(MIB), ..spec };
    let pool = Pool::create(spec, &[]).await.unwrap();
    let v = pool.create_volume(volume("db", BLOCKS * BLOCK as u64)).await.unwrap();
    for at in 0..BLOCKS {
        v.write(at * BLOCK as u64, &block(at, 1)).await.unwrap();
    }
    pool.audit_space().await.unwrap();
    let view = pool.0.volumes.borrow()["db"].view;
    (media, pool, view)
}

/// Does something with the shard, and tells whether that ended well.
fn with_shard<F>(
    story: impl Fn(Vec<Arc<Simulated>>, Rc<Shard>, View) -> F + Clone + Send + 'static,
) -> bool
where
    F: Future<Output = bool> + 'static,
{
    reactor::simulate(1, async move {
        let (media, pool, view) = filled().await;
        let work = move |shard: Rc<Shard>| {
            let done = story(media.clone(), shard, view);
            async move { Ok(done.await) }
        };
        pool.each(work).await.unwrap() == [true]
    })
}

async fn found(shard: &Shard, view: View, at: u64) -> Stored {
    let mut extents = Extents::default();
    shard.base.map.lookup(view, at, 1, &mut extents).await.unwrap();
    match extents.iter().next().unwrap().contents {
        Contents::Stored { location, crcs, .. } => Stored::plain(location, crcs[0]),
        other => panic!("block {at} is {other:?}"),
    }
}

async fn is_right(shard: &Shard, view: View, at: u64, wanted: &[u8]) -> bool {
    let mut got = vec![0; BLOCK];
    shard.front.read(Key::new(view, at), None, &mut got).await.is_ok() && got == wanted
}

/// Takes all away that the volume had, and gives the segments that nothing needs from now on.
async fn emptied(shard: &Rc<Shard>, view: View) -> Vec<SegmentId> {
    shard.front.deallocate(view, 0, BLOCKS).await.unwrap();
    shard.destage.drain().await.unwrap();
    let is_full = |segment: &&Segment| {
        segment.info.stream == Stream::User && segment.stripes == segment.info.geometry.stripes()
    };
    let full: Vec<_> = shard.base.table().iter().filter(is_full).map(|s| s.info.id).collect();
    for id in &full {
        shard.base.writer.table_mut().set_live(*id, 0);
    }
    // Only what was dead before it is given back by the next one.
    shard.keeper.flush().await.unwrap();
    let dead = shard.base.table().dead(shard.checkpoints.cut());
    let dead: Vec<_> = dead.into_iter().filter(|id| full.contains(id)).collect();
    assert!(!dead.is_empty(), "no segment is dead");
    dead.iter().for_each(|id| shard.checkpoints.note_dead(*id));
    dead
}

fn are_there(shard: &Shard, segments: &[SegmentId]) -> bool {
    segments.iter().all(|id| shard.base.table().get(*id).is_some())
}

/// Who had found a block there read what another segment had in its place.
#[test]
fn space_is_not_given_back_while_somebody_reads_there() {
    let done = with_shard(|_, shard, view| async move {
        let dead = emptied(&shard, view).await;
        let reading = shard.base.grace.enter();
        let _ = reactor::timeout(WHILE, shard.checkpoints.take()).await;
        let waited = are_there(&shard, &dead);
        drop(reading);
        shard.checkpoints.take().await.unwrap();
        waited && !are_there(&shard, &dead)
    });
    assert!(done, "given back too early, or never");
}

#[test]
fn the_wait_for_readers_before_space_is_given_back_is_missed() {
    misses(Step::CheckpointGrace, "given back", space_is_not_given_back_while_somebody_reads_there);
}

/// Whether something is being put right.
async fn repairs(shard: &Shard) -> bool {
    reactor::timeout(Duration::from_nanos(1), shard.base.writer.segments().repaired())
        .await
        .is_err()
}

/// It was written over what another segment had there by then.
#[test]
fn space_is_not_given_back_while_something_is_put_right_there() {
    let done = with_shard(|media, shard, view| async move {
        let entry = {
            let mut at = 0;
            loop {
                // A block on the second drive.
                let entry = found(&shard, view, at).await;
                let info = Rc::clone(shard.base.table().info(entry.location).unwrap());
                let place = info.geometry.place(entry.location.slot());
                if info.member(place.stripe, stdx::num::usize32(place.unit)).drive == 1 {
                    break entry;
                }
                at += 1;
            }
        };
        let dead = emptied(&shard, view).await;
        assert!(dead.contains(&entry.location.segment()));
        media[1].rot_where(1_000_000, |offset, _| {
            offset >= crate::format::catalog::CatalogArea::LEAST.end()
        });
        let reader = Rc::clone(&shard);
        let reader = reactor::spawn(async move {
            let info = Rc::clone(reader.base.table().info(entry.location).unwrap());
            let (slot, mut out) = (entry.location.slot(), vec![0; BLOCK]);
            let _ = reader.base.writer.segments().read(&info, slot, &[entry.crc], &mut out).await;
        });
        while !repairs(&shard).await {
            reactor::sleep(Duration::from_micros(100)).await;
        }
        media[1].set_hanging(true);
        let checkpoint = Rc::clone(&shard);
        let checkpoint = reactor::spawn(async move { checkpoint.checkpoints.take().await });
        let mut waited = true;
        while repairs(&shard).await {
            waited &= are_there(&shard, &dead);
            reactor::sleep(Duration::from_millis(10)).await;
        }
        media[1].set_hanging(false);
        checkpoint.await.unwrap().unwrap();
        reader.await.unwrap();
        waited && !are_there(&shard, &dead)
    });
    assert!(done, "given back too early, or never");
}

#[test]
fn the_wait_for_repairs_before_space_is_given_back_is_missed() {
    misses(
        Step::CheckpointRepairs,
        "given back",
        space_is_not_given_back_while_something_is_put_right_there,
    );
}

/// What was made anew of it came over what another segment had there by then.
#[test]
fn space_is_not_given_back_while_a_drive_s_part_of_it_is_made_anew() {
    let done = with_shard(|_, shard, view| async move {
        let dead = emptied(&shard, view).await;
        let info = Rc::clone(&shard.base.table().get(dead[0]).unwrap().info);
        let held = shard.checkpoints.hold_segment(&info).await.unwrap();
        shard.checkpoints.take().await.unwrap();
        let waited = are_there(&shard, &dead[..1]);
        drop(held);
        shard.checkpoints.take().await.unwrap();
        waited && !are_there(&shard, &dead)
    });
    assert!(done, "given back too early, or never");
}

/// A scrub held one while a drive was made whole, and one of the two was let go.
#[test]
fn who_holds_a_segment_does_not_let_go_of_another_one_s() {
    let done = with_shard(|_, shard, view| async move {
        let dead = emptied(&shard, view).await;
        let info = |n: usize| Rc::clone(&shard.base.table().get(dead[n]).unwrap().info);
        let first = shard.checkpoints.hold_segment(&info(0)).await.unwrap();
        let second = shard.checkpoints.hold_segment(&info(1)).await.unwrap();
        let third = shard.checkpoints.hold_segment(&info(1)).await.unwrap();
        drop(second);
        shard.checkpoints.take().await.unwrap();
        let waited = are_there(&shard, &dead[..2]);
        drop((first, third));
        shard.checkpoints.take().await.unwrap();
        waited && !are_there(&shard, &dead)
    });
    assert!(done, "given back too early, or never");
}

#[test]
fn the_hold_of_a_segment_that_is_made_anew_is_missed() {
    misses(
        Step::RejoinHold,
        "given back",
        space_is_not_given_back_while_a_drive_s_part_of_it_is_made_anew,
    );
}

/// A checkpoint had decided already: what a scrub put right then came over what another segment had there by then.
#[test]
fn who_holds_a_segment_that_is_being_given_back_hears_of_it() {
    let done = with_shard(|_, shard, view| async move {
        let dead = emptied(&shard, view).await;
        let info = Rc::clone(&shard.base.table().get(dead[0]).unwrap().info);
        // The checkpoint is written, and waits for a reader.
        let reading = shard.base.grace.enter();
        let giving = Rc::clone(&shard);
        let giving = reactor::spawn(async move { giving.checkpoints.take().await });
        reactor::sleep(WHILE).await;
        assert!(are_there(&shard, &dead));
        let holder = Rc::clone(&shard);
        let holding =
            reactor::spawn(async move { holder.checkpoints.hold_segment(&info).await.is_some() });
        reactor::sleep(WHILE).await;
        drop(reading);
        giving.await.unwrap().unwrap();
        !holding.await.unwrap() && !are_there(&shard, &dead)
    });
    assert!(done, "somebody holds what was given back");
}

#[test]
fn the_wait_for_a_checkpoint_that_gives_back_what_is_to_be_held_is_missed() {
    misses(
        Step::HoldWaits,
        "what was given back",
        who_holds_a_segment_that_is_being_given_back_hears_of_it,
    );
}

/// Reclaim had moved a segment's blocks, and looked at once what was left: by the map that was all of it, and the segment
/// was kept.
#[test]
fn what_was_moved_is_not_counted_where_it_was() {
    let done = with_shard(|_, shard, view| async move {
        let origin = found(&shard, view, 0).await.location.segment();
        shard.reclaim.empty(origin).await.unwrap();
        shard.keeper.settle_reclaim().await.unwrap();
        let is_learnt = shard.keeper.applied() >= shard.base.writer.numbered();
        assert!(shard.reclaim.verify_dead(origin).await.unwrap());
        let live = shard.base.table().get(origin).map_or(0, |segment| segment.live);
        is_learnt && live == 0 && is_right(&shard, view, 0, &block(0, 1)).await
    });
    assert!(done, "a segment without anything in it is kept");
}

#[test]
fn the_wait_for_the_map_to_learn_what_was_moved_is_missed() {
    misses(Step::ReclaimLearnt, "is kept", what_was_moved_is_not_counted_where_it_was);
}

/// Has a block refer to what a copier found, which tells the log only now.
async fn refer(shard: &Shard, view: View, at: u64, to: Stored) {
    let (key, source) = (Key::new(view, at), Key::new(view, 0));
    shard.base.log.append(Append::Refer { key, source, entries: &[to] }).await.unwrap();
}

/// A copier had found a block; before it told the log, all of the segment was called dead and given back.
#[test]
fn what_a_copier_has_found_is_not_called_dead() {
    let done = with_shard(|_, shard, view| async move {
        let entry = found(&shard, view, 0).await;
        shard.front.deallocate(view, 0, BLOCKS).await.unwrap();
        shard.destage.drain().await.unwrap();
        // As if it had begun before.
        let copying = shard.base.grace.enter();
        let looking = Rc::clone(&shard);
        let looking =
            reactor::spawn(
                async move { looking.reclaim.verify_dead(entry.location.segment()).await },
            );
        reactor::sleep(WHILE).await;
        refer(&shard, view, 9, entry).await;
        drop(copying);
        assert!(looking.await.unwrap().unwrap());
        shard.keeper.flush().await.unwrap();
        shard.keeper.flush().await.unwrap();
        is_right(&shard, view, 9, &block(0, 1)).await
    });
    assert!(done, "what a copier had found is gone");
}

#[test]
fn the_wait_for_copiers_before_a_segment_is_called_dead_is_missed() {
    misses(Step::DeadGrace, "is gone", what_a_copier_has_found_is_not_called_dead);
}

/// A copier had found the last reference to a shared block that had been moved; before it told the log, that was gone,
/// and a sweep forgot where the block was.
#[test]
fn what_a_copier_has_found_is_not_swept_away() {
    let done = with_shard(|_, shard, view| async move {
        let entry = found(&shard, view, 0).await;
        let origin = entry.location.segment();
        refer(&shard, view, 9, entry).await;
        shard.destage.drain().await.unwrap();
        shard.reclaim.empty(origin).await.unwrap();
        shard.keeper.settle_reclaim().await.unwrap();
        while shard.base.table().get(origin).is_some() {
            shard.reclaim.verify_dead(origin).await.unwrap();
            shard.keeper.flush().await.unwrap();
        }
        let reference = found(&shard, view, 9).await;
        assert!(reference.location.name().is_some());
        shard.front.deallocate(view, 0, BLOCKS).await.unwrap();
        shard.destage.drain().await.unwrap();
        // As if it had begun before.
        let copying = shard.base.grace.enter();
        // As a merge of the map has it that finds a reference superseded.
        shard.base.pages.unreferred(1);
        let sweeping = Rc::clone(&shard);
        let sweeping = reactor::spawn(async move { sweeping.sweep.sweep().await });
        reactor::sleep(WHILE).await;
        refer(&shard, view, 20, reference).await;
        drop(copying);
        sweeping.await.unwrap().unwrap();
        is_right(&shard, view, 20, &block(0, 1)).await
    });
    assert!(done, "what a copier had found is gone");
}

#[test]
fn the_wait_for_copiers_before_a_sweep_decides_is_missed() {
    misses(Step::SweepGrace, "is gone", what_a_copier_has_found_is_not_swept_away);
}

/// A block that a sweep looks for references to, which has come by the key the reference is to be learnt for.
async fn looked_for(shard: &Shard, view: View) -> (SharedBlockId, u32) {
    let Stored { location, crc, .. } = found(shard, view, 0).await;
    let name = SharedBlockId::of(Location::new(location.segment(), location.slot()));
    let mut candidates = Candidates::new(shard.base.writer.geometry().slots());
    assert!(candidates.add(name, 1));
    std::mem::forget(shard.sought.begin(candidates));
    (name, crc)
}

/// Whether the sweep would make a hole of it.
fn is_doomed(shard: &Shard, name: SharedBlockId) -> bool {
    shard.sought.take().unwrap().keep(name, 1)
}

/// The sweep had looked at that key already, and the log forgot the reference.
#[test]
fn a_sweep_hears_of_references_learnt_behind_its_look() {
    let done = with_shard(|_, shard, view| async move {
        let (name, crc) = looked_for(&shard, view).await;
        shard
            .keeper
            .learn_references(Key::new(view, 9), Version::FIRST, name, &[crc])
            .await
            .unwrap();
        !is_doomed(&shard, name)
    });
    assert!(done, "a sweep makes a hole of what is referred to");
}

#[test]
fn that_a_sweep_hears_of_references_is_missed() {
    misses(
        Step::SweepHearsReferences,
        "a hole",
        a_sweep_hears_of_references_learnt_behind_its_look,
    );
}

/// The same of the block that was copied, which refers to what it has from then on.
#[test]
fn a_sweep_hears_of_blocks_shared_behind_its_look() {
    let done = with_shard(|_, shard, view| async move {
        let (name, crc) = looked_for(&shard, view).await;
        shard.keeper.learn_shared(Key::new(view, 0), name, &[crc]).await.unwrap();
        !is_doomed(&shard, name)
    });
    assert!(done, "a sweep makes a hole of what is referred to");
}

#[test]
fn that_a_sweep_hears_of_shared_blocks_is_missed() {
    misses(Step::SweepHearsShared, "a hole", a_sweep_hears_of_blocks_shared_behind_its_look);
}
