//! Changes over a real target and real sockets: all of one or none.

use std::net::TcpListener;
use std::path::Path;

use api::v1::{Kind, PollPolicy};
use hardware::Machine;

use super::apply::Taken;
use super::*;
use crate::change::{Step, steps};
use crate::config;
use crate::desired::Desired;

fn serving() -> (Serving, tempfile::TempDir) {
    let settings = Settings { poll: PollPolicy::Interrupt, ..Settings::default() };
    let state = tempfile::tempdir().unwrap();
    let node = crate::identity::new_node();
    (Serving::start(&settings, node, state.path(), Seen::default()).unwrap(), state)
}

fn desired(text: &str) -> Desired {
    config::parse(Path::new("test.toml"), text).unwrap().desired
}

/// One subsystem with `namespaces`, and `listener` in front of it.
fn wanted(listener: &str, namespaces: &[&str]) -> Desired {
    let mut text = format!("[[listener]]\naddress = \"{listener}\"\n[[subsystem]]\n");
    text.push_str("nqn = \"nqn.2026-11.io.flashloom:a\"\nallow-any-host = true\n");
    for backend in namespaces {
        text.push_str(&format!("[[subsystem.namespace]]\nbackend = \"{backend}\"\n"));
    }
    desired(&text)
}

/// What the target has, as text; addresses of sockets and counters of changes left out.
fn served(serving: &Serving) -> String {
    let snapshot = serving.target.snapshot();
    format!("{:?} {:?} {:?}", snapshot.subsystems, snapshot.listeners.len(), snapshot.referrals)
}

/// Takes `steps`, for which their drives are opened.
fn taken(serving: &mut Serving, steps: Vec<Step>) -> Result<Taken> {
    let opener = serving.pools.opener();
    let drives = serving.asked_drives(&steps)?;
    let open = |drive: LateDrive| {
        let opened = OpenedDrive::open(&drive, &Machine::new(), &opener, &|| {});
        (drive.place, opened)
    };
    let opened = drives.into_iter().map(open).collect();
    serving.apply(steps, opened)
}

fn change(serving: &mut Serving, steps: Vec<Step>) -> Result<()> {
    taken(serving, steps).map(drop)
}

/// Memory that was removed, and served again because that could not be written down, was blank.
#[test]
fn a_change_that_is_taken_back_serves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let drive = format!("drive:{},size=1MiB", dir.path().join("drive").display());
    let (mut serving, _state) = serving();
    let first = wanted("127.0.0.1:0", &["memory:1MiB", &drive]);
    change(&mut serving, steps(&Desired::default(), &first)).unwrap();
    let memory = |serving: &Serving| match serving.media.values().next().unwrap().backend() {
        target::namespace::Backend::Memory(region) => region,
        other => panic!("{other:?}"),
    };
    let (before, region) = (served(&serving), memory(&serving));
    let taken = taken(&mut serving, steps(&first, &Desired::default())).unwrap();
    assert!(serving.media.is_empty() && serving.listeners.is_empty());
    serving.take_back(taken);
    assert_eq!(served(&serving), before);
    assert!(Arc::ptr_eq(&memory(&serving), &region));
    serving.stop();
}

/// Likewise, what a drive was known by that was not there: any other under its name was served from then on.
#[test]
fn a_change_that_is_taken_back_leaves_what_is_known_of_an_absent_drive() {
    let dir = tempfile::tempdir().unwrap();
    let drive = |name: &str| format!("drive:{},size=1MiB", dir.path().join(name).display());
    let (mut serving, _state) = serving();
    let first = wanted("127.0.0.1:0", &[&drive("away/a")]);
    let nqn = first.subsystems.keys().next().unwrap().clone();
    know(&mut serving, &first, 1 << 20);
    serving.begin(steps(&Desired::default(), &first), BTreeMap::new(), true).unwrap();
    assert!(!serving.is_there(&(nqn, 1)));
    let (before, seen) = (served(&serving), serving.seen.clone());
    let other = wanted("127.0.0.1:0", &[&drive("b")]);
    let taken = taken(&mut serving, steps(&first, &other)).unwrap();
    assert_ne!(serving.seen, seen);
    serving.take_back(taken);
    assert_eq!((served(&serving), &serving.seen), (before, &seen));
    serving.stop();
}

/// Has the first namespace be known as so many bytes of a drive.
fn know(serving: &mut Serving, first: &Desired, bytes: u64) {
    let (nqn, def) = first.subsystems.iter().next().unwrap();
    let def = &def.namespaces[&1];
    let (backend, uuid) = (def.backend.clone(), serving.uuid(nqn, 1, def));
    serving.seen.set(nqn, 1, SeenAs { backend, uuid, bytes, wwid: Some("S1".to_owned()) });
}

