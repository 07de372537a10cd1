//! Commands about snapshots, which speak to the running daemon.

use api::v1::{Consent, NewSnapshots, Snapshot};
use comfy_table::Table;
use control::Client;

use crate::cli::{Global, SnapshotVerb, Whose};
use crate::confirm::meant;
use crate::daemon::ask;
use crate::exit::Outcome;
use crate::manage::{remove, time};
use crate::output::{gone, or_dash, print, print_one, table};

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

fn snapshot_table(all: &[Snapshot]) -> Table {
    let mut table =
        table(&["snapshot", "taken", "state", "size", "subsystem", "nsid", "uuid"], &[3, 5]);
    for snapshot in all {
        let mapping = snapshot.mapping.as_ref();
        let taken = (snapshot.created_ms > 0).then(|| time(snapshot.created_ms)).flatten();
        table.add_row([
            snapshot.name.to_string(),
            or_dash(taken),
            snapshot.state.name().to_owned(),
            snapshot.size.to_string(),
            or_dash(mapping.map(|at| at.subsystem.to_string())),
            or_dash(mapping.map(|at| at.nsid)),
            snapshot.id.to_string(),
        ]);
    }
    table
}
