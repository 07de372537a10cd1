//! Pages of a manifest that stay where they are, while drives come and go, segments are emptied, and power fails.

use std::collections::BTreeSet;
use std::time::Duration;

use super::checkpoints::put_segments;
use super::rejoin::{Rig, bbu, rig, settled};
use super::rejoin_power::cut;
use super::*;
use crate::address::{Entry, Location, SegmentId};
use crate::canary::make_maps_small;
use crate::drives::{Cause, DriveSet, DriveState};
use crate::recover;
use crate::segment::{SegmentInfo, Stream};
use crate::segment_table::{Segment, State};
use crate::shard::Shard;

async fn take(pool: &Pool) -> Result<()> {
    pool.each(|shard: Rc<Shard>| async move { shard.checkpoints.take().await }).await.map(drop)
}

fn drives_of(shard: &Shard) -> &DriveSet {
    shard.base.writer.segments().drives()
}

/// How many blocks of the manifest, its pages included, have a part of their stripe on these drives.
fn blocks_on(shard: &Shard, drives: u64) -> usize {
    let (manifest, pages) = shard.checkpoints.all_blocks();
    let table = shard.base.table();
    let is_there =
        |at: &&Entry| table.get(at.location.segment()).unwrap().info.parts_on(drives) > 0;
    manifest.iter().chain(&pages).filter(is_there).count()
}

/// All that a checkpoint wrote used to be written with all its redundancy, whatever had gone before.
#[test]
fn a_checkpoint_after_a_drive_is_out_has_all_its_redundancy() {
    reactor::simulate(80, async {
        let mut rig = rig(5, raid::Scheme::Mirror { copies: 2 }, bbu(), 1, 80).await;
        let fill = |shard: Rc<Shard>| async move {
            put_segments(&shard, 3_000);
            shard.checkpoints.take().await?;
            let table = shard.base.table();
            let is_open =
                |of: &&Segment| of.info.stream == Stream::Metadata && of.state == State::Open;
            let drive = table.iter().find(is_open).unwrap().info.members[0].drive;
            Ok((drive, blocks_on(&shard, 1 << drive)))
        };
        let (drive, had) = rig.pool.each(fill).await.unwrap()[0];
        assert!(had > 20, "{had} blocks");
        rig.pull(usize::from(drive), 80).await;
        take(&rig.pool).await.unwrap();
        let seen = move |shard: Rc<Shard>| async move {
            assert_eq!(drives_of(&shard).lost(), 1 << drive);
            let wrote = |()| shard.checkpoints.blocks().0;
            let on_it = blocks_on(&shard, 1 << drive);
            // Once is enough.
            shard.checkpoints.take().await.map(wrote).map(|again| (on_it, again))
        };
        let (on_it, again) = rig.pool.each(seen).await.unwrap()[0];
        assert_eq!(on_it, 0, "blocks of the manifest lack a part");
        assert!(again < 10, "{again} blocks for nothing");
    });
}

/// A drive that was out and is back by the next checkpoint lacks what was written meanwhile, until that is made anew; one
/// that went out again is not the one that went out before.
#[test]
fn drives_that_come_and_go_between_two_checkpoints_are_left() {
    reactor::simulate(81, async {
        let rig = rig(5, raid::Scheme::Mirror { copies: 2 }, bbu(), 1, 81).await;
        let seen = |shard: Rc<Shard>| async move {
            put_segments(&shard, 3_000);
            shard.checkpoints.take().await?;
            let drives = drives_of(&shard);
            // Pages with a part on the drive.
            let there = || -> BTreeSet<Location> {
                let (_, pages) = shard.checkpoints.all_blocks();
                let table = shard.base.table();
                let info = |at: &Location| Rc::clone(&table.get(at.segment()).unwrap().info);
                let pages = pages.iter().map(|at| at.location);
                pages.filter(|at| info(at).parts_on(1 << 1) > 0).collect()
            };
            let mut left = Vec::new();
            for is_whole_again in [false, true, false] {
                let had = there();
                let media = drives.written(1).cloned().unwrap();
                drives.fail(1, Cause::because("it is pulled"));
                drives.put(1, media)?;
                if is_whole_again {
                    assert!(drives.make_online(1));
                }
                shard.checkpoints.take().await?;
                left.push((had.len(), there().intersection(&had).count()));
                if drives.state(1) == DriveState::Rejoining {
                    assert!(drives.make_online(1));
                }
                // Until some are there again: each segment has two of five drives.
                for _ in 0..20 {
                    shard.base.writer.leave_metadata(|_| true).await?;
                    for at in &shard.checkpoints.all_blocks().1[..4] {
                        shard.checkpoints.leave(at.location.segment()).await;
                    }
                    shard.checkpoints.take().await?;
                    if !there().is_empty() {
                        break;
                    }
                }
            }
            Ok(left)
        };
        let left = rig.pool.each(seen).await.unwrap().remove(0);
        assert!(left.iter().all(|(had, _)| *had > 0), "{left:?}");
        assert!(left.iter().all(|(_, stay)| *stay == 0), "pages lack a part: {left:?}");
    });
}

