//! Random writes right after a snapshot, against those before it, and the same of SPDK's logical volumes: these copy a
//! cluster for the first write to each.

use super::Options;
use super::client::{Measured, fio_json, median};
use super::process::output;
use super::server::{Drives, Flashloom, LVOL_MIB, Log, Server, Spdk, to};

/// The name of the case.
pub const NAME: &str = "snapshots";

/// A volume that snapshots are taken of, one at a time.
trait Snapshots: Server {
    fn take(&self, options: &Options) -> Result<(), String>;
    fn delete(&self, options: &Options) -> Result<(), String>;
}

impl Snapshots for Flashloom {
    fn take(&self, options: &Options) -> Result<(), String> {
        self.ask(&options.flashloom, "snapshot create bench/v@one").map(drop)
    }

    fn delete(&self, options: &Options) -> Result<(), String> {
        self.ask(&options.flashloom, "snapshot delete bench/v@one --yes").map(drop)
    }
}

impl Snapshots for Spdk {
    fn take(&self, _: &Options) -> Result<(), String> {
        self.take_snapshot()
    }

    fn delete(&self, _: &Options) -> Result<(), String> {
        self.delete_snapshot()
    }
}

/// Measures it and prints it.
///
/// # Errors
/// What could not be started or understood, in words.
pub fn print(options: &Options) -> Result<(), String> {
    let ours = Flashloom::with_volume(&options.flashloom, "adaptive", Drives::Memory, Log::Memory)?;
    let spdk = options.spdk.as_deref().map(Spdk::with_lvol).transpose()?;
    let mut sides: Vec<(&str, &dyn Snapshots)> =
        vec![("flashloom serve of a volume, RAID 6 8+2", &ours)];
    sides.extend(spdk.as_ref().map(|spdk| ("nvmf_tgt of a logical volume", spdk as _)));
    for (_, side) in &sides {
        // Everything is there before: first writes to a thin volume are not what is measured.
        load(options, *side, &format!("--rw write --bs 128k --iodepth 8 --io-size {LVOL_MIB}MiB"))?;
        side.run_while(false)?;
    }
    let mut pairs = vec![Vec::new(); sides.len()];
    for _ in 0..options.runs {
        for ((_, side), pairs) in sides.iter().zip(&mut pairs) {
            side.run_while(true)?;
            let shape =
                format!("--rw randwrite --bs 4096 --iodepth 32 --runtime {}s", options.seconds);
            let before = load(options, *side, &shape)?;
            side.take(options)?;
            let after = load(options, *side, &shape)?;
            side.delete(options)?;
            side.run_while(false)?;
            pairs.push((before, after));
        }
    }
    println!(
        "\n| 4K random writes of {LVOL_MIB} MiB, depth 32 | before: IOPS, p99 us | right after a snapshot | ratio |"
    );
    println!("|---|---|---|---|");
    for ((name, _), pairs) in sides.iter().zip(pairs) {
        let ratio = median(pairs.iter().map(|(before, after)| after.iops / before.iops).collect());
        let (before, after): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let shown = |runs: &[Measured]| {
            let Measured { iops, p99_us, .. } = Measured::median(runs);
            format!("{iops:.0}, {p99_us:.0}")
        };
        println!("| {name} | {} | {} | {ratio:.2} |", shown(&before), shown(&after));
    }
    Ok(())
}

fn load(options: &Options, server: &dyn Server, shape: &str) -> Result<Measured, String> {
    let place = to(server, "127.0.0.1");
    let args = format!("bench {place} {shape} --size {LVOL_MIB}MiB --cpus 1 -o json");
    let args: Vec<_> = args.split_whitespace().collect();
    fio_json(&output(&options.flashloom.display().to_string(), &args)?, 0)
}
