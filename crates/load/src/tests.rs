//! The load generator against the real target over loopback: what `bench` and `demo` do.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use reactor::PollPolicy;
use target::testing::Peer;

use crate::{
    Error, Job, Limit, Pattern, Phase, Plan, Progress, Report, Sizes, Target, Verify, run,
};

mod journal;
mod namespace;
mod paths;
mod shapes;

const SUBNQN: &str = "nqn.2026-11.io.flashloom:load";
const BLOCK: u32 = 4096;

fn serve(bytes: u64) -> Peer {
    Peer::start(SUBNQN, bytes, BLOCK)
}

/// Jobs at a target.
trait Jobs {
    fn target(&self) -> Target;
    /// One whose reactor leaves the CPU to others while it waits.
    fn job(&self, rw: &str) -> Job;
}

impl Jobs for Peer {
    fn target(&self) -> Target {
        Target::namespace("127.0.0.1", self.port, SUBNQN, 1)
    }

    fn job(&self, rw: &str) -> Job {
        let mut job = Job::new(self.target());
        job.name = rw.to_owned();
        job.pattern = Pattern::parse(rw, 50).unwrap();
        job.poll = PollPolicy::Interrupt;
        job.limit = Limit::OnePass;
        job
    }
}

fn remote_of(job: &mut Job) -> &mut initiator::Remote {
    match &mut job.target {
        Target::Namespace { remotes, .. } => &mut remotes[0],
        Target::Set { .. } | Target::File(_) => unreachable!("a namespace"),
    }
}

fn quiet(plan: impl Into<Plan>) -> Result<Report, Error> {
    run(&plan.into(), &mut |_| ControlFlow::Continue(()))
}

#[test]
fn one_pass_writes_every_block_once_and_reads_all_back() {
    let peer = serve(16 << 20);
    let mut job = peer.job("randwrite");
    (job.queues, job.verify) = (3, Verify::On);
    let report = quiet(job).unwrap();
    let job = &report.jobs[0];
    assert_eq!((job.error, job.total_err), (0, 0), "{:?}", job.flashloom);
    assert_eq!((job.write.total_ios, job.write.io_bytes), (4096, 16 << 20));
    assert_eq!(job.write.clat_ns.samples, 4096);
    assert_eq!(job.read.total_ios, 0);
    assert_eq!(job.flashloom.verify.as_ref().unwrap().verified_bytes, 16 << 20);
}

#[test]
fn every_transfer_size_and_digest_verifies() {
    let peer = serve(8 << 20);
    for (bytes, digests) in [(4096, true), (16384, false), (32768, true), (128 << 10, false)] {
        let mut job = peer.job("write");
        (job.sizes, job.io_depth, job.verify) = (bytes.into(), 8, Verify::On);
        let options = &mut remote_of(&mut job).options;
        (options.header_digest, options.data_digest) = (digests, digests);
        let report = quiet(job).unwrap();
        let job = &report.jobs[0];
        assert_eq!(job.total_err, 0, "{bytes}: {:?}", job.flashloom);
        assert_eq!(job.flashloom.verify.as_ref().unwrap().verified_bytes, 8 << 20, "{bytes}");
    }
}

#[test]
fn reads_and_writes_of_one_region_are_checked_against_each_other() {
    let peer = serve(1 << 20);
    let mut job = peer.job("randrw");
    // Many passes over few blocks, so that reads meet blocks written more than once.
    (job.io_depth, job.queues, job.verify) = (64, 2, Verify::On);
    job.limit = Limit::Size(40 << 20);
    let report = quiet(job).unwrap();
    let job = &report.jobs[0];
    assert_eq!(job.total_err, 0, "{:?}", job.flashloom);
    assert_eq!(job.read.total_ios + job.write.total_ios, 10240);
    assert!(job.read.total_ios > 4000 && job.write.total_ios > 4000);
    let verified = job.flashloom.verify.as_ref().unwrap().verified_bytes;
    // Reads of blocks not written yet check nothing; the final pass checks the region.
    assert!(verified > job.read.io_bytes / 2, "{verified} of {}", job.read.io_bytes);
}

