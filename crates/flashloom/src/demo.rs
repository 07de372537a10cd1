//! `flashloom demo`: a verified load through the wire, under which the daemon is killed and drives are taken away; then
//! what came of it, in plain numbers.

use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::value::Size;
use comfy_table::Table;
use load::{Direction, Job, Limit, Pattern, Plan, Report, Sizes, Target, Verify};

use crate::bench::{judge, micros};
use crate::cli::{DEFAULT_NQN, DemoArgs, Global, Output};
use crate::exit::{Exit, Failure, Outcome};
use crate::log::{self, Format};
use crate::output::{emit, json, table};
use crate::service::Signals;

mod stage;

use stage::{Daemon, Stage, failed};

/// The demo's volume; the two parts of the load are in parts of it.
const VOLUME: &str = "demo/volume";

/// Its size: more than there is.
const VOLUME_BYTES: u64 = 1 << 40;

/// How long the load waits for a daemon that is away.
const RECONNECT: Duration = Duration::from_secs(120);

/// `flashloom demo`
pub fn run(global: &Global, args: DemoArgs) -> Outcome {
    log::start(Format::Human, "warn");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Failed, error))?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::new(true)?;
        // Dropped, the daemon is killed: what it acknowledged is kept.
        let (daemon, dir) = tokio::select! {
            shown = show(global, &args) => shown?,
            () = signals.stop() => {
                return Err(Failure::new(Exit::Failed, "the demo was stopped before its end"));
            }
        };
        if !args.once {
            eprintln!("serving from {}; Ctrl-C stops", dir.display());
            signals.stop().await;
        }
        daemon.stop();
        Ok(())
    });
    // The load may be under way.
    runtime.shutdown_background();
    outcome
}

/// All of it; gives the daemon, which serves on, and where.
async fn show(global: &Global, args: &DemoArgs) -> Outcome<(Daemon, PathBuf)> {
    let dir = std::path::absolute(&args.dir).map_err(|error| failed(&args.dir, &error))?;
    let state_dir = global.state_dir.clone().unwrap_or_else(|| dir.join("state"));
    let address = args.listen.map_or_else(free_address, |listen| listen.socket());
    let stage = Stage::new(dir, state_dir, address, args.size);
    let teller = Teller { begun: reactor::now_exact(), is_quiet: global.output != Output::Table };
    stage.set()?;
    let daemon = stage.start().await?;
    let capacity = stage.prepare().await?;
    teller.tell(&format!(
        "a thin volume of 1 TiB on six files of {}: RAID 6, two of them may be lost at once",
        args.size
    ))?;
    // Both parts together fill less than half of it.
    let region = (capacity / 5).next_multiple_of(1 << 20);
    let plan = plan(&stage, args, region);
    let again = checked(&plan);
    teller.tell("a load begins, over NVMe/TCP: reads and writes, each block with a checksum")?;
    let loading = tokio::task::spawn_blocking(move || quietly(&plan));
    let daemon = break_things(&stage, &teller, daemon, Duration::from_secs(args.seconds)).await?;
    let report = loading.await.map_err(|error| Failure::new(Exit::Failed, error))??;
    teller.tell("the load has ended; all that was acknowledged is read back")?;
    let checked = tokio::task::spawn_blocking(move || quietly(&again)).await;
    let checked = checked.map_err(|error| Failure::new(Exit::Failed, error))??;
    match global.output {
        Output::Json => json(&load::export::without_bins(&report))?,
        Output::Csv => emit(&load::export::csv(&report))?,
        Output::Table => {
            emit(&format!(
                "\n{}\n{}\n\n{}",
                load_table(&report),
                sums(&report, &checked),
                next(&stage)
            ))?;
        }
    }
    judge(&report)?;
    judge(&checked)?;
    Ok((daemon, stage.dir))
}

/// Kills the daemon twice, takes two drives away and puts them back, `pause` after each other. Gives the daemon that is
/// left.
async fn break_things(
    stage: &Stage,
    teller: &Teller,
    daemon: Daemon,
    pause: Duration,
) -> Outcome<Daemon> {
    tokio::time::sleep(pause).await;
    let since = reactor::now_exact();
    daemon.kill();
    let daemon = stage.start().await?;
    teller
        .tell(&format!("its daemon was killed (kill -9), and serves again after {}", ago(since)))?;
    tokio::time::sleep(pause).await;
    let since = reactor::now_exact();
    daemon.kill();
    stage.take_away()?;
    let daemon = stage.start().await?;
    teller.tell(&format!(
        "it was killed again, and two of the six drives are gone: it serves without them after {}",
        ago(since)
    ))?;
    tokio::time::sleep(pause).await;
    let since = reactor::now_exact();
    stage.put_back()?;
    stage.until_whole().await?;
    teller.tell(&format!("the drives are back, and have what they missed after {}", ago(since)))?;
    Ok(daemon)
}

fn ago(since: u64) -> String {
    let gone = Duration::from_nanos(reactor::now_exact().saturating_sub(since));
    format!("{:.1} s", gone.as_secs_f64())
}

/// Tells what happens as it does.
struct Teller {
    begun: u64,
    is_quiet: bool,
}

