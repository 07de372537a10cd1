use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const POOL: [u8; 16] = [4; 16];

fn view(n: u32) -> View {
    View::new(n)
}

fn volume(n: u32) -> Object {
    let plain = Object::volume(view(n), &format!("v{n}"), [1; 16], 1 << 40, 512);
    Object { epoch: 9, ..plain }
}

fn group(n: u32) -> Object {
    Object { kind: Kind::Group, bytes: 0, shrunk_from: 0, ..volume(n) }
}

fn snapshot(n: u32, of: u32, epoch: u64) -> Object {
    let (parent, parent_epoch) = (Some(view(of)), epoch);
    Object { kind: Kind::Snapshot, parent, parent_epoch, placement: of, ..volume(n) }
}

fn clone(n: u32, of: u32, placement: u32) -> Object {
    Object { kind: Kind::Clone, placement, ..snapshot(n, of, 9) }
}

fn put(objects: impl IntoIterator<Item = Object>) -> Edit {
    Edit { next_view: 100_000, records: objects.into_iter().map(Record::Put).collect() }
}

fn with(objects: impl IntoIterator<Item = Object>) -> Catalog {
    let mut catalog = Catalog::default();
    catalog.apply(&put(objects)).unwrap();
    catalog
}

/// What is loaded from these pages.
fn load(bytes: &[u8]) -> Result<Catalog, Bad> {
    let mut loader = Loader::default();
    for block in bytes.chunks_exact(PAGE) {
        loader.take(Page::read(block, POOL)?, block)?;
    }
    Ok(loader.catalog())
}

#[test]
fn a_catalog_comes_back_as_written() {
    for count in [0, 1, 24, 25, 26, 4000] {
        let mut catalog = with((1..=count).map(volume));
        catalog.generation = 5;
        let bytes = catalog.to_base(POOL);
        assert_eq!(bytes.len(), stdx::num::usize32(base_pages(catalog.len())) * PAGE);
        assert_eq!(load(&bytes).as_ref(), Ok(&catalog));
        assert_eq!(Page::read(&bytes[..PAGE], [5; 16]), Err(Bad::Blank));
    }
}

#[test]
fn no_step_of_a_base_looks_at_more_than_some_objects() {
    for (volumes, groups) in [(0, 0), (1, 0), (99, 1), (100, 0), (3000, 260)] {
        let all = (1..=volumes).map(volume).chain((volumes + 1..=volumes + groups).map(group));
        let catalog = with(all);
        let (mut base, mut steps) = (Base::new(&catalog, POOL), 1);
        while !base.step(&catalog) {
            steps += 1;
        }
        let objects = 2 * (volumes + groups);
        assert_eq!(steps, objects / 100 + 1, "{volumes} volumes, {groups} groups");
        assert_eq!(load(&base.into_bytes()), Ok(catalog));
    }
}

#[test]
fn every_kind_comes_back_as_written() {
    let deleted = Object { deleted: true, shrunk_from: 2 << 40, bytes: 4096, ..volume(2) };
    let member = Object { group: Some(view(9)), created: 1_700_000_000, ..volume(3) };
    let before = Object { deleted: true, ..volume(6) };
    let rolled_back = Object { first_view: view(6), name: "v6".into(), ..clone(8, 6, 6) };
    let all = [
        volume(1),
        deleted,
        group(9),
        member,
        snapshot(4, 3, 9),
        clone(5, 4, 3),
        before,
        snapshot(7, 6, 8),
        rolled_back,
        Object { detaching: true, ..clone(10, 3, 3) },
        Object { detached: Some(5), ..clone(11, 3, 3) },
        Object { quota: QUOTA_MAX, ..volume(12) },
        Object { quota: QUOTA_UNIT, ..clone(13, 3, 3) },
        Object { quota: QUOTA_UNIT, ..group(14) },
        Object { reservation: Some(Reservation::All), ..volume(15) },
        Object { reservation: Some(Reservation::Bytes(RESERVATION_MAX)), ..clone(16, 3, 3) },
    ];
    let mut catalog = with(all);
    catalog.generation = 1;
    assert_eq!(load(&catalog.to_base(POOL)), Ok(catalog));
}

#[test]
fn a_page_with_any_flipped_bit_is_refused() {
    let bytes = with([volume(1)]).to_base(POOL);
    for bit in 0..PAGE * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Page::read(&damaged, POOL).is_err(), "bit {bit}");
    }
}

