//! Commands that speak to the running daemon.

use std::path::{Path, PathBuf};

use api::v1::{
    Changed, Consent, Controller, Host, Listener, ListenerChange, Losses, Namespace,
    NamespaceChange, NewHost, NewListener, NewNamespace, NewSubsystem, Referral, Status, Subsystem,
    SubsystemChange,
};
use api::value::{Backend, DrivePath};
use comfy_table::Table;
use control::Client;
use jiff::Timestamp;
use serde::Serialize;

use crate::cli::{
    ControllerVerb, Global, HostVerb, ListenerVerb, NamespaceVerb, ReferralVerb, SubsystemVerb,
    SureArgs,
};
use crate::confirm::{meant, removed};
use crate::daemon::ask;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{facts, or_dash, print, print_one, table, yes_no};

/// Removes what may be missed, once that is meant.
pub fn remove(
    global: &Global,
    sure: &SureArgs,
    remove: impl AsyncFn(Client, Consent) -> control::client::Result<Losses>,
) -> Outcome {
    let dry_run = async |client: Client| remove(client, Consent::DRY_RUN).await;
    let Some(consent) = meant(global, sure, dry_run)? else { return Ok(()) };
    removed(global, &ask(global, async |client| remove(client, consent).await)?)
}

/// Makes a change that may take something away, once that is meant; nothing where only the losses were asked for.
pub fn change_if_meant<T>(
    global: &Global,
    sure: &SureArgs,
    change: impl AsyncFn(Client, Consent) -> control::client::Result<Changed<T>>,
) -> Outcome<Option<T>> {
    let dry_run = async |client: Client| change(client, Consent::DRY_RUN).await.map(lost);
    let Some(consent) = meant(global, sure, dry_run)? else { return Ok(None) };
    match ask(global, async |client| change(client, consent).await)? {
        Changed::Made(made) => Ok(Some(made)),
        Changed::WouldLose(_) => Ok(None),
    }
}

/// What a change would lose.
pub fn lost<T>(answer: Changed<T>) -> Losses {
    match answer {
        Changed::Made(_) => Losses::default(),
        Changed::WouldLose(losses) => losses,
    }
}

/// Prints what was changed, if it was.
fn print_made<T: Serialize>(
    global: &Global,
    made: Option<T>,
    table: impl FnOnce(&[T]) -> Table,
) -> Outcome {
    match made {
        Some(made) => print_one(global.output, &made, table),
        None => Ok(()),
    }
}

/// `flashloom status`
pub fn status(global: &Global) -> Outcome {
    let status = ask(global, async |client| client.status().await)?;
    print(global.output, &status, status_table)
}

fn status_table(status: &Status) -> Table {
    let mut rows = vec![
        ("node".to_owned(), status.node.to_string()),
        ("version".to_owned(), status.version.clone()),
        ("process".to_owned(), status.pid.to_string()),
        ("up".to_owned(), duration(status.uptime_seconds)),
        ("state directory".to_owned(), status.state_dir.clone()),
        ("configuration".to_owned(), or_dash(status.config.as_ref())),
        ("subsystems".to_owned(), status.subsystems.to_string()),
        ("namespaces".to_owned(), status.namespaces.to_string()),
        ("controllers".to_owned(), status.controllers.to_string()),
        ("connections".to_owned(), status.connections.to_string()),
    ];
    rows.push(("health".to_owned(), status.health.health.name().to_owned()));
    rows.extend(status.health.why.iter().map(|why| ("why".to_owned(), why.clone())));
    rows.extend(status.health.help.iter().map(|help| ("what to do".to_owned(), help.clone())));
    for (name, report) in &status.pools {
        rows.push((format!("pool {name}"), report.health.name().to_owned()));
    }
    rows.extend(status.problems.iter().map(|problem| ("problem".to_owned(), problem.clone())));
    for nqn in &status.open_to_any_host {
        rows.push(("warning".to_owned(), format!("{nqn} is open to any host that reaches it")));
    }
    for listener in &status.listeners {
        let only = if listener.discovery_only { " (discovery only)" } else { "" };
        rows.push(("listener".to_owned(), format!("{}{only}", listener.address)));
    }
    for reactor in &status.reactors {
        let cpu = reactor.cpu.map_or_else(String::new, |cpu| format!("CPU {cpu}, "));
        let (poll, connections) = (reactor.poll.name(), reactor.connections);
        let busy = reactor.busy * 100.0;
        rows.push((
            format!("reactor {}", reactor.id),
            format!("{cpu}{poll}, {connections} connections, {busy:.1} % busy"),
        ));
    }
    facts(rows)
}

