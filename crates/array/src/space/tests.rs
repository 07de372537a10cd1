use super::*;
use engine::WritesRefused;
use stdx::num::u64_of;

const CAPACITY: u64 = 100 << 30;
const AT: Thresholds = Thresholds { low: 80, critical: 95 };

fn usage(percent: u64, written: u64) -> Usage {
    Usage { used: CAPACITY / 100 * percent, capacity: CAPACITY, written, refuses: None }
}

/// Looks, has the pool find out if that is asked for, and gives the level when it is worth telling.
fn step(watch: &mut Watch, says: Usage, holds: Usage) -> Option<PoolSpace> {
    let told = watch.look(says, AT) && watch.know(holds, AT);
    (told || watch.recovers(AT)).then(|| watch.told())
}

#[test]
fn each_level_is_told_once_on_the_way_up_and_once_on_the_way_down() {
    let mut watch = Watch::default();
    let mut told = Vec::new();
    let up = 0..=100_u64;
    for (n, percent) in up.clone().chain(up.rev()).enumerate() {
        let now = usage(percent, CAPACITY / 25 * u64_of(n));
        told.extend(step(&mut watch, now, now).map(|level| (percent, level)));
    }
    let expected = [
        (80, PoolSpace::Low),
        (95, PoolSpace::Critical),
        (100, PoolSpace::Full),
        (98, PoolSpace::Critical),
        (93, PoolSpace::Low),
        (78, PoolSpace::Enough),
    ];
    assert_eq!(told, expected);
}

/// Under overwrites a pool says it holds blocks that nobody sees any more: that is no news.
#[test]
fn what_merges_have_not_found_out_yet_is_not_told_and_not_asked_for_all_the_time() {
    let mut watch = Watch::default();
    let mut asked = 0;
    for n in 0..1000 {
        let written = CAPACITY / 1000 * n;
        if watch.look(usage(90, written), AT) {
            asked += 1;
            assert!(!watch.know(usage(60, written), AT));
        }
        assert!(!watch.recovers(AT));
    }
    assert_eq!(watch.told(), PoolSpace::Enough);
    assert!((25..35).contains(&asked), "{asked}");
}

/// After a deletion in an idle pool nothing else would look for what it set free.
#[test]
fn an_idle_pool_that_is_low_on_space_is_asked_whether_it_has_room_again() {
    let mut watch = Watch::default();
    assert_eq!(step(&mut watch, usage(97, 7), usage(97, 7)), Some(PoolSpace::Critical));
    assert!(!watch.look(usage(97, 7), AT), "nothing has changed");
    let deleting = Usage { used: usage(97, 7).used + 4096, ..usage(97, 7) };
    assert_eq!(step(&mut watch, deleting, usage(10, 7)), Some(PoolSpace::Enough));
    assert!(!watch.look(usage(10, 7), AT));
}

#[test]
fn hosts_are_warned_when_it_is_critical_and_not_before() {
    let warned = |told, percent| {
        let (spare, threshold) = AT.spare(told, usage(percent, 0));
        (spare, spare < threshold)
    };
    assert_eq!(warned(PoolSpace::Enough, 0), (100, false));
    assert_eq!(warned(PoolSpace::Low, 81), (19, false));
    // What is not certain yet.
    assert_eq!(warned(PoolSpace::Low, 97), (5, false));
    assert_eq!(warned(PoolSpace::Critical, 95), (4, true));
    assert_eq!(warned(PoolSpace::Full, 100), (0, true));
    // Not told yet that it is better.
    assert_eq!(warned(PoolSpace::Critical, 94), (4, true));
}

#[test]
fn a_small_pool_is_not_full_before_its_last_hundredth() {
    let usage =
        |used: u64| Usage { used: used << 20, capacity: 100 << 20, written: 0, refuses: None };
    assert_eq!(AT.level(usage(98)), PoolSpace::Critical);
    assert_eq!(AT.level(usage(99)), PoolSpace::Critical);
    assert_eq!(AT.level(usage(100)), PoolSpace::Full);
    assert_eq!(Usage { capacity: 0, ..usage(0) }.percent(), 0);
    let behind = Usage { refuses: Some(WritesRefused::NoDriveSpace), ..usage(12) };
    assert_eq!(
        AT.level(behind),
        PoolSpace::Full,
        "nothing can be written, however little it holds"
    );
}

#[test]
fn a_file_system_that_is_full_behind_the_drives_is_told_and_that_it_has_room_again() {
    let mut watch = Watch::default();
    let behind = Usage { refuses: Some(WritesRefused::NoDriveSpace), ..usage(12, 7) };
    assert_eq!(step(&mut watch, behind, behind), Some(PoolSpace::Full));
    assert!(watch.usage().refuses.is_some());
    let (health, why, help) = watch.health(&"fast".parse().unwrap());
    assert_eq!(health, Health::Failed);
    assert_eq!(why.unwrap(), "pool fast takes no writes: there is no space behind a drive");
    assert!(help.unwrap().contains("file systems"), "not: delete snapshots");
    assert_eq!(step(&mut watch, behind, behind), None, "once");
    assert_eq!(step(&mut watch, usage(12, 7), usage(12, 7)), Some(PoolSpace::Enough));
}

#[test]
fn what_a_pool_lacks_is_told_when_it_changes() {
    let mut watch = Watch::default();
    assert!(!watch.lacks(None, false), "whole from the beginning");
    assert!(!watch.reads_fail(0));
    assert!(watch.lacks(Some("drive 1 is failed"), false) && watch.is_degraded());
    assert!(!watch.lacks(Some("drive 1 is failed"), false));
    assert!(watch.lacks(Some("drive 1 is failed, drive 2 is failed"), false));
    assert!(watch.lacks(None, false) && !watch.is_degraded());
}

/// Five thousand blocks of a drive were damaged and mended, and nobody was told.
#[test]
fn faults_of_a_drive_are_told_at_the_first_and_at_each_power_of_ten() {
    let mut watch = Watch::default();
    let faults = |read_errors, corrupt, repaired| Faults { read_errors, corrupt, repaired };
    let mut look = |now| watch.faults(vec![Faults::default(), now]).len();
    assert_eq!(look(faults(0, 0, 0)), 0);
    assert_eq!(look(faults(1, 0, 0)), 1);
    assert_eq!(look(faults(9, 0, 0)), 0);
    assert_eq!(look(faults(9, 1, 1)), 1);
    assert_eq!(look(faults(10, 5, 9)), 1);
    assert_eq!(look(faults(16, 9, 9)), 0);
    assert!(!watch.is_worn());
    assert_eq!(watch.faults(vec![Faults::default(), faults(16, 5035, 5090)]).len(), 1);
    assert!(watch.is_worn());
}

/// A pool whose reads failed was called whole as long as no drive was out.
#[test]
fn reads_that_nothing_answers_are_told_for_a_while() {
    let name: Name = "fast".parse().unwrap();
    let mut watch = Watch::default();
    assert!(!watch.reads_fail(0));
    assert!(watch.reads_fail(3));
    assert!(watch.lacks(Some("reads of pool fast fail"), false));
    let (health, why, help) = watch.health(&name);
    assert_eq!((health, why.as_deref()), (Health::Failed, Some("reads of pool fast fail")));
    assert!(help.unwrap().contains("flashloom drive list"));
    for _ in 1..LOOKS_UNREADABLE {
        assert!(watch.reads_fail(3));
    }
    assert!(!watch.reads_fail(3));
    assert!(watch.reads_fail(4));
}
