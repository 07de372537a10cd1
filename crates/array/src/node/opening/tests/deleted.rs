//! Pools that are deleted.

use std::os::unix::fs::MetadataExt;

use super::*;

fn delete(node: &Node, consent: Consent) -> crate::Result<()> {
    node.delete_pool(&named("fast"), consent)
}

/// The same drives, as what holds nothing.
fn make_again(node: &Node, dir: &Path) {
    let drives: Vec<_> = (0..4).map(|n| format!("\"{}/fast{n}\"", dir.display())).collect();
    let new = format!(r#"{{"name": "again", "drives": [{}]}}"#, drives.join(", "));
    node.create_pool(&serde_json::from_str(&new).unwrap()).unwrap();
}

/// There was no way to delete a pool: an export left drives that only --force took.
#[test]
fn a_deleted_pool_leaves_its_drives_blank() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let volume = make(&node, dir, "fast");
    for consent in [Consent::NONE, Consent::FORCE] {
        let refused = delete(&node, consent).unwrap_err();
        assert!(refused.context.contains("volume fast/v is namespace 1"), "{refused}");
    }
    node.losses_of_pool(&named("fast")).unwrap_err();
    node.unmap_volume(&volume, Consent::FORCE).unwrap();
    let losses = node.losses_of_pool(&named("fast")).unwrap().losses;
    assert!(losses[0].contains("pool fast would be lost, with its volume"), "{losses:?}");
    let refused = delete(&node, Consent::NONE).unwrap_err();
    assert!(refused.context.contains("would be lost"), "{refused}");
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    let blocks = |n| fs::metadata(dir.join(format!("fast{n}"))).unwrap().blocks();
    assert!(blocks(0) > 0);

    delete(&node, Consent::FORCE).unwrap();
    assert!(node.pools().unwrap().is_empty());
    assert_eq!(said(&node, "pool fast deleted"), 1);
    assert_eq!(said(&node, "may be left"), 0);
    // Their space is given back but for both ends, where the labels were.
    assert!((0..4).all(|n| blocks(n) * 512 <= 2 << 20), "{}", blocks(0) * 512);
    assert!(delete(&node, Consent::FORCE).unwrap_err().context.contains("there is no pool fast"));
    make_again(&node, dir);
    node.stop();
}

/// The node ends once it is written down that a pool is to go, before anything of it was cleared, or when some is.
#[test]
fn a_deletion_that_was_cut_short_goes_on_at_the_next_start() {
    for cleared in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let node = start(dir, "", "");
        let volume = make(&node, dir, "fast");
        node.unmap_volume(&volume, Consent::FORCE).unwrap();
        let begin = |owned: &mut Owned| {
            let open = owned.serving_mut()?.pools_mut().begin_delete(&named("fast"))?;
            owned.keep().map(|()| open)
        };
        let open = node.owner.ask(begin).unwrap().unwrap();
        drop(open);
        node.stop();
        drop(node);
        for n in 0..cleared {
            let drive = dir.join(format!("fast{n}"));
            fs::remove_file(&drive).unwrap();
            fs::File::create(&drive).unwrap().set_len(192 << 20).unwrap();
        }
        let node = start(dir, "", "");
        open_late(&node);
        assert!(node.owner.wait_until(PATIENCE, |view| {
            view.serving().is_ok_and(|serving| serving.pools.defs().is_empty())
        }));
        make_again(&node, dir);
        node.stop();
        drop(node);
        let node = start(dir, "", "");
        assert_eq!(node.pools().unwrap().len(), 1);
        node.stop();
    }
}

