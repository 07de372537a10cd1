//! More drives fail than the redundancy bears, and answer again: the pool is opened again, and has what it acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use super::rejoin::{Rig, bbu, rig};
use reactor::join_all;

use super::*;
use crate::address::{Key, Location};
use crate::canary::{Step, misses};
use crate::error::Result;
use crate::log::Found;
use crate::map::{Contents, Extents};
use crate::segment::{SegmentInfo, Stream};
use crate::segment_table::State;
use crate::volume::shard_of;

/// More than what is under way at a pool's end takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes until it fails, as that is expected, and gives the block that may have either version.
async fn write_until_it_fails(rig: &mut Rig, seed: u64) -> (u64, u64) {
    let mut prng = Prng::new(seed);
    for version in seed * 1_000_000.. {
        let at = prng.below(rig.v.len() / BLOCK as u64);
        match rig.v.write(at * BLOCK as u64, &block(at, version)).await {
            Ok(()) => _ = rig.model.insert(at, version),
            Err(error) => {
                assert_eq!(error.kind, Kind::Failed, "{error}");
                return (at, version);
            }
        }
    }
    unreachable!("the versions are over");
}

/// Opens it again from what its drives have, once nobody uses them any more. Nothing says that it was closed.
async fn open_again(rig: Rig, options: OpenOptions) -> Rig {
    let Rig { media, drives, log, pool, v, model } = rig;
    pool.abandon().await;
    drop(v);
    let begun = reactor::now();
    while drives.iter().any(|drive| Arc::strong_count(drive) > 1) {
        reactor::sleep(Duration::from_millis(1)).await;
        assert!(Duration::from_nanos(reactor::now() - begun) < PATIENCE, "a drive is in use");
    }
    let labels = join_all(drives.iter().map(|drive| crate::area::read_label(drive))).await;
    assert!(labels.into_iter().flatten().flatten().all(|label| !label.closed));
    let opened = Pool::open(drives.clone(), log.clone(), options, &[]).await;
    let pool = opened.unwrap();
    let v = pool.volume("db").unwrap();
    Rig { media, drives, log, pool, v, model }
}

#[test]
fn a_pool_whose_drives_failed_and_answer_again_is_opened_again_and_has_everything() {
    let all: &[usize] = &[0, 1, 2, 3, 4, 5];
    let cases = [
        (raid::Scheme::Raid6, 6, all),
        (raid::Scheme::Raid6, 6, &[4, 5, 3]),
        (raid::Scheme::Raid5, 4, &[0, 1]),
        (raid::Scheme::Single, 1, &[0]),
    ];
    for (seed, (scheme, count, failing)) in (1..).zip(cases) {
        for on_drives in [true, false] {
            reactor::simulate(seed, async move {
                let log = if on_drives { LogSpec::Drives } else { bbu() };
                let mut rig = rig(count, scheme, log, 1 + u16::from(on_drives), seed).await;
                assert_eq!(rig.pool.status().await.unwrap().beyond, None);
                for round in 0..3 {
                    failing.iter().for_each(|&n| rig.media[n].fail());
                    let (at, version) = write_until_it_fails(&mut rig, seed * 10 + round).await;
                    let status = rig.pool.status().await.unwrap();
                    assert!(status.beyond.is_some(), "{status:?}");
                    // No term counts as known that no drive may have.
                    assert!(status.log.durable_term <= status.log.term);
                    let known_term = status.log.durable_term;
                    rig.media.iter().for_each(|drive| drive.revive());
                    // It does not come back by itself while it is open.
                    let again = rig.v.write(at * BLOCK as u64, &block(at, version)).await;
                    assert!(again.is_err());
                    rig = open_again(rig, OpenOptions::default()).await;
                    let status = rig.pool.status().await.unwrap();
                    assert_eq!(status.beyond, None);
                    assert!(status.log.durable_term >= known_term);
                    let mut got = vec![0; BLOCK];
                    rig.v.read(at * BLOCK as u64, &mut got).await.unwrap();
                    if got == block(at, version) {
                        rig.model.insert(at, version);
                    }
                    verify(&rig.v, &rig.model).await;
                    scribble(&rig.v, &mut rig.model, 300, seed * 100 + round).await;
                    // Those that the labels called out before are made whole.
                    for index in 0..usize64(count) {
                        super::rejoin::settled(&rig.pool, index).await;
                    }
                }
            });
        }
    }
}

