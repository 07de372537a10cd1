//! Changes of the catalog, and the loss of power in the midst of them: each happens or does not.

use std::rc::Rc;
use std::time::Duration;

use media::drive::SimulatedContents;

use super::super::assemble::drive_set;
use super::super::newest::newest_catalog;
use super::*;
use crate::address::View;
use crate::area::catalog::{self, Trail};
use crate::canary::{self, Step};
use crate::drives::DriveState;
use crate::error::Result;
use crate::format::catalog::{Catalog, CatalogArea, Edit, Object, PAGE, Record};
use crate::format::label::{DriveMark, DriveRecord};
use crate::limits::SNAPSHOTS_AT_ONCE;
use crate::log::Members;
use crate::superblock::{Kept, Place, Superblock};

const POOL: [u8; 16] = [7; 16];
const AREA: CatalogArea = CatalogArea::LEAST;

/// Drives with nothing but a catalog.
#[derive(Clone)]
struct Rig {
    media: Vec<Arc<Simulated>>,
    drives: Vec<Arc<Drive>>,
    label: Label,
}

impl Rig {
    fn new(count: u64, parity: u8, seed: u64) -> Self {
        let (media, drives) = simulated(count, 8 * MIB, seed);
        let record = DriveRecord {
            id: [1; 16],
            mark: DriveMark::Online,
            stays_out: None,
            is_leaving: false,
            since: 0,
            log_bytes: 0,
            au_count: 2,
        };
        let data = u8::try_from(count).unwrap() - parity;
        let label = Label {
            pool: POOL,
            name: "fast".into(),
            state: PoolState::Active,
            epoch: 1,
            drive: 0,
            layout: Layout { data, parity, unit_blocks: 16, au_bytes: MIB },
            catalog: AREA,
            shards: 1,
            log: crate::format::label::LogKind::Bbu,
            log_bytes: 0,
            log_id: [0; 16],
            log_members: Vec::new(),
            log_copies: 0,
            log_waits: false,
            term: 1,
            closed: true,
            created: 0,
            drives: vec![record; drives.len()],
        };
        Self { media, drives, label }
    }

    fn superblock(&self, kept: Kept) -> Superblock {
        let set = drive_set(&self.label, self.drives.iter().cloned().map(Some).collect());
        Superblock::new(set, self.label.clone(), [], kept, Members::new(&[], 1))
    }

    fn blank(&self) -> Superblock {
        let places = vec![Place::default(); self.drives.len()];
        self.superblock(Kept::new(AREA, Catalog::default(), places))
    }

    /// As an opening finds it; tells whether all drives are alike.
    async fn open(&self) -> Result<(Superblock, bool)> {
        let set = drive_set(&self.label, self.drives.iter().cloned().map(Some).collect());
        let newest = newest_catalog(&set, &self.label, false).await?;
        let alike = newest.alike;
        Ok((self.superblock(newest.kept(&self.label)), alike))
    }

    /// What an opening with these drives alone would find.
    async fn names_of(&self, given: &[usize]) -> Result<Vec<String>> {
        let drives =
            (0..self.drives.len()).map(|n| given.contains(&n).then(|| self.drives[n].clone()));
        let set = drive_set(&self.label, drives.collect());
        let newest = newest_catalog(&set, &self.label, false).await?;
        Ok(names(&self.superblock(newest.kept(&self.label))))
    }

    async fn trail(&self, drive: usize) -> Trail {
        catalog::newest(catalog::trails(&self.drives[drive], AREA, POOL).await.unwrap()).unwrap()
    }

    fn contents(&self) -> Vec<SimulatedContents> {
        self.media.iter().map(|medium| medium.contents()).collect()
    }

    fn restore(&self, contents: &[SimulatedContents]) {
        for (medium, contents) in self.media.iter().zip(contents) {
            medium.restore(contents);
        }
    }

    fn cut(&self, prng: &mut Prng) {
        self.media.iter().for_each(|medium| medium.power_cut(prng));
        self.media.iter().for_each(|medium| medium.power_on());
    }

    /// Where a page of a half lies.
    fn page_at(half: u64, page: u32) -> u64 {
        AREA.half_at(half) + u64::from(page) * PAGE as u64
    }
}

