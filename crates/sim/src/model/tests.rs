mod groups;

use super::*;
use std::collections::BTreeMap;

fn volume() -> (Model, Serial) {
    let mut model = Model::default();
    let v = model.begin_create("v", 100, BLOCK);
    model.end_create(v);
    (model, v)
}

fn reads(model: &mut Model, v: Serial, block: u64, stamp: Stamp) -> Result<(), Violation> {
    let read = model.begin_read(v, block, 1);
    model.end_read(&read, &[Found::Stamp(stamp)])
}

fn wrote(model: &mut Model, v: Serial, block: u64) -> Stamp {
    let stamp = model.stamp();
    let write = model.begin_write(v, block, 1, stamp);
    model.end_write(&write, true);
    stamp
}

#[test]
fn only_the_last_acknowledged_write_may_be_read() {
    let (mut m, v) = volume();
    reads(&mut m, v, 5, Stamp::ZERO).unwrap();
    let a = wrote(&mut m, v, 5);
    reads(&mut m, v, 5, a).unwrap();
    let b = wrote(&mut m, v, 5);
    let wrong = reads(&mut m, v, 5, a).unwrap_err();
    assert_eq!(wrong.0, "block 5 of `v` holds write 1; allowed: write 2");
    reads(&mut m, v, 5, b).unwrap();
    assert!(reads(&mut m, v, 5, Stamp::ZERO).is_err());
    assert!(reads(&mut m, v, 6, b).is_err());
    reads(&mut m, v, 6, Stamp::ZERO).unwrap();
}

#[test]
fn a_write_under_way_may_be_seen_and_then_stays() {
    let (mut m, v) = volume();
    let a = wrote(&mut m, v, 5);
    let b = m.stamp();
    let write = m.begin_write(v, 5, 1, b);
    reads(&mut m, v, 5, a).unwrap();
    reads(&mut m, v, 5, b).unwrap();
    assert!(reads(&mut m, v, 5, a).is_err(), "it was seen");
    m.end_write(&write, true);
    reads(&mut m, v, 5, b).unwrap();
}

#[test]
fn a_read_may_show_anything_from_its_own_time() {
    let (mut m, v) = volume();
    let before = wrote(&mut m, v, 5);
    let a = wrote(&mut m, v, 5);
    let read = m.begin_read(v, 5, 1);
    let (b, c) = (wrote(&mut m, v, 5), wrote(&mut m, v, 5));
    for (stamp, allowed) in [(before, false), (a, true), (b, true), (c, true)] {
        let mut m = m.clone();
        assert_eq!(m.end_read(&read, &[Found::Stamp(stamp)]).is_ok(), allowed);
    }
    m.fail_read(&read);
    reads(&mut m, v, 5, c).unwrap();
}

#[test]
fn of_two_writes_at_once_either_may_win_but_only_one() {
    let (mut m, v) = volume();
    let (a, b) = (m.stamp(), m.stamp());
    let first = m.begin_write(v, 5, 1, a);
    let second = m.begin_write(v, 5, 1, b);
    m.end_write(&second, true);
    m.end_write(&first, true);
    assert!(reads(&mut m, v, 5, Stamp::ZERO).is_err());
    reads(&mut m, v, 5, b).unwrap();
    assert!(reads(&mut m, v, 5, a).is_err());
}

#[test]
fn a_crash_leaves_writes_under_way_open_until_seen() {
    for seen in [0, 1] {
        let (mut m, v) = volume();
        let a = wrote(&mut m, v, 5);
        let b = m.stamp();
        let _cut_off = m.begin_write(v, 5, 1, b);
        m.crash();
        let choice = [a, b];
        reads(&mut m, v, 5, choice[seen]).unwrap();
        assert!(reads(&mut m, v, 5, choice[1 - seen]).is_err());
        m.crash();
        reads(&mut m, v, 5, choice[seen]).unwrap();
        let c = wrote(&mut m, v, 5);
        m.crash();
        reads(&mut m, v, 5, c).unwrap();
    }
}

#[test]
fn a_failed_write_does_not_hide_what_was_there() {
    let (mut m, v) = volume();
    let a = wrote(&mut m, v, 5);
    let b = m.stamp();
    let write = m.begin_write(v, 5, 1, b);
    m.end_write(&write, false);
    reads(&mut m, v, 5, a).unwrap();
    assert!(reads(&mut m, v, 5, b).is_err());
}

#[test]
fn garbage_and_strangers_are_never_allowed() {
    let (mut m, v) = volume();
    let a = wrote(&mut m, v, 5);
    for found in [Found::Garbage { head: 1 }, Found::Elsewhere { stamp: a, volume: v, block: 6 }] {
        let read = m.begin_read(v, 5, 1);
        assert!(m.end_read(&read, &[found]).is_err());
        m.fail_read(&read);
    }
}

#[test]
fn volumes_appear_vanish_and_change_size_only_as_asked() {
    let (mut m, v) = volume();
    let listed = |sizes: &[(&str, u64)]| {
        sizes.iter().map(|&(name, size)| (name.to_owned(), size)).collect::<BTreeMap<_, _>>()
    };
    m.settle_volumes(&listed(&[("v", 100)])).unwrap();
    assert!(m.settle_volumes(&listed(&[("v", 99)])).is_err());
    assert!(m.settle_volumes(&listed(&[])).is_err());
    assert!(m.settle_volumes(&listed(&[("v", 100), ("w", 1)])).is_err());
    let a = wrote(&mut m, v, 50);
    let _open = m.begin_resize(v, 20);
    m.crash();
    m.settle_volumes(&listed(&[("v", 20)])).unwrap();
    let grown = m.begin_resize(v, 100);
    m.end_resize(&grown);
    // Cut off by the smaller size, or never: that much was open.
    reads(&mut m, v, 50, Stamp::ZERO).unwrap();
    assert!(reads(&mut m, v, 50, a).is_err());
    m.begin_delete(v);
    m.settle_volumes(&listed(&[])).unwrap();
    assert!(m.settle_volumes(&listed(&[("v", 100)])).is_err());
    assert!(m.present().is_empty());
}

