//! The shapes that a load can have: mixed sizes, few hot blocks, rates, warming up, a file in place of a namespace.

use super::*;
use crate::{Distribution, Mix, Think};
use initiator::WindowUse;

fn mixed() -> Sizes {
    let mix = [(4096, Some(60)), (8192, Some(20)), (65536, Some(20))];
    Sizes {
        read: Mix::new(&mix).unwrap(),
        write: Mix::new(&mix[..2].iter().map(|s| (s.0, None)).collect::<Vec<_>>()).unwrap(),
    }
}

#[test]
fn mixed_sizes_are_verified_block_by_block() {
    let peer = serve(2 << 20);
    for distribution in [Distribution::Even, Distribution::Zipf(1.1)] {
        let mut job = peer.job("randrw");
        (job.sizes, job.distribution, job.verify) = (mixed(), distribution, Verify::On);
        (job.io_depth, job.queues, job.limit) = (32, 2, Limit::Size(24 << 20));
        let report = quiet(job).unwrap();
        let job = &report.jobs[0];
        assert_eq!(job.total_err, 0, "{:?}", job.flashloom);
        let moved = job.read.io_bytes + job.write.io_bytes;
        // The last command of each queue may be larger than what was left.
        assert!((24 << 20..(24 << 20) + 2 * 65536).contains(&moved), "{moved}");
        let mean = job.read.io_bytes / job.read.total_ios;
        // 17,203 by the shares, give or take 750 for a thousand reads; equal shares would give 25,941.
        assert!((12_000..22_000).contains(&mean), "{mean}");
        assert!(job.flashloom.verify.as_ref().unwrap().verified_bytes > job.read.io_bytes / 2);
        assert!(job.options["bssplit"].starts_with("4096/60:8192/20:65536/20,"));
    }
}

#[test]
fn a_journal_of_mixed_sizes_is_checked_by_blocks() {
    let peer = serve(2 << 20);
    let dir = tempfile::tempdir().unwrap();
    let mut job = peer.job("randwrite");
    (job.sizes, job.verify, job.limit) = (mixed(), Verify::On, Limit::Size(8 << 20));
    job.journal = Some(dir.path().join("acks"));
    let mut check = job.clone();
    quiet(job).unwrap();
    let lost = vec![0; 4096];
    check.verify = Verify::Check;
    assert_eq!(quiet(check.clone()).unwrap().jobs[0].total_err, 0);
    // One block of what may have been a larger write.
    let mut blocks = (0..512).rev().filter(|block| {
        let mut bytes = vec![0; 4096];
        peer.region.copy_out(block * 4096, &mut bytes).unwrap();
        bytes != lost
    });
    let written = blocks.next().unwrap();
    peer.region.copy_in(written * 4096, &lost).unwrap();
    let report = quiet(check).unwrap();
    let listed = &report.jobs[0].flashloom.verify.as_ref().unwrap().listed;
    assert_eq!((report.jobs[0].total_err, listed[0].offset), (1, written * 4096));
}

#[test]
fn bandwidth_and_thinking_hold_a_load_back() {
    let peer = serve(1 << 20);
    let mut job = peer.job("read");
    (job.rate, job.limit) = (Some(4 << 20), Limit::Runtime(Duration::from_millis(400)));
    let bytes = quiet(job).unwrap().jobs[0].read.io_bytes;
    assert!((1 << 20..=(17 << 20) / 10).contains(&bytes), "{bytes}");
    let mut job = peer.job("read");
    (job.think, job.limit) = (
        Some(Think { time: Duration::from_millis(20), after: 4 }),
        Limit::Runtime(Duration::from_millis(400)),
    );
    let ios = quiet(job).unwrap().jobs[0].read.total_ios;
    assert!((20..=84).contains(&ios) && ios.is_multiple_of(4), "{ios}");
}

#[test]
fn warming_up_is_not_measured_and_the_series_adds_up() {
    let peer = serve(1 << 20);
    let mut job = peer.job("randrw");
    (job.ramp, job.limit) = (Duration::from_millis(200), Limit::Size(8 << 20));
    (job.series, job.rate_iops) = (Some(Duration::from_millis(50)), Some(8000));
    let report = quiet(job).unwrap();
    let job = &report.jobs[0];
    // All of the size comes after warming up, which moved as much again at that rate.
    let ios = job.read.total_ios + job.write.total_ios;
    assert!((2048..2048 + 64).contains(&ios), "{ios}");
    assert_eq!(job.read.clat_ns.samples, job.read.total_ios);
    let series = &job.flashloom.series;
    assert!(series.len() >= 5, "{}", series.len());
    let mut last = 0;
    let mut counted = 0.0;
    for moment in series {
        let length = f64::from(u32::try_from(moment.end_ms - last).unwrap()) / 1000.0;
        counted += (moment.read.iops + moment.write.iops) * length;
        last = moment.end_ms;
    }
    let share = counted / f64::from(u32::try_from(ios).unwrap());
    assert!((0.9..1.1).contains(&share), "{counted} of {ios}");
}

