//! Pools that are open while that has yet to be written down.

use std::process::Command;
use std::thread;

use super::*;

/// A state directory that hung had `pool show` say that a pool was being opened that hosts read and wrote.
#[test]
fn what_hosts_use_is_shown_as_open_though_the_state_directory_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let node = start(dir, "", "");
    make(&node, dir, "fast");
    node.stop();
    drop(node);
    let move_all = |from: &str, to: &str| {
        for n in 0..4 {
            fs::rename(dir.join(format!("{from}{n}")), dir.join(format!("{to}{n}"))).unwrap();
        }
    };
    move_all("fast", "away");
    let node = start(dir, "", "");
    move_all("away", "fast");
    let (closed, folders, opener) = {
        let view = node.view();
        let pools = &view.serving().unwrap().pools;
        (pools.closed(), pools.folders(), pools.opener())
    };
    let seen = crate::pools::sights(closed, &folders);
    let due = node.owner.ask(|owned| Ok(owned.serving_mut()?.pools_mut().due(seen)));
    let attempt = due.unwrap().pop().unwrap();
    let outcome = opener.attempt(&attempt, &|_, _| false);
    // Whoever writes the state waits here until somebody reads.
    let fresh = dir.join("state/state.json.new");
    assert!(Command::new("mkfifo").arg(&fresh).status().unwrap().success());
    thread::scope(|scope| {
        let taking = scope.spawn(|| node.take_opened(&attempt.name, outcome));
        let is_served = || {
            node.owner.wait_until(PATIENCE, |view| {
                let pools =
                    view.serving().map(|serving| serving.pools.pool(&named("fast")).is_ok());
                pools.unwrap_or(false)
            })
        };
        let was_shown = is_served();
        let was_hung = !taking.is_finished();
        let reader = fs::File::open(&fresh).unwrap();
        fs::remove_file(&fresh).unwrap();
        // A pipe cannot be made durable: what is written is not kept, and the node goes on.
        drop(reader);
        taking.join().unwrap();
        assert!(was_shown && was_hung);
    });
    assert_eq!(health(&node, "fast"), PoolHealth::Online);
    assert!(namespace(&node).served);
    node.stop();
}
