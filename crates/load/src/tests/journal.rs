//! Loads that ride out a target's absence, and journals that say afterwards what it had acknowledged.

use std::path::Path;

use super::*;

/// A verified job that keeps a journal and waits for the target.
fn journaled(peer: &Peer, rw: &str, path: &Path) -> Job {
    let mut job = peer.job(rw);
    (job.verify, job.journal) = (Verify::On, Some(path.to_owned()));
    (job.reconnect, job.io_depth) = (Some(Duration::from_secs(60)), 16);
    job
}

/// A check of the journal at `path`.
fn check(peer: &Peer, path: &Path) -> Report {
    let mut job = peer.job("read");
    (job.verify, job.journal) = (Verify::Check, Some(path.to_owned()));
    quiet(job).unwrap()
}

fn listed(report: &Report) -> Vec<(u64, String)> {
    let verify = report.jobs[0].flashloom.verify.as_ref().unwrap();
    assert_eq!(verify.errors, report.jobs[0].total_err);
    verify.listed.iter().map(|wrong| (wrong.offset, wrong.what.clone())).collect()
}

#[test]
fn what_was_acknowledged_is_checked_in_another_run() {
    let peer = serve(4 << 20);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acks");
    let mut job = journaled(&peer, "randwrite", &path);
    (job.queues, job.sizes, job.limit) = (3, Sizes::one(8192), Limit::Size(2 << 20));
    quiet(job).unwrap();
    let report = check(&peer, &path);
    let verify = report.jobs[0].flashloom.verify.clone().unwrap();
    assert_eq!((verify.verified_bytes, verify.acknowledged_bytes), (2 << 20, Some(2 << 20)));
    assert_eq!((report.jobs[0].total_err, verify.journal_torn_bytes), (0, Some(0)));
    assert_eq!(report.jobs[0].read.total_ios, 0);
}

#[test]
fn lost_stale_and_misplaced_blocks_are_listed() {
    let peer = serve(1 << 20);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acks");
    quiet(journaled(&peer, "write", &path)).unwrap();
    let block = |at: u64| {
        let mut bytes = vec![0; 4096];
        peer.region.copy_out(at * 4096, &mut bytes).unwrap();
        bytes
    };
    let stale = block(9);
    quiet(journaled(&peer, "write", &path)).unwrap();
    assert_eq!(listed(&check(&peer, &path)), []);
    peer.region.copy_in(9 * 4096, &stale).unwrap();
    peer.region.copy_in(11 * 4096, &block(12)).unwrap();
    peer.region.copy_in(13 * 4096, &[0; 4096]).unwrap();
    peer.region.copy_in(14 * 4096 + 4000, &[0; 96]).unwrap();
    let found = listed(&check(&peer, &path));
    let at: Vec<u64> = found.iter().map(|(offset, _)| offset / 4096).collect();
    assert_eq!(at, [9, 11, 13, 14], "{found:?}");
    for (index, words) in
        ["holds write 1", "byte offset 49152", "all zeroes", "checksum"].into_iter().enumerate()
    {
        assert!(found[index].1.contains(words), "{found:?}");
    }
}

#[test]
fn a_load_goes_on_when_its_target_comes_back() {
    let mut peer = serve(4 << 20);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acks");
    let mut job = journaled(&peer, "randrw", &path);
    (job.queues, job.limit, job.rate_iops) = (2, Limit::Size(24 << 20), Some(4000));
    let (mut stops, mut last) = (0, 0);
    let report = run(&job.into(), &mut |progress: &Progress| {
        let commands = progress.reads + progress.writes;
        if progress.phase == Phase::Running && stops < 3 && commands > last + 200 {
            (stops, last) = (stops + 1, commands);
            peer.stop();
            peer.serve_again();
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(stops, 3, "the load was over before its target could go away");
    let job = &report.jobs[0];
    assert_eq!((job.error, job.total_err), (0, 0), "{:?}", job.flashloom);
    assert!(job.flashloom.reconnects >= 3, "{}", job.flashloom.reconnects);
    // What was in flight is done again.
    assert_eq!(job.read.total_ios + job.write.total_ios, 6144);
    assert_eq!(listed(&check(&peer, &path)), []);
}

#[test]
fn patience_ends() {
    let peer = serve(1 << 20);
    let mut job = peer.job("randread");
    job.limit = Limit::Runtime(Duration::from_secs(3600));
    job.reconnect = Some(Duration::from_millis(300));
    let handle = peer.handle.clone();
    let error = run(&job.into(), &mut |progress| {
        if progress.phase == Phase::Running && progress.reads > 0 {
            handle.stop();
        }
        ControlFlow::Continue(())
    })
    .unwrap_err();
    assert!(matches!(error, Error::Away { .. }), "{error}");
}

#[test]
fn a_load_that_loses_acknowledged_writes_with_its_target_finds_them() {
    let mut peer = serve(1 << 20);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acks");
    let mut job = journaled(&peer, "write", &path);
    (job.io_depth, job.rate_iops) = (1, Some(512));
    let mut lost = false;
    let report = run(&job.into(), &mut |progress: &Progress| {
        if progress.phase == Phase::Running && progress.writes > 20 && !lost {
            lost = true;
            peer.stop();
            peer.region.copy_in(5 * 4096, &[0; 4096]).unwrap();
            peer.serve_again();
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(lost, "the load was over before its target could go away");
    assert_eq!(report.jobs[0].total_err, 1, "{:?}", report.jobs[0].flashloom);
    let found = listed(&check(&peer, &path));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, 5 * 4096);
}