impl Rig {
    /// All that was written is on the drives, on pages of manifests that are many, in segments that are full.
    async fn pages(&self) -> Vec<(SegmentInfo, Entry)> {
        let pages = self.pool.each(|shard| async move {
            shard.keeper.flush().await?;
            shard.checkpoints.take().await?;
            shard.base.writer.leave_metadata(|_| true).await?;
            shard.base.writer.settle_metadata().await?;
            let (_, pages) = shard.checkpoints.all_blocks();
            let table = shard.base.table();
            let info = |at: &Entry| {
                let segment = table.get(at.location.segment()).unwrap();
                assert_eq!(segment.state, State::Sealed);
                (SegmentInfo::clone(&segment.info), *at)
            };
            Ok(pages.iter().map(info).collect::<Vec<_>>())
        });
        pages.await.unwrap().into_iter().flatten().collect()
    }

    /// Of the stripe of a block nothing is left in its row on these units; of its own where it is on none of these drives.
    fn spoil(&self, info: &SegmentInfo, at: Entry, is_spoilt: impl Fn(u16) -> bool) {
        let place = info.geometry.place(at.location.slot());
        for unit in 0..info.geometry.width() {
            let drive = info.member(place.stripe, unit).drive;
            if is_spoilt(drive) {
                let row = self.offset_of(info, place.stripe, unit)
                    + u64::from(place.block) * BLOCK as u64;
                self.media[usize::from(drive)].poke(row, &[0xa5; BLOCK]);
            }
        }
    }

    /// What would be there if the process was killed now, and started again.
    async fn killed(&mut self) {
        self.pool.clone().abandon().await;
        if let Err(error) = self.open(OpenOptions::default()).await {
            panic!("it does not open: {error}");
        }
        verify(&self.v, &self.model).await;
    }
}

/// Each checkpoint wrote all anew, so that none had what was lost where the one before lay.
#[test]
fn pages_that_a_scrub_finds_lost_are_written_again() {
    make_maps_small(true);
    reactor::simulate(82, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 82).await;
        let pages = rig.pages().await;
        assert!(pages.len() > 3, "{}", pages.len());
        for (info, at) in &pages {
            rig.spoil(info, *at, |_| true);
        }
        let found = rig.scrub().await.position;
        assert!(found.damaged > found.repaired, "{found:?}");
        rig.killed().await;
    });
    make_maps_small(false);
}

/// A drive was out, and what the others have of a page was lost meanwhile.
#[test]
fn pages_that_a_drive_which_returns_does_not_give_are_written_again() {
    make_maps_small(true);
    reactor::simulate(83, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 83).await;
        rig.pull(0, 83).await;
        let pages = rig.pages().await;
        assert!(pages.len() > 3, "{}", pages.len());
        for (info, at) in &pages {
            rig.spoil(info, *at, |drive| drive != 0);
        }
        rig.give_back(0).await;
        let (state, rejoin) = settled(&rig.pool, 0).await;
        assert_eq!(state, DriveState::Online, "{rejoin:?}");
        assert!(rejoin.as_ref().is_some_and(|rejoin| rejoin.lost > 0), "{rejoin:?}");
        rig.killed().await;
    });
    make_maps_small(false);
}