/// One of a size that its blocks do not divide stayed, half done, though it was refused.
#[test]
fn a_namespace_whose_size_is_refused_is_not_there() {
    let (mut serving, _state) = serving();
    let first = wanted("127.0.0.1:0", &["drive:/nowhere/drive"]);
    know(&mut serving, &first, 4096 + 512);
    serving.begin(steps(&Desired::default(), &first), BTreeMap::new(), true).unwrap_err();
    assert!(serving.media.is_empty() && serving.target.snapshot().subsystems.is_empty());
    serving.stop();
}

#[test]
fn what_is_taken_out_is_closed_when_the_change_is_through() {
    let (mut serving, _state) = serving();
    let first = wanted("127.0.0.1:0", &["memory:1MiB"]);
    change(&mut serving, steps(&Desired::default(), &first)).unwrap();
    let bound = serving.snapshot().bound("127.0.0.1:0".parse().unwrap()).unwrap();
    assert!(TcpListener::bind(bound.socket()).is_err());
    change(&mut serving, steps(&first, &Desired::default())).unwrap();
    assert!(TcpListener::bind(bound.socket()).is_ok(), "closed when apply returns");
    assert!(serving.target.snapshot().subsystems.is_empty());
    serving.stop();
}

#[test]
fn a_change_that_fails_from_outside_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let drive = format!("drive:{},size=1MiB", dir.path().join("drive").display());
    let (mut serving, _state) = serving();
    let first = wanted("127.0.0.1:0", &["memory:1MiB", &drive]);
    change(&mut serving, steps(&Desired::default(), &first)).unwrap();
    let before = served(&serving);

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let in_use = wanted(&address, &["memory:2MiB", &drive, "memory:1MiB"]);
    let error = change(&mut serving, steps(&first, &in_use)).unwrap_err();
    assert!(error.context.starts_with(&format!("cannot listen on {address}")), "{error}");
    assert_eq!(served(&serving), before);

    let missing = wanted("127.0.0.1:0", &["memory:2MiB", "drive:/nowhere/drive"]);
    let error = change(&mut serving, steps(&first, &missing)).unwrap_err();
    assert!(error.context.starts_with("/nowhere/drive is not there"), "{error}");
    assert_eq!(served(&serving), before);
    serving.stop();
}

#[test]
fn a_step_refused_by_the_target_takes_the_others_back() {
    let dir = tempfile::tempdir().unwrap();
    let drive = format!("drive:{},size=1MiB", dir.path().join("drive").display());
    let (mut serving, _state) = serving();
    let first = wanted("127.0.0.1:0", &["memory:1MiB", &drive]);
    change(&mut serving, steps(&Desired::default(), &first)).unwrap();
    let before = served(&serving);

    // Removed, added, resized, listened on: then a subsystem that is there already.
    let mut all = steps(&first, &wanted("127.0.0.1:0", &["memory:2MiB"]));
    let listener =
        "[[listener]]\naddress = \"127.0.0.2:0\"\n[[referral]]\naddress = \"192.0.2.9\"\n";
    all.extend(steps(&Desired::default(), &desired(listener)));
    let again = steps(&Desired::default(), &wanted("127.0.0.3:0", &[]));
    all.extend(again.into_iter().filter(|step| matches!(step, Step::AddSubsystem { .. })));
    assert!(all.len() >= 4, "{all:?}");
    let error = change(&mut serving, all).unwrap_err();
    assert_eq!(error.kind, Kind::Conflict, "{error}");
    assert_eq!(served(&serving), before);
    let place: Nqn = "nqn.2026-11.io.flashloom:a".parse().unwrap();
    assert_eq!(serving.snapshot().namespace_bytes(&(place.clone(), 1)), 1 << 20);
    assert_eq!(serving.snapshot().namespace_bytes(&(place.clone(), 2)), 1 << 20);
    serving.stop();
}

#[test]
fn a_drive_is_for_one_process_and_one_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive");
    let drive = format!("drive:{},size=1MiB", path.display());
    let (mut serving, _state) = serving();
    let first = wanted("127.0.0.1:0", &[&drive]);
    change(&mut serving, steps(&Desired::default(), &first)).unwrap();

    let (mut other, _other_state) = self::serving();
    let error = change(&mut other, steps(&Desired::default(), &first)).unwrap_err();
    assert!(error.context.contains("is in use"), "{error}");
    other.stop();

    // The same place may be opened anew, as when its serial number changes.
    let mut renamed = first.clone();
    renamed.subsystems.values_mut().for_each(|def| def.serial = Some("NEW".into()));
    change(&mut serving, steps(&first, &renamed)).unwrap();
    serving.stop();
}