fn names(superblock: &Superblock) -> Vec<String> {
    superblock.catalog(|catalog| catalog.objects().map(|object| object.name.to_string()).collect())
}

/// An edit with so many new volumes.
fn more(catalog: &Catalog, count: u32) -> Edit {
    let from = catalog.next_view();
    let made = (from..from + count)
        .map(|n| Record::Put(Object::volume(View::new(n), &format!("v{n}"), [1; 16], MIB, 4096)));
    Edit { next_view: from + count, records: made.collect() }
}

async fn add(superblock: &Superblock, count: u32) -> Result<()> {
    superblock.change_catalog(|catalog| Ok((more(catalog, count), ()))).await
}

async fn touch(superblock: &Superblock) -> Result<()> {
    superblock.change_catalog(|catalog| Ok((catalog.edit(Vec::new()), ()))).await
}

/// A catalog of so many volumes, whose next edit finds so much room.
async fn prepare(rig: &Rig, volumes: u32, room: u32) {
    let superblock = rig.blank();
    for first in (0..volumes).step_by(1000) {
        add(&superblock, (volumes - first).min(1000)).await.unwrap();
    }
    loop {
        let trail = rig.trail(0).await;
        let end = trail.base_pages + AREA.edit_pages(trail.base_pages);
        // As long a base as the catalog is.
        let is_settled =
            trail.base_pages == crate::format::catalog::base_pages(names(&superblock).len());
        if is_settled && end - trail.next == room {
            break;
        }
        touch(&superblock).await.unwrap();
    }
    for drive in &rig.drives {
        drive.flush().await.unwrap();
    }
}

/// Power fails at any moment of a change: it happened or did not, whichever drives are there, and what an opening shows
/// stays so.
fn survives_cuts(volumes: u32, room: u32, count: u32, moments: u64) -> (u64, u64) {
    let rig = Rig::new(3, 1, u64::from(volumes + room));
    let own = rig.clone();
    let (took, held) = reactor::simulate(1, async move {
        let rig = own;
        prepare(&rig, volumes, room).await;
        let held = rig.contents();
        let (superblock, alike) = rig.open().await.unwrap();
        assert!(alike);
        let begun = reactor::now();
        add(&superblock, count).await.unwrap();
        (reactor::now() - begun, held)
    });
    let named = |count| (1..=count).map(|n| format!("v{n}")).collect::<Vec<_>>();
    let states = Rc::new([named(volumes), named(volumes + count)]);
    let subsets: [&[usize]; 4] = [&[0, 1, 2], &[0, 1], &[1, 2], &[0, 2]];
    let (mut done, mut undone) = (0, 0);
    for moment in 0..moments {
        let mut prng = Prng::new(moment);
        rig.restore(&held);
        let own = rig.clone();
        let told = reactor::simulate(2, async move {
            let rig = own;
            let (superblock, _) = rig.open().await.unwrap();
            let wait = Duration::from_nanos(took * 2 * moment / moments);
            let change = add(&superblock, count);
            matches!(reactor::timeout(wait, change).await, Ok(Ok(())))
        });
        rig.cut(&mut prng);
        let (own, known) = (rig.clone(), Rc::clone(&states));
        let shown = reactor::simulate(3, async move {
            let (rig, [before, after]) = (own, &*known);
            for subset in subsets {
                let found = rig.names_of(subset).await.unwrap();
                assert!(found == *after || found == *before && !told, "moment {moment} {subset:?}");
            }
            let (superblock, alike) = rig.open().await.unwrap();
            if !alike {
                superblock.spread_catalog().await.unwrap();
            }
            names(&superblock)
        });
        rig.cut(&mut prng);
        let own = rig.clone();
        reactor::simulate(4, async move {
            let rig = own;
            for subset in subsets {
                assert!(rig.names_of(subset).await.unwrap() == shown, "moment {moment} {subset:?}");
            }
            // And it goes on from there.
            let (superblock, _) = rig.open().await.unwrap();
            touch(&superblock).await.unwrap();
            assert!(names(&rig.open().await.unwrap().0) == shown);
        });
        if told { done += 1 } else { undone += 1 }
    }
    (done, undone)
}

