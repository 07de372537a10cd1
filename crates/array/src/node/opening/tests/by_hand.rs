//! What operators do while a pool is not open, and what the node remembers of it.

use uuid::Uuid;

use super::*;
use crate::jobs::Task;
use crate::pools::Outcome;
use crate::state::State;

const TWO_AWAY: [usize; 2] = [0, 1];

/// A node with a pool that waits for two of its drives, and more time than any test has.
fn waiting(dir: &Path) -> Arc<Node> {
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    node.stop();
    drop(node);
    for n in TWO_AWAY {
        fs::rename(dir.join(format!("fast{n}")), dir.join(format!("away{n}"))).unwrap();
    }
    let node = start(dir, "wait-for-drives = 3600", "");
    assert_eq!(health(&node, "fast"), PoolHealth::Unavailable);
    node
}

fn import(drives: &[PathBuf], more: &str) -> PoolImport {
    let drives: Vec<_> = drives.iter().map(|path| format!("{path:?}")).collect();
    serde_json::from_str(&format!("{{\"drives\": [{}] {more}}}", drives.join(","))).unwrap()
}

fn def(node: &Node) -> crate::pools::PoolDef {
    node.view().state.pools[&named("fast")].clone()
}

/// It was a failure of the node, which whoever asks cannot put right: 500 in REST.
#[test]
fn what_is_asked_of_a_pool_that_waits_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let node = waiting(dir.path());
    let new = r#"{"name": "w", "size": "64MiB"}"#;
    let (pool, path) = (named("fast"), "fast/v".parse().unwrap());
    let refused = [
        node.volume(&path).unwrap_err(),
        node.create_volume(&pool, &serde_json::from_str(new).unwrap()).unwrap_err(),
        node.drive(&"fast/0".parse().unwrap()).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind, Kind::Conflict, "{error}");
        assert!(error.context.starts_with("pool fast is not open"), "{error}");
        let help = error.help.unwrap();
        assert!(help.contains("pool show fast") && help.contains("pool import"), "{help}");
    }
    node.stop();
}

/// While a pool waited for a drive, its others could be served raw to hosts, or be made another pool's.
#[test]
fn drives_of_a_pool_that_waits_are_nobody_elses() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = waiting(dir);
    let nqn = NQN.parse().unwrap();
    // Under the name that the node knows, and another one.
    std::os::unix::fs::symlink(dir.join("fast2"), dir.join("other")).unwrap();
    for name in ["fast2", "other"] {
        let new = format!(r#"{{"backend": "drive:{}/{name}"}}"#, dir.display());
        let error = node.add_namespace(&nqn, serde_json::from_str(&new).unwrap()).unwrap_err();
        assert!(error.context.contains("is a drive of pool fast"), "{error}");
    }
    let new = format!(
        r#"{{"name": "b", "drives": ["{0}/fast2", "{0}/fast3"], "force": true}}"#,
        dir.display()
    );
    let error = node.create_pool(&serde_json::from_str(&new).unwrap()).unwrap_err();
    assert!(error.context.contains("is a drive of pool fast"), "{error}");
    for n in TWO_AWAY {
        fs::rename(dir.join(format!("away{n}")), dir.join(format!("fast{n}"))).unwrap();
    }
    open_late(&node);
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    node.stop();
}

