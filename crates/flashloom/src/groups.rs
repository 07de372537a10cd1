//! Commands about groups of volumes, which speak to the running daemon.

use std::collections::BTreeMap;

use api::v1::{Consent, Group, GroupChange, NewGroup, NewGroupClone, NewRollback};
use api::value::{GroupPath, GroupSnapshotPath};
use comfy_table::Table;
use control::Client;
use control::client::Asking;

use crate::cli::{CloneName, Global, GroupVerb, JobArgs, Output, SureArgs};
use crate::confirm::meant;
use crate::daemon::ask;
use crate::exit::{Exit, Failure, Outcome};
use crate::jobs::follow;
use crate::manage::{change_if_meant, remove, time};
use crate::output::{gone, json, or_dash, print, print_one, table};
use crate::snapshots::{print_rolled_back, snapshot_table};

/// `flashloom group ...`
pub fn group(global: &Global, verb: GroupVerb) -> Outcome {
    let change = |of: &_, change: GroupChange| {
        let changed = ask(global, async |client| client.change_group(of, &change).await)?;
        print_one(global.output, &changed, group_table)
    };
    match verb {
        GroupVerb::Create { of, volumes, quota } => {
            let new = NewGroup { name: of.group, volumes, quota };
            let made = ask(global, async |client| client.create_group(&new).await)?;
            print_one(global.output, &made, group_table)
        }
        GroupVerb::Add { of, volumes } => {
            change(&of.group, GroupChange { add: volumes, ..GroupChange::default() })
        }
        GroupVerb::Remove { of, volumes } => {
            change(&of.group, GroupChange { remove: volumes, ..GroupChange::default() })
        }
        GroupVerb::Rename { of, to } => {
            change(&of.group, GroupChange { name: Some(to), ..GroupChange::default() })
        }
        GroupVerb::Quota { of, quota } => {
            change(&of.group, GroupChange { quota: Some(quota), ..GroupChange::default() })
        }
        GroupVerb::List { pool } => {
            let all = ask(global, async |client| client.groups(pool.as_ref()).await)?;
            print(global.output, &all, |all| group_table(all))
        }
        GroupVerb::Show { of } => {
            let one = ask(global, async |client| client.group(&of.group).await)?;
            print_one(global.output, &one, group_table)
        }
        GroupVerb::Delete { of, sure } => remove(global, &sure, async |client: Client, consent| {
            client.delete_group(&of.group, consent).await
        }),
        GroupVerb::Snapshot { of } => {
            let path = of.snapshot;
            let taken = ask(global, async |client| client.take_group_snapshots(&path).await)?;
            print(global.output, &taken, |taken| snapshot_table(taken))
        }
        GroupVerb::Rollback { of, keep, sure } => {
            roll_back(global, &of.snapshot, &keep.into(), &sure)
        }
        GroupVerb::Clone { of, to, volumes, how } => clone(global, &of.snapshot, to, volumes, &how),
        GroupVerb::DeleteSnapshot { of, sure } => {
            let path = of.snapshot;
            let dry_run =
                async |client: Client| client.delete_group_snapshots(&path, Consent::DRY_RUN).await;
            let Some(consent) = meant(global, &sure, dry_run)? else { return Ok(()) };
            ask(global, async |client| client.delete_group_snapshots(&path, consent).await)?;
            gone(global, "snapshots", &path, "deleted")
        }
    }
}

/// `flashloom group rollback`
fn roll_back(
    global: &Global,
    path: &GroupSnapshotPath,
    new: &NewRollback,
    sure: &SureArgs,
) -> Outcome {
    let done = change_if_meant(global, sure, async |client: Client, consent| {
        client.roll_group_back(path, new, consent).await
    })?;
    let Some(done) = done else { return Ok(()) };
    match global.output {
        Output::Json => json(&done),
        _ => print_rolled_back(global, path, &done),
    }
}

/// `flashloom group clone`
fn clone(
    global: &Global,
    path: &GroupSnapshotPath,
    name: GroupPath,
    names: Vec<CloneName>,
    how: &JobArgs,
) -> Outcome {
    let mut volumes = BTreeMap::new();
    for CloneName { volume, name } in names {
        if let Some(before) = volumes.insert(volume.clone(), name) {
            let what = format!("the clone of {volume} is called twice, {before} and otherwise");
            return Err(Failure::new(Exit::Usage, what).help("name each volume once"));
        }
    }
    let new = NewGroupClone { name, volumes };
    let begin =
        async |client: Client, asking: Asking| client.begin_clone_group(path, &new, &asking).await;
    let made = follow(global, how, begin, async |client: Client, _| client.group(&new.name).await)?;
    made.map_or(Ok(()), |made| print_one(global.output, &made, group_table))
}

fn group_table(all: &[Group]) -> Table {
    let mut table = table(&["group", "made", "volumes", "used", "quota", "uuid"], &[3, 4]);
    for group in all {
        // Their pool is the group's.
        let volumes: Vec<_> = group.volumes.iter().map(|path| path.volume.as_str()).collect();
        table.add_row([
            group.name.to_string(),
            or_dash(time(group.created_ms)),
            or_dash((!volumes.is_empty()).then(|| volumes.join("\n"))),
            or_dash(group.quota_used),
            or_dash(group.quota),
            group.id.to_string(),
        ]);
    }
    table
}
