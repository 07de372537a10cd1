//! Scrubs of open pools.

use std::time::Duration;

use super::rejoin::{Rig, bbu, rig};
use super::rejoin_power::cut;
use super::*;
use crate::segment::{SegmentInfo, Stream};
use crate::segment_table::State;

impl Rig {
    /// Damages some blocks of a drive's units behind everybody's back; what is there afterwards is of no stripe.
    pub(super) fn damage(&self, drive: usize, blocks: u64, seed: u64) {
        let mut prng = Prng::new(seed);
        let begins = self.pool.0.common.superblock.drives.header_offset(0, 0);
        let all = (self.drives[drive].capacity() - begins) / BLOCK as u64;
        let mut junk = [0; BLOCK];
        for _ in 0..blocks {
            let at = begins + prng.below(all) * BLOCK as u64;
            prng.fill(&mut junk);
            self.media[drive].poke(at, &junk);
        }
    }

    pub(super) async fn scrub(&self) -> Scrub {
        self.pool.scrub(&ScrubPosition::default(), 0).await.unwrap();
        let scrub = self.scrubbed().await;
        assert!(scrub.is_complete, "{scrub:?}");
        scrub
    }

    async fn scrubbed(&self) -> Scrub {
        loop {
            let scrub = self.pool.status().await.unwrap().scrub.unwrap();
            if !scrub.is_under_way {
                return scrub;
            }
            reactor::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Where a unit of a stripe begins on its drive.
    pub(super) fn offset_of(&self, info: &SegmentInfo, stripe: u32, unit: usize) -> u64 {
        let member = info.member(stripe, unit);
        let drives = &self.pool.0.common.superblock.drives;
        drives.offset(member.drive, member.au, info.geometry.member_block(stripe, 0))
    }

    /// All that was written is on the drives.
    pub(super) async fn settle(&self) {
        let shards = self.pool.each(|shard| async move {
            shard.destage.drain().await?;
            shard.checkpoints.take().await
        });
        shards.await.unwrap();
    }
}

#[test]
fn damage_that_nobody_read_is_put_right_before_drives_are_lost() {
    for (seed, shards) in [(31, 1), (32, 2)] {
        reactor::simulate(seed, async move {
            let mut rig = rig(5, raid::Scheme::Raid6, bbu(), shards, seed).await;
            scribble(&rig.v, &mut rig.model, 2000, seed).await;
            rig.pool.clone().close().await.unwrap();
            rig.open(OpenOptions::default()).await.unwrap();
            let clean = rig.scrub().await;
            assert_eq!((clean.position.damaged, clean.position.unchecked), (0, 0), "{clean:?}");
            assert!(clean.bytes > 0 && clean.position.done == clean.bytes, "{clean:?}");
            rig.damage(0, 2000, seed);
            rig.damage(3, 2000, seed + 1);
            let found = rig.scrub().await.position;
            assert!(found.damaged > 50, "{found:?}");
            assert_eq!((found.repaired, found.lost), (found.damaged, 0), "{found:?}");
            let again = rig.scrub().await.position;
            assert_eq!(again.damaged, 0, "{again:?}");
            // Two others go: what was put right has to bear it.
            rig.media[1].fail();
            rig.media[2].fail();
            verify(&rig.v, &rig.model).await;
        });
    }
}

/// Nobody reads them while a pool is open: they rotted on one drive after the other, and the next opening had none.
#[test]
fn catalogs_and_roots_are_put_right_before_an_opening_needs_them() {
    reactor::simulate(36, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 2, 36).await;
        scribble(&rig.v, &mut rig.model, 500, 36).await;
        rig.settle().await;
        let clean = rig.scrub().await.position;
        assert_eq!((clean.damaged, clean.unchecked), (0, 0), "{clean:?}");
        let catalog = rig.pool.0.common.superblock.label().catalog;
        let junk = vec![0xa5; BLOCK];
        for drive in 0..4 {
            rig.media[drive].poke(catalog.half_at(0), &junk);
            rig.media[drive].poke(catalog.half_at(1), &junk);
            for slot in 0..2 {
                rig.media[drive].poke(crate::area::root_at(1, slot), &junk);
            }
            let found = rig.scrub().await.position;
            assert_eq!((found.damaged, found.repaired), (2, 2), "{found:?}");
            let again = rig.scrub().await.position;
            assert_eq!(again.damaged, 0, "{again:?}");
        }
        rig.pool.clone().close().await.unwrap();
        rig.open(OpenOptions::default()).await.unwrap();
        verify(&rig.v, &rig.model).await;
    });
}