/// A drive of any pool was served raw at once, and what hosts wrote to it was that pool's end.
#[test]
fn a_drive_of_a_pool_that_nobody_knows_is_served_only_where_that_is_meant() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let volume = make(&node, dir, "fast");
    // Whoever empties a drive wipes that one, not what came to its place since.
    let open = node.open_pool_named(&named("fast")).unwrap();
    assert!(node.wipe(&open, &"fast/0".parse().unwrap(), [0; 16], None).is_err());
    let mut forgets = def(&node);
    forgets.forget_place(3, Some(Path::new("/elsewhere")));
    assert_eq!(forgets.drives, def(&node).drives);
    forgets.forget_place(3, Some(&dir.join("fast3")));
    assert_eq!(forgets.drives, def(&node).drives[..3]);
    drop(open);
    node.export_pool(&named("fast")).unwrap_err();
    node.unmap_volume(&volume, Consent::FORCE).unwrap();
    node.export_pool(&named("fast")).unwrap();
    let nqn = NQN.parse().unwrap();
    let add = |more: &str| {
        let new = format!(r#"{{"backend": "drive:{}/fast2" {more}}}"#, dir.display());
        node.add_namespace(&nqn, serde_json::from_str(&new).unwrap())
    };
    let error = add("").unwrap_err();
    assert!(error.context.contains("fast2 is a drive of pool fast"), "{error}");
    // That losses are meant does not mean the drive.
    let text = format!(
        "[[subsystem]]\nnqn = \"{NQN}\"\n[[subsystem.namespace]]\nbackend = \"drive:{}/fast2\"\n",
        dir.display()
    );
    for consent in [Consent::FORCE, Consent::DRY_RUN] {
        let error = node.import_configuration("new.toml", &text, consent).unwrap_err();
        assert!(error.context.contains("fast2 is a drive of pool fast"), "{error}");
        assert!(error.help.unwrap().contains("namespace add --force"));
    }
    add(r#", "force": true"#).unwrap();
    node.stop();
}

/// In a folder for everybody, such as shared memory, somebody else makes the file first, and reads and changes what hosts
/// wrote last.
#[test]
fn a_log_that_others_may_write_is_taken_only_where_that_is_meant() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let log = dir.join("log");
    fs::File::create(&log).unwrap().set_len(16 << 20).unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
    std::os::unix::fs::symlink(&log, dir.join("link")).unwrap();
    let create = |log: &str, more: &str| {
        let new = format!(
            r#"{{"name": "a", "drives": ["{0}/a0,size=192MiB"], "log": ["bbu:{0}/{log}"] {more}}}"#,
            dir.display()
        );
        node.create_pool(&serde_json::from_str(&new).unwrap())
    };
    for log in ["log", "link"] {
        let refused = create(log, "").unwrap_err();
        assert!(refused.context.contains("may be written by others"), "{refused}");
    }
    create("log", r#", "force": true"#).unwrap();
    let to = format!(r#"{{"to": ["bbu:{}"]}}"#, dir.join("other").display());
    fs::File::create(dir.join("other")).unwrap().set_len(16 << 20).unwrap();
    fs::set_permissions(dir.join("other"), fs::Permissions::from_mode(0o606)).unwrap();
    let to = serde_json::from_str(&to).unwrap();
    let refused = node.move_log(&named("a"), &to).unwrap_err();
    assert!(refused.context.contains("may be written by others"), "{refused}");
    fs::set_permissions(dir.join("other"), fs::Permissions::from_mode(0o600)).unwrap();
    node.move_log(&named("a"), &to).unwrap();
    node.stop();
}

/// It was found in configured folders only, and the operator had to type where the node knew it to be.
#[test]
fn an_import_of_a_known_pool_looks_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = waiting(dir);
    for n in TWO_AWAY {
        fs::rename(dir.join(format!("away{n}")), dir.join(format!("fast{n}"))).unwrap();
    }
    let by_name: PoolImport = serde_json::from_str(r#"{"name": "fast", "drives": []}"#).unwrap();
    let found = node.find_pools(&by_name).unwrap();
    assert!(found[0].drives.iter().all(|drive| drive.path.is_some()), "{found:?}");
    node.import_pool(&by_name).unwrap();
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    node.stop();
}

/// What could not be written down happened all the same: the pool was exported and gone from the list, and an import
/// that was refused for it left labels that wanted `--force` at the next.
#[test]
fn no_pool_comes_or_goes_that_the_state_cannot_tell_of() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let volume = make(&node, dir, "fast");
    node.unmap_volume(&volume, Consent::FORCE).unwrap();
    let blocker = dir.join("state/state.json.new");
    fs::create_dir(&blocker).unwrap();
    node.export_pool(&named("fast")).unwrap_err();
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    node.volume(&volume).unwrap();
    fs::remove_dir(&blocker).unwrap();
    node.export_pool(&named("fast")).unwrap();
    assert!(node.pools().unwrap().is_empty());

    fs::create_dir(&blocker).unwrap();
    let all = import(&[0, 1, 2, 3].map(|n| dir.join(format!("fast{n}"))), "");
    node.import_pool(&all).unwrap_err();
    let drive = |n| format!("{}/other{n},size=192MiB", dir.display());
    let new = format!(r#"{{"name": "other", "drives": ["{}", "{}"]}}"#, drive(0), drive(1));
    let new: NewPool = serde_json::from_str(&new).unwrap();
    node.create_pool(&new).unwrap_err();
    assert!(node.pools().unwrap().is_empty());
    assert!(!dir.join("other0").exists());
    fs::remove_dir(&blocker).unwrap();
    node.create_pool(&new).unwrap();
    // It is still one that was exported.
    assert!(node.find_pools(&all).unwrap()[0].exported);
    node.import_pool(&all).unwrap();
    node.stop();
}

/// A daemon killed in the midst of an export had forgotten the pool, and the drives did not say that it was exported: an
/// import wanted `--force`.
#[test]
fn a_pool_whose_export_was_cut_short_is_known_or_exported() {
    for is_done in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let node = start(dir, "", "");
        let volume = make(&node, dir, "fast");
        node.unmap_volume(&volume, Consent::FORCE).unwrap();
        let open = {
            let begin = |owned: &mut Owned| {
                let open = owned.serving_mut()?.pools_mut().begin_export(&named("fast"))?;
                owned.keep().map(|()| open)
            };
            node.owner.ask(begin).unwrap().unwrap()
        };
        if is_done {
            open.export().unwrap();
        }
        drop(open);
        node.stop();
        drop(node);
        let node = start(dir, "", "");
        if !is_done {
            assert_eq!(health(&node, "fast"), PoolHealth::Online);
            assert!(!def(&node).exporting);
            node.export_pool(&named("fast")).unwrap();
        }
        assert!(node.pools().unwrap().is_empty());
        let all = import(&[0, 1, 2, 3].map(|n| dir.join(format!("fast{n}"))), "");
        assert!(node.find_pools(&all).unwrap()[0].exported);
        node.import_pool(&all).unwrap();
        node.volume(&volume).unwrap();
        node.stop();
    }
}

/// A daemon that was killed when the drives said that a pool is exported, and before it had written that down, opened the
/// pool by itself that another node had since.
#[test]
fn a_pool_that_was_exported_and_is_open_elsewhere_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let volume = make(&node, dir, "fast");
    node.unmap_volume(&volume, Consent::FORCE).unwrap();
    let begin = |owned: &mut Owned| {
        let open = owned.serving_mut()?.pools_mut().begin_export(&named("fast"))?;
        owned.keep().map(|()| open)
    };
    let open = node.owner.ask(begin).unwrap().unwrap();
    open.export().unwrap();
    drop(open);
    node.stop();
    drop(node);
    let far = dir.join("far");
    fs::create_dir(&far).unwrap();
    let other = start(&far, "", "");
    other.import_pool(&import(&[0, 1, 2, 3].map(|n| dir.join(format!("fast{n}"))), "")).unwrap();
    other.stop();
    drop(other);
    let node = start(dir, "", "");
    assert!(node.pools().unwrap().is_empty());
    node.stop();
}