fn both((done, undone): (u64, u64)) {
    assert!(done > 2 && undone > 10, "{done} done, {undone} not");
}

#[test]
fn an_edit_happens_or_does_not() {
    both(survives_cuts(5, 100, 1, 60));
}

#[test]
fn an_edit_of_many_pages_happens_or_does_not() {
    both(survives_cuts(40, 50, 700, 60));
}

#[test]
fn the_last_edit_there_is_room_for_happens_or_does_not() {
    both(survives_cuts(5, 1, 1, 40));
}

#[test]
fn a_change_that_takes_a_new_base_happens_or_does_not() {
    both(survives_cuts(5, 0, 1, 60));
}

#[test]
fn a_change_that_takes_a_new_base_of_thousands_happens_or_does_not() {
    both(survives_cuts(4000, 0, 3, 40));
}

#[test]
fn an_edit_after_thousands_happens_or_does_not() {
    both(survives_cuts(6000, 20, 3, 30));
}

/// All pages of a base were made in one go, with whoever waits for the core waiting for all of them.
#[test]
fn a_base_is_made_some_objects_at_a_time() {
    let volumes = 3000;
    let rig = Rig::new(3, 1, 8);
    let polls = reactor::simulate(8, async move {
        prepare(&rig, volumes, 1).await;
        let superblock = rig.open().await.unwrap().0;
        let mut polls = [0_u32; 2];
        for polls in &mut polls {
            let mut touch = std::pin::pin!(touch(&superblock));
            let counted = std::future::poll_fn(|cx| {
                *polls += 1;
                touch.as_mut().poll(cx)
            });
            counted.await.unwrap();
        }
        assert_eq!(rig.trail(0).await.base_pages + 1, rig.trail(0).await.next);
        assert_eq!(names(&rig.open().await.unwrap().0).len(), 3000);
        polls
    });
    let [edit, base] = polls;
    // Each 100 objects, looked at for groups first.
    assert!(base >= edit + volumes / 50, "{base} pieces with a base, {edit} without");
}

/// A change costs a page, whatever the catalog holds, but for the base that is written once in as many changes as it
/// has pages.
#[test]
fn a_change_costs_what_changes() {
    let rig = Rig::new(2, 1, 1);
    reactor::simulate(1, async move {
        let superblock = rig.blank();
        for _ in 0..6 {
            add(&superblock, 1000).await.unwrap();
        }
        let base = crate::format::catalog::base_pages(6000);
        let written = || rig.media[1].counters().bytes_written / PAGE as u64;
        let (begun, mut most, mut bases) = (written(), 0, 0);
        for _ in 0..1000 {
            let had = written();
            touch(&superblock).await.unwrap();
            let pages = written() - had;
            bases += u64::from(pages > 1);
            most = most.max(pages);
        }
        assert_eq!(most, u64::from(base) + 1);
        let edits = u64::from(AREA.edit_pages(base));
        assert!((1000 / edits..=1000 / edits + 1).contains(&bases), "{bases} bases");
        assert_eq!(written() - begun, 1000 + bases * u64::from(base));
    });
}

/// Nobody was told whether a change was made that was given up half way. The next one had its generation, and was not
/// found behind it.
#[test]
fn a_change_that_was_given_up_is_taken_back_before_the_next() {
    for moment in 0..40 {
        let rig = Rig::new(3, 1, 1);
        reactor::simulate(moment, async move {
            prepare(&rig, 5, 9).await;
            let (superblock, _) = rig.open().await.unwrap();
            let given_up = Duration::from_micros(moment * 4);
            let _ = reactor::timeout(given_up, add(&superblock, 2)).await;
            let had = names(&superblock).len();
            let rename = |catalog: &Catalog| {
                let first = catalog.objects().next().unwrap().clone();
                Ok((catalog.edit(vec![Record::Put(Object { name: "n".into(), ..first })]), ()))
            };
            superblock.change_catalog(rename).await.unwrap();
            for given in [[0, 1], [1, 2], [0, 2]] {
                let found = rig.names_of(&given).await.unwrap();
                assert_eq!(found[0], "n", "moment {moment}");
                assert_eq!(found.len(), had, "moment {moment}");
            }
        });
    }
}