#[test]
fn what_happened_in_a_subsystem_is_known_after_a_restart_until_it_is_removed() {
    let (mut serving, state) = serving();
    let nothing = Desired::default();
    let served = wanted("127.0.0.1:0", &["memory:1MiB"]);
    change(&mut serving, steps(&nothing, &served)).unwrap();
    let name = wire(served.subsystems.keys().next().unwrap()).unwrap();
    let before = serving.target.persistent_events(&name).unwrap();
    serving.stop();

    let settings = Settings { poll: PollPolicy::Interrupt, ..Settings::default() };
    let start = || {
        let node = crate::identity::new_node();
        Serving::start(&settings, node, state.path(), Seen::default()).unwrap()
    };
    let mut again = start();
    change(&mut again, steps(&nothing, &served)).unwrap();
    let after = again.target.persistent_events(&name).unwrap();
    assert!(after.len() > before.len() && after.ends_with(&before), "newest first");
    // Until the removal is written down it may be taken back.
    let last = after.len();
    for _ in 0..2 {
        change(&mut again, steps(&served, &nothing)).unwrap();
        change(&mut again, steps(&nothing, &served)).unwrap();
        assert!(again.target.persistent_events(&name).unwrap().len() > last);
    }
    change(&mut again, steps(&served, &nothing)).unwrap();
    again.forget_removed(&nothing);
    again.stop();

    let mut third = start();
    change(&mut third, steps(&nothing, &served)).unwrap();
    assert_eq!(third.target.persistent_events(&name).unwrap().len(), before.len());
    third.stop();
}

/// A host that writes to namespace 1 until it is told otherwise.
fn write_to(address: std::net::SocketAddr, subnqn: &str) -> std::thread::JoinHandle<()> {
    let remote = initiator::Remote {
        traddr: address.ip().to_string(),
        trsvcid: address.port(),
        subnqn: subnqn.to_owned(),
        host: initiator::HostIdentity::of_machine(),
        options: initiator::Options::default(),
    };
    std::thread::spawn(move || {
        let write = async move {
            let namespace = initiator::Namespace::attach(&remote, 1).await.unwrap();
            let mut buffer = namespace.buffer(4096).await;
            // It ends when its namespace is gone.
            while namespace.write(0, 1, &mut buffer, initiator::Fua::No).await.is_ok() {}
        };
        reactor::run(reactor::Config::default(), write).unwrap();
    })
}

/// How long the drive of [`slow_namespace`] takes at least.
const SLOW: Duration = Duration::from_secs(3);

/// Serves namespace 1 of `served` from a drive that is slow, with a write of a host on its way there.
fn slow_namespace(serving: &Serving, served: &Desired) -> std::thread::JoinHandle<()> {
    let nqn = served.subsystems.keys().next().unwrap();
    let name = wire(nqn).unwrap();
    let plan = ::media::drive::FaultPlan {
        delay_ppm: 1_000_000,
        delay: SLOW..2 * SLOW,
        ..Default::default()
    };
    let slow = ::media::Drive::memory(2 << 20, ::media::memory::RegionOptions::default());
    let slow = target::namespace::Backend::Drive(Arc::new(slow.unwrap().with_faults(plan)));
    drop(serving.target.remove_namespace(&name, 1).unwrap());
    let spec = target::namespace::NamespaceSpec {
        nsid: Some(1),
        ..target::namespace::NamespaceSpec::new(slow, 512)
    };
    serving.target.add_namespace(&name, &spec).unwrap();
    let address = serving.snapshot().bound("127.0.0.1:0".parse().unwrap()).unwrap().socket();
    let host = write_to(address, nqn.as_str());
    let since = reactor::now_exact();
    let waiting = || -> u64 {
        let rows = serving.reactors.ask(target::metrics::collect).into_iter().flatten().flatten();
        rows.map(|(_, row)| row.outstanding).sum()
    };
    while waiting() == 0 {
        assert!(reactor::now_exact() - since < 30_000_000_000, "no write came");
        std::thread::yield_now();
    }
    host
}

/// The steps, taken without waiting for the drive.
fn at_once(serving: &mut Serving, steps: Vec<Step>) -> Result<()> {
    let begun = reactor::now_exact();
    let result = change(serving, steps);
    let took = Duration::from_nanos(reactor::now_exact() - begun);
    assert!(took < SLOW / 2, "{took:?}");
    result
}

