//! Drives of open pools that were away, and come back.

use api::v1::DriveState;

use super::*;

/// Looks for what is late until a pool is whole.
pub(super) fn wait_until_whole(node: &Arc<Node>, name: &str) {
    let begun = reactor::now();
    while health(node, name) != PoolHealth::Online {
        open_late(node);
        let waited = Duration::from_nanos(reactor::now() - begun);
        assert!(waited < PATIENCE, "{:?}", node.events(0));
    }
    // What is to be said of it is said with the next look.
    open_late(node);
}

fn drive(node: &Node, index: usize) -> api::v1::Drive {
    node.drives().unwrap().swap_remove(index)
}

/// A drive that was seconds late once stayed out until somebody made the pool anew: with the next one that failed, the
/// redundancy was used up.
#[test]
fn a_drive_that_comes_late_is_taken_back_and_made_whole_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let shelf = dir.join("shelf");
    fs::create_dir(&shelf).unwrap();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    node.stop();
    drop(node);
    let (own, other) = (dir.join("fast1"), shelf.join("moved"));
    // Each of them once, where it was or elsewhere.
    for (n, back) in [(1, own), (2, other)] {
        let away = dir.join("away");
        fs::rename(dir.join(format!("fast{n}")), &away).unwrap();
        let settings = format!("wait-for-drives = 0\ndrive-folders = [\"{}\"]", shelf.display());
        let node = start(dir, &settings, "");
        assert_eq!(health(&node, "fast"), PoolHealth::Degraded);
        assert_eq!(drive(&node, n).health, DriveState::Missing);
        let volume: NewVolume =
            serde_json::from_str(&format!(r#"{{"name": "v{n}", "size": 1048576}}"#)).unwrap();
        node.create_volume(&named("fast"), &volume).unwrap();
        open_late(&node);
        assert_eq!(health(&node, "fast"), PoolHealth::Degraded);
        fs::rename(&away, &back).unwrap();
        wait_until_whole(&node, "fast");
        let found = drive(&node, n);
        assert_eq!(found.health, DriveState::Online);
        assert_eq!(found.path, Some(back.display().to_string()));
        assert_eq!(found.rejoin.unwrap().failure, None);
        let at = format!("drive {n} of pool fast is back at {}", back.display());
        assert_eq!(said(&node, &at), 1, "{:?}", node.events(0));
        assert_eq!(said(&node, &format!("drive {n} of pool fast is whole again")), 1);
        node.stop();
        drop(node);
    }
    // Two others are lost for good: what is there has everything.
    fs::remove_file(dir.join("fast0")).unwrap();
    let node = start(dir, "wait-for-drives = 0", "");
    assert_eq!(health(&node, "fast"), PoolHealth::Degraded);
    assert_eq!(node.volumes().unwrap().len(), 3);
    node.stop();
    drop(node);
}

/// A pool that the next loss would have ended looked like one that bore another.
#[test]
fn a_pool_says_how_much_more_it_bears() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let drive = |n: u32| dir.join(format!("d{n}"));
    let drives: Vec<_> = (0..5).map(|n| format!("{},size=192MiB", drive(n).display())).collect();
    let pool =
        serde_json::json!({"name": "fast", "drives": drives, "raid": "raid6", "log_size": "16MiB"});
    node.create_pool(&serde_json::from_value(pool).unwrap()).unwrap();
    let bears = |node: &Node| {
        let pool = node.pool(&named("fast")).unwrap();
        (pool.health, pool.status.unwrap().redundancy_left)
    };
    assert_eq!(bears(&node), (PoolHealth::Online, 2));
    let away = |n| dir.join(format!("away{n}"));
    let mut node = Some(node);
    for (n, expected) in [(1, (PoolHealth::Degraded, 1)), (3, (PoolHealth::NoRedundancy, 0))] {
        node.take().unwrap().stop();
        fs::rename(drive(n), away(n)).unwrap();
        let without = node.insert(start(dir, "wait-for-drives = 0", ""));
        assert_eq!(bears(without), expected);
    }
    let node = node.unwrap();
    [1, 3].into_iter().for_each(|n| fs::rename(away(n), drive(n)).unwrap());
    wait_until_whole(&node, "fast");
    assert_eq!(bears(&node), (PoolHealth::Online, 2));
    node.stop();
}

