//! One run of one side, and what it measured.

use std::path::Path;

use super::case::Case;
use super::process::{Running, output, start_output};
use super::server::{Server, to};
use super::{Options, Side};

/// What one run came to.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub iops: f64,
    pub bytes_per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Share of the run that the target's core was at work.
    pub busy: Option<f64>,
    /// Bandwidth of the load beside, if there was one.
    pub writer_bytes_per_second: Option<f64>,
}

impl Measured {
    /// What a command costs the target's core, in microseconds. `None` where nobody says so, or there was a load beside
    /// that has a part of it.
    pub fn cpu_us(&self) -> Option<f64> {
        let busy = self.busy.filter(|_| self.writer_bytes_per_second.is_none())?;
        Some(busy * 1e6 / self.iops)
    }

    /// Each figure's median over the runs.
    pub fn median(runs: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(runs.iter().map(figure).collect());
        let some = |figure: fn(&Self) -> Option<f64>| {
            let figures: Vec<f64> = runs.iter().filter_map(figure).collect();
            (!figures.is_empty()).then(|| median(figures))
        };
        Self {
            iops: of(|r| r.iops),
            bytes_per_second: of(|r| r.bytes_per_second),
            p50_us: of(|r| r.p50_us),
            p99_us: of(|r| r.p99_us),
            busy: some(|r| r.busy),
            writer_bytes_per_second: some(|r| r.writer_bytes_per_second),
        }
    }
}

/// The middle of a set of figures; the upper of two.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs one side of a case once.
///
/// # Errors
/// What the client said, or that its output was not understood.
pub fn run(
    options: &Options,
    case: &Case,
    side: Side,
    server: Option<&dyn Server>,
) -> Result<Measured, String> {
    let before = server.map(Server::busy).transpose()?;
    let mut measured = load(options, case, side, server)?;
    if let (Some(server), Some(before)) = (server, before) {
        let busy = server.busy()?.saturating_sub(before);
        measured.busy = Some(busy.as_secs_f64() / f64::from(options.seconds));
    }
    Ok(measured)
}

fn load(
    options: &Options,
    case: &Case,
    side: Side,
    server: Option<&dyn Server>,
) -> Result<Measured, String> {
    match (side, server) {
        (Side::Floor, _) => floor(case.rw, case.block, case.depth, options.seconds, false),
        (Side::FloorOnward, _) => floor(case.rw, case.block, case.depth, options.seconds, true),
        (Side::OwnTarget | Side::Spdk, Some(server)) => {
            let folder = options.spdk.as_deref().ok_or("SPDK's folder was not given")?;
            perf(folder, options, case, server)
        }
        (_, Some(server)) => own(options, case, server),
        (_, None) => Err("no server to ask".into()),
    }
}

/// Median latency of 4 KiB reads one at a time, by a host that sleeps until they are answered; microseconds.
///
/// # Errors
/// As [`run`].
pub fn read_waiting(program: &Path, seconds: u32, server: &dyn Server) -> Result<f64, String> {
    let mut args = own_args("randread", 4096, 1, 1, seconds, server);
    args.extend(["--poll", "interrupt"].map(str::to_owned));
    let text = output(&program.display().to_string(), &args)?;
    Ok(fio_json(&text, 0)?.p50_us)
}

/// Reads of 4 KiB one at a time, by a host that spins.
///
/// # Errors
/// As [`run`].
pub fn read_beside(options: &Options, server: &dyn Server) -> Result<Measured, String> {
    let args = own_args("randread", 4096, 1, 1, options.seconds, server);
    fio_json(&output(&options.flashloom.display().to_string(), &args)?, 0)
}

