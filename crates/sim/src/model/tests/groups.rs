//! What groups make is there as a whole or not at all, and of one instant.

use super::*;

/// Two volumes and a copy of each, about the time of which there were four writes by turns.
fn copied() -> (Model, Vec<Serial>, Vec<Stamp>) {
    let mut m = Model::default();
    let of = ["a", "b"].map(|name| m.begin_create(name, 10, BLOCK));
    let copies = ["ca", "cb"].map(|name| m.begin_create(name, 10, BLOCK)).to_vec();
    let copied = of.iter().zip(&copies).map(|(of, copy)| Copied { copy: *copy, of: *of, block: 3 });
    let instant = m.begin_instant(copied.collect());
    let stamps: Vec<Stamp> = (0..4).map(|_| m.stamp()).collect();
    for (n, stamp) in stamps.iter().enumerate() {
        m.note_in_order(instant, n % 2, *stamp);
    }
    (m, copies, stamps)
}

#[test]
fn copies_of_one_instant_have_no_write_without_what_was_answered_before() {
    let (mut m, copies, stamps) = copied();
    assert!(m.instants().is_empty(), "they are not there yet");
    copies.iter().for_each(|copy| m.end_create(*copy));
    let (instant, names) = m.instants().remove(0);
    assert_eq!(names, [("ca".to_owned(), BLOCK), ("cb".to_owned(), BLOCK)]);
    let fits = |a: Option<usize>, b: Option<usize>| {
        let found = [a, b].map(|nth| nth.map(|nth| stamps[nth]));
        instant.check(&found).is_ok()
    };
    assert!(fits(Some(0), Some(1)) && fits(Some(2), Some(1)) && fits(Some(2), Some(3)));
    assert!(fits(None, Some(3)) && fits(Some(0), None), "of what others wrote nothing is known");
    assert!(!fits(Some(0), Some(3)), "the write between was answered");
    // So are copies of these.
    let again = ["da", "db"].map(|name| m.begin_create(name, 10, BLOCK));
    m.copy_instant(&copies, &again);
    again.iter().for_each(|copy| m.end_create(*copy));
    let (instant, names) = m.instants().remove(1);
    assert_eq!((names[0].0.as_str(), names[1].0.as_str()), ("da", "db"));
    assert!(instant.check(&[Some(stamps[0]), Some(stamps[3])]).is_err());
    // Of what is gone nothing is said.
    m.end_delete(again[0]);
    assert_eq!(m.instants().len(), 1);
}

#[test]
fn what_is_made_or_deleted_together_is_there_as_a_whole_or_not_at_all() {
    let listed = |names: &[&str]| -> BTreeMap<String, u64> {
        names.iter().map(|name| ((*name).to_owned(), 10)).collect()
    };
    let settles = |begun: &Model, names: &[&str]| {
        let mut m = begun.clone();
        m.crash();
        m.settle_volumes(&listed(names))
    };
    let mut m = Model::default();
    let all = ["a", "b"].map(|name| m.begin_create(name, 10, BLOCK)).to_vec();
    m.begin_together(all.clone());
    assert!(settles(&m, &[]).is_ok() && settles(&m, &["a", "b"]).is_ok());
    let wrong = settles(&m, &["b"]).unwrap_err();
    assert!(wrong.0.contains("all should, or none"), "{wrong}");
    all.iter().for_each(|one| m.end_create(*one));
    m.end_together(&all);
    // One after the other is something else.
    all.iter().for_each(|one| m.begin_delete(*one));
    assert!(settles(&m, &["a"]).is_ok());
    m.begin_together(all);
    assert!(settles(&m, &["a"]).is_err());
    assert!(settles(&m, &[]).is_ok() && settles(&m, &["a", "b"]).is_ok());
}