/// Segments of metadata that are full.
fn full_metadata(shard: &Shard) -> BTreeSet<SegmentId> {
    let table = shard.base.table();
    let full = table.iter().filter(|of| {
        of.info.stream == Stream::Metadata && of.state == State::Sealed && of.applied == of.stripes
    });
    full.map(|segment| segment.info.id).collect()
}

/// One checkpoint moved what was in them, and whoever had no space for another never got what they gave.
#[test]
fn metadata_that_is_moved_together_gives_its_space_back_in_a_full_pool_too() {
    for is_full in [false, true] {
        reactor::simulate(84, async move {
            let rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 84).await;
            let left = rig.pool.each(move |shard: Rc<Shard>| async move {
                put_segments(&shard, 500);
                for _ in 0..3 {
                    shard.checkpoints.take().await?;
                    shard.base.writer.leave_metadata(|_| true).await?;
                }
                shard.base.writer.settle_metadata().await?;
                let common = &shard.base.common;
                while is_full && common.allocator.lock().available() > 2 {
                    common.allocator.lock().allocate();
                }
                let sparse = shard.base.table().sparse_metadata();
                let before = common.allocator.lock().available();
                shard.checkpoints.evacuate_metadata(1).await?;
                let after = common.allocator.lock().available();
                let left = full_metadata(&shard);
                let left = sparse.iter().filter(|id| left.contains(id)).count();
                Ok((sparse.len(), left, before, after))
            });
            for (sparse, left, before, after) in left.await.unwrap() {
                assert!(sparse > 1);
                assert_eq!(left, 0, "of {sparse} segments, full: {is_full}");
                assert!(!is_full || after > before, "{before} segments, then {after}");
            }
        });
    }
}

/// What is held is given back by nobody: no number of checkpoints does that.
#[test]
fn metadata_that_is_held_is_not_waited_for() {
    reactor::simulate(85, async {
        let rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 85).await;
        let taken = rig.pool.each(|shard: Rc<Shard>| async move {
            put_segments(&shard, 500);
            shard.checkpoints.take().await?;
            shard.base.writer.leave_metadata(|_| true).await?;
            shard.base.writer.settle_metadata().await?;
            let infos: Vec<_> = {
                let (table, full) = (shard.base.table(), full_metadata(&shard));
                full.iter().map(|id| Rc::clone(&table.get(*id).unwrap().info)).collect()
            };
            let mut holds = Vec::new();
            for info in &infos {
                holds.extend(shard.checkpoints.hold_segment(info).await);
            }
            assert!(!holds.is_empty());
            let before = shard.checkpoints.written_root();
            shard.checkpoints.evacuate_metadata(1).await?;
            Ok(shard.checkpoints.written_root().zip(before).map(|(after, before)| after - before))
        });
        assert_eq!(taken.await.unwrap(), [Some(1)]);
    });
}

/// A checkpoint that was under way put pages into the segment that was being left, and they stayed.
#[test]
fn a_segment_is_left_by_a_checkpoint_under_way_too() {
    reactor::simulate(86, async {
        let rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 86).await;
        let left = rig.pool.each(|shard: Rc<Shard>| async move {
            put_segments(&shard, 3_000);
            let before = shard.base.table().live_metadata();
            let taking = {
                let shard = Rc::clone(&shard);
                reactor::spawn(async move { shard.checkpoints.take().await })
            };
            // Some of its pages are there, and its root is not.
            while shard.base.table().live_metadata() < before + 20 {
                reactor::yield_now().await;
            }
            assert!(shard.checkpoints.is_under_way());
            shard.base.writer.leave_metadata(|_| true).await?;
            shard.base.writer.settle_metadata().await?;
            assert!(shard.checkpoints.is_under_way());
            let full = full_metadata(&shard);
            assert!(!full.is_empty());
            for id in &full {
                shard.checkpoints.evacuate(*id).await?;
            }
            taking.await.unwrap()?;
            shard.checkpoints.take().await?;
            shard.checkpoints.take().await?;
            let left = full_metadata(&shard);
            Ok((full.len(), full.iter().filter(|id| left.contains(id)).count()))
        });
        for (full, left) in left.await.unwrap() {
            assert_eq!(left, 0, "of {full} segments");
        }
    });
}

