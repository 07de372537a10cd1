//! Who may be put together, and who not.

use std::rc::Rc;
use std::sync::Arc;

use initiator::{Buffer, Fua};
use media::Simulated;
use media::drive::SimulatedOptions;
use reactor::simulate;

use crate::member::simulated::{Drive, Link};
use crate::{Assemble, Create, Health, Level, Member, Set};

mod succession;

fn drives(count: u64) -> Vec<Arc<Simulated>> {
    let drive = |seed| SimulatedOptions { capacity: 3 << 20, seed, ..SimulatedOptions::default() };
    (0..count).map(|seed| Simulated::new(drive(seed))).collect()
}

fn members<'a>(of: impl IntoIterator<Item = &'a Arc<Simulated>>) -> Vec<Member> {
    let member =
        |drive: &Arc<Simulated>| Member::Simulated(Drive::new(drive, Rc::new(Link::default())));
    of.into_iter().map(member).collect()
}

fn new(id: u8, level: Level, members: u8) -> Create {
    Create {
        id: [id; 16],
        member_ids: (1..=members).map(|n| [n; 16]).collect(),
        name: format!("set{id}"),
        level,
        chunk: 4096,
        records: Some(4),
        region: None,
        force: false,
    }
}

fn refused(result: Result<Set, crate::Error>) -> String {
    match result {
        Ok(_) => panic!("it was put together"),
        Err(error) => error.to_string(),
    }
}

async fn write(set: &Set, lba: u64, byte: u8) {
    let mut buffer = Buffer::new(512).await;
    buffer.fill(byte);
    set.write(lba, 1, &mut buffer, Fua::No).await.unwrap();
}

async fn read(set: &Set, lba: u64) -> u8 {
    let mut buffer = Buffer::new(512).await;
    set.read(lba, 1, &mut buffer).await.unwrap();
    assert!(buffer.iter().all(|byte| *byte == buffer[0]));
    buffer[0]
}

const DEGRADED: Assemble = Assemble { degraded: true, claim: None, canary: None };

#[test]
fn members_that_do_not_belong_together_are_refused() {
    simulate(1, async {
        let (all, other) = (drives(3), drives(3));
        let set = Set::create(members(&all), new(1, Level::Raid5, 3)).await.unwrap();
        write(&set, 7, 0x77).await;
        set.shut_down().await.unwrap();
        Set::create(members(&other), new(2, Level::Raid5, 3)).await.unwrap();
        let put = |which: Vec<Member>, how| Set::assemble(which, how);
        let usual = Assemble::default();

        let said = refused(Set::create(members(&all), new(3, Level::Raid5, 3)).await);
        assert!(said.contains("belongs to the set set1"), "{said}");
        let mixed = members([&all[0], &all[1], &other[2]]);
        assert!(refused(put(mixed, DEGRADED).await).contains("another set"));
        let twice = members([&all[0], &all[1], &all[1]]);
        assert!(refused(put(twice, DEGRADED).await).contains("as one given before"));
        let blank = drives(1);
        let with_blank = members([&all[0], &all[1], &blank[0]]);
        assert!(refused(put(with_blank, DEGRADED).await).contains("is blank"));
        blank[0].poke(8192, &[1; 512]);
        let foreign = members([&all[0], &all[1], &blank[0]]);
        assert!(refused(put(foreign, DEGRADED).await).contains("holds something"));
        let said = refused(put(members(&all[..2]), usual).await);
        assert!(said.contains("[2]"), "{said}");
        assert!(refused(put(members(&all[..1]), DEGRADED).await).contains("too few"));

        // In any order; without one, and then with it, which is stale.
        let set = put(members([&all[2], &all[1]]), DEGRADED).await.unwrap();
        assert_eq!(read(&set, 7).await, 0x77);
        write(&set, 7, 0x78).await;
        set.shut_down().await.unwrap();
        let set = put(members(&all), usual).await.unwrap();
        assert_eq!(set.status().seats[0].health, Health::Missing);
        let (slot, stale) = set.lost_members().remove(0);
        let joined = set.join(stale, [9; 16], false).await.unwrap();
        assert_eq!((slot, joined.slot, joined.partial), (0, 0, true));
        set.rebuild(0, Some(1 << 30), |_| {}).await.unwrap();
        assert_eq!(read(&set, 7).await, 0x78);
        let found = set.check(false, None, |_, _| {}).await.unwrap();
        assert_eq!((found.mismatched, found.degraded), (0, 0));
    });
}

#[test]
fn halves_of_a_mirror_that_were_used_apart_do_not_come_together_by_themselves() {
    simulate(1, async {
        let all = drives(2);
        Set::create(members(&all), new(1, Level::Mirror, 2)).await.unwrap();
        for (half, byte) in all.iter().zip([1, 2]) {
            let set = Set::assemble(members([half]), DEGRADED).await.unwrap();
            write(&set, 0, byte).await;
            set.shut_down().await.unwrap();
        }
        let said = refused(Set::assemble(members(&all), DEGRADED).await);
        assert!(said.contains("without each other"), "{said}");
        // One of them once more: it is ahead, and the other is no member that just missed something.
        let set = Set::assemble(members(&all[..1]), DEGRADED).await.unwrap();
        set.shut_down().await.unwrap();
        let set = Set::assemble(members(&all), DEGRADED).await.unwrap();
        let (_, other) = set.lost_members().remove(0);
        let said = set.join(other.clone(), [0; 16], false).await.unwrap_err().to_string();
        assert!(said.contains("without the others"), "{said}");
        let joined = set.join(other, [0; 16], true).await.unwrap();
        assert!(!joined.partial);
        set.rebuild(joined.slot, None, |_| {}).await.unwrap();
        assert_eq!((read(&set, 0).await, read(&set, 0).await), (1, 1));
    });
}

