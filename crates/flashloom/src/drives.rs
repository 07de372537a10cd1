//! Commands about drives of pools, which speak to the running daemon.

use api::v1::{
    Drive, DriveRemoval, DriveReplacement, DriveState, NewDrives, RateLimit, Rebuild, Rejoin, Spare,
};
use api::value::{DrivePath, Name, Size};
use comfy_table::Table;
use control::Client;
use control::client::{Asking, Begun};
use serde::Serialize;

use crate::cli::{DriveVerb, Global, JobArgs, OfDrive, RebuildVerb, RejoinVerb};
use crate::confirm::meant;
use crate::daemon::ask;
use crate::exit::Outcome;
use crate::jobs::follow;
use crate::manage::{absolute_drive, time};
use crate::output::{facts, gone, or_dash, print, table};
use crate::physical::{self, Light};
use crate::spares;

/// `flashloom drive ...`
pub fn drive(global: &Global, verb: DriveVerb) -> Outcome {
    match verb {
        DriveVerb::List => {
            let all =
                async |client: Client| Ok((client.drives().await?, client.all_spares().await?));
            let (drives, spares) = ask(global, all)?;
            let drives = drives.into_iter().map(|drive| Listed::Drive(Box::new(drive)));
            let spares = spares.into_iter().map(|spare| Listed::Spare(Box::new(spare)));
            let all: Vec<_> = drives.chain(spares).collect();
            print(global.output, &all, |all| listed_table(all))
        }
        DriveVerb::Show { of } => {
            let mut drive = ask(global, async |client| client.drive(&of.drive).await)?;
            physical::complete(&mut drive);
            print(global.output, &drive, drive_facts)
        }
        DriveVerb::Locate { of, off } => {
            let drive = ask(global, async |client| client.drive(&of.drive).await)?;
            let light = physical::locate(&drive, !off)?;
            print(global.output, &light, light_facts)
        }
        DriveVerb::Add { pool, drives, force, how } => add(global, &pool, drives, force, &how),
        DriveVerb::Evacuate { of, limit, how } => {
            let limit = RateLimit { limit };
            change(global, &of, &how, async |client: Client, asking: Asking| {
                client.begin_evacuate_drive(&of.drive, &limit, &asking).await
            })
        }
        DriveVerb::Remove { of, limit, sure, how } => {
            let of = of.drive;
            let dry_run = async |client: Client| client.losses_of_drive(&of).await;
            let Some(consent) = meant(global, &sure, dry_run)? else { return Ok(()) };
            let removal = DriveRemoval { force: consent.force, dry_run: consent.dry_run, limit };
            let begin = async |client: Client, asking: Asking| {
                client.begin_remove_drive(&of, &removal, &asking).await
            };
            let done = follow(global, &how, begin, async |_, _| Ok(()))?;
            done.map_or(Ok(()), |()| gone(global, "drive", &of, "removed"))
        }
        DriveVerb::Fail { of, how } => {
            change(global, &of, &how, async |client: Client, asking: Asking| {
                client.begin_fail_drive(&of.drive, &asking).await
            })
        }
        DriveVerb::Rejoin { of, how } => {
            change(global, &of, &how, async |client: Client, asking: Asking| {
                client.begin_rejoin_drive(&of.drive, &asking).await
            })
        }
        DriveVerb::Replace { of, new, force, how } => {
            let new = DriveReplacement { drive: absolute_drive(new)?, force };
            change(global, &of, &how, async |client: Client, asking: Asking| {
                client.begin_replace_drive(&of.drive, &new, &asking).await
            })
        }
    }
}