/// A pool that cannot be opened any more is deleted, too. What took the place of a drive is left alone, and so is the
/// log of another pool.
#[test]
fn what_is_left_of_a_pool_is_deleted_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let create = |name: &str| {
        let drives: Vec<_> =
            (0..4).map(|n| format!("\"{}/{name}{n},size=192MiB\"", dir.display())).collect();
        let new = format!(
            r#"{{"name": "{name}", "drives": [{}], "log": ["bbu:{}/{name}.log"]}}"#,
            drives.join(", "),
            dir.display()
        );
        node.create_pool(&serde_json::from_str(&new).unwrap()).unwrap();
    };
    create("fast");
    create("other");
    let at = |name: &str| dir.join(name);
    node.stop();
    drop(node);
    // Two drives are gone, another pool's is where one was, and that pool's log where the log was.
    fs::remove_file(at("fast0")).unwrap();
    fs::remove_file(at("fast1")).unwrap();
    fs::rename(at("other2"), at("fast2")).unwrap();
    fs::copy(at("other.log"), at("fast.log")).unwrap();
    let foreign = fs::read(at("fast2")).unwrap();
    // A backup, where drives are searched for.
    fs::create_dir(at("copies")).unwrap();
    fs::copy(at("fast3"), at("copies/fast3")).unwrap();
    let folders = format!("wait-for-drives = 0\ndrive-folders = [{:?}]", at("copies"));
    let node = start(dir, &folders, "");
    open_late(&node);
    assert_eq!(health(&node, "fast"), PoolHealth::Unavailable);
    let losses = node.losses_of_pool(&named("fast")).unwrap().losses;
    assert!(losses[0].contains("is not open"), "{losses:?}");
    let copy = fs::read(at("copies/fast3")).unwrap();
    delete(&node, Consent::FORCE).unwrap();
    assert_eq!(said(&node, "may be left: "), 2);
    assert_eq!(fs::read(at("fast2")).unwrap(), foreign);
    assert!(at("fast.log").exists());
    assert!(fs::read(at("copies/fast3")).unwrap() == copy, "the copy was cleared");
    let mut blank = vec![0; 1 << 20];
    std::io::Read::read_exact(&mut fs::File::open(at("fast3")).unwrap(), &mut blank).unwrap();
    assert!(blank.iter().all(|byte| *byte == 0));
    assert_eq!(node.pools().unwrap().len(), 1);
    // Its own log goes with it.
    node.delete_pool(&named("other"), Consent::FORCE).unwrap();
    assert!(!at("other.log").exists());
    node.stop();
}

/// That it was being deleted was there for the next start, which did that.
#[test]
fn a_deletion_that_was_refused_is_not_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let volume = make(&node, dir, "fast");
    node.unmap_volume(&volume, Consent::FORCE).unwrap();
    crate::state::late::refuse(&dir.join("state"));
    let refused = delete(&node, Consent::FORCE).unwrap_err();
    assert!(refused.context.contains("it may not stay"), "{refused}");
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    // As a kill does it.
    let state = fs::read(dir.join("state/state.json")).unwrap();
    node.stop();
    drop(node);
    fs::write(dir.join("state/state.json"), state).unwrap();
    let node = start(dir, "", "");
    open_late(&node);
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    node.stop();
}

/// It waited without end, and nobody knew for what.
#[test]
fn a_deletion_says_which_drive_it_waits_for_and_goes_on_when_that_answers() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    let volume = make(&node, dir, "fast");
    node.unmap_volume(&volume, Consent::FORCE).unwrap();
    let mut used = node.view().serving().unwrap().pools.pool(&named("fast")).unwrap().use_drives();
    used.retain(|member| member.path.ends_with("fast2"));
    let refused = delete(&node, Consent::FORCE).unwrap_err();
    let words = format!("pool fast is not deleted yet: {}/fast2 does not answer", dir.display());
    assert_eq!(refused.context, words);
    open_late(&node);
    assert_eq!(health(&node, "fast"), PoolHealth::Unavailable);
    let problem = node.pool(&named("fast")).unwrap().problem.unwrap();
    assert!(problem.contains("a drive does not answer"), "{problem}");
    drop(used);
    open_late(&node);
    assert!(node.owner.wait_until(PATIENCE, |view| {
        view.serving().is_ok_and(|serving| serving.pools.defs().is_empty())
    }));
    make_again(&node, dir);
    node.stop();
}
