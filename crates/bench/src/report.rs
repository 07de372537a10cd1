//! What is printed.

use crate::client::Plan;
use crate::strategy::Strategy;
use clap::ValueEnum;
use serde_json::{Value, json};
use stdx::Histogram;

/// What is exchanged: the bytes NVMe/TCP moves for the command named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// 72 bytes to the server, 24 + 4096 back
    #[value(name = "read4k")]
    Read4k,
    /// 72 + 4096 bytes to the server, 24 back
    #[value(name = "write4k")]
    Write4k,
    /// 72 bytes to the server, 24 + 131072 back
    #[value(name = "read128k")]
    Read128k,
    /// 72 to the server, 24 back (R2T), 24 + 131072 to the server, 24 back
    #[value(name = "write128k")]
    Write128k,
    /// 72 bytes both ways
    #[value(name = "empty")]
    Empty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}

/// One measurement's result.
pub struct Report {
    case: Case,
    qd: usize,
    connections: usize,
    iops: f64,
    mean: f64,
    p50: u64,
    p99: u64,
    p999: u64,
}

impl Report {
    #[allow(clippy::cast_precision_loss, reason = "rates are estimates")]
    pub fn new(plan: &Plan, latency: &Histogram, elapsed: u64) -> Self {
        Self {
            case: plan.case,
            qd: plan.qd,
            connections: plan.connections,
            iops: latency.count() as f64 * 1e9 / elapsed.max(1) as f64,
            mean: latency.mean(),
            p50: latency.percentile(50.0),
            p99: latency.percentile(99.0),
            p999: latency.percentile(99.9),
        }
    }

    fn payload(&self) -> f64 {
        match self.case {
            Case::Read4k | Case::Write4k => 4096.0,
            Case::Read128k | Case::Write128k => 131_072.0,
            Case::Empty => 0.0,
        }
    }

    fn json(&self) -> Value {
        json!({
            "case": format!("{:?}", self.case).to_lowercase(),
            "qd": self.qd,
            "connections": self.connections,
            "iops": self.iops.round(),
            "bw_bytes": (self.iops * self.payload()).round(),
            "lat_ns": { "mean": self.mean.round(), "p50": self.p50, "p99": self.p99,
                        "p99.9": self.p999 },
        })
    }
}

#[allow(clippy::cast_precision_loss, reason = "shown to one decimal")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

pub fn show(r: &Report, output: Output) {
    if output == Output::Json {
        println!("{}", r.json());
        return;
    }
    println!(
        "{:?} qd {} x {}: {:.0} round trips/s, {:.2} GB/s, p50 {:.1} us, p99 {:.1}, p99.9 {:.1}",
        r.case,
        r.qd,
        r.connections,
        r.iops,
        r.iops * r.payload() / 1e9,
        micros(r.p50),
        micros(r.p99),
        micros(r.p999),
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Medians of each strategy, and the median of its ratios to the first one within each round.
pub fn compare(strategies: &[Strategy], runs: &[Vec<Report>], output: Output) {
    let Some(base) = runs.first() else { return };
    for (strategy, reports) in strategies.iter().zip(runs) {
        let of = |f: &dyn Fn(&Report) -> f64| median(reports.iter().map(f).collect());
        let ratio = |f: &dyn Fn(&Report) -> f64| {
            median(reports.iter().zip(base).map(|(r, b)| f(r) / f(b)).collect())
        };
        let iops = |r: &Report| r.iops;
        let p50 = |r: &Report| micros(r.p50);
        let p99 = |r: &Report| micros(r.p99);
        let name = strategy.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned());
        let (i, ir, l, lr, t) = (of(&iops), ratio(&iops), of(&p50), ratio(&p50), of(&p99));
        if output == Output::Json {
            println!(
                "{}",
                json!({ "strategy": name, "case": base[0].json()["case"], "qd": base[0].qd,
                        "connections": base[0].connections, "rounds": reports.len(),
                        "iops": i.round(), "iops_ratio": ir, "p50_us": l, "p50_ratio": lr,
                        "p99_us": t })
            );
        } else {
            println!(
                "{name:>18}: {i:>9.0}/s ({ir:.2})  p50 {l:>7.1} us ({lr:.2})  p99 {t:>7.1} us"
            );
        }
    }
}
