//! House checks: `cargo xtask check` runs every rule that a reviewer should not have to remember.
//!
//! Each rule is one module with one function that returns the findings as text lines; no finding
//! means the rule holds. Nothing here builds or changes code except `check`, which also runs
//! rustfmt and clippy.

mod advisories;
mod circles;
mod conformance;
mod crossing;
mod floors;
mod licences;
mod metadata;
mod planted;
mod rooms;
mod sbom;
mod seam;
mod tidy;
mod walk;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask <command>

  check        all house rules: fmt, clippy and every check below
  advisories   no dependency has a vulnerability that advisories.txt knows of; `advisories DATABASE` makes that
               anew from a checkout of RustSec's database
  circles      modules of a crate import each other in no circles but the listed ones
  conformance  docs/conformance.md names only tests that exist
  crossing     the way of a command to another core names no lock and no atomic read-modify-write
  floors       a crate imports only crates on lower floors, and is drawn so in ARCHITECTURE.md
  tidy         file sizes, forbidden words, sleeps and ignores in tests
  mutate       leaves out each step the engine relies on, until the simulator misses it
               (for minutes; `--seeds n` of each workload at most, `--step name` for some)
  licences     every dependency has a licence and an origin that deny.toml accepts
  planted      no planted bug, nor anything else for tests, is compiled into what users build
  rooms        files, threads, locks, system calls and unsafe code are where they have a reason
  sbom         prints what the program is made of (CycloneDX)
  seam         what is above `fabric` names no transport
  walk         ARCHITECTURE.md names only functions that exist and are called, in the order it says";

/// One broken rule, as it is shown: where, what is wrong, what to do.
type Finding = String;

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let root = root();
    let outcome = match command.as_str() {
        "check" => check(&root),
        "advisories" => advisories(&root),
        "circles" => circles::check(&root),
        "conformance" => conformance::check(&root),
        "crossing" => crossing::check(&root),
        "floors" => metadata::load(&root).and_then(|m| floors::check(&root, &m)),
        "mutate" => mutate(&root),
        "licences" => metadata::load(&root).and_then(|m| licences::check(&root, &m)),
        "planted" => planted::check(&root),
        "rooms" => rooms::check(&root),
        "sbom" => sbom::document(&root).map(|document| {
            println!("{document:#}");
            Vec::new()
        }),
        "seam" => metadata::load(&root).and_then(|m| seam::check(&root, &m)),
        "tidy" => tidy::check(&root),
        "walk" => walk::check(&root),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(findings) if findings.is_empty() => {
            eprintln!("xtask {command}: ok");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            eprintln!("xtask {command}: {} finding(s)", findings.len());
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// Runs all rules and gathers what they find, so that one run shows everything to mend.
fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let metadata = metadata::load(root)?;
    let mut findings = Vec::new();
    findings.extend(tool(root, &["fmt", "--all", "--", "--check"], "run `cargo fmt --all`")?);
    // A workspace of its own, which clippy cannot look at without building libFuzzer.
    let fuzz = ["fmt", "--manifest-path", "fuzz/Cargo.toml", "--", "--check"];
    findings.extend(tool(root, &fuzz, "run `cargo fmt --manifest-path fuzz/Cargo.toml`")?);
    let clippy =
        ["clippy", "--quiet", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    findings.extend(tool(root, &clippy, "mend what clippy printed above")?);
    findings.extend(floors::check(root, &metadata)?);
    findings.extend(licences::check(root, &metadata)?);
    findings.extend(advisories::check(root)?);
    findings.extend(seam::check(root, &metadata)?);
    findings.extend(circles::check(root)?);
    findings.extend(planted::check(root)?);
    findings.extend(crossing::check(root)?);
    findings.extend(rooms::check(root)?);
    findings.extend(tidy::check(root)?);
    findings.extend(walk::check(root)?);
    findings.extend(conformance::check(root)?);
    Ok(findings)
}

/// Checks the list, or makes it anew from the database that is named.
fn advisories(root: &Path) -> Result<Vec<Finding>, String> {
    if let Some(database) = std::env::args().nth(2) {
        advisories::update(root, Path::new(&database))?;
    }
    advisories::check(root)
}

/// Leaves out steps of the engine, one by one, in the simulator.
fn mutate(root: &Path) -> Result<Vec<Finding>, String> {
    let more: Vec<String> = std::env::args().skip(2).collect();
    let mut args = vec!["run", "--release", "--locked", "--package", "sim", "--", "--mutate"];
    args.extend(more.iter().map(String::as_str));
    let advice = "change a workload so that what was not missed is, or prove at its place that nothing needs it";
    Ok(tool(root, &args, advice)?.into_iter().collect())
}

/// Runs one cargo command; a failure is one finding, its own output says the rest.
fn tool(root: &Path, args: &[&str], advice: &str) -> Result<Option<Finding>, String> {
    let status = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(root)
        .status()
        .map_err(|e| format!("cannot run cargo {}: {e}", args[0]))?;
    Ok((!status.success()).then(|| format!("cargo {} failed: {advice}", args[0])))
}

/// The workspace's folder: the parent of this crate's.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