/// The catalog stays as it was, and says why.
#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let mut catalog = with([volume(1), volume(2), group(3), snapshot(4, 1, 9), clone(5, 4, 1)]);
    let before = catalog.clone();
    let remove = |n| Edit { next_view: 100_000, records: vec![Record::Remove(view(n))] };
    let named = |object: Object, name: &str| Object { name: name.into(), ..object };
    let bad = [
        (put([volume(0)]), "view"),
        (put([Object { placement: 7, ..volume(100_000) }]), "view"),
        (put([named(volume(6), "v1")]), "name"),
        (put([named(volume(6), "a b")]), "name"),
        (put([Object { placement: 0, ..volume(6) }]), "placement"),
        (put([Object { placement: 7, ..volume(6) }]), "placement"),
        (put([Object { placement: 1, ..volume(2) }]), "placement"),
        (put([Object { block_size: 1024, ..volume(6) }]), "block of an object"),
        (put([Object { bytes: 1000, ..volume(6) }]), "size of an object"),
        (put([Object { shrunk_from: !4095, ..volume(6) }]), "size of an object"),
        (put([Object { group: Some(view(2)), ..volume(6) }]), "group"),
        (put([Object { group: Some(view(77)), ..volume(6) }]), "group"),
        (put([Object { parent: None, ..snapshot(6, 1, 7) }]), "parent"),
        (put([Object { parent: Some(view(1)), ..volume(6) }]), "parent"),
        (put([Object { placement: 1, ..snapshot(6, 77, 7) }]), "parent"),
        (put([snapshot(6, 1, 0)]), "parent"),
        (put([Object { placement: 2, ..snapshot(6, 1, 7) }]), "parent"),
        (put([Object { placement: 4, ..snapshot(6, 4, 7) }]), "parent"),
        (put([Object { placement: 3, ..snapshot(6, 3, 7) }]), "parent"),
        (put([volume(8), Object { placement: 8, ..snapshot(6, 8, 7) }]), "placement"),
        (put([volume(3)]), "kind of an object"),
        (put([Object { detaching: true, ..volume(6) }]), "detached"),
        (put([Object { detaching: true, deleted: true, ..clone(6, 1, 7) }]), "detached"),
        (put([Object { detached: Some(0), ..volume(6) }]), "detached"),
        (put([Object { quota: QUOTA_UNIT + 4096, ..volume(6) }]), "quota"),
        (put([Object { quota: QUOTA_MAX + QUOTA_UNIT, ..volume(6) }]), "quota"),
        (put([Object { quota: QUOTA_UNIT + 4096, ..group(6) }]), "quota"),
        (put([Object { quota: QUOTA_UNIT, ..snapshot(6, 1, 7) }]), "quota"),
        (put([Object { detached: Some(10), ..clone(6, 1, 7) }]), "detached"),
        (put([Object { first_view: view(0), ..volume(6) }]), "first view"),
        (put([Object { first_view: view(7), ..volume(6) }]), "first view"),
        (put([Object { first_view: view(2), ..snapshot(6, 1, 7) }]), "first view"),
        // Of views that a volume had, hosts have one.
        (put([Object { first_view: view(1), ..volume(6) }]), "first view"),
        (put([volume(8), Object { first_view: view(7), ..volume(8) }]), "first view"),
        (put([Object { bytes: 4096, ..group(6) }]), "parent"),
        (remove(1), "removal of a parent or group"),
        (remove(77), "removal of an object"),
        (Edit { next_view: 99_999, records: Vec::new() }, "next view"),
        (Edit { next_view: u32::MAX, records: Vec::new() }, "next view"),
    ];
    for (edit, why) in bad {
        // What goes before it in the same edit is taken back with it.
        let late = Object { deleted: true, ..volume(2) };
        let mut records = vec![Record::Put(volume(50)), Record::Put(late)];
        records.extend(edit.records.iter().cloned());
        for edit in [Edit { records, ..edit.clone() }, edit] {
            match catalog.apply(&edit) {
                Err(Bad::Field(what)) if what == why => {}
                other => panic!("{edit:?}: {other:?}, not {why}"),
            }
            assert_eq!(catalog, before);
        }
    }
    // Nothing sees more of its parent than there was, nor a clone another state than its snapshot.
    let early = Object { epoch: 6, ..volume(6) };
    let late = Object { placement: 6, ..snapshot(7, 6, 7) };
    assert_eq!(catalog.apply(&put([early, late])), Err(Bad::Field("parent")));
    let another = Object { parent_epoch: 8, ..clone(6, 4, 1) };
    assert_eq!(catalog.apply(&put([another])), Err(Bad::Field("parent")));
    // Versions are never used again, and there is an end to them.
    for epoch in [8, u64::from(Version::LAST.get())] {
        assert_eq!(catalog.apply(&put([Object { epoch, ..volume(1) }])), Err(Bad::Field("epoch")));
    }
    // Snapshots have names of their own under each parent.
    let mine = |n, of| Object { name: "mon".into(), ..snapshot(n, of, 7) };
    catalog.apply(&put([mine(8, 1), mine(9, 2)])).unwrap();
    let again = Object { placement: 2, ..mine(10, 2) };
    assert_eq!(catalog.apply(&put([again])), Err(Bad::Field("name")));
}