/// `flashloom drive add`
fn add(
    global: &Global,
    pool: &Name,
    drives: Vec<DrivePath>,
    force: bool,
    how: &JobArgs,
) -> Outcome {
    let drives = drives.into_iter().map(absolute_drive).collect::<Outcome<_>>()?;
    let new = NewDrives { drives, force };
    let begin =
        async |client: Client, asking: Asking| client.begin_add_drives(pool, &new, &asking).await;
    let outcome = async |client: Client, _| {
        let all = client.drives().await?;
        Ok(all.into_iter().filter(|drive| drive.pool == *pool).collect())
    };
    let wider = follow(global, how, begin, outcome)?;
    wider.map_or(Ok(()), |wider: Vec<Drive>| print(global.output, &wider, |all| drive_table(all)))
}

/// `flashloom pool rebuild ...`
pub fn rebuild(global: &Global, verb: RebuildVerb) -> Outcome {
    match verb {
        RebuildVerb::Show { name } => {
            let rebuild = ask(global, async |client| client.rebuild(&name).await)?;
            print(global.output, &rebuild, rebuild_facts)
        }
        RebuildVerb::Limit { name, limit } => {
            let how = RateLimit { limit };
            let rebuild = ask(global, async |client| client.limit_rebuild(&name, &how).await)?;
            print(global.output, &rebuild, rebuild_facts)
        }
        RebuildVerb::Pause { name } => {
            let rebuild = ask(global, async |client| client.pause_rebuild(&name).await)?;
            print(global.output, &rebuild, rebuild_facts)
        }
        RebuildVerb::Resume { name, how } => {
            let begin = async |client: Client, asking: Asking| {
                client.begin_resume_rebuild(&name, &asking).await
            };
            let outcome = async |client: Client, _| client.rebuild(&name).await;
            let done = follow(global, &how, begin, outcome)?;
            done.map_or(Ok(()), |done| print(global.output, &done, rebuild_facts))
        }
        RebuildVerb::Stop { name } => {
            ask(global, async |client| client.stop_rebuild(&name).await)?;
            gone(global, "rebuild of pool", &name, "ended")
        }
        RebuildVerb::Start { name, limit, how } => {
            let limit = RateLimit { limit };
            let begin = async |client: Client, asking: Asking| {
                client.begin_rebuild(&name, &limit, &asking).await
            };
            let outcome = async |client: Client, _| client.rebuild(&name).await;
            let done = follow(global, &how, begin, outcome)?;
            done.map_or(Ok(()), |done| print(global.output, &done, rebuild_facts))
        }
    }
}

/// `flashloom pool rejoin ...`
pub fn rejoin(global: &Global, verb: RejoinVerb) -> Outcome {
    let rejoin = match verb {
        RejoinVerb::Show { name } => ask(global, async |client| client.rejoin(&name).await)?,
        RejoinVerb::Limit { name, limit } => {
            let how = RateLimit { limit };
            ask(global, async |client| client.limit_rejoin(&name, &how).await)?
        }
        RejoinVerb::Pause { name } => {
            ask(global, async |client| client.pause_rejoin(&name, true).await)?
        }
        RejoinVerb::Resume { name } => {
            ask(global, async |client| client.pause_rejoin(&name, false).await)?
        }
    };
    print(global.output, &rejoin, rejoin_facts)
}

fn rejoin_facts(rejoin: &Rejoin) -> Table {
    let size = |bytes: u64| Size::new(bytes).to_string();
    let drives: Vec<_> = rejoin.drives.iter().map(ToString::to_string).collect();
    let state = match (rejoin.paused, drives.is_empty()) {
        (true, _) => "paused",
        (false, false) => "running",
        (false, true) => "none is being made whole",
    };
    let limit = (rejoin.limit > 0).then(|| format!("{}/s", size(rejoin.limit)));
    facts([
        ("drives".to_owned(), drives.join(", ")),
        ("state".to_owned(), state.to_owned()),
        ("done".to_owned(), size(rejoin.done.min(rejoin.bytes))),
        ("of".to_owned(), size(rejoin.bytes)),
        ("limit".to_owned(), or_dash(limit)),
    ])
}