/// A pool that could not be marked as exported was closed and forgotten.
#[test]
fn a_pool_whose_export_failed_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let volume = make(&node, dir, "fast");
    node.unmap_volume(&volume, Consent::FORCE).unwrap();
    let open = node.view().serving().unwrap().pools.pool(&named("fast")).unwrap();
    // What is closed cannot be exported.
    open.close();
    node.export_pool(&named("fast")).unwrap_err();
    drop(open);
    open_late(&node);
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    node.volume(&volume).unwrap();
    node.stop();
}

/// It was forgotten, and with it where its log was: what hosts had written last was nobody's.
#[test]
fn a_pool_that_is_not_open_is_not_exported() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = waiting(dir);
    node.unmap_volume(&"fast/v".parse().unwrap(), Consent::FORCE).unwrap();
    let refused = node.export_pool(&named("fast")).unwrap_err();
    assert_eq!(refused.kind, Kind::Conflict, "{refused}");
    assert!(refused.context.contains("do not say that it was exported"), "{refused}");
    assert!(refused.help.unwrap().contains("pool delete fast"));
    assert!(!def(&node).exporting);
    // Another node has it since.
    node.owner
        .ask(|owned| {
            owned.keep()?;
            owned.serving_mut()?.pools_mut().def_mut(&named("fast"))?.log_id = Some(Uuid::nil());
            Ok(())
        })
        .unwrap();
    node.export_pool(&named("fast")).unwrap();
    assert!(node.pools().unwrap().is_empty());
    node.stop();
}