/// A drive that was away is wiped, and gets a base when the others get edits.
#[test]
fn a_drive_with_nothing_gets_a_base_beside_the_edits_of_others() {
    let rig = Rig::new(3, 1, 1);
    reactor::simulate(1, async move {
        prepare(&rig, 30, 9).await;
        let (superblock, _) = rig.open().await.unwrap();
        let next = rig.trail(0).await.next;
        let drive = rig.drives[1].clone();
        superblock.drives.fail(1, crate::drives::Cause::Operator);
        superblock.tell_failures().await.unwrap();
        add(&superblock, 1).await.unwrap();
        superblock.readmit(1, drive).await.unwrap();
        assert_eq!(superblock.drives.state(1), DriveState::Rejoining);
        add(&superblock, 1).await.unwrap();
        let whole = names(&superblock);
        assert_eq!(rig.names_of(&[1]).await.unwrap(), whole);
        assert_eq!(rig.trail(0).await.next, next + 2);
        assert_eq!(rig.trail(1).await.next, rig.trail(1).await.base_pages + 1);
        // From then on it gets edits like all others.
        touch(&superblock).await.unwrap();
        assert_eq!(rig.trail(1).await.next, rig.trail(1).await.base_pages + 2);
        assert_eq!(rig.names_of(&[0, 2]).await.unwrap(), whole);
    });
}

/// A damaged page of one drive is outvoted, whichever it is, and put right by an opening.
#[test]
fn a_damaged_page_is_outvoted() {
    for page in 0..12 {
        let rig = Rig::new(3, 1, 1);
        reactor::simulate(1, async move {
            prepare(&rig, 100, 9).await;
            let trail = rig.trail(0).await;
            let page = if page < 4 { page } else { trail.next - 1 - (page - 4) * 3 };
            rig.media[0].flip(Rig::page_at(trail.half, page) + 500, 3);
            let (superblock, alike) = rig.open().await.unwrap();
            assert!(!alike, "page {page}");
            assert_eq!(names(&superblock).len(), 100);
            superblock.spread_catalog().await.unwrap();
            assert!(rig.open().await.unwrap().1);
            assert_eq!(rig.names_of(&[0]).await.unwrap().len(), 100);
        });
    }
}

/// Edits behind a damaged one show that it was whole: where no drive has it, an opening says so.
#[test]
fn edits_that_are_damaged_on_all_drives_are_not_passed_over_in_silence() {
    let rig = Rig::new(2, 1, 1);
    reactor::simulate(1, async move {
        prepare(&rig, 10, 9).await;
        let trail = rig.trail(0).await;
        for medium in &rig.media {
            medium.flip(Rig::page_at(trail.half, trail.next - 3) + 20, 1);
        }
        let refused = rig.open().await.err().unwrap();
        assert_eq!(refused.kind, Kind::Loss, "{refused}");
        let set = drive_set(&rig.label, rig.drives.iter().cloned().map(Some).collect());
        let newest = newest_catalog(&set, &rig.label, true).await.unwrap();
        // The edits behind it do not come back when others are put in its place.
        assert!(!newest.alike);
        let superblock = rig.superblock(newest.kept(&rig.label));
        superblock.spread_catalog().await.unwrap();
        add(&superblock, 1).await.unwrap();
        assert_eq!(names(&rig.open().await.unwrap().0), names(&superblock));
    });
    // The very last one may have been torn: nothing tells.
    let rig = Rig::new(2, 1, 1);
    reactor::simulate(1, async move {
        prepare(&rig, 10, 9).await;
        let trail = rig.trail(0).await;
        for medium in &rig.media {
            medium.flip(Rig::page_at(trail.half, trail.next - 1) + 20, 1);
        }
        assert!(rig.open().await.is_ok());
    });
}