fn light_facts(light: &Light) -> Table {
    facts([
        ("drive".to_owned(), format!("{}/{}", light.pool, light.index)),
        ("device".to_owned(), light.device.clone()),
        ("light".to_owned(), if light.on { "on" } else { "off" }.to_owned()),
    ])
}

fn rebuild_facts(rebuild: &Rebuild) -> Table {
    let size = |bytes: u64| Size::new(bytes).to_string();
    let drives: Vec<_> = rebuild.drives.iter().map(ToString::to_string).collect();
    let state = match (&rebuild.failure, rebuild.running, rebuild.waits) {
        _ if rebuild.paused => "paused".to_owned(),
        (Some(why), ..) => format!("given up: {why}"),
        (None, true, true) => "waits for room on the other drives".to_owned(),
        (None, true, false) => "running".to_owned(),
        (None, false, _) => "done".to_owned(),
    };
    let limit = (rebuild.limit > 0).then(|| format!("{}/s", size(rebuild.limit)));
    facts([
        ("drives".to_owned(), drives.join(", ")),
        ("state".to_owned(), state),
        ("done".to_owned(), size(rebuild.done.min(rebuild.bytes))),
        ("of".to_owned(), size(rebuild.bytes)),
        ("limit".to_owned(), or_dash(limit)),
    ])
}

/// Has something be done to a drive, and prints how it is then.
fn change<F>(
    global: &Global,
    of: &OfDrive,
    how: &JobArgs,
    begin: impl FnOnce(Client, Asking) -> F,
) -> Outcome
where
    F: Future<Output = control::client::Result<Begun<Drive>>>,
{
    let outcome = async |client: Client, _| client.drive(&of.drive).await;
    let drive = follow(global, how, begin, outcome)?;
    drive.map_or(Ok(()), |drive| print(global.output, &drive, drive_facts))
}

/// A drive's state, with how far it is being made whole, or why it is out.
pub fn state(drive: &Drive) -> String {
    let state = drive.state.name();
    let failure = drive.rejoin.as_ref().and_then(|rejoin| rejoin.failure.as_ref());
    match &drive.rejoin {
        Some(rejoin) if drive.state == DriveState::Rejoining => {
            let size = |units: u64| Size::new(units * rejoin.unit_bytes);
            format!("{state}, {} of {}", size(rejoin.done), size(rejoin.units))
        }
        _ if drive.retired => format!("{state} (by an operator)"),
        _ if drive.state.is_lost() => match drive.cause.as_ref().or(failure) {
            Some(why) => format!("{state} ({why})"),
            None => state.to_owned(),
        },
        _ if !drive.hardware.warnings.is_empty() => format!("{state}, warns"),
        _ => state.to_owned(),
    }
}

/// A drive of a pool, in its place or none.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed {
    Drive(Box<Drive>),
    Spare(Box<Spare>),
}

fn listed_table(all: &[Listed]) -> Table {
    let mut table = no_drives();
    for listed in all {
        match listed {
            Listed::Drive(drive) => table.add_row(drive_row(drive)),
            Listed::Spare(spare) => table.add_row(spare_row(spare)),
        };
    }
    table
}

fn drive_table(all: &[Drive]) -> Table {
    let mut table = no_drives();
    table.add_rows(all.iter().map(drive_row));
    table
}

fn no_drives() -> Table {
    let header =
        ["pool", "drive", "path", "state", "since", "size", "read", "written", "errors", "doing"];
    table(&header, &[1, 5, 6, 7, 8])
}

fn drive_row(drive: &Drive) -> [String; 10] {
    let counters = drive.counters;
    let errors = counters.read_errors + counters.write_errors + counters.corrupt;
    [
        drive.pool.to_string(),
        drive.index.to_string(),
        or_dash(drive.path.as_ref()),
        state(drive),
        or_dash(drive.since_ms.and_then(time)),
        Size::new(drive.size).to_string(),
        Size::new(counters.bytes_read).to_string(),
        Size::new(counters.bytes_written).to_string(),
        errors.to_string(),
        or_dash(drive.doing.as_ref()),
    ]
}

