//! `flashloom demo`: it working: a thin volume on a pool of six files, with a verified load through the wire.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{NewMapping, NewPool, NewVolume, PoolHealth};
use api::value::{Address, DrivePath, Name, Nqn, Size, VolumePath};
use array::desired::{Desired, ListenerDef, SubsystemDef};
use array::node::{Node, Options, Source};
use load::{Direction, Job, Limit, Pattern, Plan, Sizes, Target, Verify};

use crate::bench::{judge, result_table, with_progress};
use crate::cli::{DEFAULT_NQN, DemoArgs, Global, Output};
use crate::exit::{Exit, Failure, Outcome};
use crate::log::{self, Format};
use crate::output::{emit, json};
use crate::serve::{instructions, serve, until_stopped};

/// Drives of the demo: RAID 6 of 4 + 2.
const DRIVES: u32 = 6;

/// The demo's volume; the two parts of the load are in parts of it.
const VOLUME: &str = "demo/volume";

/// Its size: more than there is.
const VOLUME_BYTES: u64 = 1 << 40;

/// `flashloom demo`
pub fn run(global: &Global, args: DemoArgs) -> Outcome {
    log::start(Format::Human, "warn");
    let dir = std::path::absolute(&args.dir).map_err(|error| failed(&args.dir, error))?;
    std::fs::create_dir_all(&dir).map_err(|error| failed(&dir, error))?;
    let address = args.listen.unwrap_or_else(free_address);
    let options = Options {
        state_dir: global.state_dir.clone().unwrap_or_else(|| dir.join("state")),
        source: Source::CommandLine(desired(address)?),
        fresh: true,
        cpus: None,
        poll: None,
    };
    let output = global.output;
    serve(options, async |node, signals| {
        let region = serve_volume(&node, &args, &dir)?;
        let plan = plan(&node, &args, address, region);
        let report = tokio::task::spawn_blocking(move || with_progress(&plan))
            .await
            .map_err(|error| Failure::new(Exit::Failed, error))??;
        let lines = instructions(&node)?;
        match output {
            Output::Json => json(&load::export::without_bins(&report))?,
            Output::Csv => emit(&load::export::csv(&report))?,
            Output::Table => emit(&format!("{}\n\n{lines}", result_table(&report)))?,
        }
        judge(&report)?;
        if !args.once {
            eprintln!("serving from {}; Ctrl-C stops", dir.display());
            until_stopped(&node, signals).await;
        }
        Ok(())
    })
}

fn failed(path: &std::path::Path, error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{}: {error}", path.display()))
        .help("choose another directory with --dir")
}

/// The usual address, or a free port beside it when something listens there already.
fn free_address() -> Address {
    let usual = Address::loopback(4420);
    let probe = TcpListener::bind(usual.socket()).and_then(|socket| socket.local_addr());
    match probe {
        Ok(_) => usual,
        Err(_) => Address::loopback(0),
    }
}

fn desired(address: Address) -> Outcome<Desired> {
    let subsystem = SubsystemDef { allow_any_host: true, ..SubsystemDef::default() };
    Ok(Desired {
        listeners: BTreeMap::from([(address, ListenerDef::default())]),
        subsystems: BTreeMap::from([(text(DEFAULT_NQN)?, subsystem)]),
        ..Desired::default()
    })
}

/// A value that is written here.
fn text<T: std::str::FromStr<Err = api::value::Refused>>(text: &str) -> Outcome<T> {
    text.parse().map_err(|refused| Failure::new(Exit::Failed, refused))
}

/// Makes the pool and the volume, unless they are there from before, and maps the volume. Gives the bytes that
/// each part of the load is to stay within.
fn serve_volume(node: &Node, args: &DemoArgs, dir: &std::path::Path) -> Outcome<u64> {
    let path: VolumePath = text(VOLUME)?;
    node.wait_for_openings(Duration::from_secs(60));
    let known = node.pools()?.into_iter().find(|pool| pool.name == path.pool);
    let pool = match known {
        Some(pool) if pool.health != PoolHealth::Unavailable => pool,
        Some(pool) => {
            let problem = pool.problem.unwrap_or_default();
            return Err(Failure::new(Exit::Failed, format!("the demo's pool: {problem}"))
                .help(format!("remove {} to begin anew", dir.display())));
        }
        None => node.create_pool(&new_pool(&path.pool, args.size, dir))?,
    };
    if !node.volumes()?.iter().any(|volume| volume.name == path) {
        let (name, size) = (path.volume.clone(), Size::new(VOLUME_BYTES));
        node.create_volume(&path.pool, &NewVolume { name, size, block_size: None })?;
    }
    let subsystem: Nqn = text(DEFAULT_NQN)?;
    let mapping = NewMapping { subsystem, nsid: Some(1), allow_any_host: true, hosts: Vec::new() };
    node.map_volume(&path, mapping)?;
    // Both parts together fill less than half of it.
    let capacity = pool.status.map_or(0, |status| status.capacity);
    Ok((capacity / 5).next_multiple_of(1 << 20))
}

fn new_pool(name: &Name, size: Size, dir: &std::path::Path) -> NewPool {
    let drive = |number: u32| {
        let path: PathBuf = dir.join(format!("drive{number}.img"));
        DrivePath { path, size: Some(size) }
    };
    NewPool {
        name: name.clone(),
        drives: (0..DRIVES).map(drive).collect(),
        raid: None,
        log: Vec::new(),
        log_size: None,
        shards: None,
        force: true,
    }
}

/// Random 4 KiB in the first `region` bytes beside sequential 128 KiB in the next, both verified.
fn plan(node: &Arc<Node>, args: &DemoArgs, address: Address, region: u64) -> Plan {
    let bound: SocketAddr = node.bound(address).unwrap_or(address).socket();
    let ip =
        if bound.ip().is_unspecified() { "127.0.0.1".to_owned() } else { bound.ip().to_string() };
    let job = |name: &str, part: u64, random, block_size, io_depth| Job {
        name: name.to_owned(),
        pattern: Pattern { direction: Direction::Mixed { read_percent: 50 }, random },
        sizes: Sizes::one(block_size),
        io_depth,
        limit: Limit::Runtime(Duration::from_secs(args.seconds)),
        offset: part * region,
        region: Some(region),
        verify: Verify::On,
        poll: reactor::PollPolicy::default(),
        ..Job::new(Target::namespace(&ip, bound.port(), DEFAULT_NQN, 1))
    };
    Plan {
        jobs: vec![
            job("random 4k", 0, true, 4096, 32),
            job("sequential 128k", 1, false, 128 << 10, 8),
        ],
        probe: None,
    }
}
