//! `flashloom demo`: it working, on files, with a verified load through the wire.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::value::{Address, Backend, Nqn};
use array::desired::{Desired, ListenerDef, NamespaceDef, SubsystemDef};
use array::node::{Node, Options, Source};
use load::{Direction, Job, Limit, Pattern, Plan, Target, Verify};

use crate::bench::{judge, result_table, with_progress};
use crate::cli::{DEFAULT_NQN, DemoArgs, Global, Output};
use crate::exit::{Exit, Failure, Outcome};
use crate::log::{self, Format};
use crate::output::{emit, json};
use crate::serve::{instructions, serve, until_stopped};

/// Drives of the demo: one for random, one for sequential I/O.
const DRIVES: u32 = 2;

/// `flashloom demo`
pub fn run(global: &Global, args: DemoArgs) -> Outcome {
    log::start(Format::Human, "warn");
    let dir = std::path::absolute(&args.dir).map_err(|error| failed(&args.dir, error))?;
    std::fs::create_dir_all(&dir).map_err(|error| failed(&dir, error))?;
    let address = args.listen.unwrap_or_else(free_address);
    let options = Options {
        state_dir: global.state_dir.clone().unwrap_or_else(|| dir.join("state")),
        source: Source::CommandLine(desired(&args, &dir, address)?),
        fresh: true,
        cpus: None,
        poll: None,
    };
    let output = global.output;
    serve(options, async |node, signals| {
        let plan = plan(&node, &args, address);
        let report = tokio::task::spawn_blocking(move || with_progress(&plan))
            .await
            .map_err(|error| Failure::new(Exit::Failed, error))??;
        let lines = instructions(&node)?;
        match output {
            Output::Json => json(&report)?,
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

fn desired(args: &DemoArgs, dir: &std::path::Path, address: Address) -> Outcome<Desired> {
    let nqn: Nqn = DEFAULT_NQN.parse().map_err(|refused| Failure::new(Exit::Failed, refused))?;
    let drive = |number: u32| -> (u32, NamespaceDef) {
        let path: PathBuf = dir.join(format!("drive{number}.img"));
        let backend = Backend::Drive { path, size: Some(args.size) };
        (number, NamespaceDef { backend, block_size: 4096, uuid: None })
    };
    let subsystem = SubsystemDef {
        allow_any_host: true,
        namespaces: (1..=DRIVES).map(drive).collect(),
        ..SubsystemDef::default()
    };
    Ok(Desired {
        listeners: BTreeMap::from([(address, ListenerDef::default())]),
        subsystems: BTreeMap::from([(nqn, subsystem)]),
        ..Desired::default()
    })
}

/// Random 4 KiB on the first drive beside sequential 128 KiB on the second, both verified.
fn plan(node: &Arc<Node>, args: &DemoArgs, address: Address) -> Plan {
    let bound: SocketAddr = node.bound(address).unwrap_or(address).socket();
    let ip =
        if bound.ip().is_unspecified() { "127.0.0.1".to_owned() } else { bound.ip().to_string() };
    let job = |name: &str, nsid, random, block_size, io_depth| Job {
        name: name.to_owned(),
        pattern: Pattern { direction: Direction::Mixed { read_percent: 50 }, random },
        block_size,
        io_depth,
        limit: Limit::Runtime(Duration::from_secs(args.seconds)),
        verify: Verify::On,
        poll: reactor::PollPolicy::default(),
        ..Job::new(Target {
            traddr: ip.clone(),
            trsvcid: bound.port(),
            subnqn: DEFAULT_NQN.to_owned(),
            hostnqn: None,
            nsid,
        })
    };
    Plan {
        jobs: vec![
            job("random 4k", 1, true, 4096, 32),
            job("sequential 128k", 2, false, 128 << 10, 8),
        ],
    }
}