impl Teller {
    fn tell(&self, words: &str) -> Outcome {
        if self.is_quiet {
            return Ok(());
        }
        emit(&format!("{:>7}  {words}\n", ago(self.begun)))
    }
}

fn quietly(plan: &Plan) -> Outcome<Report> {
    Ok(load::run(plan, &mut |_| ControlFlow::Continue(()))?)
}

/// What the load did, no wider than a hundred columns.
fn load_table(report: &Report) -> Table {
    let header = ["load", "", "IOPS", "MB/s", "p50 us", "p99 us", "failed", "verified"];
    let mut table = table(&header, &[2, 3, 4, 5, 6, 7]);
    for job in &report.jobs {
        let verified = job.flashloom.verify.as_ref().map_or(0, |verify| verify.verified_bytes);
        for (name, direction) in load::export::directions(job) {
            let percentile = |percent| micros(direction.clat_ns.percentile(percent).unwrap_or(0));
            table.add_row([
                job.jobname.clone(),
                name.to_owned(),
                format!("{:.0}", direction.iops),
                (direction.bw_bytes / 1_000_000).to_string(),
                percentile(50.0),
                percentile(99.0),
                job.total_err.to_string(),
                Size::new(verified).to_string(),
            ]);
        }
    }
    table
}

/// What came of it.
fn sums(report: &Report, checked: &Report) -> String {
    let sides = || report.jobs.iter().flat_map(|job| [&job.read, &job.write]);
    let longest = sides().map(|side| side.clat_ns.max).max().unwrap_or(0);
    let failed: u64 = report.jobs.iter().map(|job| job.total_err).sum();
    let verifies = || checked.jobs.iter().filter_map(|job| job.flashloom.verify.as_ref());
    let acknowledged = verifies().filter_map(|verify| verify.acknowledged_bytes).sum();
    let wrong: u64 = verifies().map(|verify| verify.errors).sum();
    format!(
        "Through two crashes and the loss of two drives:\n  \
         {} reads and writes, {failed} of them failed\n  \
         {} acknowledged and read back, {wrong} blocks lost or wrong\n  \
         hosts waited {:.1} s at the longest, while nothing served them\n",
        sides().map(|side| side.total_ios).sum::<u64>(),
        Size::new(acknowledged),
        Duration::from_nanos(longest).as_secs_f64()
    )
}

/// What to type next.
fn next(stage: &Stage) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "flashloom".to_owned());
    let ask = format!("{program} --state-dir {}", relative(&stage.state_dir).display());
    let (ip, port) = (stage.address.ip(), stage.address.port());
    format!(
        "What to type next, in another terminal:\n  \
         {ask} status\n  \
         {ask} health\n  \
         {ask} pool show demo\n\
         On a Linux host (modprobe nvme-tcp):\n  \
         nvme discover -t tcp -a {ip} -s {port}\n  \
         nvme connect -t tcp -a {ip} -s {port} -n {DEFAULT_NQN}\n"
    )
}

/// As short as it can be typed here.
fn relative(path: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned));
    below.unwrap_or_else(|| path.to_owned())
}

/// The usual address, or a free port beside it when something listens there already.
fn free_address() -> SocketAddr {
    let usual = SocketAddr::from(([127, 0, 0, 1], 4420));
    if TcpListener::bind(usual).is_ok() {
        return usual;
    }
    stdx::port::claim().map_or(usual, |port| SocketAddr::from(([127, 0, 0, 1], port)))
}

/// A value that is written here.
fn text<T: std::str::FromStr<Err = api::value::Refused>>(text: &str) -> Outcome<T> {
    text.parse().map_err(|refused| Failure::new(Exit::Failed, refused))
}

/// Random 4 KiB in the first `region` bytes beside sequential 128 KiB in the next, both verified, four times as long as
/// what happens is apart.
fn plan(stage: &Stage, args: &DemoArgs, region: u64) -> Plan {
    let ip = match stage.address.ip() {
        ip if ip.is_unspecified() => "127.0.0.1".to_owned(),
        ip => ip.to_string(),
    };
    let job = |name: &str, part: u64, random, block_size, io_depth| {
        let journal = stage.dir.join(format!("acknowledged{part}.jnl"));
        // One of an earlier demo is of other contents.
        let _ = std::fs::remove_file(&journal);
        Job {
            name: name.to_owned(),
            pattern: Pattern { direction: Direction::Mixed { read_percent: 50 }, random },
            sizes: Sizes::one(block_size),
            io_depth,
            limit: Limit::Runtime(Duration::from_secs(4 * args.seconds)),
            offset: part * region,
            region: Some(region),
            verify: Verify::On,
            journal: Some(journal),
            reconnect: Some(RECONNECT),
            poll: reactor::PollPolicy::default(),
            ..Job::new(Target::namespace(&ip, stage.address.port(), DEFAULT_NQN, 1))
        }
    };
    Plan {
        jobs: vec![
            job("random 4k", 0, true, 4096, 32),
            job("sequential 128k", 1, false, 128 << 10, 8),
        ],
        probe: None,
    }
}

/// Reads back what the journals of `plan` say was acknowledged.
fn checked(plan: &Plan) -> Plan {
    let jobs = plan.jobs.iter().map(|job| Job { verify: Verify::Check, ..job.clone() });
    Plan { jobs: jobs.collect(), probe: None }
}
