//! Counters of all reactors, added up.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{
    Bucket, BudgetMetrics, Counters, HostMetrics, Latency, Metrics, NamespaceMetrics, Operation,
    ReactorMetrics, RefusedConnects,
};
use stdx::histogram::Histogram;
use stdx::num::u64_of;
use target::Target;
use target::budget::{Usage, usage};
use target::metrics::{Kind, OTHER_HOSTS, Row, collect};

use super::reactors::{Reactors, busy};
use crate::limits::HOSTS_TOLD;

/// Upper bounds of latency buckets in nanoseconds: three a decade, from what memory takes to what
/// a host gives up after.
const BOUNDS: [u64; 23] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// Asks the reactors.
#[derive(Debug)]
pub struct Collector {
    reactors: Arc<Reactors>,
    target: Arc<Target>,
}

impl Collector {
    pub fn new(reactors: Arc<Reactors>, target: Arc<Target>) -> Self {
        Self { reactors, target }
    }

    /// All counters now, of the reactors that answer in time.
    pub fn collect(&self) -> Metrics {
        let mut namespaces: BTreeMap<(String, u32), Row> = BTreeMap::new();
        let mut hosts: BTreeMap<(String, String), Row> = BTreeMap::new();
        let mut reactors = Vec::new();
        let answers =
            self.reactors.ask(|| (collect(), usage())).into_iter().zip(self.reactors.metrics());
        for (id, (answer, (metrics, connections))) in answers.enumerate() {
            let answers = answer.is_some();
            let (rows, budgets) = answer.unzip();
            let mut sum = Row::default();
            for (labels, row) in rows.unwrap_or_default() {
                sum.add(&row);
                namespaces.entry((labels.subsystem.clone(), labels.nsid)).or_default().add(&row);
                hosts.entry((labels.subsystem, labels.host)).or_default().add(&row);
            }
            reactors.push(ReactorMetrics {
                id,
                answers,
                busy: busy(&metrics),
                busy_seconds: Duration::from_nanos(metrics.busy_nanos).as_secs_f64(),
                turns: metrics.turns,
                sleeps: metrics.sleeps,
                tasks: metrics.tasks,
                connections: u64_of(connections),
                outstanding: sum.outstanding,
                counters: counters(&sum),
                budgets: budgets.unwrap_or_default().iter().map(budget).collect(),
            });
        }
        let namespaces = namespaces.into_iter().map(|((subsystem, nsid), row)| NamespaceMetrics {
            subsystem,
            nsid,
            outstanding: row.outstanding,
            counters: counters(&row),
        });
        let hosts = busiest(hosts).into_iter().map(|((subsystem, host), row)| HostMetrics {
            subsystem,
            host,
            outstanding: row.outstanding,
            counters: counters(&row),
        });
        let refused = self.target.refusal_counts();
        Metrics {
            namespaces: namespaces.collect(),
            hosts: hosts.collect(),
            reactors,
            refused_connects: refused
                .map(|(reason, count)| RefusedConnects { reason: reason.to_owned(), count })
                .collect(),
        }
    }
}

fn budget(usage: &Usage) -> BudgetMetrics {
    BudgetMetrics {
        name: usage.name.to_owned(),
        used: u64_of(usage.used),
        limit: u64_of(usage.limit),
        missed: usage.missed,
    }
}

/// Counters by subsystem and host.
type Hosts = BTreeMap<(String, String), Row>;

/// Has all but the [`HOSTS_TOLD`] busiest hosts counted together, those of each subsystem.
fn busiest(hosts: Hosts) -> Hosts {
    if hosts.len() <= HOSTS_TOLD {
        return hosts;
    }
    let operations = |row: &Row| row.sums.iter().map(|sums| sums.operations).sum::<u64>();
    let mut all: Vec<_> = hosts.into_iter().collect();
    all.sort_by_key(|(_, row)| Reverse(operations(row)));
    let rest = all.split_off(HOSTS_TOLD);
    let mut told: Hosts = all.into_iter().collect();
    for ((subsystem, _), row) in rest {
        told.entry((subsystem, OTHER_HOSTS.to_owned())).or_default().add(&row);
    }
    told
}

fn counters(row: &Row) -> Vec<Counters> {
    let kinds = Kind::ALL.into_iter().zip(&row.sums);
    kinds
        .map(|(kind, sums)| Counters {
            operation: match kind {
                Kind::Read => Operation::Read,
                Kind::Write => Operation::Write,
                Kind::Deallocate => Operation::Deallocate,
                Kind::Flush => Operation::Flush,
                Kind::Other => Operation::Other,
            },
            operations: sums.operations,
            bytes: sums.bytes,
            errors: sums.errors,
            latency: latency(&sums.latency),
        })
        .collect()
}

fn latency(histogram: &Histogram) -> Latency {
    let bucket = |bound| Bucket { at_most_ns: bound, count: histogram.count_at_most(bound) };
    Latency {
        buckets: BOUNDS.into_iter().map(bucket).collect(),
        sum_ns: histogram.sum(),
        count: histogram.count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand hosts at once are not a thousand times 150 lines.
    #[test]
    fn hosts_beyond_the_busiest_are_told_together() {
        let row = |operations| {
            let mut row = Row::default();
            row.sums[0].operations = operations;
            row
        };
        let host = |n: u64| (("s".to_owned(), format!("host{n:04}")), row(n));
        let told = busiest((0..1000).map(host).collect());
        assert_eq!(told.len(), HOSTS_TOLD + 1);
        let others = &told[&("s".to_owned(), OTHER_HOSTS.to_owned())];
        assert_eq!(others.sums[0].operations, (0..1000 - u64_of(HOSTS_TOLD)).sum::<u64>());
        assert!(told.contains_key(&("s".to_owned(), "host0999".to_owned())));
    }
}