/// Seconds as days, hours, minutes and seconds.
fn duration(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {seconds} s"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// `flashloom subsystem ...`
pub fn subsystem(global: &Global, verb: SubsystemVerb) -> Outcome {
    match verb {
        SubsystemVerb::Add { nqn, serial, model, allow_any_host, allow_host } => {
            let new = NewSubsystem { nqn, serial, model, allow_any_host, hosts: allow_host };
            let added = ask(global, async |client| client.add_subsystem(&new).await)?;
            print_one(global.output, &added, subsystem_table)
        }
        SubsystemVerb::Set { nqn, allow_any_host, sure } => {
            let change = SubsystemChange { allow_any_host: Some(allow_any_host) };
            let set = change_if_meant(global, &sure, async |client: Client, consent| {
                client.change_subsystem(&nqn, &change, consent).await
            })?;
            print_made(global, set, subsystem_table)
        }
        SubsystemVerb::Remove { nqn, sure } => {
            remove(global, &sure, async |client: Client, consent| {
                client.remove_subsystem(&nqn, consent).await
            })
        }
        SubsystemVerb::List => {
            let all = ask(global, async |client| client.subsystems().await)?;
            print(global.output, &all, |all| subsystem_table(all))
        }
    }
}

fn subsystem_table(all: &[Subsystem]) -> Table {
    let header = ["subsystem", "serial", "model", "any host", "hosts", "namespaces"];
    let mut table = table(&header, &[4, 5]);
    for subsystem in all {
        table.add_row([
            subsystem.nqn.to_string(),
            subsystem.serial.clone(),
            subsystem.model.clone(),
            yes_no(subsystem.allow_any_host).to_owned(),
            subsystem.hosts.len().to_string(),
            subsystem.namespaces.len().to_string(),
        ]);
    }
    table
}

/// `flashloom namespace ...`
pub fn namespace(global: &Global, verb: NamespaceVerb) -> Outcome {
    match verb {
        NamespaceVerb::Add { backend, of, nsid, block_size, uuid, force } => {
            let backend = absolute(backend)?;
            let new = NewNamespace { nsid, backend, block_size, uuid, force };
            let added = ask(global, async |client| client.add_namespace(&of.subnqn, &new).await)?;
            print_one(global.output, &added, namespace_table)
        }
        NamespaceVerb::Resize { nsid, size, of, sure } => {
            let change = NamespaceChange { size };
            let resized = change_if_meant(global, &sure, async |client: Client, consent| {
                client.resize_namespace(&of.subnqn, nsid, &change, consent).await
            })?;
            print_made(global, resized, namespace_table)
        }
        NamespaceVerb::Remove { nsid, of, sure } => {
            remove(global, &sure, async |client: Client, consent| {
                client.remove_namespace(&of.subnqn, nsid, consent).await
            })
        }
        NamespaceVerb::List => {
            let all = ask(global, async |client| client.subsystems().await)?;
            let all: Vec<_> = all.into_iter().flat_map(|subsystem| subsystem.namespaces).collect();
            print(global.output, &all, |all| namespace_table(all))
        }
    }
}

fn namespace_table(all: &[Namespace]) -> Table {
    let header = ["subsystem", "nsid", "size", "block", "back end", "uuid"];
    let mut table = table(&header, &[1, 2, 3]);
    for namespace in all {
        table.add_row([
            namespace.subsystem.to_string(),
            namespace.nsid.to_string(),
            if namespace.served { namespace.size.to_string() } else { "not served".to_owned() },
            namespace.block_size.to_string(),
            namespace.backend.to_string(),
            namespace.uuid.to_string(),
        ]);
    }
    table
}

/// `backend` with a path that means the same to the daemon as it does here.
pub fn absolute(backend: Backend) -> Outcome<Backend> {
    match backend {
        Backend::Drive { path, size } => Ok(Backend::Drive { path: whole(&path)?, size }),
        Backend::Passthrough { path } => Ok(Backend::Passthrough { path: whole(&path)? }),
        other @ (Backend::Memory { .. } | Backend::Volume(_) | Backend::Snapshot(_)) => Ok(other),
    }
}

/// `path` from the root.
pub fn whole(path: &Path) -> Outcome<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", path.display())))
}

/// A drive with a path that means the same to the daemon as it does here.
pub fn absolute_drive(drive: DrivePath) -> Outcome<DrivePath> {
    match DrivePath::memory(&drive.path) {
        Some(_) => Ok(drive),
        None => Ok(DrivePath { path: whole(&drive.path)?, ..drive }),
    }
}

