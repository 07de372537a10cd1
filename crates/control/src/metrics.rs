//! Counters in the Prometheus text format, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write;

use api::v1::{
    Bucket, BudgetMetrics, Counters, Group, Job, Listener, Metrics, NodeHealth, Pool,
    ReactorMetrics, RefusedConnects, Schedule, Status, Subsystem, Volume,
};
use api::value::AnaState;

mod groups;
mod hardware;
mod health;
mod pools;
mod schedules;
pub mod scrape;

/// Media type of the text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Text under construction; `String` takes every write.
struct Text(String);

/// Labels with the values that a series has.
type Labels<'l> = Vec<(&'static str, &'l str)>;

impl Text {
    /// Begins a metric: `kind` is `counter`, `gauge` or `histogram`.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &Labels<'_>, value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"{}\"", escape(text));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }
}

/// A label's value with what the format reserves escaped.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Nanoseconds as seconds, exact.
fn seconds(nanos: u64) -> String {
    let (whole, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:09}").trim_end_matches('0').to_owned()
}

/// Which ANA state each listener has: a series for each state, 1 for the one it is in.
fn listeners(text: &mut Text, listeners: &[Listener]) {
    let name = "flashloom_listener_ana_state";
    text.family(name, "gauge", "1 for the ANA state of hosts connected through the listener.");
    for listener in listeners {
        let address = listener.address.to_string();
        for state in AnaState::ALL {
            let labels = vec![("listener", address.as_str()), ("state", state.name())];
            text.sample(name, &labels, u8::from(listener.ana == state));
        }
    }
}

/// What the node says of itself.
pub struct Documents {
    pub status: Status,
    pub health: NodeHealth,
    pub jobs: Vec<Job>,
    pub pools: Vec<Pool>,
    pub volumes: Vec<Volume>,
    pub groups: Vec<Group>,
    pub schedules: Vec<Schedule>,
    /// When they were asked for, in milliseconds since 1970.
    pub now_ms: u64,
    pub subsystems: Vec<Subsystem>,
}

/// Everything that is counted; without documents, what reactors count.
pub fn text(documents: Option<&Documents>, metrics: &Metrics) -> String {
    let mut text = Text(String::new());
    let complete = documents.is_some() && metrics.reactors.iter().all(|reactor| reactor.answers);
    let name = "flashloom_scrape_complete";
    text.family(name, "gauge", "0 when something did not answer in time, and is missing here.");
    text.sample(name, &vec![], u8::from(complete));
    if let Some(documents) = documents {
        let Documents { status, health, jobs, pools, volumes, groups, .. } = documents;
        let Documents { schedules, now_ms, subsystems, .. } = documents;
        node(&mut text, status);
        health::text(&mut text, status, health, jobs);
        listeners(&mut text, &status.listeners);
        pools::text(&mut text, pools, volumes);
        groups::text(&mut text, groups);
        schedules::text(&mut text, schedules, *now_ms);
        hardware::of_spares(&mut text, pools);
        hardware::of_namespaces(&mut text, subsystems);
    }
    refused(&mut text, &metrics.refused_connects);
    reactors(&mut text, &metrics.reactors);
    subsystems(&mut text, metrics);
    let namespaces = metrics.namespaces.iter().map(|entry| {
        (vec![entry.subsystem.clone(), entry.nsid.to_string()], entry.outstanding, &entry.counters)
    });
    scope(&mut text, "namespace", &["subsystem", "nsid"], &namespaces.collect::<Vec<_>>());
    let hosts = metrics.hosts.iter().map(|entry| {
        (vec![entry.subsystem.clone(), entry.host.clone()], entry.outstanding, &entry.counters)
    });
    scope(&mut text, "host", &["subsystem", "host"], &hosts.collect::<Vec<_>>());
    text.0
}

fn refused(text: &mut Text, reasons: &[RefusedConnects]) {
    let name = "flashloom_connects_refused_total";
    text.family(name, "counter", "Connects that were refused, by reason.");
    for RefusedConnects { reason, count } in reasons {
        text.sample(name, &vec![("reason", reason.as_str())], count);
    }
}

fn node(text: &mut Text, status: &Status) {
    let node = status.node.to_string();
    text.family("flashloom_info", "gauge", "Version and identity of the node; always 1.");
    text.sample("flashloom_info", &vec![("version", &status.version), ("node", &node)], 1);
    let gauges = [
        ("flashloom_uptime_seconds", "Seconds since the daemon started.", status.uptime_seconds),
        ("flashloom_controllers", "Live controllers.", u64_of(status.controllers)),
        ("flashloom_subsystems", "Subsystems served.", u64_of(status.subsystems)),
        ("flashloom_namespaces", "Namespaces served.", u64_of(status.namespaces)),
        ("flashloom_connections", "Open connections.", status.connections),
    ];
    for (name, help, value) in gauges {
        text.family(name, "gauge", help);
        text.sample(name, &vec![], value);
    }
}