/// The superblock of the half that was discarded stayed on its other page, and was the newest of all.
#[test]
fn the_history_of_a_half_that_was_taken_in_by_force_is_gone_before_it_is_a_member() {
    simulate(1, async {
        let all = drives(2);
        Set::create(members(&all), new(1, Level::Mirror, 2)).await.unwrap();
        for (half, byte, times) in [(&all[0], 1, 1), (&all[1], 2, 5)] {
            for _ in 0..times {
                let set = Set::assemble(members([half]), DEGRADED).await.unwrap();
                write(&set, 0, byte).await;
                set.shut_down().await.unwrap();
            }
        }
        let set = Set::assemble(members(&all[..1]), DEGRADED).await.unwrap();
        let other = members(&all[1..]).remove(0);
        let joined = set.join(other, [0; 16], true).await.unwrap();
        assert_eq!((joined.slot, joined.partial), (1, false));
        // Its program ends before it has been rebuilt.
        drop(set);
        let set = Set::assemble(members(&all), Assemble::default()).await.unwrap();
        assert_eq!((read(&set, 0).await, read(&set, 0).await), (1, 1));
        assert_eq!(set.to_rebuild(), [1]);
    });
}

/// Records of members that were used apart had later numbers, and were done again on them after they were taken in.
#[test]
fn records_of_members_that_were_taken_in_by_force_are_not_done_again() {
    simulate(1, async {
        let all = drives(4);
        Set::create(members(&all), new(1, Level::Raid6, 4)).await.unwrap();
        for (two, byte, times) in [(&all[..2], 1, 1), (&all[2..], 2, 5)] {
            for _ in 0..times {
                let set = Set::assemble(members(two), DEGRADED).await.unwrap();
                for lba in 0..4 {
                    write(&set, lba * 8, byte).await;
                }
                set.shut_down().await.unwrap();
            }
        }
        let set = Set::assemble(members(&all[..2]), DEGRADED).await.unwrap();
        for other in members(&all[2..]) {
            let joined = set.join(other, [0; 16], true).await.unwrap();
            set.rebuild(joined.slot, None, |_| {}).await.unwrap();
        }
        set.shut_down().await.unwrap();
        let set = Set::assemble(members(&all), Assemble::default()).await.unwrap();
        for lba in 0..4 {
            assert_eq!(read(&set, lba * 8).await, 1);
        }
        let found = set.check(false, None, |_, _| {}).await.unwrap();
        assert_eq!((found.mismatched, found.degraded), (0, 0));
    });
}

#[test]
fn a_blank_member_takes_the_place_of_one_that_is_gone() {
    simulate(1, async {
        let (all, spare) = (drives(4), drives(1));
        let set = Set::create(members(&all), new(1, Level::Raid6, 4)).await.unwrap();
        for lba in 0..40 {
            write(&set, lba * 5, stdx::num::low8(lba) + 1).await;
        }
        all[1].fail();
        write(&set, 11, 0xee).await;
        let blank = members(&spare).remove(0);
        let joined = set.join(blank, [9; 16], false).await.unwrap();
        assert_eq!((joined.slot, joined.partial), (1, false));
        let mut last = 0;
        set.rebuild(1, None, |progress| last = progress.done).await.unwrap();
        assert_eq!(last, set.layout().stripes);
        all[0].fail();
        all[2].fail();
        for lba in 0..40 {
            assert_eq!(read(&set, lba * 5).await, stdx::num::low8(lba) + 1);
        }
        assert_eq!(read(&set, 11).await, 0xee);
        assert!(set.status().broken.is_none());
        set.shut_down().await.unwrap();
        // The one that was replaced is no member any more.
        all[1].revive();
        let with_old = members([&all[1], &all[3], &spare[0]]);
        assert!(refused(Set::assemble(with_old, DEGRADED).await).contains("as one given before"));
    });
}

#[test]
fn a_stripe_set_is_what_its_members_are() {
    simulate(1, async {
        let all = drives(3);
        let set = Set::create(members(&all), new(1, Level::Stripe, 3)).await.unwrap();
        write(&set, 30, 0x31).await;
        set.flush().await.unwrap();
        set.shut_down().await.unwrap();
        assert!(refused(Set::assemble(members(&all[..2]), DEGRADED).await).contains("too few"));
        let set = Set::assemble(members(&all), Assemble::default()).await.unwrap();
        assert_eq!(read(&set, 30).await, 0x31);
        all[0].fail();
        let mut buffer = Buffer::new(512).await;
        let results = [set.read(0, 1, &mut buffer).await, set.read(8, 1, &mut buffer).await];
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    });
}