/// What is blank, or of another pool, is never written to because it lies where a drive was.
#[test]
fn nothing_else_is_taken_in_a_drives_place() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    node.stop();
    drop(node);
    let place = dir.join("fast1");
    fs::remove_file(&place).unwrap();
    let node = start(dir, "wait-for-drives = 0", "");
    fs::File::create(&place).unwrap().set_len(192 << 20).unwrap();
    open_late(&node);
    assert_eq!(drive(&node, 1).health, DriveState::Missing);
    let blank = fs::read(&place).unwrap();
    assert!(blank.iter().all(|byte| *byte == 0));
    node.stop();
    drop(node);
}

/// Has a pool live on, so that a copy of a drive from before is old.
fn live_on(dir: &Path, name: &str) {
    let node = start(dir, "", "");
    let volume: NewVolume =
        serde_json::from_str(&format!(r#"{{"name": "{name}", "size": 1048576}}"#)).unwrap();
    node.create_volume(&named("fast"), &volume).unwrap();
    node.stop();
    drop(node);
}

/// It was refused as if it were there, and waited for as if it were not: the pool stayed closed for ever.
#[test]
fn an_old_copy_in_a_drives_place_counts_as_missing_and_is_made_whole() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    node.stop();
    drop(node);
    let (place, old) = (dir.join("fast1"), dir.join("old"));
    fs::copy(&place, &old).unwrap();
    live_on(dir, "later");
    fs::rename(&old, &place).unwrap();

    let node = start(dir, "wait-for-drives = 3600", "");
    let problem = node.pool(&named("fast")).unwrap().problem.unwrap();
    assert!(problem.contains("drive 1 is missing") && problem.contains("an old copy"), "{problem}");
    node.stop();
    drop(node);
    let node = start(dir, "wait-for-drives = 0", "");
    assert_eq!(said(&node, "pool fast was opened without what it lacks"), 1);
    wait_until_whole(&node, "fast");
    node.stop();
    drop(node);
    // It counts: another can be spared.
    fs::remove_file(dir.join("fast0")).unwrap();
    let node = start(dir, "wait-for-drives = 0", "");
    assert_eq!(node.volumes().unwrap().len(), 2);
    node.stop();
    drop(node);
}

/// They were given both, and refused; or the one that comes first by its name was taken, and written to.
#[test]
fn an_old_copy_beside_the_drive_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let shelf = dir.join("shelf");
    fs::create_dir(&shelf).unwrap();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    node.stop();
    drop(node);
    let (place, old, real) = (dir.join("fast1"), shelf.join("a.bak"), shelf.join("moved"));
    fs::copy(&place, &old).unwrap();
    let was = fs::read(&old).unwrap();
    live_on(dir, "later");
    let settings =
        |wait: u32| format!("wait-for-drives = {wait}\ndrive-folders = [\"{}\"]", shelf.display());
    fs::rename(&place, &real).unwrap();
    let node = start(dir, &settings(3600), "");
    assert_eq!(health(&node, "fast"), PoolHealth::Online, "{:?}", node.events(0));
    assert_eq!(drive(&node, 1).path, Some(real.display().to_string()));
    node.stop();
    drop(node);

    // The same of one that comes back while the pool is open.
    let away = dir.join("away");
    fs::rename(&real, &away).unwrap();
    fs::rename(&old, dir.join("bak")).unwrap();
    let node = start(dir, &settings(0), "");
    assert_eq!(health(&node, "fast"), PoolHealth::Degraded);
    fs::rename(dir.join("bak"), &old).unwrap();
    fs::rename(&away, &real).unwrap();
    wait_until_whole(&node, "fast");
    assert_eq!(drive(&node, 1).path, Some(real.display().to_string()));
    node.stop();
    drop(node);
    assert!(fs::read(&old).unwrap() == was, "a copy was written to");
}
