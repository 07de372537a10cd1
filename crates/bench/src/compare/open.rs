//! How long a pool takes to serve again after its daemon was killed: with its log full, and with a drive gone.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::process::output;
use super::server::{Drives, Flashloom, Log, Server};

/// Of the log: destage lets a quarter of it fill up before it takes anything out, so that this much
/// has a GiB in it, and more under load.
const LOG: &str = "4GiB";

/// What the log must hold when the daemon is killed.
const FULL: u64 = 1 << 30;

/// Loads of a few seconds until it does.
const LOADS: u32 = 60;

/// How long the daemon may take.
const READS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(10);

/// Seconds that a start waits for a drive that is not there.
const WAIT: u64 = 30;

/// Prints the rows of the time from the kill to the first read of a volume.
///
/// # Errors
/// What could not be started, or what was not served.
pub fn print(program: &Path, runs: usize) -> Result<(), String> {
    println!("\n| case | log | kill to first read |");
    println!("|---|---|---|");
    for _ in 0..runs {
        let mut server =
            Flashloom::with_pool(program, "adaptive", Drives::Shared, (Log::Memory, LOG))?;
        let used = fill_log(program, &server)?;
        let begun = SystemTime::now();
        server.kill_and_start(program, "adaptive")?;
        first_read(program, &server)?;
        let took = begun.elapsed().map_err(|e| e.to_string())?;
        println!(
            "| open after kill -9 | {} MiB of records | {:.2} s |",
            used >> 20,
            took.as_secs_f64()
        );
    }
    let mut server = Flashloom::with_volume(program, "adaptive", Drives::Shared, Log::Memory)?;
    server.fill(program)?;
    server.take_away_a_drive()?;
    let begun = SystemTime::now();
    server.kill_and_start(program, "adaptive")?;
    first_read(program, &server)?;
    let took = begun.elapsed().map_err(|e| e.to_string())?.as_secs_f64();
    println!("| without a drive, waited for {WAIT} s | | {took:.2} s |");
    Ok(())
}

/// Writes until the log has what is wanted; how many bytes that are.
fn fill_log(program: &Path, server: &Flashloom) -> Result<u64, String> {
    for _ in 0..LOADS {
        bench(program, server, "--rw randwrite --bs 4k --iodepth 64 --runtime 2s")?;
        let shown = server.ask(program, "pool show bench -o json")?;
        let shown: serde_json::Value = serde_json::from_str(&shown).map_err(|e| e.to_string())?;
        let used = shown["status"]["log"]["used"].as_u64().unwrap_or(0);
        if used >= FULL {
            return Ok(used);
        }
    }
    Err(format!("the log did not come to hold {FULL} bytes"))
}

/// Reads one block as soon as it is served.
fn first_read(program: &Path, server: &Flashloom) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..READS {
        match bench(program, server, "--rw randread --bs 4k --iodepth 1 --size 4KiB") {
            Ok(()) => return Ok(()),
            Err(why) => last = why,
        }
        std::thread::park_timeout(PAUSE);
    }
    Err(last)
}

fn bench(program: &Path, server: &Flashloom, load: &str) -> Result<(), String> {
    let args = format!(
        "bench --traddr 127.0.0.1 --trsvcid {} --subnqn {} --nsid {} {load} --cpus 1 --poll interrupt -o json",
        server.port(),
        server.nqn(),
        server.nsid(),
    );
    let args: Vec<_> = args.split_whitespace().collect();
    output(&program.display().to_string(), &args).map(drop)
}