/// Where the next stripe of a segment would have come one drive does not give a sector, and another drive is out. Nothing
/// says what lies there, and nothing needs it: the log has said which stripes count. The pool was not opened.
#[test]
fn what_lies_behind_the_last_stripe_need_not_be_readable() {
    for out in 0..4_u16 {
        reactor::simulate(70 + u64::from(out), async move {
            let rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 70 + u64::from(out)).await;
            let next = rig.pool.each(|shard| async move {
                shard.destage.drain().await?;
                let table = shard.base.table();
                let next = table.iter().filter(|segment| {
                    segment.state != State::Sealed && segment.info.stream != Stream::Metadata
                });
                Ok(next.map(|s| (SegmentInfo::clone(&s.info), s.stripes)).collect::<Vec<_>>())
            });
            let next: Vec<_> = next.await.unwrap().into_iter().flatten().collect();
            for (info, stripe) in next.iter().filter(|(i, stripe)| *stripe < i.geometry.stripes()) {
                let unit = usize::from(info.member(*stripe, 0).drive == out);
                let drive = usize::from(info.member(*stripe, unit).drive);
                let at = rig.offset_of(info, *stripe, unit);
                rig.media[drive].damage(at, u64::from(info.header_blocks()) * BLOCK as u64);
            }
            assert!(!next.is_empty());
            rig.media[usize::from(out)].fail();
            let rig =
                open_again(rig, OpenOptions { degraded: true, ..OpenOptions::default() }).await;
            verify(&rig.v, &rig.model).await;
        });
    }
}

/// Where the contents of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lies {
    /// It is a hole, or in the log.
    InMemory,
    OnDrive(u16),
    /// A page of the map that tells is where too few drives are left.
    Unknown,
}

impl Rig {
    async fn lies(&self, at: u64) -> Lies {
        let (view, placement) = (self.v.state.view, self.v.state.placement());
        let found = self.pool.each(move |shard| async move {
            let shards = usize::from(shard.base.common.shards);
            if shard_of(placement, at, shards) != usize::from(shard.base.writer.shard()) {
                return Ok(Lies::InMemory);
            }
            if !matches!(shard.base.log.lookup(Key::new(view, at), 1).0, Found::Nothing) {
                return Ok(Lies::InMemory);
            }
            let mut extents = Extents::default();
            if shard.base.map.lookup(view, at, 1, &mut extents).await.is_err() {
                return Ok(Lies::Unknown);
            }
            let on = |location: Location| {
                let table = shard.base.table();
                let info = table.info(location).unwrap();
                let place = info.geometry.place(location.slot());
                Lies::OnDrive(info.member(place.stripe, usize::try_from(place.unit).unwrap()).drive)
            };
            Ok(extents.iter().next().map_or(Lies::InMemory, |extent| match extent.contents {
                Contents::Stored { location, .. } => on(location),
                _ => Lies::InMemory,
            }))
        });
        // The shards that do not have the block know of nothing.
        found.await.unwrap().into_iter().max().unwrap()
    }

    async fn read_block(&self, at: u64) -> Result<Vec<u8>> {
        let mut got = vec![0; BLOCK];
        self.v.read(at * BLOCK as u64, &mut got).await.map(|()| got)
    }
}