#[test]
fn as_many_snapshots_are_taken_at_one_instant_as_an_edit_has_room_for() {
    reactor::simulate(1, async {
        let pool = Pool::create(spec(&drives(4, 96 * MIB), LogSpec::Bbu(vec![pmem(4 * MIB)])), &[]);
        let pool = pool.await.unwrap();
        let most = u32::try_from(SNAPSHOTS_AT_ONCE).unwrap();
        add(&pool.0.common.superblock, most + 1).await.unwrap();
        let specs = |count: u32| {
            let spec = |n| {
                let (volume, name) = (format!("v{n}"), "mon".to_owned());
                SnapshotSpec { volume, name, id: [1; 16], created: 0 }
            };
            (1..=count).map(spec).collect::<Vec<_>>()
        };
        let refused = pool.take_snapshots(specs(most + 1)).await.err().unwrap();
        assert_eq!(refused.kind, Kind::Invalid);
        assert!(refused.to_string().contains("at most 800 snapshots"), "{refused}");
        pool.take_snapshots(specs(most)).await.unwrap();
        assert_eq!(pool.all_snapshots().len(), SNAPSHOTS_AT_ONCE);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_full_catalog_says_how_many_volumes_the_pool_can_have() {
    reactor::simulate(1, async {
        let pool = Pool::create(spec(&drives(4, 96 * MIB), LogSpec::Bbu(vec![pmem(4 * MIB)])), &[]);
        let pool = pool.await.unwrap();
        let superblock = &pool.0.common.superblock;
        let most = u32::try_from(superblock.objects_max()).unwrap();
        for first in (0..most - 1).step_by(1000) {
            add(superblock, (most - 1 - first).min(1000)).await.unwrap();
        }
        pool.create_volume(volume("last", MIB)).await.unwrap();
        let refused = pool.create_volume(volume("none", MIB)).await.err().unwrap();
        assert_eq!(refused.kind, Kind::Full);
        assert!(refused.to_string().contains("at most 6400 volumes"), "{refused}");
        // Deleting one makes room, with a full base, too.
        pool.delete_volume("last").await.unwrap();
        pool.create_volume(volume("other", MIB)).await.unwrap();
        pool.close().await.unwrap();
    });
}

/// Bases that took a change back had reached one drive alone, which could not be read when the pool was opened again.
/// They were of later generations than what the opening went on with, and at the next one they counted.
#[test]
fn what_a_drive_that_could_not_be_read_has_is_never_newer() {
    for failures in 1..6 {
        let rig = Rig::new(3, 1, 1);
        reactor::simulate(failures, async move {
            prepare(&rig, 5, 9).await;
            let (superblock, _) = rig.open().await.unwrap();
            let refusal = |operation, kind| {
                let range = 0..u64::MAX;
                media::drive::Refusal { operation: Some(operation), range, kind, times: None }
            };
            for medium in &rig.media[1..] {
                medium.refuse(refusal(media::Operation::Write, media::Kind::Full));
            }
            for _ in 0..failures {
                add(&superblock, 1).await.unwrap_err();
            }
            rig.media.iter().for_each(|medium| medium.refuse_nothing());
            rig.media[0].refuse(refusal(media::Operation::Read, media::Kind::Passing));
            let (superblock, alike) = rig.open().await.unwrap();
            assert!(!alike);
            superblock.spread_catalog().await.unwrap();
            add(&superblock, 1).await.unwrap();
            rig.media[0].refuse_nothing();
            let found = names(&rig.open().await.unwrap().0);
            assert_eq!(found, names(&superblock), "what was told is not there");
        });
    }
}

#[test]
fn the_generation_of_an_opening_is_missed() {
    let test = what_a_drive_that_could_not_be_read_has_is_never_newer;
    canary::misses(Step::OpeningApart, "what was told is not there", test);
}

#[test]
fn the_other_half_for_a_base_is_missed() {
    let test = a_change_that_takes_a_new_base_happens_or_does_not;
    canary::misses(Step::CatalogHalf, "no drive has the pool's catalog", test);
}

#[test]
fn the_taking_back_of_a_change_that_was_given_up_is_missed() {
    let test = a_change_that_was_given_up_is_taken_back_before_the_next;
    canary::misses(Step::CatalogTakesBack, "moment", test);
}

/// Blocks go over the shards by the placement, so that a clone's are where its parent's are.
#[test]
fn shards_follow_from_the_placement() {
    let shard = |placement, block| crate::volume::shard_of(placement, block, 3);
    assert_eq!([shard(1, 0), shard(1, 256), shard(1, 512), shard(2, 0)], [1, 2, 0, 2]);
}