/// Flashloom's own load generator: both loads from one process, as two that spin on one core would
/// measure the scheduler.
fn own(options: &Options, case: &Case, server: &dyn Server) -> Result<Measured, String> {
    let program = options.flashloom.display().to_string();
    let mut args = own_args(case.rw, case.block, case.depth, case.queues, options.seconds, server);
    if case.writer {
        // 1 MiB at depth 16, as a host splits it whose target takes 128 KiB at once; both do.
        let writer = "name=writer,queues=1,rw=write,bs=128k,iodepth=128";
        args.extend(["--job", "name=measured", "--job", writer].map(str::to_owned));
    }
    let text = output(&program, &args)?;
    let mut measured = fio_json(&text, 0)?;
    if case.writer {
        measured.writer_bytes_per_second = Some(fio_json(&text, 1)?.bytes_per_second);
    }
    Ok(measured)
}

fn own_args(
    rw: &str,
    block: u32,
    depth: u16,
    queues: u16,
    seconds: u32,
    server: &dyn Server,
) -> Vec<String> {
    format!(
        "bench {} --rw {rw} --bs {block} --iodepth {depth} --queues {queues} --runtime {seconds}s \
         --cpus 1 -o json",
        to(server, "127.0.0.1"),
    )
    .split_whitespace()
    .map(str::to_owned)
    .collect()
}

/// Writes that went by a direct write window, of the first job of that JSON.
///
/// # Errors
/// That it is none.
pub fn direct_writes(text: &str) -> Result<u64, String> {
    let document: serde_json::Value =
        serde_json::from_str(text).map_err(|e| format!("not fio's JSON: {e}"))?;
    Ok(document["jobs"][0]["flashloom"]["direct_writes"].as_u64().unwrap_or(0))
}

/// The figures of job `index` of fio's JSON, for a load in one direction.
///
/// # Errors
/// That it is none.
pub fn fio_json(text: &str, index: usize) -> Result<Measured, String> {
    let document: serde_json::Value =
        serde_json::from_str(text).map_err(|e| format!("not fio's JSON: {e}"))?;
    let job = &document["jobs"][index];
    let busy = |name: &str| job[name]["total_ios"].as_u64().unwrap_or(0) > 0;
    let direction = if busy("read") { &job["read"] } else { &job["write"] };
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or(f64::NAN);
    let percentiles = &direction["clat_ns"]["percentile"];
    Ok(Measured {
        iops: number(&direction["iops"]),
        bytes_per_second: number(&direction["bw_bytes"]),
        p50_us: number(&percentiles["50.000000"]) / 1000.0,
        p99_us: number(&percentiles["99.000000"]) / 1000.0,
        busy: None,
        writer_bytes_per_second: None,
    })
}

/// SPDK's load generator, on core 1.
fn perf(
    folder: &Path,
    options: &Options,
    case: &Case,
    server: &dyn Server,
) -> Result<Measured, String> {
    let writer = case
        .writer
        .then(|| start_perf(folder, "write", 1 << 20, 16, 1, options.seconds, server))
        .transpose()?;
    let load =
        start_perf(folder, case.rw, case.block, case.depth, case.queues, options.seconds, server)?;
    let mut measured = perf_text(&load.finish()?)?;
    if let Some(writer) = writer {
        measured.writer_bytes_per_second = Some(perf_text(&writer.finish()?)?.bytes_per_second);
    }
    Ok(measured)
}

/// Given a name of its own: without one it sends an empty host NQN, which a target must refuse.
const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:5b1f7f0e-6f2f-4b0e-9a57-3f0f4d1f0c11";

fn start_perf(
    folder: &Path,
    rw: &str,
    block: u32,
    depth: u16,
    queues: u16,
    seconds: u32,
    server: &dyn Server,
) -> Result<Running, String> {
    let program = folder.join("build/bin/spdk_nvme_perf").display().to_string();
    let address = format!(
        "trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:{} subnqn:{} hostnqn:{HOST_NQN}",
        server.port(),
        server.nqn()
    );
    let numbers = [depth.to_string(), block.to_string(), seconds.to_string(), queues.to_string()];
    let [depth, block, seconds, queues] = &numbers;
    let args = [
        "-c", "0x2", "-q", depth, "-o", block, "-t", seconds, "-P", queues, "-w", rw, "-s", "140",
        "-L", "-r", &address,
    ];
    start_output(&program, &args)
}

