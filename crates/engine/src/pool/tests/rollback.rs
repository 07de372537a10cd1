//! Volumes rolled back: what they have then, what their snapshots have, and what is acknowledged beside it.

use std::cell::RefCell;
use std::time::Duration;

use super::clones::{clone_of, cloned, reopened, take_of};
use super::snapshots::{check, check_drives, empty_all, live, made, put, take, trim};
use super::*;
use crate::canary::{Step, misses};
use crate::limits::CLONES_DEEP_MAX;
use stdx::num::u64_of;

fn to(snapshot: &str, keep: Option<&str>) -> RollbackSpec {
    RollbackSpec {
        volume: "db".into(),
        snapshot: snapshot.into(),
        keep: keep.map(|name| (name.into(), [8; 16])),
        created: 1_800_000_000,
    }
}

async fn names(pool: &Pool) -> Vec<String> {
    pool.snapshots("db").unwrap().into_iter().map(|snapshot| snapshot.name).collect()
}

#[test]
fn a_volume_goes_back_to_a_snapshot_and_forth_again() {
    reactor::simulate(1, async {
        let (drives, log, pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        take(&pool, "mon").await;
        let monday = model.clone();
        put(&v, &mut model, 50, 100, 1000).await;
        trim(&v, &mut model, 0, 10).await;
        take(&pool, "tue").await;
        let tuesday = model.clone();
        pool.resize_volume("db", 8 * MIB).await.unwrap();
        put(&v, &mut model, 1500, 30, 2000).await;
        let last = model.clone();
        let back = pool.rollback_volume(to("mon", Some("last"))).await.unwrap();
        assert_eq!((back.id(), back.len(), back.origin()), (v.id(), 4 * MIB, None));
        // Who has it open from before is told so.
        assert_eq!(v.write(0, &[1; BLOCK]).await.unwrap_err().kind, Kind::Gone);
        let mut of_back = monday.clone();
        check(&back, &of_back).await;
        assert_eq!(names(&pool).await, ["mon", "tue", "last"]);
        assert_eq!(live(&pool).await, 100 + 100 + 30, "a rollback takes no space");
        put(&back, &mut of_back, 90, 20, 3000).await;
        trim(&back, &mut of_back, 0, 5).await;
        take(&pool, "wed").await;
        let wednesday = of_back.clone();
        put(&back, &mut of_back, 95, 1, 4000).await;
        let pool = reopened(&drives, &log, pool).await;
        for _ in 0..2 {
            check(&pool.volume("db").unwrap(), &of_back).await;
            let all = [("mon", &monday), ("tue", &tuesday), ("last", &last), ("wed", &wednesday)];
            for (name, model) in all {
                check(&pool.snapshot("db", name).unwrap(), model).await;
            }
            assert_eq!(names(&pool).await, ["mon", "tue", "last", "wed"]);
            assert_eq!(live(&pool).await, 230 + 20 + 1);
            empty_all(&pool).await;
        }
        assert_eq!(pool.volume("db").unwrap().origin(), None, "it is no clone to anybody");
        // And to what it was before, which is larger, without keeping anything of now.
        let v = pool.rollback_volume(to("last", None)).await.unwrap();
        assert_eq!(v.len(), 8 * MIB);
        check(&v, &last).await;
        assert_eq!(live(&pool).await, 230 + 20, "nobody sees what came after Wednesday");
        let dev = cloned(&pool, "db", "wed", "dev").await;
        check(&dev, &wednesday).await;
        let busy = pool.delete_volume("db").await.unwrap_err();
        assert!(busy.context.contains("4 snapshots"), "{busy}");
        let pool = reopened(&drives, &log, pool).await;
        check(&pool.volume("db").unwrap(), &last).await;
        for name in ["wed", "last", "mon", "tue"] {
            check(&pool.volume("dev").unwrap(), &wednesday).await;
            pool.delete_snapshot("db", name).await.unwrap();
            check(&pool.volume("db").unwrap(), &last).await;
        }
        let pool = reopened(&drives, &log, pool).await;
        check(&pool.volume("db").unwrap(), &last).await;
        pool.delete_volume("db").await.unwrap();
        check(&pool.volume("dev").unwrap(), &wednesday).await;
        pool.delete_volume("dev").await.unwrap();
        assert_eq!(live(&pool).await, 0);
        assert_eq!(pool.0.common.superblock.catalog(|catalog| catalog.len()), 0);
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

/// What was rolled back away from goes with its last snapshot, also where hosts' view has nothing to do with it.
#[test]
fn what_a_volume_was_before_goes_with_the_last_that_needs_it() {
    reactor::simulate(2, async {
        let (drives, log, pool, v) = made(1).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        take(&pool, "a").await;
        let first = model.clone();
        let v = pool.rollback_volume(to("a", None)).await.unwrap();
        put(&v, &mut model, 0, 50, 1000).await;
        take(&pool, "b").await;
        let v = pool.rollback_volume(to("a", None)).await.unwrap();
        check(&v, &first).await;
        assert_eq!(live(&pool).await, 150);
        check(&pool.snapshot("db", "b").unwrap(), &model).await;
        // The first view, its snapshot, the second, its snapshot, the third.
        let objects = |pool: &Pool| pool.0.common.superblock.catalog(|catalog| catalog.len());
        assert_eq!(objects(&pool), 5);
        pool.delete_snapshot("db", "b").await.unwrap();
        assert_eq!((objects(&pool), live(&pool).await), (3, 100));
        let pool = reopened(&drives, &log, pool).await;
        pool.delete_snapshot("db", "a").await.unwrap();
        check(&pool.volume("db").unwrap(), &first).await;
        assert_eq!((objects(&pool), live(&pool).await), (2, 100));
        pool.delete_volume("db").await.unwrap();
        assert_eq!((objects(&pool), live(&pool).await), (0, 0));
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

#[test]
fn rollbacks_that_cannot_be_change_nothing() {
    reactor::simulate(3, async {
        let (.., pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 10, 1).await;
        take(&pool, "mon").await;
        put(&v, &mut model, 0, 5, 100).await;
        let refused = async |spec| pool.rollback_volume(spec).await.unwrap_err().kind;
        assert_eq!(refused(to("tue", None)).await, Kind::NotFound);
        let other = RollbackSpec { volume: "web".into(), ..to("mon", None) };
        assert_eq!(refused(other).await, Kind::NotFound);
        assert_eq!(refused(to("mon", Some("mon"))).await, Kind::Exists);
        assert_eq!(refused(to("mon", Some("a b"))).await, Kind::Invalid);
        check(&v, &model).await;
        put(&v, &mut model, 3, 5, 200).await;
        assert_eq!(names(&pool).await, ["mon"]);
        // One behind another, as clones are.
        for n in 0..CLONES_DEEP_MAX {
            take(&pool, &format!("s{n}")).await;
            pool.rollback_volume(to(&format!("s{n}"), None)).await.unwrap();
        }
        take(&pool, "deepest").await;
        let v = pool.volume("db").unwrap();
        assert_eq!(refused(to("deepest", None)).await, Kind::Full);
        check(&v, &model).await;
        let deeper = pool.clone_volume(clone_of("db", "deepest", "dev")).await.unwrap_err();
        assert_eq!(deeper.kind, Kind::Full);
        pool.close().await.unwrap();
    });
}

#[test]
fn several_go_back_together_or_none_does() {
    reactor::simulate(6, async {
        let (drives, log, pool, v) = made(2).await;
        let spec = VolumeSpec { id: [2; 16], ..volume("log", MIB) };
        let other = pool.create_volume(spec).await.unwrap();
        let (mut model, mut of_other) = (Model::new(), Model::new());
        put(&v, &mut model, 0, 100, 1).await;
        put(&other, &mut of_other, 0, 10, 200).await;
        take(&pool, "mon").await;
        take_of(&pool, "log", "mon").await;
        let (monday, of_monday) = (model.clone(), of_other.clone());
        put(&v, &mut model, 50, 100, 1000).await;
        put(&other, &mut of_other, 0, 20, 1000).await;
        let of_log = |spec: RollbackSpec| RollbackSpec { volume: "log".into(), ..spec };
        let both = |one, another| vec![to("mon", one), of_log(to("mon", another))];
        let refused = async |specs| pool.rollback_volumes(specs).await.unwrap_err().kind;
        assert_eq!(refused(both(Some("last"), Some("mon"))).await, Kind::Exists);
        assert_eq!(refused(vec![to("mon", None), to("mon", None)]).await, Kind::Invalid);
        assert_eq!(refused(vec![to("mon", None), of_log(to("tue", None))]).await, Kind::NotFound);
        check(&v, &model).await;
        check(&other, &of_other).await;
        pool.rollback_volumes(both(Some("last"), Some("last"))).await.unwrap();
        let pool = reopened(&drives, &log, pool).await;
        check(&pool.volume("db").unwrap(), &monday).await;
        check(&pool.volume("log").unwrap(), &of_monday).await;
        check(&pool.snapshot("db", "last").unwrap(), &model).await;
        check(&pool.snapshot("log", "last").unwrap(), &of_other).await;
        pool.close().await.unwrap();
        check_drives(&drives, &log).await;
    });
}

/// All of the later one is told, and what the earlier one had beside that.
#[test]
fn what_changed_over_a_rollback_is_told() {
    reactor::simulate(5, async {
        for shards in [1, 2] {
            let (_, _, pool, v) = made(shards).await;
            let mut model = Model::new();
            put(&v, &mut model, 0, 600, 1).await;
            take(&pool, "mon").await;
            put(&v, &mut model, 700, 100, 1000).await;
            trim(&v, &mut model, 100, 50).await;
            take(&pool, "tue").await;
            let tuesday = model.clone();
            let v = pool.rollback_volume(to("mon", None)).await.unwrap();
            let mut model: Model = (0..600).map(|at| (at, 1 + at)).collect();
            put(&v, &mut model, 590, 150, 2000).await;
            trim(&v, &mut model, 300, 7).await;
            take(&pool, "wed").await;
            for most in [1, 3, 1000] {
                for from in [Some("mon"), Some("tue"), None] {
                    let mut had = match from {
                        Some("mon") => (0..600).map(|at| (at, 1 + at)).collect(),
                        Some(_) => tuesday.clone(),
                        None => Model::new(),
                    };
                    let (mut start, mut told) = (Some(0), 0);
                    while let Some(at) = start {
                        let changes = pool.changes("db", from, "wed", at, most).await.unwrap();
                        for extent in &changes.extents {
                            let first = extent.offset / BLOCK as u64;
                            assert!(first >= told, "in order, each once");
                            told = first + extent.bytes / BLOCK as u64;
                            for at in first..told {
                                had.remove(&at);
                                let now = model.get(&at);
                                assert_eq!(now.is_some(), extent.has_data, "block {at}");
                                had.extend(now.map(|now| (at, *now)));
                            }
                        }
                        start = changes.next;
                    }
                    assert_eq!(had, model, "from {from:?}, {most} at once");
                }
            }
            let back = pool.changes("db", Some("wed"), "tue", 0, 10).await.unwrap_err();
            assert_eq!(back.kind, Kind::Invalid);
            pool.close().await.unwrap();
        }
    });
}

/// A clone that is rolled back is a clone as before.
#[test]
fn clones_and_their_parents_are_rolled_back() {
    reactor::simulate(4, async {
        let (drives, log, pool, v) = made(2).await;
        let mut model = Model::new();
        put(&v, &mut model, 0, 100, 1).await;
        take(&pool, "mon").await;
        let monday = model.clone();
        let dev = cloned(&pool, "db", "mon", "dev").await;
        let mut of_dev = model.clone();
        put(&dev, &mut of_dev, 10, 10, 1000).await;
        take_of(&pool, "dev", "own").await;
        let own = of_dev.clone();
        put(&dev, &mut of_dev, 15, 50, 2000).await;
        let spec = RollbackSpec { volume: "dev".into(), ..to("own", None) };
        let dev = pool.rollback_volume(spec).await.unwrap();
        let origin = dev.origin().unwrap();
        assert_eq!((origin.volume, origin.snapshot), (v.id(), Some([9; 16])));
        put(&v, &mut model, 0, 100, 3000).await;
        let v = pool.rollback_volume(to("mon", Some("last"))).await.unwrap();
        check(&v, &monday).await;
        let pool = reopened(&drives, &log, pool).await;
        check(&pool.volume("db").unwrap(), &monday).await;
        assert_eq!(pool.volume("dev").unwrap().origin(), Some(origin));
        check(&pool.volume("dev").unwrap(), &own).await;
        check(&pool.snapshot("db", "last").unwrap(), &model).await;
        pool.close().await.unwrap();
    });
}

/// Hosts that change parts of blocks while their volume is rolled back: what they were told is durable is in the snapshot
/// kept, and none of it in what the volume goes back to.
#[test]
fn what_was_acknowledged_before_a_rollback_is_in_the_snapshot_kept() {
    const PART: usize = 512;
    for step in 0..24 {
        reactor::simulate(step, async move {
            let (_, drives) = simulated(4, 96 * MIB, step);
            let scheme = raid::Scheme::Raid5;
            let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, LogSpec::Drives) };
            let pool = Pool::create(spec, &[]).await.unwrap();
            let small = VolumeSpec { block_size: 512, ..volume("db", MIB) };
            let v = pool.create_volume(small).await.unwrap();
            v.write(0, &[1; BLOCK]).await.unwrap();
            take(&pool, "mon").await;
            let wrote = Rc::new(RefCell::new([1; 8]));
            // They take turns: it is long until the last of them has its own.
            let writers: Vec<_> = (0..64_u8)
                .map(|n| {
                    let (late, wrote) = (v.clone(), Rc::clone(&wrote));
                    reactor::spawn(async move {
                        for value in (2..=u8::MAX).cycle() {
                            let at = usize::from(n.wrapping_add(value) % 8);
                            match late.write(u64_of(at * PART), &[value; PART]).await {
                                Ok(()) => wrote.borrow_mut()[at] = value,
                                Err(error) => return error.kind,
                            }
                        }
                        unreachable!("it goes on until the volume is gone")
                    })
                })
                .collect();
            reactor::sleep(Duration::from_micros(20 * step)).await;
            let back = pool.rollback_volume(to("mon", Some("last"))).await.unwrap();
            for writer in writers {
                assert_eq!(writer.await, Some(Kind::Gone));
            }
            let last = pool.snapshot("db", "last").unwrap();
            let (mut got, mut kept) = (vec![0; BLOCK], vec![0; BLOCK]);
            back.read(0, &mut got).await.unwrap();
            last.read(0, &mut kept).await.unwrap();
            assert!(got == [1; BLOCK], "step {step}: it went back to what it had");
            let wrote = wrote.borrow().map(|value| [value; PART]);
            assert!(kept == wrote.as_flattened(), "step {step}: what was acknowledged is kept");
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn the_wait_for_writers_before_a_rollback_is_missed() {
    misses(
        Step::RollbackWriters,
        "is kept",
        what_was_acknowledged_before_a_rollback_is_in_the_snapshot_kept,
    );
}
