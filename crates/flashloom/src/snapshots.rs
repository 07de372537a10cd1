//! Commands about snapshots, which speak to the running daemon.

use std::fmt::Display;

use api::v1::{ChangedExtent, Consent, NewRollback, NewSnapshots, RolledBack, Snapshot};
use api::value::SnapshotPath;
use comfy_table::Table;
use control::Client;

use crate::cli::{Global, Output, SnapshotVerb, SureArgs, Whose};
use crate::confirm::meant;
use crate::daemon::ask;
use crate::exit::{Exit, Failure, Outcome};
use crate::manage::{change_if_meant, remove, time};
use crate::output::{emit, gone, json, or_dash, print, print_one, table};

/// `flashloom snapshot ...`
pub fn snapshot(global: &Global, verb: SnapshotVerb) -> Outcome {
    match verb {
        SnapshotVerb::Create { snapshots } => {
            let new = NewSnapshots { names: snapshots };
            let taken = ask(global, async |client| client.take_snapshots(&new).await)?;
            print(global.output, &taken, |taken| snapshot_table(taken))
        }
        SnapshotVerb::List { of } => {
            let all = ask(global, async |client| match &of {
                None => client.snapshots().await,
                Some(Whose::Pool(pool)) => client.snapshots_in(pool).await,
                Some(Whose::Volume(volume)) => client.snapshots_of(volume).await,
            })?;
            print(global.output, &all, |all| snapshot_table(all))
        }
        SnapshotVerb::Show { of } => {
            let one = ask(global, async |client| client.snapshot(&of.snapshot).await)?;
            print_one(global.output, &one, snapshot_table)
        }
        SnapshotVerb::Diff { snapshots } => diff(global, &snapshots),
        SnapshotVerb::Rollback { of, keep, sure } => {
            roll_back(global, &of.snapshot, &keep.into(), &sure)
        }
        SnapshotVerb::Delete { of, sure } => {
            let path = of.snapshot;
            let dry_run =
                async |client: Client| client.delete_snapshot(&path, Consent::DRY_RUN).await;
            let Some(consent) = meant(global, &sure, dry_run)? else { return Ok(()) };
            ask(global, async |client| client.delete_snapshot(&path, consent).await)?;
            gone(global, "snapshot", &path, "deleted")
        }
        SnapshotVerb::Map { of, at } => {
            let new = at.into();
            let mapped = ask(global, async |client| client.map_snapshot(&of.snapshot, &new).await)?;
            print_one(global.output, &mapped, snapshot_table)
        }
        SnapshotVerb::Unmap { of, sure } => {
            remove(global, &sure, async |client: Client, consent| {
                client.unmap_snapshot(&of.snapshot, consent).await
            })
        }
    }
}

/// `flashloom snapshot rollback`
fn roll_back(global: &Global, path: &SnapshotPath, new: &NewRollback, sure: &SureArgs) -> Outcome {
    let done = change_if_meant(global, sure, async |client: Client, consent| {
        client.roll_back(path, new, consent).await
    })?;
    let Some(done) = done else { return Ok(()) };
    match global.output {
        Output::Json => json(&done),
        _ => print_rolled_back(global, path, &[done]),
    }
}

/// Says of each volume what it went back to, to who reads tables.
pub fn print_rolled_back(global: &Global, to: impl Display, done: &[RolledBack]) -> Outcome {
    if global.output != Output::Table {
        return Ok(());
    }
    for RolledBack { volume, kept } in done {
        let kept = kept.as_ref().map(|kept| format!("; {kept} has what it had before"));
        emit(&format!("{} went back to {to}{}\n", volume.name, kept.unwrap_or_default()))?;
    }
    Ok(())
}

/// `flashloom snapshot diff`
fn diff(global: &Global, snapshots: &[SnapshotPath]) -> Outcome {
    let (from, to) = match snapshots {
        [from, to] if from.volume == to.volume => (Some(&from.snapshot), to),
        [one] => (None, one),
        _ => {
            let what = "changes are told between two snapshots of one volume";
            return Err(Failure::new(Exit::Usage, what).help("name the older one first"));
        }
    };
    let is_json = global.output == Output::Json;
    let (mut start, mut is_first) = (0, true);
    // Nothing is printed before the daemon knows them.
    let mut text =
        if is_json { "[" } else { "              offset                bytes what\n" }.to_owned();
    loop {
        let part = ask(global, async |client| client.snapshot_changes(to, from, start).await)?;
        for extent in &part.extents {
            let ChangedExtent { offset, bytes, data } = *extent;
            if is_json {
                let one = serde_json::to_string(extent);
                let one = one.map_err(|error| Failure::new(Exit::Failed, error))?;
                text.push_str(if is_first { "\n" } else { ",\n" });
                text.push_str(&one);
                is_first = false;
            } else {
                let what = if data { "data" } else { "zeroes" };
                text.push_str(&format!("{offset:>20} {bytes:>20} {what}\n"));
            }
        }
        emit(&std::mem::take(&mut text))?;
        let Some(next) = part.next else { break };
        start = next;
    }
    if is_json { emit("\n]\n") } else { Ok(()) }
}

pub fn snapshot_table(all: &[Snapshot]) -> Table {
    let header = [
        "snapshot",
        "taken",
        "state",
        "size",
        "referenced",
        "unique",
        "shared",
        "subsystem",
        "nsid",
        "uuid",
    ];
    let mut table = table(&header, &[3, 4, 5, 6, 8]);
    for snapshot in all {
        let mapping = snapshot.mapping.as_ref();
        let taken = snapshot.created_ms.and_then(time);
        table.add_row([
            snapshot.name.to_string(),
            or_dash(taken),
            snapshot.state.name().to_owned(),
            snapshot.size.to_string(),
            or_dash(snapshot.referenced),
            or_dash(snapshot.unique),
            or_dash(snapshot.shared),
            or_dash(mapping.map(|at| at.subsystem.to_string())),
            or_dash(mapping.map(|at| at.nsid)),
            snapshot.id.to_string(),
        ]);
    }
    table
}
