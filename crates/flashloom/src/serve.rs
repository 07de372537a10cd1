//! `flashloom serve`: the daemon.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{Listener, Severity};
use api::value::{Address, Backend, Transport};
use array::config;
use array::desired::{BLOCK_SIZE, Desired, ListenerDef, NamespaceDef, SubsystemDef};
use array::node::{Node, Options, Source};
use array::state::socket_path;
use control::Server;
use sd_notify::NotifyState;
use stdx::num::counted;

use crate::cli::{Discovery, Global, Output, ServeArgs};
use crate::exit::{Exit, Failure, Outcome};
use crate::log;
use crate::manage::absolute;
use crate::output::{emit, json};
use crate::service::{
    Asked, Signals, notify, out_of_patience, serve_metrics, tell, watch, watchdog,
};

/// Port of NVMe/TCP, where an ad hoc target listens unless told otherwise.
const PORT: u16 = 4420;

/// How long it takes at most until the service manager is told that pools that lack nothing are open: less than
/// it waits.
const READY_PATIENCE: Duration = Duration::from_secs(20);

/// `flashloom serve`
pub fn run(global: &Global, args: ServeArgs) -> Outcome {
    log::start(args.log, "info");
    let (options, warnings) = options(global, &args)?;
    serve(options, async |node, signals| {
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        announce(&node);
        until_stopped(&node, signals).await;
        Ok(())
    })
}

/// `flashloom check-config`
pub fn check(global: &Global, file: &Path) -> Outcome {
    let config = config::load(file).map_err(array::node::StartError::from)?;
    let Desired { listeners, subsystems, .. } = &config.desired;
    let namespaces: usize = subsystems.values().map(|subsystem| subsystem.namespaces.len()).sum();
    let absent = absent_drives(&config.desired);
    let (listeners, subsystems) = (listeners.len(), subsystems.len());
    if global.output == Output::Json {
        return json(&serde_json::json!({
            "file": file, "listeners": listeners, "subsystems": subsystems, "namespaces": namespaces,
            "absent": absent,
        }));
    }
    // No fault of the file: the daemon starts without them.
    for path in absent {
        eprintln!("{} is not there: it is served when it is", path.display());
    }
    emit(&format!(
        "{}: {}, {}, {}\n",
        file.display(),
        counted(listeners, "listener"),
        counted(subsystems, "subsystem"),
        counted(namespaces, "namespace")
    ))
}

/// Drives that are to be served as they are, and are not there.
fn absent_drives(wanted: &Desired) -> Vec<&Path> {
    let defs = wanted.subsystems.values().flat_map(|subsystem| subsystem.namespaces.values());
    let drives = defs.filter_map(|def| match &def.backend {
        Backend::Drive { path, size: None } | Backend::Passthrough { path } => Some(path.as_path()),
        Backend::Drive { .. }
        | Backend::Memory { .. }
        | Backend::Volume(_)
        | Backend::Snapshot(_) => None,
    });
    drives.filter(|path| !path.exists()).collect()
}