/// To the next opening a sector that cannot be read is as good as gone.
#[test]
fn catalogs_and_roots_that_cannot_be_read_are_carried_anew() {
    reactor::simulate(37, async {
        let rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 37).await;
        rig.settle().await;
        let clean = rig.scrub().await.position;
        assert_eq!((clean.damaged, clean.unchecked), (0, 0), "{clean:?}");
        let catalog = rig.pool.0.common.superblock.label().catalog;
        use crate::format::area::{CATALOG, ROOTS};
        for range in [ROOTS..CATALOG, catalog.half_at(0)..catalog.end()] {
            rig.media[1].refuse(media::Refusal {
                operation: Some(media::Operation::Read),
                range,
                kind: media::Kind::Medium,
                times: Some(1),
            });
        }
        let found = rig.scrub().await.position;
        assert_eq!((found.damaged, found.repaired), (2, 2), "{found:?}");
        assert_eq!(rig.scrub().await.position.damaged, 0);
        // Sectors of either slot, and anywhere in either half, that can be read once they were written to.
        let pages = |half| [0, 1, 9].map(|page| catalog.half_at(half) + page * BLOCK as u64);
        let slots = [0, 1].map(|slot| crate::area::root_at(0, slot));
        let mut all = 0;
        for at in slots.into_iter().chain(pages(0)).chain(pages(1)) {
            rig.media[2].damage(at, BLOCK as u64);
            let found = rig.scrub().await.position;
            assert_eq!(found.damaged, found.repaired, "{at}: {found:?}");
            all += found.repaired;
            assert_eq!(rig.scrub().await.position.damaged, 0, "{at}");
        }
        // Where nothing lies nothing is read.
        assert!(all >= 4, "{all}");
    });
}

/// What is taken back is of a later generation before the drives have it, and a half is overwritten while it is read: both
/// were called damage.
#[test]
fn a_catalog_that_changes_while_it_is_looked_at_is_not_damaged() {
    for seed in 0..8 {
        reactor::simulate(seed, async move {
            let rig = rig(4, raid::Scheme::Raid5, bbu(), 1, seed).await;
            let kind = media::Kind::Full;
            let superblock = &rig.pool.0.common.superblock;
            let change = async || superblock.change_catalog(|of| Ok((of.edit(vec![]), ()))).await;
            let changes = async {
                for _ in 0..40 {
                    // The drive has room for what takes the change back, and not for the change.
                    super::scarce::refuse_catalogs(&rig.media[3..], kind, Some(1));
                    assert_eq!(change().await.unwrap_err().kind, Kind::Full);
                }
                Ok(())
            };
            let looks = async {
                for _ in 0..40 {
                    let found = superblock.scrub_catalog().await?;
                    assert_eq!(found.damaged, 0, "seed {seed}");
                }
                Ok::<_, crate::Error>(())
            };
            let both: [std::pin::Pin<Box<dyn Future<Output = crate::error::Result<()>>>>; 2] =
                [Box::pin(changes), Box::pin(looks)];
            reactor::join_all(both).await.into_iter().for_each(Result::unwrap);
        });
    }
}

/// One goes on where another was ended, with what that one had found, and leaves nothing out.
#[test]
fn a_scrub_that_was_ended_goes_on_from_there_after_an_opening() {
    reactor::simulate(33, async {
        let mut rig = rig(5, raid::Scheme::Raid6, bbu(), 2, 33).await;
        scribble(&rig.v, &mut rig.model, 3000, 33).await;
        rig.settle().await;
        rig.damage(2, 3000, 33);
        let (mut from, mut rounds) = (ScrubPosition::default(), 0);
        loop {
            rig.pool.scrub(&from, 16 * MIB).await.unwrap();
            let error = rig.pool.scrub(&from, 0).await.unwrap_err();
            assert_eq!(error.kind, Kind::Exists, "{error}");
            let begun = reactor::now();
            let is_new = |scrub: &Scrub| scrub.position.next != from.next;
            let scrub = loop {
                let scrub = rig.pool.status().await.unwrap().scrub.unwrap();
                if !scrub.is_under_way || is_new(&scrub) {
                    break scrub;
                }
                reactor::sleep(Duration::from_millis(10)).await;
                assert!(reactor::now() - begun < 600_000_000_000, "{scrub:?}");
            };
            rig.pool.end_scrub().await;
            let scrub = match scrub.is_under_way {
                true => rig.scrubbed().await,
                false => scrub,
            };
            from = scrub.position.clone();
            if scrub.is_complete {
                assert_eq!(from.done, scrub.bytes, "{scrub:?}");
                break;
            }
            rounds += 1;
            rig.pool.clone().close().await.unwrap();
            rig.open(OpenOptions::default()).await.unwrap();
        }
        assert!(rounds > 2, "{rounds}");
        assert!(from.damaged > 10 && from.repaired == from.damaged, "{from:?}");
        rig.media[0].fail();
        rig.media[4].fail();
        verify(&rig.v, &rig.model).await;
    });
}

