//! Queue groups, over a virtual network card with several queues: no guest.
use crate::target::program;
use crate::{Result, machine, shell};
use std::process::Command;
use tempfile::TempDir;

/// # Panics
/// When a reactor's queues come by several queues of the card, or two reactors by the same: this is the body of a test.
pub fn run() {
    let groups = groups().unwrap_or_else(|error| panic!("{error}"));
    let [a, b] = &groups[..] else { panic!("two reactors have queues: {groups:?}") };
    assert!(a.len() == 1 && b.len() == 1 && a != b, "{groups:?}");
}

/// The queues of the card that each reactor's I/O queues come by.
fn groups() -> Result<Vec<Vec<u32>>> {
    machine::prepare()?;
    let home = TempDir::new()?;
    let json = shell::run(
        Command::new("unshare")
            .args(["--map-root-user", "--net", "sh", "-c", include_str!("groups.sh"), "groups.sh"])
            .arg(program()?)
            .current_dir(home.path()),
    )?;
    let report: serde_json::Value = serde_json::from_slice(&json)?;
    Ok(serde_json::from_value(report["jobs"][0]["flashloom"]["card_queues"].clone())?)
}