/// The figures of its report: a "Total" row (IOPS, MiB/s, mean, minimum, maximum) and rows
/// "50.00000% : 12.345us".
fn perf_text(text: &str) -> Result<Measured, String> {
    let total = text.lines().rev().find_map(|line| line.trim().strip_prefix("Total"));
    let total = total.and_then(|line| line.split_once(':')).map(|(_, figures)| figures);
    let mut figures = total
        .ok_or_else(|| format!("spdk_nvme_perf printed no total:\n{text}"))?
        .split_whitespace()
        .map_while(|word| word.parse::<f64>().ok());
    let iops = figures.next().unwrap_or(f64::NAN);
    let mebibytes = figures.next().unwrap_or(f64::NAN);
    let percentile = |name: &str| {
        let row = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        row.trim_start_matches([' ', ':']).trim_end_matches("us").trim().parse().ok()
    };
    Ok(Measured {
        iops,
        bytes_per_second: mebibytes * 1_048_576.0,
        p50_us: percentile("50.00000%").unwrap_or(f64::NAN),
        p99_us: percentile("99.00000%").unwrap_or(f64::NAN),
        busy: None,
        writer_bytes_per_second: None,
    })
}

/// Median latency of 4 KiB between two spinning sockets, one block at a time; microseconds.
///
/// # Errors
/// As [`run`].
pub fn floor_qd1(seconds: u32) -> Result<f64, String> {
    Ok(floor("randread", 4096, 1, seconds, false)?.p50_us)
}

/// The same bytes between two sockets, both ends spinning: this program's own `floor`. With `onward`, on to a third one
/// where the client runs.
fn floor(rw: &str, block: u32, depth: u16, seconds: u32, onward: bool) -> Result<Measured, String> {
    let this = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
    let shape = if rw.ends_with("read") { "read" } else { "write" };
    let onward = if onward { "--onward-cpu 1" } else { "" };
    let args = format!(
        "floor --rw {shape} --bs {block} --iodepth {depth} --runtime {seconds} --server-cpu 0 \
         --client-cpu 1 {onward} -o json"
    );
    let args: Vec<_> = args.split_whitespace().collect();
    let text = output(&this.display().to_string(), &args)?;
    let report: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| format!("floor: {e}"))?;
    let number = |name: &str| report[name].as_f64().unwrap_or(f64::NAN);
    let iops = number("iops");
    Ok(Measured {
        iops,
        bytes_per_second: iops * f64::from(block),
        p50_us: number("p50_ns") / 1000.0,
        p99_us: number("p99_ns") / 1000.0,
        busy: None,
        writer_bytes_per_second: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perf_report_is_read() {
        let text = "\
Device Information                     :       IOPS      MiB/s    Average        min        max
TCP (addr:127.0.0.1 subnqn:x) NSID 1 from core  1:  550000.50    2148.44      58.10      20.00    900.00
========================================================
Total                                  :  550000.50    2148.44      58.10      20.00    900.00

Summary latency data for TCP NSID 1 from core 1:
=================================================================================
  1.00000% :    40.000us
 50.00000% :    56.320us
 99.00000% :    87.040us
";
        let measured = perf_text(text).unwrap();
        assert!((measured.iops - 550_000.5).abs() < 1.0);
        assert!((measured.p50_us - 56.32).abs() < 0.01);
        assert!((measured.p99_us - 87.04).abs() < 0.01);
        assert!(perf_text("nothing").is_err());
    }

    #[test]
    fn a_command_costs_its_share_of_the_busy_time() {
        let measured = Measured { iops: 100_000.0, busy: Some(0.5), ..Measured::default() };
        assert!((measured.cpu_us().unwrap() - 5.0).abs() < 0.01);
        let beside = Measured { writer_bytes_per_second: Some(1e9), ..measured };
        assert_eq!(beside.cpu_us(), None);
        assert_eq!(Measured::default().cpu_us(), None);
    }

    #[test]
    fn medians_are_taken_figure_by_figure() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