/// A spare has no place, and nothing is counted of it.
fn spare_row(spare: &Spare) -> [String; 10] {
    let none = || "-".to_owned();
    let (state, size) = (spares::state(spare), Size::new(spare.size).to_string());
    let (pool, path) = (spare.pool.to_string(), spare.path.clone());
    [pool, none(), path, state, none(), size, none(), none(), none(), none()]
}

fn drive_facts(drive: &Drive) -> Table {
    let counters = drive.counters;
    let count = |name: &str, value: u64| (name.to_owned(), value.to_string());
    let known = [
        ("pool".to_owned(), drive.pool.to_string()),
        ("drive".to_owned(), drive.index.to_string()),
        ("path".to_owned(), or_dash(drive.path.as_ref())),
        ("id".to_owned(), drive.id.to_string()),
        ("state".to_owned(), state(drive)),
        ("since".to_owned(), or_dash(drive.since_ms.and_then(time))),
        ("cause".to_owned(), or_dash(drive.cause.as_ref())),
        ("doing".to_owned(), or_dash(drive.doing.as_ref())),
        ("returns within the last hour".to_owned(), drive.returns.to_string()),
        ("size".to_owned(), Size::new(drive.size).to_string()),
        count("reads", counters.reads),
        count("writes", counters.writes),
        ("read".to_owned(), Size::new(counters.bytes_read).to_string()),
        ("written".to_owned(), Size::new(counters.bytes_written).to_string()),
        count("read errors", counters.read_errors),
        count("write errors", counters.write_errors),
        count("corrupt blocks", counters.corrupt),
        count("reconstructed blocks", counters.reconstructed),
        count("repaired blocks", counters.repaired),
        count("timeouts", counters.timeouts),
        count("slow reads", counters.slow),
    ];
    facts(known.into_iter().chain(physical::facts(&drive.hardware)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_warns_is_seen_in_the_list() {
        let mut drive: Drive = serde_json::from_value(serde_json::json!({
            "pool": "fast", "index": 0, "id": "5f0c4f0e-5d39-4b43-8d39-0d6a2f3f7a10",
            "health": "online", "state": "online", "size": 1,
            "counters": {
                "reads": 0, "writes": 0, "bytes_read": 0, "bytes_written": 0, "read_errors": 0,
                "write_errors": 0, "corrupt": 0, "reconstructed": 0, "repaired": 0,
            },
        }))
        .unwrap();
        assert_eq!(state(&drive), "online");
        drive.hardware.warnings.push("the media is read-only".to_owned());
        assert_eq!(state(&drive), "online, warns");
        drive.state = DriveState::Slow;
        assert_eq!(state(&drive), "slow, warns");
        assert!(drive_table(&[drive]).to_string().contains("slow, warns"));
    }

    #[test]
    fn a_drive_that_is_out_tells_since_when_why_and_what_is_done() {
        let drive: Drive = serde_json::from_value(serde_json::json!({
            "pool": "fast", "index": 1, "id": "5f0c4f0e-5d39-4b43-8d39-0d6a2f3f7a10",
            "health": "failed", "state": "failed", "since_ms": 1_000, "cause": "a write: timed out",
            "doing": "is tried again in 5 s", "size": 1,
            "counters": {
                "reads": 0, "writes": 0, "bytes_read": 0, "bytes_written": 0, "read_errors": 0,
                "write_errors": 0, "corrupt": 0, "reconstructed": 0, "repaired": 0,
            },
        }))
        .unwrap();
        let list = drive_table(std::slice::from_ref(&drive)).to_string();
        for words in ["failed (a write: timed out)", "1970-01-01", "is tried again in 5 s"] {
            assert!(list.contains(words), "{list}");
            assert!(drive_facts(&drive).to_string().contains(words), "{words}");
        }
    }
}