#[test]
fn costs_of_this_side_are_counted_and_those_of_the_other_asked() {
    let peer = serve(1 << 20);
    let handle = peer.handle.clone();
    let mut job = peer.job("randread");
    job.limit = Limit::Size(16 << 20);
    let probe = crate::Probe::new(move || {
        let busy = Duration::from_nanos(handle.metrics().busy_nanos);
        Some(crate::Spent { cpu: None, busy: Some(busy) })
    });
    let report = quiet(Plan { jobs: vec![job], probe: Some(probe) }).unwrap();
    let host = report.flashloom.host.unwrap();
    assert_eq!(host.ios, 4096);
    assert!(host.busy_ns_per_io.unwrap() > 100.0, "{host:?}");
    let target = report.flashloom.target.unwrap();
    assert_eq!((target.ios, target.cpu_ns), (4096, None));
    assert!(target.busy_ns.unwrap() > 100_000, "{target:?}");
}

#[test]
fn a_file_takes_the_same_loads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive");
    std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let mut job = Job::new(Target::File(path.clone()));
    (job.pattern, job.limit) = (Pattern::parse("randrw", 50).unwrap(), Limit::Size(8 << 20));
    (job.sizes, job.verify, job.queues) = (mixed(), Verify::On, 2);
    job.poll = PollPolicy::Interrupt;
    let report = quiet(job.clone()).unwrap();
    assert_eq!(report.jobs[0].total_err, 0, "{:?}", report.jobs[0].flashloom);
    assert!(report.jobs[0].flashloom.verify.as_ref().unwrap().verified_bytes > 1 << 20);
    job.target = Target::File(dir.path().join("none"));
    let error = quiet(job.clone()).unwrap_err();
    assert!(matches!(error, Error::File { .. }) && error.to_string().contains("none"), "{error}");
    (job.target, job.offset, job.region) = (Target::File(path), 8 << 20, None);
    assert!(quiet(job).unwrap_err().to_string().contains("do not fit"));
}

#[test]
fn what_is_served_is_read_and_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let mut job = Job::new(Target::File(path.clone()));
    (job.limit, job.poll) = (Limit::Size(64 << 10), PollPolicy::Interrupt);
    job.pattern = Pattern::parse("write", 50).unwrap();
    let served = reactor::file::hold(&path).unwrap();
    let error = quiet(job.clone()).unwrap_err().to_string();
    assert!(error.contains("is in use"), "{error}");
    let reads = Job { pattern: Pattern::parse("read", 50).unwrap(), ..job.clone() };
    quiet(reads).unwrap();
    drop(served);
    // Two jobs of one run may write to the same place.
    quiet(Plan { jobs: vec![job.clone(), job], probe: None }).unwrap();
}

#[test]
fn a_job_does_not_verify_what_another_one_writes() {
    let peer = serve(1 << 20);
    let mut job = peer.job("write");
    job.verify = Verify::On;
    let plan = |second: Job| Plan { jobs: vec![job.clone(), second], probe: None };
    let error = quiet(plan(job.clone())).unwrap_err().to_string();
    assert!(error.contains("an offset and a size of its own"), "{error}");
    let mut apart = job.clone();
    (apart.offset, apart.region) = (512 << 10, Some(512 << 10));
    let mut first = job.clone();
    first.region = Some(512 << 10);
    let report = quiet(Plan { jobs: vec![first, apart], probe: None }).unwrap();
    assert!(report.jobs.iter().all(|job| job.total_err == 0));
    let mut reader = peer.job("randread");
    reader.limit = Limit::Size(1 << 20);
    assert!(quiet(plan(reader)).is_ok());
}

#[test]
fn commands_larger_than_a_transfer_go_in_parts_and_count_as_one() {
    let peer = serve(8 << 20);
    for sizes in [
        Sizes::one(1 << 20),
        Sizes::both(Mix::new(&[(4096, Some(50)), (512 << 10, Some(50))]).unwrap()),
    ] {
        let mut job = peer.job("randrw");
        (job.sizes, job.io_depth, job.verify) = (sizes.clone(), 4, Verify::On);
        (job.queues, job.limit) = (2, Limit::Size(48 << 20));
        let report = quiet(job).unwrap();
        let job = &report.jobs[0];
        assert_eq!(job.total_err, 0, "{:?}", job.flashloom);
        let (ios, bytes) =
            (job.read.total_ios + job.write.total_ios, job.read.io_bytes + job.write.io_bytes);
        assert_eq!(job.read.clat_ns.samples + job.write.clat_ns.samples, ios);
        if sizes == Sizes::one(1 << 20) {
            assert_eq!((ios, bytes), (48, 48 << 20));
        } else {
            let mean = bytes / ios;
            assert!((180_000..340_000).contains(&mean), "{mean}");
        }
    }
}

