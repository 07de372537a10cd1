//! Drives that are served as they are: what is at their path may be another by now, or not there.

use std::os::unix::fs::symlink;

use hardware::{Answer, Script};

use super::*;

fn served_from(path: &Path) -> String {
    format!("[[subsystem.namespace]]\nbackend = \"drive:{}\"\n", path.display())
}

/// A blank file was made and served as what hosts had, where its file system was not mounted in time.
#[test]
fn what_was_served_is_not_made_anew_where_it_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (mount, away) = (dir.join("mount"), dir.join("away"));
    let file = mount.join("a");
    let asked = format!("{},size=1MiB", file.display());
    let asked = served_from(Path::new(&asked));
    fs::create_dir(&mount).unwrap();
    let node = start(dir, "", &asked);
    let before = namespace(&node);
    assert!(before.served);
    node.stop();
    drop(node);
    fs::rename(&mount, &away).unwrap();
    fs::create_dir(&mount).unwrap();
    let node = start(dir, "", &asked);
    for _ in 0..2 {
        let absent = namespace(&node);
        assert!(!absent.served && !file.exists());
        assert_eq!((absent.uuid, absent.size), (before.uuid, before.size));
        open_late(&node);
    }
    for len in [0, 4096] {
        fs::File::create(&file).unwrap().set_len(len).unwrap();
        open_late(&node);
        assert!(!namespace(&node).served);
        assert_eq!(fs::metadata(&file).unwrap().len(), len);
    }
    fs::remove_dir_all(&mount).unwrap();
    fs::rename(&away, &mount).unwrap();
    open_late(&node);
    assert_eq!(namespace(&node), before);
    // What an operator adds anew is.
    let nqn = NQN.parse().unwrap();
    node.remove_namespace(&nqn, 1, Consent::FORCE).unwrap();
    fs::remove_file(&file).unwrap();
    let add = |path: &str| {
        let new = format!(r#"{{"backend": "drive:{path},size=1MiB"}}"#);
        node.add_namespace(&nqn, serde_json::from_str(&new).unwrap())
    };
    add(&file.display().to_string()).unwrap();
    let none = "/dev/flashloom-has-no-such-drive";
    add(none).unwrap_err();
    assert!(!Path::new(none).exists());
    node.stop();
}

/// Names of drives go from one to the other: a drive of a pool was served raw before its pool was open.
#[test]
fn a_name_that_leads_to_a_drive_of_a_pool_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let name = dir.join("name");
    fs::File::create(&name).unwrap().set_len(1 << 20).unwrap();
    let asked = served_from(&name);
    let node = start(dir, "", &asked);
    let volume = make(&node, dir, "fast");
    node.unmap_volume(&volume, Consent::FORCE).unwrap();
    assert!(namespace(&node).served);
    node.stop();
    drop(node);
    for n in [0, 1] {
        fs::rename(dir.join(format!("fast{n}")), dir.join(format!("away{n}"))).unwrap();
    }
    let lead = |to: &str| {
        fs::remove_file(&name).unwrap();
        symlink(dir.join(to), &name).unwrap();
    };
    lead("away0");
    let node = start(dir, "wait-for-drives = 3600", &asked);
    assert!(!namespace(&node).served);
    lead("nothing");
    open_late(&node);
    lead("away1");
    open_late(&node);
    assert!(!namespace(&node).served);
    let more = format!("{asked}{}", served_from(&dir.join("away0")));
    let subsystem = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n");
    let text = format!("[node]\nwait-for-drives = 3600\n{subsystem}{more}");
    fs::write(dir.join("test.toml"), text).unwrap();
    let refused = node.reload().unwrap_err().to_string();
    assert!(refused.contains("away0 is a drive of pool fast"), "{refused}");
    let tells = |node: &Node| {
        let findings = node.health().unwrap().findings;
        findings.iter().any(|of| of.why.contains("was not taken, nothing changed"))
    };
    assert!(tells(&node));
    fs::write(dir.join("test.toml"), format!("[node]\nwait-for-drives = 3600\n{subsystem}{asked}"))
        .unwrap();
    node.reload().unwrap();
    assert!(!tells(&node));
    node.stop();
}