#[test]
fn a_block_that_changes_behind_the_hosts_back_is_found_and_placed() {
    let peer = serve(1 << 20);
    let mut job = peer.job("write");
    (job.io_depth, job.verify, job.rate_iops) = (1, Verify::On, Some(512));
    let region = Arc::clone(&peer.region);
    let mut harmed = false;
    let report = run(&job.into(), &mut |progress: &Progress| {
        if progress.phase == Phase::Running && progress.writes > 20 && !harmed {
            harmed = true;
            region.copy_in(5 * 4096, &[0; 4096]).unwrap();
            let mut block = vec![0; 4096];
            region.copy_out(6 * 4096, &mut block).unwrap();
            region.copy_in(7 * 4096, &block).unwrap();
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(harmed, "the load was over before it could be harmed");
    let job = &report.jobs[0];
    assert_eq!((job.error, job.total_err), (84, 2));
    let listed = &job.flashloom.verify.as_ref().unwrap().listed;
    assert_eq!((listed[0].offset, listed[1].offset), (5 * 4096, 7 * 4096));
    assert!(listed[0].what.contains("lost"), "{}", listed[0].what);
    assert!(listed[1].what.contains("byte offset 24576"), "{}", listed[1].what);
}

#[test]
fn jobs_of_one_plan_run_together() {
    let peer = serve(16 << 20);
    let mut plan = Plan::default();
    for _ in 0..4 {
        let mut reader = peer.job("randread");
        (reader.io_depth, reader.limit) = (1, Limit::Runtime(Duration::from_millis(400)));
        plan.jobs.push(reader);
    }
    let mut writer = peer.job("write");
    (writer.sizes, writer.io_depth) = (Sizes::one(128 << 10), 32);
    writer.limit = Limit::Runtime(Duration::from_millis(400));
    plan.jobs.push(writer);
    let report = quiet(plan).unwrap();
    assert_eq!(report.jobs.len(), 5);
    for job in &report.jobs {
        assert_eq!(job.total_err, 0);
        assert!(job.read.total_ios + job.write.total_ios > 0, "{}", job.jobname);
        assert!((400..2000).contains(&job.job_runtime), "{}", job.job_runtime);
    }
}

#[test]
fn a_rate_is_kept() {
    let peer = serve(1 << 20);
    let mut job = peer.job("randread");
    (job.rate_iops, job.queues) = (Some(1000), 2);
    job.limit = Limit::Runtime(Duration::from_millis(500));
    let ios = quiet(job).unwrap().jobs[0].read.total_ios;
    assert!((300..=510).contains(&ios), "{ios}");
}

#[test]
fn a_run_can_be_ended_early() {
    let peer = serve(1 << 20);
    let mut job = peer.job("randread");
    job.limit = Limit::Runtime(Duration::from_secs(3600));
    let mut calls = 0;
    let report = run(&job.into(), &mut |progress| {
        calls += usize::from(progress.phase == Phase::Running);
        if calls > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert!(report.jobs[0].read.total_ios > 0);
    assert!(report.jobs[0].job_runtime < 60_000);
}

#[test]
fn what_cannot_be_run_is_said_before_it_is() {
    let peer = serve(1 << 20);
    let job = |change: fn(&mut Job)| {
        let mut job = peer.job("randread");
        change(&mut job);
        quiet(job).unwrap_err()
    };
    type Change = fn(&mut Job);
    let cases: [(Change, &str); 8] = [
        (|j| j.sizes = Sizes::one(512), "logical block size 4096"),
        (|j| (j.sizes, j.io_depth) = (Sizes::one(4 << 20), 1024), "goes in 4"),
        (|j| j.io_depth = 0, "iodepth"),
        (|j| j.queues = 0, "queues"),
        (|j| j.offset = 1 << 20, "do not fit"),
        (|j| j.region = Some(2 << 20), "do not fit"),
        (|j| j.target = Target::namespace("127.0.0.1", 1, SUBNQN, 0), "nsid 0"),
        (|j| j.limit = Limit::Size(0), "above 0"),
    ];
    for (change, words) in cases {
        let error = job(change);
        assert!(error.to_string().contains(words), "{error} lacks `{words}`");
    }
    assert!(quiet(Plan::default()).is_err());
}

#[test]
fn connection_errors_say_what_to_do() {
    let peer = serve(1 << 20);
    let job = |change: fn(&mut Job)| {
        let mut job = peer.job("randread");
        change(&mut job);
        quiet(job).unwrap_err()
    };
    let wrong_subsystem = job(|j| remote_of(j).subnqn = "nqn.2026-11.io.flashloom:none".to_owned());
    assert!(wrong_subsystem.to_string().contains("SUBNQN"), "{wrong_subsystem}");
    assert!(wrong_subsystem.advice().unwrap().contains("discover"));
    let wrong_namespace = job(|j| match &mut j.target {
        Target::Namespace { nsid, .. } => *nsid = 9,
        Target::Set { .. } | Target::File(_) => unreachable!("a namespace"),
    });
    assert!(matches!(wrong_namespace, Error::Host { .. }), "{wrong_namespace}");
    let no_nqn = job(|j| remote_of(j).subnqn = "none".to_owned());
    assert!(no_nqn.to_string().contains("nqn."), "{no_nqn}");
}

#[test]
fn a_target_that_goes_away_ends_the_run_with_an_error() {
    let peer = serve(1 << 20);
    let mut job = peer.job("randread");
    job.limit = Limit::Runtime(Duration::from_secs(3600));
    let handle = peer.handle.clone();
    let error = run(&job.into(), &mut |progress| {
        if progress.phase == Phase::Running && progress.reads > 0 {
            handle.stop();
        }
        ControlFlow::Continue(())
    })
    .unwrap_err();
    assert!(matches!(error, Error::Host { .. }), "{error}");
}

#[test]
fn discovery_and_identify_answer_the_command_line() {
    let peer = serve(1 << 20);
    let mut remote = initiator::Remote {
        traddr: "127.0.0.1".to_owned(),
        trsvcid: peer.port,
        subnqn: nvme::nqn::DISCOVERY.to_owned(),
        host: initiator::HostIdentity::of_machine(),
        options: initiator::Options::default(),
    };
    let log = initiator::discover(&remote).unwrap();
    let entry = log.entries.iter().find(|entry| entry.subnqn() == SUBNQN).unwrap();
    assert_eq!((entry.traddr(), entry.trsvcid()), ("127.0.0.1".into(), peer.port.to_string()));
    SUBNQN.clone_into(&mut remote.subnqn);
    let controller = initiator::identify_controller(&remote).unwrap();
    assert_eq!(nvme::identify::ascii(&controller.mn), "Flashloom");
    let namespace = initiator::identify_namespace(&remote, 1).unwrap();
    assert_eq!((namespace.block_bytes(), namespace.nsze.get()), (Some(4096), 256));
}