/// `flashloom listener ...`
pub fn listener(global: &Global, verb: ListenerVerb) -> Outcome {
    match verb {
        ListenerVerb::Add { address, advertise, discovery_only, ana } => {
            let new = NewListener { address, advertise, discovery_only, ana };
            let added = ask(global, async |client| client.add_listener(&new).await)?;
            print_one(global.output, &added, listener_table)
        }
        ListenerVerb::Remove { address, sure } => {
            remove(global, &sure, async |client: Client, consent| {
                client.remove_listener(address, consent).await
            })
        }
        ListenerVerb::SetAna { address, state, sure } => {
            let change = ListenerChange { ana: Some(state) };
            let changed = change_if_meant(global, &sure, async |client: Client, consent| {
                client.change_listener(address, &change, consent).await
            })?;
            print_made(global, changed, listener_table)
        }
        ListenerVerb::List => {
            let all = ask(global, async |client| client.listeners().await)?;
            print(global.output, &all, |all| listener_table(all))
        }
    }
}

fn listener_table(all: &[Listener]) -> Table {
    let mut table = table(&["listener", "advertised as", "discovery only", "ANA state"], &[]);
    for listener in all {
        table.add_row([
            listener.address.to_string(),
            or_dash(listener.advertise),
            yes_no(listener.discovery_only).to_owned(),
            listener.ana.to_string(),
        ]);
    }
    table
}

/// `flashloom referral ...`
pub fn referral(global: &Global, verb: ReferralVerb) -> Outcome {
    match verb {
        ReferralVerb::Add { address } => {
            let new = Referral { address };
            let added = ask(global, async |client| client.add_referral(&new).await)?;
            print_one(global.output, &added, referral_table)
        }
        ReferralVerb::Remove { address } => {
            ask(global, async |client| client.remove_referral(address).await)
        }
        ReferralVerb::List => {
            let all = ask(global, async |client| client.referrals().await)?;
            print(global.output, &all, |all| referral_table(all))
        }
    }
}

fn referral_table(all: &[Referral]) -> Table {
    let mut table = table(&["referral"], &[]);
    for referral in all {
        table.add_row([referral.address.to_string()]);
    }
    table
}

/// `flashloom host ...`
pub fn host(global: &Global, verb: HostVerb) -> Outcome {
    match verb {
        HostVerb::Add { nqn, of } => {
            let new = NewHost { nqn };
            let added = ask(global, async |client| client.add_host(&of.subnqn, &new).await)?;
            print_one(global.output, &added, host_table)
        }
        HostVerb::Remove { nqn, of, sure } => {
            remove(global, &sure, async |client: Client, consent| {
                client.remove_host(&of.subnqn, &nqn, consent).await
            })
        }
        HostVerb::List => {
            let all = ask(global, async |client| client.subsystems().await)?;
            let hosts = all.into_iter().flat_map(|subsystem| {
                let of = subsystem.nqn;
                let host = move |nqn| Host { subsystem: of.clone(), nqn };
                subsystem.hosts.into_iter().map(host)
            });
            let hosts: Vec<_> = hosts.collect();
            print(global.output, &hosts, |hosts| host_table(hosts))
        }
    }
}

fn host_table(all: &[Host]) -> Table {
    let mut table = table(&["subsystem", "host"], &[]);
    for host in all {
        table.add_row([host.subsystem.to_string(), host.nqn.to_string()]);
    }
    table
}

/// `flashloom controller ...`
pub fn controller(global: &Global, verb: ControllerVerb) -> Outcome {
    let ControllerVerb::List = verb;
    let all = ask(global, async |client| client.controllers().await)?;
    print(global.output, &all, |all| controller_table(all))
}

fn controller_table(all: &[Controller]) -> Table {
    let header = ["subsystem", "cntlid", "host", "from", "I/O queues", "keep alive", "ANA state"];
    let mut table = table(&header, &[1, 4, 5]);
    for controller in all {
        let kato = controller.kato_ms;
        table.add_row([
            controller.subsystem.clone(),
            controller.cntlid.to_string(),
            controller.host.clone(),
            or_dash(controller.peer.as_ref()),
            controller.io_queues.to_string(),
            if kato == 0 { "-".to_owned() } else { format!("{kato} ms") },
            or_dash(controller.ana),
        ]);
    }
    table
}

/// Milliseconds since 1970 as a time.
pub fn time(ms: u64) -> Option<Timestamp> {
    i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())
}
