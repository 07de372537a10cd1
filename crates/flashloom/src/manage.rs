//! Commands that speak to the running daemon.

use std::future::Future;
use std::path::{Path, PathBuf};

use api::v1::{
    Controller, Event, Host, Listener, ListenerChange, Namespace, NamespaceChange, NewHost,
    NewListener, NewNamespace, NewSubsystem, Referral, Severity, Status, Subsystem,
    SubsystemChange,
};
use api::value::Backend;
use array::state::socket_path;
use comfy_table::Table;
use control::Client;
use jiff::Timestamp;

use crate::cli::{
    ControllerVerb, EventsArgs, Global, HostVerb, ListenerVerb, NamespaceVerb, ReferralVerb,
    SubsystemVerb,
};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{facts, or_dash, print, table, yes_no};

/// Asks the daemon and waits for its answer.
pub fn ask<T, F>(global: &Global, question: impl FnOnce(Client) -> F) -> Outcome<T>
where
    F: Future<Output = control::client::Result<T>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    let client = Client::new(&socket_path(&global.state_dir()));
    Ok(runtime.block_on(question(client))?)
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
            print(global.output, &[added], |added| subsystem_table(added))
        }
        SubsystemVerb::Set { nqn, allow_any_host } => {
            let change = SubsystemChange { allow_any_host: Some(allow_any_host) };
            let set = ask(global, async |client| client.change_subsystem(&nqn, &change).await)?;
            print(global.output, &[set], |set| subsystem_table(set))
        }
        SubsystemVerb::Remove { nqn } => {
            ask(global, async |client| client.remove_subsystem(&nqn).await)
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
            print(global.output, &[added], |added| namespace_table(added))
        }
        NamespaceVerb::Resize { nsid, size, of } => {
            let change = NamespaceChange { size };
            let resized = ask(global, async |client| {
                client.resize_namespace(&of.subnqn, nsid, &change).await
            })?;
            print(global.output, &[resized], |resized| namespace_table(resized))
        }
        NamespaceVerb::Remove { nsid, of } => {
            ask(global, async |client| client.remove_namespace(&of.subnqn, nsid).await)
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
        other @ (Backend::Memory { .. } | Backend::Volume(_)) => Ok(other),
    }
}

/// `path` from the root.
pub fn whole(path: &Path) -> Outcome<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", path.display())))
}

/// `flashloom listener ...`
pub fn listener(global: &Global, verb: ListenerVerb) -> Outcome {
    match verb {
        ListenerVerb::Add { address, advertise, discovery_only, ana } => {
            let new = NewListener { address, advertise, discovery_only, ana };
            let added = ask(global, async |client| client.add_listener(&new).await)?;
            print(global.output, &[added], |added| listener_table(added))
        }
        ListenerVerb::Remove { address } => {
            ask(global, async |client| client.remove_listener(address).await)
        }
        ListenerVerb::SetAna { address, state } => {
            let change = ListenerChange { ana: Some(state) };
            let changed =
                ask(global, async |client| client.change_listener(address, &change).await)?;
            print(global.output, &[changed], |changed| listener_table(changed))
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
            print(global.output, &[added], |added| referral_table(added))
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
            print(global.output, &[added], |added| host_table(added))
        }
        HostVerb::Remove { nqn, of } => {
            ask(global, async |client| client.remove_host(&of.subnqn, &nqn).await)
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

/// `flashloom events`
pub fn events(global: &Global, args: &EventsArgs) -> Outcome {
    let events = ask(global, async |client| client.events(args.from).await)?;
    print(global.output, &events, |events| event_table(events))
}

/// Milliseconds since 1970 as a time.
pub fn time(ms: u64) -> Option<Timestamp> {
    i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())
}

fn event_table(events: &[Event]) -> Table {
    let mut table = table(&["id", "time", "", "event", "by"], &[0]);
    for event in events {
        let severity = match event.severity {
            Severity::Info => "",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        table.add_row([
            event.id.to_string(),
            or_dash(time(event.time_ms)),
            severity.to_owned(),
            event.message.clone(),
            or_dash(event.by.as_ref()),
        ]);
    }
    table
}