#[test]
fn each_cure_has_its_switch() {
    use initiator::{Optimization, Optimizations};
    let peer = serve(4 << 20);
    let none = Optimizations::none();
    for (optimizations, writes, polls) in [
        (none, 0, 0),
        (Optimizations::all(), 0, 0),
        (none, 1, 1),
        (none.with(Optimization::Maps), 1, 0),
        (Optimizations::all(), 2, 0),
        (none.with(Optimization::Maps), 0, 1),
    ] {
        let mut job = peer.job("randrw");
        (job.queues, job.verify, job.limit) = (2, Verify::On, Limit::Size(8 << 20));
        let options = &mut remote_of(&mut job).options;
        (options.optimizations, options.write_queues, options.poll_queues) =
            (optimizations, writes, polls);
        let report = quiet(job).unwrap();
        let job = &report.jobs[0];
        assert_eq!(job.total_err, 0, "{:?}", job.flashloom);
        let [default, reads, polled] = job.flashloom.map_commands;
        let read_back = default + reads + polled - 2048;
        let expected = match (optimizations.has(Optimization::Maps), writes, polls) {
            (true, 1.., _) => [job.write.total_ios, job.read.total_ios + read_back, 0],
            (true, 0, 1) => [0, 0, 2048 + read_back],
            _ => [2048 + read_back, 0, 0],
        };
        assert_eq!([default, reads, polled], expected, "{optimizations}");
        // How many calls that takes is up to what the machine has time for.
        assert!(job.flashloom.sends > 0, "{optimizations}");
    }
}

#[test]
fn two_addresses_of_a_subsystem_are_paths_of_a_job() {
    let peer = serve(1 << 20);
    let mut job = peer.job("randrw");
    if let Target::Namespace { remotes, policy, .. } = &mut job.target {
        let second = initiator::Remote { traddr: "localhost".to_owned(), ..remotes[0].clone() };
        remotes.push(second);
        *policy = initiator::PathPolicy::RoundRobin;
    }
    (job.verify, job.limit) = (Verify::On, Limit::Size(8 << 20));
    let report = quiet(job).unwrap();
    assert_eq!(report.jobs[0].total_err, 0, "{:?}", report.jobs[0].flashloom);
}

#[test]
fn queues_of_a_job_are_not_mixed_so_that_commands_go_together() {
    let peer = serve(4 << 20);
    let mut job = peer.job("randread");
    (job.queues, job.io_depth, job.limit) = (8, 8, Limit::Size(64 << 20));
    let job = &quiet(job).unwrap().jobs[0];
    let (sends, commands) = (job.flashloom.sends, job.read.total_ios);
    // What one queue completes in a turn goes out by one call; spread over all queues it would take one each.
    assert!(sends * 2 < commands, "{sends} calls for {commands} commands");
}

#[test]
fn a_target_without_direct_write_windows_gets_commands_unless_one_is_required() {
    let peer = serve(1 << 20);
    let mut job = peer.job("randwrite");
    (job.verify, job.window) = (Verify::On, WindowUse::Auto);
    let report = quiet(job.clone()).unwrap();
    let done = &report.jobs[0];
    assert_eq!((done.total_err, done.flashloom.direct_writes), (0, 0));
    assert_eq!(done.flashloom.verify.as_ref().unwrap().verified_bytes, 1 << 20);
    job.window = WindowUse::Require;
    let none = quiet(job.clone()).unwrap_err().to_string();
    assert!(none.contains("no direct write window"), "{none}");
}

/// Whoever asks for a window if it can be had was refused where several jobs or threads would have it.
#[test]
fn a_window_is_one_threads_of_one_job_and_others_send_commands() {
    let peer = serve(1 << 20);
    let mut job = peer.job("randwrite");
    let read = peer.job("randread");
    let window = |job: &Job, window| Job { window, ..job.clone() };
    let plan = |jobs: &[Job]| Plan { jobs: jobs.to_vec(), probe: None };
    let [auto, require] = [WindowUse::Auto, WindowUse::Require].map(|used| window(&job, used));
    let twice = quiet(plan(&[require.clone(), require.clone()])).unwrap_err();
    assert!(twice.to_string().contains("not several"), "{twice}");
    let autos = plan(&[window(&read, WindowUse::Auto), auto.clone(), job.clone(), auto.clone()]);
    assert_eq!(autos.without_window(), [3], "the first that writes has it");
    assert_eq!(plan(&[auto.clone(), require]).without_window(), [0]);
    let mut elsewhere = auto.clone();
    elsewhere.target = Target::namespace("192.0.2.1", 4420, "nqn.2026-11.io.flashloom:o", 1);
    assert_eq!(plan(&[auto, elsewhere]).without_window(), [0; 0]);
    let report = quiet(autos).unwrap();
    assert!(report.jobs.iter().all(|job| job.total_err == 0));
    (job.cpus, job.queues, job.window) = (vec![0, 0], 2, WindowUse::Auto);
    assert_eq!(plan(&[job.clone()]).without_window(), [0]);
    assert_eq!(quiet(job.clone()).unwrap().jobs[0].total_err, 0);
    job.window = WindowUse::Shm;
    assert!(quiet(job).unwrap_err().to_string().contains("one CPU"));
}
