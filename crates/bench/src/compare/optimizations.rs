//! Single optimizations of the host's side, off and on, on one target: `flashloom bench ablation` runs them in turn.
//! They go by the words that programs before this one knew, too.

use std::path::Path;

use super::process::output;
use super::server::{Flashloom, Server};

/// An optimization, and the load that it is for.
pub struct Case {
    pub name: &'static str,
    load: &'static str,
    cure: &'static str,
    /// What is on beside it.
    base: &'static str,
}

/// Those that the project wants figures of.
pub const CASES: &[Case] = &[
    Case { name: "maps", load: "beside", cure: "maps", base: "default" },
    // Against a call for each command, and against one for each turn.
    Case { name: "batching", load: "qd128", cure: "batching", base: "-list,-hints" },
    Case { name: "batching-list", load: "qd128", cure: "batching", base: "default" },
];

/// Measures one and prints it.
///
/// # Errors
/// What could not be started or understood, in words.
pub fn print(program: &Path, case: &Case, runs: usize, seconds: u32) -> Result<(), String> {
    let server = Flashloom::start(program, "busy")?;
    server.fill(program)?;
    let args = format!(
        "bench ablation --traddr 127.0.0.1 --trsvcid {} --subnqn {} --nsid {} --load {} --cure {} \
         --cures={} --rounds {runs} --seconds {seconds} --cpu 1 -o json",
        server.port(),
        server.nqn(),
        server.nsid(),
        case.load,
        case.cure,
        case.base,
    );
    let args: Vec<_> = args.split_whitespace().collect();
    let text = output(&program.display().to_string(), &args)?;
    let rows: Vec<serde_json::Value> =
        serde_json::from_str(&text).map_err(|e| format!("not an ablation: {e}"))?;
    println!("\n| case | setting | reads/s | mean us | p99.99 us | writer MB/s | ratio |");
    println!("|---|---|---|---|---|---|---|");
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        println!(
            "| {} | {} | {:.0} | {:.1} | {:.1} | {:.0} | {:.2} |",
            case.name,
            row["setting"].as_str().unwrap_or("?"),
            number("iops"),
            number("mean_us"),
            number("p9999_us"),
            number("writer_mb"),
            number("ratio")
        );
    }
    Ok(())
}