/// The node ended when the drives had the name of the new log, and its state had not: it took them for another's.
#[test]
fn a_log_that_this_node_was_about_to_know_of_is_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = waiting(dir);
    node.unmap_volume(&"fast/v".parse().unwrap(), Consent::FORCE).unwrap();
    let before = def(&node);
    for n in TWO_AWAY {
        fs::rename(dir.join(format!("away{n}")), dir.join(format!("fast{n}"))).unwrap();
    }
    let (closed, folders, opener) = {
        let view = node.view();
        let pools = &view.serving().unwrap().pools;
        (pools.closed(), pools.folders(), pools.opener())
    };
    let seen = crate::pools::sights(closed, &folders);
    let due = node.owner.ask(|owned| Ok(owned.serving_mut()?.pools_mut().due(seen)));
    let attempt = due.unwrap().pop().unwrap();
    let name = attempt.name.clone();
    let foretell = |log, next| node.foretell_log(&name, log, next);
    let Outcome::Opened(pool, _) = opener.attempt(&attempt, &foretell) else { unreachable!() };
    pool.close();
    let after = def(&node);
    assert_eq!((after.log_id, after.log_next), (before.log_id, Some(pool.log_id())));
    drop(pool);
    let killed = crate::Error::new(Kind::Failed, "the node ended");
    node.take_opened(&name, Outcome::Failed(killed));
    let refused = node.export_pool(&named("fast")).unwrap_err();
    assert!(refused.context.contains("do not say that it was exported"), "{refused}");
    node.stop();
}

