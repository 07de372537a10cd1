//! What is printed.

use clap::ValueEnum;
use serde_json::{Value, json};
use stdx::Histogram;
use stdx::num::usize64;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    Read,
    Write,
    Empty,
}

/// What is exchanged: the bytes NVMe/TCP moves for such a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub direction: Direction,
    pub bytes: usize,
}

/// Data of a write up to this many bytes travels with its command.
const IN_CAPSULE: usize = 16 * 1024;

/// The most data of one request.
pub const BYTES_MAX: usize = 1 << 20;

impl Case {
    pub fn new(direction: Direction, bytes: u64) -> Result<Self, String> {
        let bytes = usize64(bytes);
        if bytes > BYTES_MAX {
            return Err(format!("{bytes} bytes are more than {BYTES_MAX}"));
        }
        Ok(Self { direction, bytes: if direction == Direction::Empty { 0 } else { bytes } })
    }

    /// Whether the server asks for the data of a write.
    pub fn asks(self) -> bool {
        self.direction == Direction::Write && self.bytes > IN_CAPSULE
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}

/// One measurement's result.
pub struct Report {
    case: Case,
    depth: usize,
    connections: usize,
    iops: f64,
    mean: f64,
    p50: u64,
    p99: u64,
    p999: u64,
}

impl Report {
    #[allow(clippy::cast_precision_loss, reason = "rates are estimates")]
    pub fn new(
        case: Case,
        (depth, connections): (usize, usize),
        latency: &Histogram,
        elapsed: u64,
    ) -> Self {
        Self {
            case,
            depth,
            connections,
            iops: latency.count() as f64 * 1e9 / elapsed.max(1) as f64,
            mean: latency.mean(),
            p50: latency.percentile(50.0),
            p99: latency.percentile(99.0),
            p999: latency.percentile(99.9),
        }
    }

    fn payload(&self) -> f64 {
        f64::from(stdx::num::u32_of(self.case.bytes))
    }

    fn json(&self) -> Value {
        json!({
            "rw": format!("{:?}", self.case.direction).to_lowercase(),
            "bs": self.case.bytes,
            "iodepth": self.depth,
            "connections": self.connections,
            "iops": self.iops.round(),
            "bw_bytes": (self.iops * self.payload()).round(),
            "mean_ns": self.mean.round(),
            "p50_ns": self.p50,
            "p99_ns": self.p99,
            "p99.9_ns": self.p999,
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
        "{:?} of {} bytes, depth {} x {}: {:.0} round trips/s, {:.2} GB/s, p50 {:.1} us, p99 {:.1}, p99.9 {:.1}",
        r.case.direction,
        r.case.bytes,
        r.depth,
        r.connections,
        r.iops,
        r.iops * r.payload() / 1e9,
        micros(r.p50),
        micros(r.p99),
        micros(r.p999),
    );
}