/// Starts a node and its management socket, runs `work`, then ends both in order.
pub fn serve<F>(options: Options, work: impl FnOnce(Arc<Node>, Signals) -> F) -> Outcome
where
    F: Future<Output = Outcome>,
{
    // What the daemon makes holds what hosts wrote, or how to get at it.
    reactor::create_for_owner_only();
    if let Err(error) = reactor::raise_descriptor_limit() {
        tracing::warn!("the limit of descriptors cannot be raised: {error}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    let outcome = runtime.block_on(served(options, work));
    // Threads that wait for what never comes do not keep the process.
    runtime.shutdown_background();
    outcome
}

async fn served<F>(options: Options, work: impl FnOnce(Arc<Node>, Signals) -> F) -> Outcome
where
    F: Future<Output = Outcome>,
{
    // With a configuration file a hang-up has that read again; without, it is the end of the terminal.
    let has_file = matches!(options.source, Source::File(_));
    let mut signals = Signals::new(!has_file && std::io::stdin().is_terminal())?;
    let starting = tokio::task::spawn_blocking(move || Node::start(options));
    let node = tokio::select! {
        started = starting => started.map_err(|error| Failure::new(Exit::Failed, error))??,
        () = signals.stop() => {
            tracing::info!("asked to stop while it started");
            return Ok(());
        }
    };
    let path = socket_path(node.state_dir());
    let (server, not_given) = Server::bind(&path, node.socket_group()).map_err(|error| {
        node.stop();
        Failure::new(Exit::Failed, format!("cannot make the socket {}: {error}", path.display()))
            .help("a socket's path has at most 107 bytes: choose a shorter --state-dir")
    })?;
    if let Some(error) = not_given {
        let words = format!(
            "the group of `[node] socket-group` is not given {}, which is the owner's only: {error}; the user that runs \
             the daemon gives it to a group that it is in only (`usermod -aG`)",
            path.display()
        );
        tell(&node, Severity::Error, words).await;
    }
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let ended = async { ended.await.unwrap_or(()) };
    let server = tokio::spawn(server.serve(Arc::clone(&node), ended));
    let watchdog = tokio::spawn(watchdog(Arc::clone(&node)));
    let space = tokio::spawn(watch(Arc::clone(&node)));
    let metrics = tokio::spawn(serve_metrics(Arc::clone(&node)));
    // Pools that lack something are not waited for, and hosts and the management socket wait for none.
    let settling = Arc::clone(&node);
    let settle = move || settling.wait_for_openings(READY_PATIENCE);
    let mut settled = tokio::task::spawn_blocking(settle);
    let is_to_stop = loop {
        tokio::select! {
            _ = &mut settled => break false,
            asked = signals.next() => match asked {
                // There is less time then than both may take.
                Asked::Stop => break true,
                Asked::Reload => reload(&node),
            },
        }
    };
    let result = match is_to_stop {
        true => Ok(()),
        false => {
            notify(&[NotifyState::Ready]);
            work(Arc::clone(&node), signals).await
        }
    };
    notify(&[NotifyState::Stopping]);
    watchdog.abort();
    space.abort();
    metrics.abort();
    drop(end);
    // Hosts are let go while the last requests are answered.
    let stopping = Arc::clone(&node);
    let stopped = tokio::task::spawn_blocking(move || stopping.stop());
    let (stopped, served) = tokio::select! {
        in_order = async { tokio::join!(stopped, server) } => in_order,
        why = out_of_patience(&node) => {
            let why = why?;
            tracing::error!("{}", why.message);
            return Err(why);
        }
    };
    let served = served.map_err(|error| Failure::new(Exit::Failed, error));
    stopped.map_err(|error| Failure::new(Exit::Failed, error))?;
    served?.map_err(|error| Failure::new(Exit::Failed, error))?;
    result
}

/// Serves until asked to stop.
pub async fn until_stopped(node: &Arc<Node>, mut signals: Signals) {
    loop {
        match signals.next().await {
            Asked::Stop => return,
            Asked::Reload => reload(node),
        }
    }
}

/// Has the configuration file read again. The node logs what came of it. Not waited for: the next signal may ask to stop.
fn reload(node: &Arc<Node>) {
    let node = Arc::clone(node);
    drop(tokio::task::spawn_blocking(move || node.reload()));
}

/// How the node is to be started, and what to warn of when it has.
fn options(global: &Global, args: &ServeArgs) -> Outcome<(Options, Vec<String>)> {
    let mut warnings = Vec::new();
    let source = match &args.config {
        Some(path) => {
            let path =
                std::path::absolute(path).map_err(|error| Failure::new(Exit::Failed, error))?;
            Source::File(path)
        }
        None if args.backends.is_empty() && args.listen.is_empty() => Source::State,
        None if args.backends.is_empty() => Source::Listeners(listeners(args, &mut warnings)),
        None => Source::CommandLine(desired(args, &mut warnings)?),
    };
    let state_dir = global.state_dir();
    // What the command line says goes before what the configuration file says.
    let cpus = args.cpus.clone().map(|cpus| cpus.0);
    let poll = args.poll.map(Into::into);
    Ok((Options { state_dir, source, fresh: args.fresh, cpus, poll }, warnings))
}

/// What an ad hoc command line asks for.
fn desired(args: &ServeArgs, warnings: &mut Vec<String>) -> Outcome<Desired> {
    let mut namespaces = BTreeMap::new();
    for (nsid, backend) in (1..).zip(&args.backends) {
        let backend = absolute(backend.clone())?;
        let own = || array::generic::own_block_size(&backend);
        let block_size = args.block_size.or_else(own).unwrap_or(BLOCK_SIZE);
        namespaces.insert(nsid, NamespaceDef { backend, block_size, uuid: None });
    }
    let subsystem = SubsystemDef {
        allow_any_host: args.allow_host.is_empty(),
        hosts: args.allow_host.iter().cloned().collect(),
        namespaces,
        ..SubsystemDef::default()
    };
    let mut wanted = Desired::default();
    wanted.subsystems.insert(args.subnqn.clone(), subsystem);
    wanted.listeners = listeners(args, warnings);
    Ok(wanted)
}

/// The listeners a command line asks for.
fn listeners(args: &ServeArgs, warnings: &mut Vec<String>) -> BTreeMap<Address, ListenerDef> {
    let mut wanted = BTreeMap::new();
    let listen = match args.listen.as_slice() {
        [] => &[Address::loopback(PORT)],
        given => given,
    };
    for address in listen {
        let def = ListenerDef { advertise: args.advertise, ..ListenerDef::default() };
        wanted.insert(*address, def);
    }
    if let Discovery::Port(port) = args.discovery {
        for address in listen.iter().filter(|address| address.transport() == Transport::Tcp) {
            let beside = Address::from(SocketAddr::new(address.socket().ip(), port));
            let advertise = args.advertise.map(|to| api::value::Advertise { port: None, ..to });
            let def = ListenerDef { advertise, discovery_only: true, ..ListenerDef::default() };
            // Every listener offers discovery anyway: a taken port is no reason not to serve.
            match TcpListener::bind(beside.socket()) {
                Ok(_) => _ = wanted.entry(beside).or_insert(def),
                Err(_) if wanted.contains_key(&beside) => {}
                Err(error) => {
                    let only = format!("discovery is served on {address} only");
                    warnings.push(format!("cannot listen on {beside} ({error}): {only}"));
                }
            }
        }
    }
    wanted
}

/// Prints what hosts have to type. Nobody waits for whoever is to read that, and may not: hosts are served already.
fn announce(node: &Arc<Node>) {
    let node = Arc::clone(node);
    let print = move || {
        if let Err(why) = instructions(&node).and_then(|text| emit(&text)) {
            tracing::warn!("what hosts have to type cannot be printed: {}", why.message);
        }
    };
    drop(tokio::task::spawn_blocking(print));
}

/// The lines that connect a Linux host to `node`.
pub fn instructions(node: &Node) -> Outcome<String> {
    let mut text = String::new();
    let subsystems = node.subsystems()?;
    if node.listeners().is_empty() {
        text.push_str(
            "nothing is served yet: `flashloom listener add` and `flashloom subsystem add` ",
        );
        text.push_str("change that, or `flashloom serve memory:1GiB`\n");
    }
    for subsystem in &subsystems {
        text.push_str(&format!("{}\n", subsystem.nqn));
        for namespace in &subsystem.namespaces {
            let size = match namespace.served {
                true => format!("{} ({} byte blocks)", namespace.size, namespace.block_size),
                false => "not served yet: what keeps it is not there".to_owned(),
            };
            text.push_str(&format!(
                "  namespace {}: {}, {size}\n",
                namespace.nsid, namespace.backend
            ));
        }
    }
    for listener in node.listeners().iter().filter(|listener| !listener.discovery_only) {
        let (ip, port) = reach(node, listener);
        let at = format!("-t {} -a {ip} -s {port}", listener.address.transport().name());
        text.push_str(&format!("nvme discover {at}\n"));
        for subsystem in &subsystems {
            text.push_str(&format!("nvme connect {at} -n {}\n", subsystem.nqn));
        }
    }
    Ok(text)
}

/// Where a host finds `listener`: as advertised, else where it is bound; loopback for any address.
fn reach(node: &Node, listener: &Listener) -> (IpAddr, u16) {
    let bound = node.bound(listener.address).unwrap_or(listener.address).socket();
    if let Some(advertise) = listener.advertise {
        return (advertise.ip, advertise.port.unwrap_or(bound.port()));
    }
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    (ip, bound.port())
}