/// A kill before the change was through left hosts without the namespace, also after the restart.
#[test]
fn what_is_taken_out_for_a_change_is_served_should_the_node_end_before_it_is_through() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    let nqn: api::value::Nqn = NQN.parse().unwrap();
    let wanted = |nsid| {
        let of = nqn.clone();
        move |owned: &Owned| {
            let mut wanted = owned.state.current.clone();
            let def = wanted.subsystems.get_mut(&of).unwrap();
            def.namespaces.get_mut(&nsid).unwrap().uuid = Some(Uuid::from_u128(7));
            Ok(wanted)
        }
    };
    let kept = |node: &Node| node.owner.ask(|owned| owned.dir.load()).unwrap();
    let before = kept(&node);
    assert_ne!(before.seen, crate::seen::Seen::default());
    let taken = node.take_out_replaced(wanted(1)).unwrap();
    assert_eq!(taken.len(), 1);
    assert!(!namespace(&node).served);
    // Something else is written down meanwhile.
    node.owner.ask(Owned::keep).unwrap();
    assert_eq!(kept(&node), before);
    // Nobody else gets its volume or its place.
    let path: VolumePath = "fast/v".parse().unwrap();
    let mapping: NewMapping =
        serde_json::from_str(&format!(r#"{{"subsystem": "{NQN}"}}"#)).unwrap();
    let refused = [
        node.delete_volume(&path, Consent::FORCE).unwrap_err(),
        node.map_volume(&path, mapping).unwrap_err(),
        node.remove_namespace(&nqn, 1, Consent::FORCE).unwrap_err(),
        node.remove_subsystem(&nqn, Consent::FORCE).unwrap_err(),
        node.take_out_replaced(wanted(1)).unwrap_err(),
        node.import_configuration("empty.toml", "", Consent::FORCE).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.kind == Kind::Conflict), "{refused:?}");
    let memory = serde_json::from_str(r#"{"backend": "memory:1MiB"}"#).unwrap();
    assert_eq!(node.add_namespace(&nqn, memory).unwrap().nsid, 2);
    node.remove_namespace(&nqn, 2, Consent::FORCE).unwrap();
    assert!(!namespace(&node).served);
    node.owner.ask(move |owned| owned.put_back_unless(false, &taken)).unwrap();
    assert!(namespace(&node).served);

    // Two at once.
    let volume: NewVolume = serde_json::from_str(r#"{"name": "w", "size": 1048576}"#).unwrap();
    node.create_volume(&named("fast"), &volume).unwrap();
    let mapping = serde_json::from_str(&format!(r#"{{"subsystem": "{NQN}"}}"#)).unwrap();
    node.map_volume(&"fast/w".parse().unwrap(), mapping).unwrap();
    let before = kept(&node).current;
    let taken = [1, 2].map(|nsid| node.take_out_replaced(wanted(nsid)).unwrap());
    assert_eq!(taken.each_ref().map(|one| one.len()), [1, 1]);
    for one in taken {
        assert_eq!(kept(&node).current, before);
        node.owner.ask(move |owned| owned.put_back_unless(false, &one)).unwrap();
    }
    assert_eq!(
        (kept(&node).current, node.owner.view().state.current.clone()),
        (before.clone(), before)
    );
    assert!([1, 2].map(|nsid| node.namespace(&nqn, nsid).unwrap().served) == [true; 2]);
    node.stop();
}

/// A volume that was put back while its commands had not ended stayed absent until the daemon was started again, and a
/// reload said that all was done.
#[test]
fn a_volume_that_was_put_back_absent_is_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    let before = namespace(&node);
    let withdraw = || {
        let place = (NQN.parse().unwrap(), 1);
        node.owner.ask(move |owned| owned.serving_mut()?.withdraw_one(&place).map(drop)).unwrap();
        assert!(!namespace(&node).served);
    };
    withdraw();
    // It may be on its way back to a snapshot.
    let turn = node.turn(&named("fast"), &Task::default()).unwrap();
    node.take_up_volumes().unwrap();
    assert!(!namespace(&node).served);
    drop(turn);
    open_late(&node);
    assert_eq!(namespace(&node), before);
    withdraw();
    let config = dir.join("test.toml");
    let text = fs::read_to_string(&config).unwrap() + "serial = \"NEW\"\n";
    fs::write(&config, text).unwrap();
    node.reload().unwrap();
    assert_eq!(namespace(&node), before);
    node.stop();
}

/// What was added while an import waited its turn was removed, though nobody had meant that, and was not kept.
#[test]
fn an_import_asks_again_what_is_lost_when_it_has_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path(), "", "");
    make(&node, dir.path(), "fast");
    let nqn: api::value::Nqn = NQN.parse().unwrap();
    let text = node.export_configuration().unwrap();
    let turn = node.turn(&named("fast"), &Task::default()).unwrap();
    std::thread::scope(|scope| {
        let import = |consent| node.import_configuration("new.toml", &text, consent);
        let import = scope.spawn(move || import(Consent::NONE));
        let behind = || node.owner.ask_unseen(|owned| Ok(owned.turns.behind(&named("fast"))));
        while behind().unwrap() == 0 {
            assert!(!import.is_finished());
            std::thread::yield_now();
        }
        let memory = serde_json::from_str(r#"{"backend": "memory:1MiB"}"#).unwrap();
        node.add_namespace(&nqn, memory).unwrap();
        drop(turn);
        let refused = import.join().unwrap().unwrap_err();
        assert_eq!(refused.kind, Kind::Conflict, "{refused}");
    });
    assert!(node.namespace(&nqn, 2).unwrap().served && namespace(&node).served);
    let lost = node.import_configuration("new.toml", &text, Consent::FORCE).unwrap();
    assert_eq!(lost.losses.len(), 1, "{lost:?}");
    let kept = node.configuration_history().remove(0);
    assert!(node.kept_configuration(kept.id).unwrap().contains("memory"));
    node.namespace(&nqn, 2).unwrap_err();
    node.stop();
}

/// An export that failed had the removals of its pool be forgotten, and its rebuilds be told as failed.
#[test]
fn work_with_a_pool_that_is_being_exported_is_cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path(), "", "");
    make(&node, dir.path(), "fast");
    let pool = node.view().serving().unwrap().pools.pool(&named("fast")).unwrap();
    node.check_still_open(&pool).unwrap();
    let exporting = |is| node.remember(&named("fast"), move |def| def.exporting = is).unwrap();
    exporting(true);
    assert_eq!(node.check_still_open(&pool).unwrap_err().kind, Kind::Stopping);
    exporting(false);
    node.check_still_open(&pool).unwrap();
    node.stop();
}

/// As above, where it is noticed only after the pool was opened.
#[test]
fn a_pool_that_is_given_up_is_left_as_it_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let volume = make(&node, dir, "fast");
    node.unmap_volume(&volume, Consent::FORCE).unwrap();
    node.export_pool(&named("fast")).unwrap();
    let all = import(&[0, 1, 2, 3].map(|n| dir.join(format!("fast{n}"))), "");
    let opener = node.view().serving().unwrap().pools.opener();
    let looked = opener.look(&all, |_| false).unwrap();
    opener.import(&all, looked, None).unwrap().give_up();
    assert!(node.find_pools(&all).unwrap()[0].exported);
    let drive = |n| format!("{}/other{n},size=192MiB", dir.display());
    let new = format!(r#"{{"name": "other", "drives": ["{}", "{}"]}}"#, drive(0), drive(1));
    opener.create(&serde_json::from_str(&new).unwrap(), &Task::default()).unwrap().give_up();
    assert!(!dir.join("other0").exists());
    node.import_pool(&all).unwrap();
    node.stop();
}