fn u64_of(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// A metric of each reactor.
type OfReactor = (&'static str, &'static str, &'static str, fn(&ReactorMetrics) -> String);

const OF_REACTOR: [OfReactor; 7] = [
    ("answers", "gauge", "Whether it answered this scrape, 0 or 1.", |r| {
        u8::from(r.answers).to_string()
    }),
    ("busy_ratio", "gauge", "Share of the time since start spent on work.", |r| r.busy.to_string()),
    ("busy_seconds_total", "counter", "Time spent on work.", |r| r.busy_seconds.to_string()),
    ("turns_total", "counter", "Turns of the loop.", |r| r.turns.to_string()),
    ("sleeps_total", "counter", "Times asleep in the ring.", |r| r.sleeps.to_string()),
    ("tasks", "gauge", "Live tasks.", |r| r.tasks.to_string()),
    ("connections", "gauge", "Connections served.", |r| r.connections.to_string()),
];

/// A metric of what hosts share on each reactor.
type OfBudget = (&'static str, &'static str, &'static str, fn(&BudgetMetrics) -> u64);

const OF_BUDGET: [OfBudget; 3] = [
    ("used", "gauge", "What hosts use of what they share.", |b| b.used),
    ("limit", "gauge", "How much there is of it.", |b| b.limit),
    ("missed_total", "counter", "Times that somebody was refused it, or waited.", |b| b.missed),
];

fn reactors(text: &mut Text, reactors: &[ReactorMetrics]) {
    for (suffix, kind, help, value) in OF_REACTOR {
        let name = format!("flashloom_reactor_{suffix}");
        text.family(&name, kind, help);
        for reactor in reactors {
            text.sample(&name, &vec![("reactor", &reactor.id.to_string())], value(reactor));
        }
    }
    for (suffix, kind, help, value) in OF_BUDGET {
        let name = format!("flashloom_budget_{suffix}");
        text.family(&name, kind, help);
        for reactor in reactors {
            let id = reactor.id.to_string();
            for budget in &reactor.budgets {
                let labels = vec![("reactor", id.as_str()), ("what", budget.name.as_str())];
                text.sample(&name, &labels, value(budget));
            }
        }
    }
    let rows = reactors
        .iter()
        .map(|reactor| (vec![reactor.id.to_string()], reactor.outstanding, &reactor.counters));
    scope(text, "reactor", &["reactor"], &rows.collect::<Vec<_>>());
}

/// A subsystem's counters are the sums over its namespaces.
fn subsystems(text: &mut Text, metrics: &Metrics) {
    let mut sums: BTreeMap<&str, (u64, Vec<Counters>)> = BTreeMap::new();
    for entry in &metrics.namespaces {
        let (outstanding, sum) = sums.entry(&entry.subsystem).or_default();
        *outstanding += entry.outstanding;
        for counters in &entry.counters {
            match sum.iter_mut().find(|other| other.operation == counters.operation) {
                Some(other) => other.add(counters),
                None => sum.push(counters.clone()),
            }
        }
    }
    let rows: Vec<_> = sums
        .iter()
        .map(|(nqn, (outstanding, sum))| (vec![(*nqn).to_owned()], *outstanding, sum))
        .collect();
    scope(text, "subsystem", &["subsystem"], &rows);
}

/// Label values, commands outstanding, and counters by kind of command.
type Row<'r> = (Vec<String>, u64, &'r Vec<Counters>);

/// A total that commands are counted for.
type Total = (&'static str, &'static str, fn(&Counters) -> u64);

const TOTALS: [Total; 3] = [
    ("operations_total", "I/O commands completed.", |c| c.operations),
    ("bytes_total", "Bytes moved by I/O commands.", |c| c.bytes),
    ("errors_total", "I/O commands that failed.", |c| c.errors),
];

/// The metrics of everything that commands are counted for.
fn scope(text: &mut Text, scope: &str, names: &[&'static str], rows: &[Row<'_>]) {
    let labels = |row: &Row<'_>| -> Vec<(&'static str, String)> {
        names.iter().copied().zip(row.0.iter().cloned()).collect()
    };
    let name = format!("flashloom_{scope}_queue_depth");
    text.family(&name, "gauge", "I/O commands received and not completed yet.");
    for row in rows {
        let labels = labels(row);
        text.sample(&name, &borrow(&labels), row.1);
    }
    for (suffix, help, value) in TOTALS {
        let name = format!("flashloom_{scope}_{suffix}");
        text.family(&name, "counter", help);
        for row in rows {
            let labels = labels(row);
            for counters in row.2 {
                let mut labels = borrow(&labels);
                labels.push(("operation", counters.operation.name()));
                text.sample(&name, &labels, value(counters));
            }
        }
    }
    let name = format!("flashloom_{scope}_latency_seconds");
    text.family(&name, "histogram", "Time from receiving an I/O command to its completion.");
    for row in rows {
        let labels = labels(row);
        for counters in row.2 {
            let mut labels = borrow(&labels);
            labels.push(("operation", counters.operation.name()));
            histogram(text, &name, &labels, counters);
        }
    }
}

fn borrow<'l>(labels: &'l [(&'static str, String)]) -> Labels<'l> {
    labels.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

fn histogram(text: &mut Text, name: &str, labels: &Labels<'_>, counters: &Counters) {
    let latency = &counters.latency;
    let bucket = format!("{name}_bucket");
    let mut with_bound = |bound: &str, count: u64| {
        let mut labels = labels.clone();
        labels.push(("le", bound));
        text.sample(&bucket, &labels, count);
    };
    for Bucket { at_most_ns, count } in &latency.buckets {
        with_bound(&seconds(*at_most_ns), *count);
    }
    with_bound("+Inf", latency.count);
    text.sample(&format!("{name}_sum"), labels, seconds(latency.sum_ns));
    text.sample(&format!("{name}_count"), labels, latency.count);
}

#[cfg(test)]
mod tests;