/// Counts that stood for others went from one life of the pool to the next, and were off by more each time.
#[test]
fn an_orderly_end_writes_counts_as_they_are() {
    let all = drives(4, 96 * MIB);
    reactor::simulate(87, async move {
        let spec =
            PoolSpec { scheme: raid::Scheme::Raid5, au_bytes: Some(MIB), ..spec(&all, bbu()) };
        let pool = Pool::create(spec, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        scribble(&v, &mut Model::new(), 600, 87).await;
        let written = pool.each(|shard: Rc<Shard>| async move {
            put_segments(&shard, 300);
            shard.checkpoints.take().await?;
            for n in 0..300 {
                let at = Location::new(SegmentId::new(1_000_000 + n), 0);
                shard.base.writer.table_mut().drop_live(at, 1);
            }
            shard.checkpoints.take().await?;
            let live = shard.base.table().get(SegmentId::new(1_000_000)).unwrap().live;
            let written = async || {
                let (superblock, writer) = (&shard.base.common.superblock, &shard.base.writer);
                let (segments, geometry) = (writer.segments(), writer.geometry());
                let found = recover::find(superblock, segments, geometry, 0).await?;
                let of = found.manifest.segments.into_iter();
                let of = of.filter(|record| record.info.id.get() >= 1_000_000);
                let off = of.map(|record| record.live - live).collect::<Vec<_>>();
                assert_eq!(off.len(), 300);
                Ok::<_, crate::Error>(off.iter().sum::<u32>())
            };
            let before = written().await?;
            // What closing the pool does.
            shard.destage.drain().await?;
            Ok((before, written().await?))
        });
        // A hint will do until then.
        assert_eq!(written.await.unwrap(), [(300, 0)]);
    });
}

/// Power fails in whatever moment of a checkpoint, or drives refuse what it writes and it is tried again: what counts then
/// has all its pages.
#[test]
fn whenever_a_checkpoint_is_cut_short_the_pool_opens_with_all_its_pages() {
    make_maps_small(true);
    for seed in 900..930 {
        let mut rig = reactor::simulate(seed, async move {
            let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, seed).await;
            for round in 0..3 {
                scribble(&rig.v, &mut rig.model, 150, seed * 10 + round).await;
                if round == 1 && seed % 3 == 0 {
                    rig.pull(usize64(seed / 3 % 4), seed).await;
                }
                let pool = rig.pool.clone();
                let refuses = seed % 2 == 0;
                for media in rig.media.iter().filter(|_| refuses) {
                    media.refuse(media::drive::Refusal {
                        operation: Some(media::Operation::Write),
                        range: crate::format::area::ROOTS..crate::format::area::CATALOG,
                        kind: media::Kind::Full,
                        times: Some(1 + seed % 3),
                    });
                }
                let _taking = reactor::spawn(async move {
                    loop {
                        let full = |shard: Rc<Shard>| async move {
                            for id in full_metadata(&shard) {
                                shard.checkpoints.evacuate(id).await?;
                            }
                            shard.checkpoints.take().await?;
                            shard.keeper.flush().await
                        };
                        if pool.each(full).await.is_err() {
                            reactor::sleep(Duration::from_micros(20)).await;
                        }
                    }
                });
                reactor::sleep(Duration::from_micros(300 * (seed - 899))).await;
                rig.media.iter().for_each(|media| media.refuse_nothing());
            }
            cut(&rig, seed);
            rig
        });
        reactor::simulate(seed, async move {
            rig.media.iter().for_each(|media| media.revive());
            if let Err(error) =
                rig.open(OpenOptions { degraded: true, ..OpenOptions::default() }).await
            {
                panic!("seed {seed}: {error}");
            }
            verify(&rig.v, &rig.model).await;
        });
    }
    make_maps_small(false);
}