/// Reads each block, and checks it against where its contents are and what the model has; how many lie where.
async fn read_each(rig: &Rig, failing: [u16; 2], unsure: u64) -> BTreeMap<(Lies, bool), u64> {
    let mut counts = BTreeMap::new();
    for at in 0..rig.v.len() / BLOCK as u64 {
        let (lies, read) = (rig.lies(at).await, rig.read_block(at).await);
        *counts.entry((lies, read.is_ok())).or_insert(0) += 1;
        let wanted = rig.model.get(&at).map_or_else(|| vec![0; BLOCK], |v| block(at, *v));
        match (read, lies) {
            (Ok(got), Lies::OnDrive(n)) => {
                assert!(got == wanted && !failing.contains(&n), "block {at}");
            }
            (Ok(got), Lies::InMemory) => assert!(got == wanted, "block {at}"),
            (Ok(_), Lies::Unknown) => panic!("block {at} is known and is not"),
            (Err(error), _) if at == unsure => assert_eq!(error.kind, Kind::Failed, "{error}"),
            (Err(error), Lies::OnDrive(n)) => {
                assert!(failing.contains(&n), "block {at} on drive {n}: {error}");
                assert_eq!(error.kind, Kind::Failed, "block {at}: {error}");
            }
            (Err(error), Lies::Unknown) => assert_eq!(error.kind, Kind::Failed, "{error}"),
            (Err(error), Lies::InMemory) => panic!("block {at}: {error}"),
        }
    }
    counts
}

#[test]
fn what_can_be_read_of_a_pool_beyond_its_redundancy_is_read() {
    for (seed, on_drives) in [(81, true), (82, false)] {
        reactor::simulate(seed, async move {
            let log = if on_drives { LogSpec::Drives } else { bbu() };
            let mut rig = rig(4, raid::Scheme::Raid5, log, 1 + u16::from(on_drives), seed).await;
            let mut counts = BTreeMap::new();
            for failing in [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]] {
                rig.settle().await;
                scribble(&rig.v, &mut rig.model, 50, seed).await;
                assert!(!rig.v.is_beyond_redundancy());
                failing.iter().for_each(|&n| rig.media[usize::from(n)].fail());
                let (unsure, _) = write_until_it_fails(&mut rig, seed).await;
                assert!(rig.v.is_beyond_redundancy());
                for (what, count) in read_each(&rig, failing, unsure).await {
                    *counts.entry(what).or_insert(0) += count;
                }
                // What is durable need not be made so, and what is not cannot be.
                rig.v.flush().unwrap();
                assert!(rig.v.write_zeroes(0, BLOCK as u64).await.is_err());
                assert!(rig.v.deallocate(BLOCK as u64, BLOCK as u64).await.is_err());
                rig.media.iter().for_each(|drive| drive.revive());
                rig = open_again(rig, OpenOptions::default()).await;
                for at in [unsure, 0, 1] {
                    rig.model.remove(&at);
                    rig.v.write_zeroes(at * BLOCK as u64, BLOCK as u64).await.unwrap();
                }
                verify(&rig.v, &rig.model).await;
                for index in 0..4 {
                    super::rejoin::settled(&rig.pool, index).await;
                }
            }
            let count = |lies, read| counts.get(&(lies, read)).copied().unwrap_or(0);
            assert!(count(Lies::InMemory, true) > 50, "{counts:?}");
            for read in [true, false] {
                let on_drives = (0..4).map(|n| count(Lies::OnDrive(n), read)).sum::<u64>();
                assert!(on_drives > 50, "{counts:?}");
            }
        });
    }
}