/// Names of block devices go from one to the other: another disk was served, with the identity that hosts know.
#[test]
fn another_drive_under_the_name_is_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let name = dir.join("sda");
    fs::File::create(&name).unwrap().set_len(1 << 20).unwrap();
    let asked = served_from(&name);
    // What hosts saw before anything of it was remembered.
    let node = start(dir, "", &asked);
    let before = namespace(&node);
    assert!(before.served);
    node.stop();
    drop(node);
    let script = Arc::<Script>::default();
    let on = || Machine::scripted(Arc::clone(&script));
    let becomes = |serial: &str| script.set(&name, serial, Answer::Denied);
    becomes("S1");
    let node = start_on(dir, "", &asked, on());
    assert_eq!(namespace(&node), before);
    node.stop();
    drop(node);
    becomes("S2");
    let node = start_on(dir, "", &asked, on());
    for _ in 0..2 {
        let absent = namespace(&node);
        assert!(!absent.served);
        assert_eq!((absent.uuid, absent.size), (before.uuid, before.size));
        assert!(said(&node, "sda is another drive (S2) than before (S1)") > 0);
        assert!(said(&node, "add it by the drive's name under /dev/disk/by-id") > 0);
        open_late(&node);
    }
    becomes("S1");
    open_late(&node);
    assert_eq!(namespace(&node), before);
    // An operator says that the other one is meant.
    becomes("S2");
    let nqn = NQN.parse().unwrap();
    node.remove_namespace(&nqn, 1, Consent::FORCE).unwrap();
    let new = format!(r#"{{"backend": "drive:{}"}}"#, name.display());
    node.add_namespace(&nqn, serde_json::from_str(&new).unwrap()).unwrap();
    node.stop();
    drop(node);
    let node = start_on(dir, "", &asked, on());
    assert!(namespace(&node).served);
    node.stop();
}

/// A change that failed took whichever disk had the name by then, which nobody had asked for.
#[test]
fn another_drive_is_not_served_where_one_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let name = dir.join("sda");
    fs::File::create(&name).unwrap().set_len(1 << 20).unwrap();
    let script = Arc::<Script>::default();
    let becomes = |serial: &str| script.set(&name, serial, Answer::Denied);
    becomes("S1");
    let node = start_on(dir, "", &served_from(&name), Machine::scripted(Arc::clone(&script)));
    let before = namespace(&node);
    assert!(before.served);
    let fail = || {
        let taken = node.take_out_replaced(|owned| {
            let mut wanted = owned.state.current.clone();
            let mut all =
                wanted.subsystems.values_mut().flat_map(|def| def.namespaces.values_mut());
            all.next().unwrap().block_size = 512;
            drop(all);
            Ok(wanted)
        });
        let taken = taken.unwrap();
        assert_eq!(taken.len(), 1);
        node.tell_put_back(node.owner.ask(move |owned| owned.put_back_unless(false, &taken)));
    };
    fail();
    assert_eq!(namespace(&node), before);
    becomes("S2");
    fail();
    let absent = namespace(&node);
    assert!(!absent.served);
    assert_eq!((absent.uuid, absent.size), (before.uuid, before.size));
    assert_eq!(said(&node, "sda is another drive (S2) than before (S1)"), 1);
    // A reload that serves it in another way has it be waited for, too.
    let config = dir.join("test.toml");
    let open = "allow-any-host = true\n";
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(open, &format!("{open}serial = \"NEW\"\n"))).unwrap();
    node.reload().unwrap();
    assert_eq!(namespace(&node), absent);
    becomes("S1");
    open_late(&node);
    assert_eq!(namespace(&node), before);
    node.stop();
}

/// A healthy disk was refused under a kernel that does not say what it is.
#[test]
fn a_drive_that_nothing_identifies_any_more_is_served_by_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let name = dir.join("sda");
    fs::File::create(&name).unwrap().set_len(1 << 20).unwrap();
    let asked = served_from(&name);
    let script = Arc::<Script>::default();
    script.set(&name, "S1", Answer::Denied);
    let node = start_on(dir, "", &asked, Machine::scripted(Arc::clone(&script)));
    let before = namespace(&node);
    node.stop();
    drop(node);
    let node = start_on(dir, "", &asked, Machine::scripted(Arc::default()));
    assert_eq!(namespace(&node), before);
    assert_eq!(said(&node, "sda was known by S1, of which the system says nothing now"), 1);
    node.stop();
    drop(node);
    let sized =
        |bytes| fs::File::options().write(true).open(&name).unwrap().set_len(bytes).unwrap();
    sized(2 << 20);
    let node = start_on(dir, "", &asked, Machine::scripted(Arc::default()));
    assert!(!namespace(&node).served, "nothing says that it is the same");
    node.stop();
    drop(node);
    sized(1 << 20);
    // What it was known by is remembered.
    script.set(&name, "S2", Answer::Denied);
    let node = start_on(dir, "", &asked, Machine::scripted(script));
    assert!(!namespace(&node).served);
    node.stop();
}