/// A pool that was imported without some of its drives forgot where those had been, and took the others for them.
#[test]
fn an_import_without_a_drive_remembers_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = waiting(dir);
    let before = def(&node);
    let here = [dir.join("fast3"), dir.join("fast2")];
    node.import_pool(&import(&here, r#", "degraded": true"#)).unwrap();
    let after = def(&node);
    assert_eq!(after.drives, before.drives);
    assert!(after.term > before.term, "they missed it");
    // Those that were away do not make the pool without those that went on, whoever says so.
    node.stop();
    drop(node);
    for n in TWO_AWAY {
        fs::rename(dir.join(format!("away{n}")), dir.join(format!("fast{n}"))).unwrap();
        fs::rename(dir.join(format!("fast{}", n + 2)), dir.join(format!("gone{n}"))).unwrap();
    }
    let node = start(dir, "wait-for-drives = 3600", "");
    let old = TWO_AWAY.map(|n| dir.join(format!("fast{n}")));
    let error = node.import_pool(&import(&old, r#", "degraded": true"#)).unwrap_err();
    assert!(error.context.contains("later labels"), "{error}");
    node.import_pool(&import(&old, r#", "degraded": true, "accept_loss": true"#)).unwrap();
    node.stop();
}

/// Killed at the end of a move of its log, a pool imported by hand was looked for at the old place only, and the new one
/// given up with all that was in it where the loss was accepted.
#[test]
fn an_import_looks_where_the_log_was_on_its_way_to() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    let place = |name: &str| format!("bbu:{}", dir.join(name).display());
    let go = |name: &str| {
        let to = format!(r#"{{"to": ["{}"]}}"#, place(name));
        node.move_log(&named("fast"), &serde_json::from_str(&to).unwrap()).unwrap();
    };
    go("log0");
    let at_first = def(&node).log;
    go("log1");
    // As it was written down when the move began.
    let mut state = State::clone(&node.view().state);
    let moving = state.pools.get_mut(&named("fast")).unwrap();
    moving.log_to = std::mem::replace(&mut moving.log, at_first);
    // As a kill leaves it: closed in order it would not need its log.
    let files = ["fast2", "fast3", "log0", "log1"];
    for name in files {
        fs::copy(dir.join(name), dir.join(format!("{name}.killed"))).unwrap();
    }
    node.stop();
    let save = move |owned: &mut Owned| owned.dir.save(&state);
    node.owner.ask_unseen(save).unwrap();
    drop(node);
    for name in files {
        fs::rename(dir.join(format!("{name}.killed")), dir.join(name)).unwrap();
    }
    for n in TWO_AWAY {
        fs::rename(dir.join(format!("fast{n}")), dir.join(format!("away{n}"))).unwrap();
    }
    let node = start(dir, "wait-for-drives = 3600", "");
    let here = [dir.join("fast2"), dir.join("fast3")];
    node.import_pool(&import(&here, r#", "degraded": true, "accept_loss": true"#)).unwrap();
    assert_eq!(said(&node, "without its commit log"), 0);
    assert_eq!(def(&node).log, [place("log1").parse().unwrap()]);
    node.stop();
}

/// With no space for its state a node that had crashed did not come back, although nothing new was asked for; and what
/// it refused to do was done all the same.
#[test]
fn a_node_whose_state_cannot_be_written_serves_what_it_served() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let volume = make(&node, dir, "fast");
    let grown: VolumeChange = serde_json::from_str(r#"{"size": 2097152}"#).unwrap();
    node.change_volume(&volume, &grown, Consent::NONE).unwrap();
    node.stop();
    drop(node);
    fs::create_dir(dir.join("state/state.json.new")).unwrap();
    let node = start(dir, "", "");
    assert!(said(&node, "is not kept") > 0);
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    let before = node.volume(&volume).unwrap().size;
    let change: VolumeChange = serde_json::from_str(r#"{"size": 1048576}"#).unwrap();
    node.change_volume(&volume, &change, Consent::FORCE).unwrap_err();
    assert_eq!(node.volume(&volume).unwrap().size, before);
    assert_eq!(namespace(&node).size, before);
    node.stop();
}