/// It was read as before while the drives were away, and was done when they were back: whoever had looked had been told
/// that it was not.
#[test]
fn a_write_that_failed_and_may_be_done_is_not_read_as_if_it_were_not() {
    reactor::simulate(83, async {
        let mut rig = rig(4, raid::Scheme::Raid5, LogSpec::Drives, 1, 83).await;
        scribble(&rig.v, &mut rig.model, 100, 84).await;
        rig.media[2..].iter().for_each(|drive| drive.fail());
        let (at, version) = write_until_it_fails(&mut rig, 85).await;
        let before = rig.model.get(&at).map_or_else(|| vec![0; BLOCK], |v| block(at, *v));
        let seen = rig.read_block(at).await;
        // Its neighbours are not in doubt with it.
        let others = rig.model.iter().filter(|(other, _)| **other != at);
        let served = join_all(others.map(|(other, _)| rig.read_block(*other))).await;
        assert!(served.into_iter().filter(Result::is_ok).count() > 100);
        rig.media.iter().for_each(|drive| drive.revive());
        let rig = open_again(rig, OpenOptions::default()).await;
        assert!(rig.read_block(at).await.unwrap() == block(at, version), "it is done by now");
        let said_not = seen.is_ok_and(|seen| seen == before);
        assert!(!said_not, "it was read as if it were not done");
    });
}

#[test]
fn that_a_write_may_be_done_is_missed_where_it_is_not_hidden() {
    misses(
        Step::DoubtHides,
        "it was read as if it were not done",
        a_write_that_failed_and_may_be_done_is_not_read_as_if_it_were_not,
    );
}

/// A page of the map that nobody had read since it was written was on a drive that is gone: the blocks that it tells of were
/// hidden with it, though they could be read.
#[test]
fn what_was_written_is_known_though_nobody_has_read_it_yet() {
    for failing in [[0, 1], [2, 3]] {
        reactor::simulate(86, async move {
            let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 2, 86).await;
            let settle = |shard: std::rc::Rc<crate::shard::Shard>| async move {
                shard.destage.run_to_head().await?;
                shard.keeper.compact(false).await?;
                shard.keeper.flush().await
            };
            rig.pool.each(settle).await.unwrap();
            failing.iter().for_each(|&n| rig.media[usize::from(n)].fail());
            let (unsure, _) = write_until_it_fails(&mut rig, 87).await;
            let counts = read_each(&rig, failing, unsure).await;
            let is_unknown = |((lies, _), _): &(&(Lies, bool), &u64)| *lies == Lies::Unknown;
            assert_eq!(counts.iter().find(is_unknown), None, "hidden");
            assert!(counts.len() > 2, "{counts:?}");
        });
    }
}

/// Hosts ask again for what is not served, many times a second: each time all drives were asked, and those that are gone
/// called faulty once more.
#[test]
fn what_cannot_be_served_is_not_asked_of_drives_again_and_again() {
    reactor::simulate(88, async {
        let mut rig = rig(4, raid::Scheme::Raid5, bbu(), 1, 88).await;
        rig.settle().await;
        rig.media[..2].iter().for_each(|drive| drive.fail());
        write_until_it_fails(&mut rig, 89).await;
        let mut lost = Vec::new();
        for at in 0..rig.v.len() / BLOCK as u64 {
            if rig.read_block(at).await.is_err() {
                lost.push(at);
            }
        }
        assert!(lost.len() > 50);
        let asked = || async {
            let drives = rig.pool.status().await.unwrap().drives;
            let of = drives.iter().map(|drive| (drive.counters.reads, drive.counters.read_errors));
            of.collect::<Vec<_>>()
        };
        assert!(rig.read_block(lost[0]).await.is_err());
        let before = asked().await;
        for at in lost.iter().take(100) {
            assert_eq!(rig.read_block(*at).await.unwrap_err().kind, Kind::Failed);
        }
        let after = asked().await;
        assert_eq!(after, before, "drives are asked in vain");
        // Now and then: one may answer again.
        reactor::sleep(Duration::from_secs(3)).await;
        assert!(rig.read_block(lost[0]).await.is_err());
        let again = asked().await;
        let reads = |of: &[(u64, u64)]| of.iter().map(|(reads, _)| reads).sum::<u64>();
        assert!((1..=4).contains(&(reads(&again) - reads(&after))), "{after:?} {again:?}");
        assert!(again.iter().all(|(_, errors)| *errors < 20), "{again:?}");
    });
}