/// It has the name, and the snapshots of its former views, which have names of their own among all of them.
#[test]
fn a_volume_that_was_rolled_back_has_the_snapshots_of_all_its_views() {
    let named = |object: Object, name: &str| Object { name: name.into(), ..object };
    let before = Object { deleted: true, ..volume(1) };
    let now = Object { first_view: view(1), ..named(clone(3, 1, 1), "v1") };
    let mut catalog = with([volume(1), snapshot(2, 1, 9)]);
    catalog.apply(&put([before.clone(), now.clone()])).unwrap();
    let later = Object { placement: 1, ..named(snapshot(4, 3, 9), "tue") };
    catalog.apply(&put([later.clone()])).unwrap();
    let names = |of: &Catalog, view| -> Vec<String> {
        of.snapshots_of(view).map(|snapshot| snapshot.name.to_string()).collect()
    };
    assert_eq!(catalog.find("v1"), Some(&now));
    for view in [view(1), view(3)] {
        assert_eq!(names(&catalog, view), ["tue", "v2"]);
        assert_eq!(catalog.find_snapshot(view, "v2").map(|found| found.view), Some(View::new(2)));
    }
    assert_eq!(catalog.volume_of(&snapshot(2, 1, 9)), Some(&now));
    assert_eq!(catalog.volume_of(&later), Some(&now));
    let again = Object { view: view(9), first_view: view(9), ..named(later, "v2") };
    assert_eq!(catalog.apply(&put([again])), Err(Bad::Field("name")));
    let back = Object { deleted: false, ..before };
    assert!(catalog.apply(&put([named(back, "other")])).is_err(), "two views for hosts");
    assert_eq!(load(&catalog.to_base(POOL)).map(|loaded| loaded.has_same(&catalog)), Ok(true));
}

#[test]
fn reservations_that_make_no_sense_are_refused() {
    let mut catalog = with([volume(1)]);
    let bytes = |bytes| Some(Reservation::Bytes(bytes));
    for reservation in [bytes(0), bytes(QUOTA_UNIT + 4096), bytes(QUOTA_MAX)] {
        let edit = put([Object { reservation, ..volume(6) }]);
        assert_eq!(catalog.apply(&edit), Err(Bad::Field("reservation")), "{reservation:?}");
    }
    let reservation = Some(Reservation::All);
    for object in [group(6), snapshot(6, 1, 7)] {
        let edit = put([Object { reservation, ..object }]);
        assert_eq!(catalog.apply(&edit), Err(Bad::Field("reservation")));
    }
}

#[test]
fn an_unknown_flag_or_kind_is_refused() {
    let bytes = with([volume(1)]).to_base(POOL);
    for (at, value, why) in [(4, 5, "kind of an object"), (6, 128, "flags of an object")] {
        let mut changed = bytes.clone();
        changed[96 + at] = value;
        crate::format::seal(&mut changed, *b"FLASHCAT");
        assert_eq!(load(&changed), Err(Bad::Field(why)));
    }
}

/// What snapshots at scale ask for, with names as long as operators give.
#[test]
fn a_hundred_thousand_objects_take_little_memory() {
    let named = |n: u32| Object { name: format!("database-{n:06}").into(), ..volume(n) };
    let mut all = Catalog::default();
    let records = (1..=110_000).map(|n| Record::Put(named(n))).collect();
    all.apply(&Edit { next_view: 110_001, records }).unwrap();
    let base = all.to_base(POOL);
    drop(all);
    let mut loaded = None;
    let took = allocation_counter::measure(|| loaded = Some(load(&base).unwrap()));
    assert_eq!(loaded.map(|catalog| catalog.len()), Some(110_000));
    assert!(took.bytes_current < 40 << 20, "{} bytes", took.bytes_current);
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Snapshot(usize),
    Clone(usize),
    Group,
    Join(usize, usize),
    Resize(usize, u64),
    Rename(usize, u32),
    Remove(usize),
    Base,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..60_usize).prop_map(Step::Create),
        3 => any::<usize>().prop_map(Step::Snapshot),
        2 => any::<usize>().prop_map(Step::Clone),
        1 => Just(Step::Group),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Step::Join(a, b)),
        2 => (any::<usize>(), 1..1000_u64).prop_map(|(a, b)| Step::Resize(a, b)),
        2 => (any::<usize>(), 0..30_u32).prop_map(|(a, b)| Step::Rename(a, b)),
        4 => any::<usize>().prop_map(Step::Remove),
        1 => Just(Step::Base),
    ]
}