/// What its header says is not known any more, so nothing is said of its blocks; nobody was told.
#[test]
fn a_stripe_whose_header_nothing_gives_is_told_of() {
    reactor::simulate(35, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 35).await;
        scribble(&rig.v, &mut rig.model, 500, 35).await;
        rig.settle().await;
        let segments = rig.pool.each(|shard| async move {
            let table = shard.base.table();
            let of_contents = table.iter().filter(|segment| {
                segment.info.stream != Stream::Metadata && segment.live > 0 && segment.applied > 1
            });
            Ok(of_contents.map(|s| SegmentInfo::clone(&s.info)).collect::<Vec<_>>())
        });
        let segments = segments.await.unwrap();
        let info = segments.iter().flatten().next().unwrap();
        for unit in 0..2 {
            let member = info.member(1, unit);
            let at = rig.offset_of(info, 1, unit);
            let junk = vec![0x5a; usize64(u64::from(info.header_blocks())) * BLOCK];
            rig.media[usize::from(member.drive)].poke(at, &junk);
        }
        let found = rig.scrub().await.position;
        assert_eq!(found.unchecked, 1, "{found:?}");
    });
}

/// Writers, reclaim and checkpoints go on meanwhile: nothing is put right where another segment is by then.
#[test]
fn hosts_write_while_their_pool_is_scrubbed_again_and_again() {
    reactor::simulate(34, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 34).await;
        for round in 0..6 {
            rig.pool.scrub(&ScrubPosition::default(), 0).await.unwrap();
            scribble(&rig.v, &mut rig.model, 600, 340 + round).await;
            let scrub = rig.scrubbed().await;
            assert!(scrub.is_complete && scrub.position.damaged == 0, "{scrub:?}");
        }
        verify(&rig.v, &rig.model).await;
        let audit = rig.pool.audit_space().await.unwrap();
        assert_eq!(audit.taken, audit.owned);
    });
}

/// Stripes of each segment that is not written any more, as the pool's next life is to know them.
async fn stripes(pool: &Pool) -> BTreeMap<u32, u32> {
    let found = pool.each(|shard| async move {
        shard.checkpoints.take().await?;
        let table = shard.base.table();
        let of_contents = table.iter().filter(|segment| {
            segment.state == State::Sealed && segment.info.stream != Stream::Metadata
        });
        Ok(of_contents.map(|s| (s.info.id.get(), s.stripes)).collect::<Vec<_>>())
    });
    found.await.unwrap().into_iter().flatten().collect()
}

/// Stripes of metadata that no checkpoint needs are torn when power fails while they are written: to a scrub they were
/// damage.
#[test]
fn metadata_that_was_being_written_when_power_failed_is_no_damage() {
    for seed in 300..315 {
        let mut rig = reactor::simulate(seed, async move {
            let mut rig = rig(3, raid::Scheme::Raid5, bbu(), 1, seed).await;
            rig.settle().await;
            scribble(&rig.v, &mut rig.model, 500, seed).await;
            let pool = rig.pool.clone();
            let _settles = reactor::spawn(async move {
                let shards = pool.each(|shard| async move {
                    shard.destage.drain().await?;
                    shard.checkpoints.take().await
                });
                shards.await
            });
            reactor::sleep(Duration::from_micros(400 * (seed - 300))).await;
            cut(&rig, seed);
            rig
        });
        reactor::simulate(seed, async move {
            rig.open(OpenOptions::default()).await.unwrap();
            let found = rig.scrub().await.position;
            assert_eq!((found.damaged, found.unchecked), (0, 0), "{seed}: {found:?}");
        });
    }
}

/// A segment that was being filled when the process was killed was full in the life after the next: what the kill had
/// left there half written, and nobody needed, was damage beyond redundancy to a scrub.
#[test]
fn a_segment_that_a_kill_left_half_filled_has_no_more_stripes_later_on() {
    let (drives, log) = (drives(4, 64 * MIB), LogSpec::Bbu(vec![pmem(4 * MIB)]));
    reactor::simulate(1, {
        let (drives, log) = (drives.clone(), log.clone());
        async move {
            let spec = PoolSpec { scheme: raid::Scheme::Raid5, ..spec(&drives, log) };
            let pool = Pool::create(spec, &[]).await.unwrap();
            let v = pool.create_volume(volume("db", 24 * MIB)).await.unwrap();
            scribble(&v, &mut Model::new(), 1500, 1).await;
        }
    });
    let life = |seed| {
        let (drives, log) = (drives.clone(), log.clone());
        reactor::simulate(seed, async move {
            let pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
            stripes(&pool).await
        })
    };
    let (first, second) = (life(2), life(3));
    let kept = |(id, _): &(&u32, &u32)| second.contains_key(id);
    let is_half_filled = |stripes: &u32| first.values().max() > Some(stripes);
    assert!(first.iter().filter(kept).any(|(_, n)| is_half_filled(n)), "{first:?}");
    for (id, stripes) in first.iter().filter(kept) {
        assert_eq!(second[id], *stripes, "segment {id}: {first:?}, {second:?}");
    }
}
