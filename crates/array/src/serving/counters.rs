//! Counters of all reactors, added up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{
    Counters, HostMetrics, Latency, Metrics, NamespaceMetrics, Operation, ReactorMetrics,
};
use stdx::histogram::Histogram;
use stdx::num::u64_of;
use target::metrics::{Kind, Row, collect};

use super::crew::{Crew, busy};

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
    crew: Arc<Crew>,
}

impl Collector {
    pub(super) fn new(crew: Arc<Crew>) -> Self {
        Self { crew }
    }

    /// All counters now. Waits for every reactor to answer.
    pub fn collect(&self) -> Metrics {
        let mut namespaces: BTreeMap<(String, u32), Row> = BTreeMap::new();
        let mut hosts: BTreeMap<(String, String), Row> = BTreeMap::new();
        let mut reactors = Vec::new();
        let answers = self.crew.ask(collect).into_iter().zip(self.crew.metrics());
        for (id, (rows, (metrics, connections))) in answers.enumerate() {
            let mut sum = Row::default();
            for (labels, row) in rows.unwrap_or_default() {
                sum.add(&row);
                namespaces.entry((labels.subsystem.clone(), labels.nsid)).or_default().add(&row);
                hosts.entry((labels.subsystem, labels.host)).or_default().add(&row);
            }
            reactors.push(ReactorMetrics {
                id,
                busy: busy(&metrics),
                busy_seconds: Duration::from_nanos(metrics.busy_nanos).as_secs_f64(),
                turns: metrics.turns,
                sleeps: metrics.sleeps,
                tasks: metrics.tasks,
                connections: u64_of(connections),
                outstanding: sum.outstanding,
                counters: counters(&sum),
            });
        }
        let namespaces = namespaces.into_iter().map(|((subsystem, nsid), row)| NamespaceMetrics {
            subsystem,
            nsid,
            outstanding: row.outstanding,
            counters: counters(&row),
        });
        let hosts = hosts.into_iter().map(|((subsystem, host), row)| HostMetrics {
            subsystem,
            host,
            outstanding: row.outstanding,
            counters: counters(&row),
        });
        Metrics { namespaces: namespaces.collect(), hosts: hosts.collect(), reactors }
    }
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
    let bucket = |bound: u64| (bound, histogram.count_at_most(bound));
    Latency {
        buckets: BOUNDS.into_iter().map(bucket).collect(),
        sum_ns: histogram.sum(),
        count: histogram.count(),
    }
}