/// What the catalog should have, without any of its indexes.
#[derive(Default)]
struct Model(BTreeMap<u32, Object>);

impl Model {
    fn any(&self, nth: usize, is: impl Fn(&Object) -> bool) -> Option<Object> {
        let some: Vec<_> = self.0.values().filter(|object| is(object)).collect();
        some.get(nth % some.len().max(1)).map(|object| (*object).clone())
    }

    fn is_free(&self, of: &Object) -> bool {
        let scope = |o: &Object| o.parent.filter(|_| o.kind == Kind::Snapshot);
        let alike = |o: &&Object| {
            let is_there = !o.deleted && !of.deleted;
            is_there && o.name == of.name && scope(o) == scope(of) && o.view != of.view
        };
        !self.0.values().any(|object| alike(&object))
    }

    fn is_needed(&self, of: View) -> bool {
        self.0.values().any(|object| object.parent == Some(of) || object.group == Some(of))
    }

    /// The records of a step, and whether they can be applied.
    fn edit(&self, step: &Step, next: &mut u32) -> Option<(Vec<Record>, bool)> {
        let mut fresh = || {
            *next += 1;
            *next - 1
        };
        let is_data = |object: &Object| object.kind != Kind::Group;
        let has_blocks = |object: &Object| matches!(object.kind, Kind::Volume | Kind::Clone);
        let changed = match step {
            Step::Base => return None,
            Step::Create(count) => {
                let made = (0..*count).map(|_| Record::Put(volume(fresh())));
                return Some((made.collect(), true));
            }
            Step::Snapshot(nth) => {
                let parent = self.any(*nth, has_blocks)?;
                let made = snapshot(fresh(), parent.view.get(), 9);
                Object { placement: parent.placement, ..made }
            }
            Step::Clone(nth) => {
                let parent = self.any(*nth, is_data)?;
                clone(fresh(), parent.view.get(), parent.placement)
            }
            Step::Group => group(fresh()),
            Step::Join(nth, group) => {
                let group = self.any(*group, |object| object.kind == Kind::Group)?.view;
                Object { group: Some(group), ..self.any(*nth, is_data)? }
            }
            Step::Resize(nth, blocks) => {
                let object = self.any(*nth, is_data)?;
                Object { shrunk_from: object.bytes, bytes: blocks * 4096, ..object }
            }
            Step::Rename(nth, to) => {
                Object { name: format!("n{to}").into(), ..self.any(*nth, |_| true)? }
            }
            Step::Remove(nth) => {
                let object = self.any(*nth, |_| true)?;
                let can = !self.is_needed(object.view);
                return Some((vec![Record::Remove(object.view)], can));
            }
        };
        let can = self.is_free(&changed);
        Some((vec![Record::Put(changed)], can))
    }

    fn apply(&mut self, records: &[Record]) {
        for record in records {
            match record {
                Record::Put(object) => _ = self.0.insert(object.view.get(), object.clone()),
                Record::Remove(view) => _ = self.0.remove(&view.get()),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever is changed, in memory and loaded from a base and edits there is what the model has, and what cannot be
    /// is refused and changes nothing.
    #[test]
    fn random_edits_make_what_the_model_has(steps in prop::collection::vec(step(), 1..80)) {
        let (mut catalog, mut model) = (Catalog::default(), Model::default());
        let mut bytes = catalog.to_base(POOL);
        let mut next = 1;
        for step in &steps {
            if matches!(step, Step::Base) {
                bytes = catalog.to_base(POOL);
            }
            let Some((records, can)) = model.edit(step, &mut next) else { continue };
            let edit = Edit { next_view: next, records };
            let before = catalog.clone();
            let checked = catalog.check(&edit);
            prop_assert_eq!(&catalog, &before);
            prop_assert_eq!(checked.is_ok(), can, "{:?}: {:?}", edit, checked);
            let Ok(objects) = checked else {
                prop_assert!(catalog.apply(&edit).is_err());
                prop_assert_eq!(&catalog, &before);
                continue;
            };
            catalog.apply(&edit).unwrap();
            catalog.generation += 1;
            model.apply(&edit.records);
            bytes.extend(edit.to_pages(POOL, catalog.generation, objects));
        }
        prop_assert!(catalog.objects().eq(model.0.values()));
        let names: BTreeSet<_> = catalog.objects().filter_map(|object| catalog.named(object)).collect();
        let deleted = catalog.objects().filter(|object| object.deleted).count();
        prop_assert_eq!(names.len() + deleted, catalog.len());
        prop_assert_eq!(load(&bytes), Ok(catalog.clone()));
        prop_assert_eq!(load(&catalog.to_base(POOL)), Ok(catalog));
    }
}
