//! The tools that come with fio, on what `flashloom bench` writes in fio's formats: no guest.
use crate::target::{Target, program};
use crate::{Result, machine, shell};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// # Panics
/// When a tool does not take what it is given: this is the body of a test.
pub fn run() {
    if let Err(error) = reads() {
        panic!("{error}");
    }
}

fn reads() -> Result<()> {
    machine::prepare()?;
    let home = TempDir::new()?;
    let target = Target::start("memory:64MiB", &[], home.path())?;
    let at = home.path();
    let (port, subsystem) = target.address();
    let json = shell::run(
        Command::new(program()?)
            .args(["bench", "--traddr", "127.0.0.1", "--trsvcid", &port.to_string()])
            .args(["--subnqn", subsystem, "--poll", "interrupt"])
            .args(["--job", "name=one,rw=randrw,iodepth=4", "--job", "name=two,rw=randread"])
            .args(["--runtime", "2s", "--log-interval", "500ms", "--bins", "-o", "json", "--out"])
            .arg(at.join("results")),
    )?;
    fs::write(at.join("r.json"), json)?;
    let told = clat2csv(at, &[])?;
    for job in 0..2 {
        let rows = fs::read_to_string(at.join(format!("r_job{job}.csv")))
            .map_err(|error| format!("{error}\n{told}"))?
            .lines()
            .count();
        if rows < 10 {
            return Err(format!("job {job}: {rows} rows of latencies").into());
        }
    }
    let told = clat2csv(at, &["--validate"])?;
    if told.matches("validated").count() != 2 {
        return Err(told.into());
    }
    averages(&at.join("results"))
}

fn clat2csv(at: &Path, extra: &[&str]) -> Result<String> {
    let mut command = Command::new("fio_jsonplus_clat2csv");
    command.args(["r.json", "r.csv"]).args(extra).current_dir(at);
    Ok(String::from_utf8(shell::run(&mut command)?)?)
}

/// fio2gnuplot computes the average of a log that we can add up ourselves.
fn averages(results: &Path) -> Result<()> {
    let log = "fio_iops.1.log";
    let mut command = Command::new("fio2gnuplot");
    shell::run(command.args(["-p", log, "-v"]).current_dir(results))?;
    let text = fs::read_to_string(results.join(log))?;
    let values: Vec<f64> =
        text.lines().filter_map(|line| line.split(',').nth(1)?.trim().parse().ok()).collect();
    if values.is_empty() {
        return Err(format!("no intervals in {text:?}").into());
    }
    let count = f64::from(u32::try_from(values.len())?);
    let mean = values.iter().sum::<f64>() / count;
    let made: Vec<_> = fs::read_dir(results)?.filter_map(|file| Some(file.ok()?.path())).collect();
    let average = made
        .iter()
        .find(|path| path.extension().is_some_and(|kind| kind == "average"))
        .ok_or("fio2gnuplot made no averages")?;
    let text = fs::read_to_string(average)?;
    let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    let same = |number: &f64| (number - mean).abs() <= 1.0 + mean / 1000.0;
    match numbers.next_back().filter(same) {
        Some(_) => Ok(()),
        None => Err(format!("the average is not {mean}: {text}").into()),
    }
}