#[test]
fn population_counts_blocks_with_data() {
    let (mut m, v) = volume();
    wrote(&mut m, v, 1);
    wrote(&mut m, v, 2);
    let zeroes = m.begin_write(v, 2, 1, Stamp::ZERO);
    m.end_write(&zeroes, true);
    assert_eq!(m.population(), (1, 1));
    let stamp = m.stamp();
    let _open = m.begin_write(v, 3, 2, stamp);
    m.crash();
    assert_eq!(m.population(), (1, 3));
}

#[test]
fn a_write_given_up_may_come_to_light_but_not_over_a_later_one() {
    let (mut m, v) = volume();
    let a = wrote(&mut m, v, 5);
    let b = m.stamp();
    let write = m.begin_write(v, 5, 1, b);
    m.give_up_write(&write);
    reads(&mut m, v, 5, a).unwrap();
    {
        let mut m = m.clone();
        reads(&mut m, v, 5, b).unwrap();
        assert!(reads(&mut m, v, 5, a).is_err(), "it came to light");
    }
    {
        let mut m = m.clone();
        m.crash();
        reads(&mut m, v, 5, a).unwrap();
        assert!(reads(&mut m, v, 5, b).is_err(), "its fate was seen");
    }
    let c = wrote(&mut m, v, 5);
    assert!(reads(&mut m, v, 5, b).is_err());
    reads(&mut m, v, 5, c).unwrap();
}

#[test]
fn a_copy_is_what_its_source_held_meanwhile() {
    let (mut m, v) = volume();
    let before = wrote(&mut m, v, 5);
    let a = wrote(&mut m, v, 5);
    let from_5 = |stamp| Found::Elsewhere { stamp, volume: v, block: 5 };
    let sees = |m: &mut Model, found| {
        let read = m.begin_read(v, 9, 1);
        m.end_read(&read, &[found])
    };
    let copy = m.begin_copy((v, 5), (v, 9), 1);
    let b = wrote(&mut m, v, 5);
    m.end_write(&copy, true);
    let c = wrote(&mut m, v, 5);
    for (found, allowed) in [
        (from_5(before), false),
        (from_5(a), true),
        (from_5(b), true),
        (from_5(c), false),
        (Found::Stamp(Stamp::ZERO), false),
    ] {
        assert_eq!(sees(&mut m.clone(), found).is_ok(), allowed, "{found}");
    }
    // What was seen once stays, and can be copied on.
    sees(&mut m, from_5(b)).unwrap();
    assert!(sees(&mut m, from_5(a)).is_err());
    let copy = m.begin_copy((v, 9), (v, 10), 1);
    m.crash();
    let mut done = m.clone();
    let read = done.begin_read(v, 10, 1);
    done.end_read(&read, &[from_5(b)]).unwrap();
    let read = m.begin_read(v, 10, 1);
    m.end_read(&read, &[Found::Stamp(Stamp::ZERO)]).unwrap();
    drop(copy);
}

#[test]
fn copies_that_share_count_once() {
    let (mut m, v) = volume();
    wrote(&mut m, v, 5);
    wrote(&mut m, v, 6);
    for to in [10, 11] {
        let copy = m.begin_copy((v, 5), (v, to), 1);
        m.end_write(&copy, true);
    }
    assert_eq!(m.population(), (2, 4));
    wrote(&mut m, v, 5);
    assert_eq!(m.population(), (3, 4));
}

/// A model of a pool whose log is lost, with a volume.
fn losing() -> (Model, Serial) {
    let mut model = Model::new(true);
    let v = model.begin_create("v", 100, BLOCK);
    model.end_create(v);
    (model, v)
}

/// What a block may be without the log: each that is read first.
fn may_be(m: &Model, v: Serial, block: u64, stamps: &[Stamp]) -> Vec<bool> {
    let mut m = m.clone();
    m.crash();
    m.lose_log();
    stamps.iter().map(|stamp| reads(&mut m.clone(), v, block, *stamp).is_ok()).collect()
}

#[test]
fn without_the_log_a_block_is_what_had_left_it_or_anything_since() {
    let (mut m, v) = losing();
    let (a, b) = (wrote(&mut m, v, 5), wrote(&mut m, v, 5));
    assert_eq!(may_be(&m, v, 5, &[Stamp::ZERO, a, b]), [true, true, true]);
    let settling = m.begin_settle();
    m.end_settle(&settling);
    assert_eq!(may_be(&m, v, 5, &[Stamp::ZERO, a, b]), [false, false, true]);
    let c = wrote(&mut m, v, 5);
    assert_eq!(may_be(&m, v, 5, &[a, b, c]), [false, true, true]);
}

#[test]
fn what_was_overwritten_in_the_log_need_not_be_on_the_drives() {
    let (mut m, v) = losing();
    let a = wrote(&mut m, v, 5);
    let settling = m.begin_settle();
    m.end_settle(&settling);
    let b = wrote(&mut m, v, 5);
    let settling = m.begin_settle();
    let c = wrote(&mut m, v, 5);
    m.end_settle(&settling);
    assert_eq!(may_be(&m, v, 5, &[Stamp::ZERO, a, b, c]), [false, true, true, true]);
    // Unless that has left it as well.
    let settling = m.begin_settle();
    m.end_settle(&settling);
    assert_eq!(may_be(&m, v, 5, &[Stamp::ZERO, a, b, c]), [false, false, false, true]);
}