/// Removing a namespace held the node for ten seconds where a drive did not answer: no other change, no list, and no
/// start of a pool went on.
#[test]
fn a_namespace_whose_drive_is_slow_is_removed_without_waiting_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive");
    let (mut serving, _state) = serving();
    let first = wanted("127.0.0.1:0", &[&format!("drive:{},size=2MiB", path.display())]);
    change(&mut serving, steps(&Desired::default(), &first)).unwrap();
    let host = slow_namespace(&serving, &first);
    let mut without = first.clone();
    without.subsystems.values_mut().for_each(|def| def.namespaces.clear());
    at_once(&mut serving, steps(&first, &without)).unwrap();
    let late = serving.lingering();
    assert_eq!(late.len(), 1, "nothing of it is left");
    // Its drive is nobody's yet, whatever length is asked for.
    let longer = wanted("127.0.0.1:0", &[&format!("drive:{},size=3MiB", path.display())]);
    let error = change(&mut serving, steps(&without, &longer)).unwrap_err();
    assert_eq!(error.kind, Kind::Conflict, "{error}");
    let error = change(&mut serving, steps(&without, &first)).unwrap_err();
    assert_eq!(error.kind, Kind::Conflict, "{error}");
    assert!(late[0].1.wait(4 * SLOW));
    host.join().unwrap();
    change(&mut serving, steps(&without, &first)).unwrap();
    serving.stop();
}

/// Making a namespace smaller, or replacing it, held the node for ten seconds where its drive did not answer; and then
/// the new one was served beside what the old one still had there.
#[test]
fn a_namespace_whose_drive_is_slow_shrinks_without_waiting_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive");
    let drive = |size: &str| format!("drive:{},size={size}", path.display());
    let (mut serving, _state) = serving();
    let first = wanted("127.0.0.1:0", &[&drive("2MiB")]);
    change(&mut serving, steps(&Desired::default(), &first)).unwrap();
    let host = slow_namespace(&serving, &first);
    let length = || std::fs::metadata(&path).unwrap().len();

    let half = wanted("127.0.0.1:0", &[&drive("1MiB")]);
    at_once(&mut serving, steps(&first, &half)).unwrap();
    serving.kept();
    let nqn = first.subsystems.keys().next().unwrap();
    assert_eq!(serving.listed(nqn)[0].1, 1 << 20 >> 9, "hosts see it");
    assert_eq!(length(), 2 << 20, "a write may be on its way there");
    let [cut] = &serving.cuts()[..] else { panic!("nothing is to be cut") };
    assert!(!cut.is_due());
    // What is behind the end is not to be seen again.
    let error = at_once(&mut serving, steps(&half, &first)).unwrap_err();
    assert_eq!(error.kind, Kind::Conflict, "{error}");

    let mut replaced = half.clone();
    for def in replaced.subsystems.values_mut().flat_map(|def| def.namespaces.values_mut()) {
        def.block_size = 512;
    }
    let error = at_once(&mut serving, steps(&half, &replaced)).unwrap_err();
    assert_eq!(error.kind, Kind::Conflict, "{error}");
    assert_eq!(serving.listed(nqn)[0].1, 1 << 20 >> 12, "as it was");

    let cut = cut.clone();
    cut.finish(4 * SLOW).unwrap();
    serving.cut_is_over(&cut);
    assert_eq!(length(), 1 << 20);
    change(&mut serving, steps(&half, &first)).unwrap();
    assert_eq!(length(), 2 << 20);
    serving.stop();
    host.join().unwrap();
}

/// A change that was taken back, because it could not be written down, had lost what it had cut off.
#[test]
fn a_size_that_is_taken_back_has_lost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive");
    let drive = |size: &str| format!("drive:{},size={size}", path.display());
    let (mut serving, _state) = serving();
    let first = wanted("127.0.0.1:0", &[&drive("2MiB")]);
    change(&mut serving, steps(&Desired::default(), &first)).unwrap();
    let contents = vec![0x5a; 2 << 20];
    std::fs::write(&path, &contents).unwrap();
    let half = wanted("127.0.0.1:0", &[&drive("1MiB")]);
    change(&mut serving, steps(&first, &half)).unwrap();
    change(&mut serving, steps(&half, &first)).unwrap();
    assert!(std::fs::read(&path).unwrap() == contents, "cut off");
    assert!(serving.cuts().is_empty());
    serving.stop();
}
