//! `flashloom top`: what namespaces, hosts and reactors did in each interval.

use std::io::IsTerminal;
use std::time::Duration;

use api::v1::{Counters, Latency, Metrics, NodeHealth, Operation};
use api::value::Size;
use comfy_table::Table;
use control::Client;
use serde::Serialize;

use crate::cli::{Global, Output, TopArgs};
use crate::daemon::client;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{emit, table};

/// Moves to the upper left corner and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// What was done in an interval.
#[derive(Debug, PartialEq, Serialize)]
struct Interval {
    /// How the node is.
    health: &'static str,
    seconds: f64,
    namespaces: Vec<Row>,
    hosts: Vec<Row>,
    reactors: Vec<Busy>,
}

/// What one namespace or host did, by the second.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    name: String,
    reads: f64,
    writes: f64,
    read_bytes: f64,
    written_bytes: f64,
    others: f64,
    errors: f64,
    outstanding: u64,
    /// Mean, seconds; 0 where nothing ended.
    read_latency: f64,
    write_latency: f64,
}

#[derive(Debug, PartialEq, Serialize)]
struct Busy {
    id: usize,
    /// Share of the interval, 0 to 1.
    busy: f64,
    connections: u64,
}

/// Something that commands are counted for.
struct Counted<'m> {
    name: String,
    outstanding: u64,
    counters: &'m [Counters],
}

/// `flashloom top`
pub fn run(global: &Global, args: &TopArgs) -> Outcome {
    let failed = |error: std::io::Error| Failure::new(Exit::Failed, error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(failed)?.block_on(watch(global, args, &client(global)))
}

async fn watch(global: &Global, args: &TopArgs, client: &Client) -> Outcome {
    let mut before = (reactor::now_exact(), client.counters().await?);
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) {
        tokio::time::sleep(args.interval.max(Duration::from_millis(100))).await;
        let (metrics, health) = (client.counters().await?, client.health().await?);
        let now = (reactor::now_exact(), metrics);
        let seconds = Duration::from_nanos(now.0.saturating_sub(before.0)).as_secs_f64();
        let interval = between(&before.1, &now.1, seconds, args.rows, &health);
        before = now;
        show(global.output, &interval)?;
        shown += 1;
    }
    Ok(())
}

fn show(output: Output, interval: &Interval) -> Outcome {
    if output == Output::Json {
        let line = serde_json::to_string(interval);
        let line = line.map_err(|error| Failure::new(Exit::Failed, error))?;
        return emit(&format!("{line}\n"));
    }
    let busy = interval.reactors.iter().map(|one| {
        format!(
            "reactor {}: {:.0} % busy, {} connections",
            one.id,
            one.busy * 100.0,
            one.connections
        )
    });
    let busy: Vec<_> = busy.collect();
    let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
    emit(&format!(
        "{clear}health: {}; {}\n{}\n{}\n",
        interval.health,
        busy.join("; "),
        row_table("namespace", &interval.namespaces),
        row_table("host", &interval.hosts)
    ))
}

fn row_table(what: &str, rows: &[Row]) -> Table {
    let header = [
        what,
        "reads/s",
        "read/s",
        "latency",
        "writes/s",
        "written/s",
        "latency",
        "others/s",
        "errors/s",
        "depth",
    ];
    let mut table = table(&header, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let bytes = |each: f64| format!("{}", Size::new(whole(each)));
    let micros = |seconds: f64| match seconds {
        0.0 => "-".to_owned(),
        seconds => format!("{:.0} us", seconds * 1e6),
    };
    for row in rows {
        table.add_row([
            row.name.clone(),
            format!("{:.0}", row.reads),
            bytes(row.read_bytes),
            micros(row.read_latency),
            format!("{:.0}", row.writes),
            bytes(row.written_bytes),
            micros(row.write_latency),
            format!("{:.0}", row.others),
            format!("{:.0}", row.errors),
            row.outstanding.to_string(),
        ]);
    }
    table
}

/// Bytes by the second, without a fraction.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are not negative, and what is beyond 64 bits is the largest number"
)]
fn whole(each: f64) -> u64 {
    each as u64
}

/// What was done between two sets of counters.
fn between(
    before: &Metrics,
    now: &Metrics,
    seconds: f64,
    most: usize,
    health: &NodeHealth,
) -> Interval {
    let reactors = now.reactors.iter().map(|one| {
        let was = before.reactors.iter().find(|other| other.id == one.id);
        let worked = one.busy_seconds - was.map_or(0.0, |was| was.busy_seconds);
        Busy { id: one.id, busy: (worked / seconds).clamp(0.0, 1.0), connections: one.connections }
    });
    Interval {
        health: health.health.name(),
        seconds,
        reactors: reactors.collect(),
        namespaces: rows(&of_namespaces(before), &of_namespaces(now), seconds, most),
        hosts: rows(&of_hosts(before), &of_hosts(now), seconds, most),
    }
}

fn of_namespaces(metrics: &Metrics) -> Vec<Counted<'_>> {
    let all = metrics.namespaces.iter().map(|one| Counted {
        name: format!("{} {}", one.subsystem, one.nsid),
        outstanding: one.outstanding,
        counters: &one.counters,
    });
    all.collect()
}

fn of_hosts(metrics: &Metrics) -> Vec<Counted<'_>> {
    let all = metrics.hosts.iter().map(|one| Counted {
        name: format!("{} {}", one.host, one.subsystem),
        outstanding: one.outstanding,
        counters: &one.counters,
    });
    all.collect()
}

/// A row for each that is there now, the busiest first, `most` of them.
fn rows(before: &[Counted<'_>], now: &[Counted<'_>], seconds: f64, most: usize) -> Vec<Row> {
    let row = |one: &Counted<'_>| {
        let was = before.iter().find(|other| other.name == one.name);
        rate(one, was.map_or(&[], |was| was.counters), seconds)
    };
    let mut rows: Vec<_> = now.iter().map(row).collect();
    let busy = |row: &Row| row.read_bytes + row.written_bytes + row.reads + row.writes + row.others;
    rows.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
    rows.truncate(most);
    rows
}

#[allow(clippy::cast_precision_loss, reason = "rates for people")]
fn rate(one: &Counted<'_>, before: &[Counters], seconds: f64) -> Row {
    let none = Latency::default();
    let since = |operation: Operation| {
        let of = |all: &[Counters]| {
            let found = all.iter().find(|one| one.operation == operation);
            let latency = found.map_or(&none, |one| &one.latency);
            found.map_or([0; 5], |one| {
                [one.operations, one.bytes, one.errors, latency.sum_ns, latency.count]
            })
        };
        let (now, was) = (of(one.counters), of(before));
        // Counters begin anew with the daemon.
        [0, 1, 2, 3, 4].map(|index| now[index].saturating_sub(was[index]) as f64)
    };
    let mean = |[_, _, _, sum, count]: [f64; 5]| if count > 0.0 { sum / count / 1e9 } else { 0.0 };
    let (reads, writes) = (since(Operation::Read), since(Operation::Write));
    let others = [Operation::Deallocate, Operation::Flush, Operation::Other].map(since);
    let sum = |index: usize| others.iter().map(|other| other[index]).sum::<f64>();
    Row {
        name: one.name.clone(),
        reads: reads[0] / seconds,
        writes: writes[0] / seconds,
        read_bytes: reads[1] / seconds,
        written_bytes: writes[1] / seconds,
        others: sum(0) / seconds,
        errors: (reads[2] + writes[2] + sum(2)) / seconds,
        outstanding: one.outstanding,
        read_latency: mean(reads),
        write_latency: mean(writes),
    }
}