/// It was opened by whom everything of the node waits for, and the ones after it behind it.
#[test]
fn a_drive_that_hangs_when_it_is_opened_holds_up_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let names = ["hangs", "well"].map(|name| dir.join(name));
    for name in &names {
        fs::File::create(name).unwrap().set_len(1 << 20).unwrap();
    }
    let asked = names.each_ref().map(|name| served_from(name)).concat();
    let script = Arc::<Script>::default();
    script.set(&names[0], "S1", Answer::Never);
    crate::node::drive_openings::tests::START.set(Duration::from_secs(2));
    let node = start_on(dir, "", &asked, Machine::scripted(Arc::clone(&script)));
    let served = |node: &Node| {
        [1, 2].map(|nsid| node.namespace(&NQN.parse().unwrap(), nsid).unwrap().served)
    };
    assert_eq!(served(&node), [false, true]);
    assert!(said(&node, "waits for its drive: drive:") > 0 && said(&node, "is not open yet") > 0);
    // It is opened once.
    for _ in 0..3 {
        open_late(&node);
        assert_eq!(script.waiting(), 1);
    }
    assert_eq!((served(&node), said(&node, "is not served")), ([false, true], 1));
    script.set(&names[0], "S1", Answer::Denied);
    // Whoever opens it has yet to come to its end.
    let limit = reactor::now_exact() + u64::try_from(PATIENCE.as_nanos()).unwrap();
    while served(&node) != [true, true] {
        assert!(reactor::now_exact() < limit, "{:?}", node.events(0));
        open_late(&node);
    }
    node.stop();
}

/// An addition had whoever owns the node open the drive: with one that hangs, nothing was changed any more, nor did the node
/// stop.
#[test]
fn a_drive_that_hangs_when_it_is_asked_for_holds_up_nothing_but_that() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let hangs = dir.join("hangs");
    fs::File::create(&hangs).unwrap().set_len(1 << 20).unwrap();
    let script = Arc::<Script>::default();
    script.set(&hangs, "S1", Answer::Never);
    let node = start_on(dir, "", "", Machine::scripted(Arc::clone(&script)));
    let nqn: api::value::Nqn = NQN.parse().unwrap();
    let add = |backend: &str| {
        let new = format!(r#"{{"backend": "{backend}"}}"#);
        node.add_namespace(&nqn, serde_json::from_str(&new).unwrap())
    };
    let drive = format!("drive:{}", hangs.display());
    let waits = |more: &dyn Fn() -> bool| {
        while script.waiting() == 0 {
            assert!(more());
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| add(&drive).unwrap().nsid);
        waits(&|| !adding.is_finished());
        assert_eq!(add("memory:1MiB").unwrap().nsid, 1);
        script.set(&hangs, "S1", Answer::Denied);
        assert_eq!(adding.join().unwrap(), 2);
    });
    node.remove_namespace(&nqn, 2, Consent::FORCE).unwrap();
    // Whose patience is over is told so.
    script.set(&hangs, "S1", Answer::Never);
    crate::node::drive_openings::tests::START.set(Duration::ZERO);
    let error = add(&drive).unwrap_err();
    assert!(error.context.contains("hangs does not answer"), "{error}");
    waits(&|| true);
    // Whoever tries again has no second one wait for it, nor has a reload, which changes nothing.
    add(&drive).unwrap_err();
    let config = dir.join("test.toml");
    let text = fs::read_to_string(&config).unwrap() + "serial = \"NEW\"\n" + &served_from(&hangs);
    fs::write(&config, text).unwrap();
    let refused = node.reload().unwrap_err().to_string();
    assert!(refused.contains("does not answer"), "{refused}");
    assert_eq!((script.waiting(), node.current().subsystems[&nqn].namespaces.len()), (1, 1));
    script.set(&hangs, "S1", Answer::Denied);
    let limit = reactor::now_exact() + u64::try_from(PATIENCE.as_nanos()).unwrap();
    while add(&drive).is_err() {
        assert!(reactor::now_exact() < limit, "{:?}", node.events(0));
    }
    assert!(node.namespace(&nqn, 2).unwrap().served);
    node.stop();
}

/// What a reload was to serve in another way was out of service for as long as another drive took to be opened.
#[test]
fn nothing_is_out_of_service_while_another_drive_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let [well, hangs] = ["well", "hangs"].map(|name| dir.join(name));
    for name in [&well, &hangs] {
        fs::File::create(name).unwrap().set_len(1 << 20).unwrap();
    }
    let script = Arc::<Script>::default();
    script.set(&well, "S1", Answer::Denied);
    script.set(&hangs, "S2", Answer::Never);
    let node = start_on(dir, "", &served_from(&well), Machine::scripted(Arc::clone(&script)));
    let before = namespace(&node);
    assert!(before.served);
    let config = dir.join("test.toml");
    let open = "allow-any-host = true\n";
    let text = fs::read_to_string(&config).unwrap() + &served_from(&hangs);
    fs::write(&config, text.replace(open, &format!("{open}serial = \"NEW\"\n"))).unwrap();
    std::thread::scope(|scope| {
        let reloading = scope.spawn(|| node.reload());
        while script.waiting() == 0 {
            assert!(!reloading.is_finished());
            std::thread::yield_now();
        }
        let meanwhile = namespace(&node);
        script.set(&hangs, "S2", Answer::Denied);
        reloading.join().unwrap().unwrap();
        assert_eq!(meanwhile, before);
    });
    assert_eq!(namespace(&node), before);
    assert!(node.namespace(&NQN.parse().unwrap(), 2).unwrap().served);
    node.stop();
}
