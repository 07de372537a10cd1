//! Commands about pools, drives and volumes, which speak to the running daemon.

use api::v1::{
    CapacityBreakdown, Consent, DriveState, FoundPool, Job, LogChange, LogMove, LogMoved, NewPool,
    NewVolume, Pool, PoolImport, PoolPlan, PoolSpace, PoolStatus, Rebuild, ScrubState, Spread,
    Volume, VolumeChange,
};
use api::value::{DrivePath, LogPlace, Size, VolumePath};
use comfy_table::Table;
use control::Client;
use control::client::Asking;

use crate::cli::{Global, JobArgs, LogVerb, MadeOf, PoolVerb, Reserve, VolumeVerb};
use crate::confirm::{confirm, meant};
use crate::daemon::ask;
use crate::exit::Outcome;
use crate::jobs::follow;
use crate::manage::{absolute_drive, lost, remove, whole};
use crate::output::{facts, gone, or_dash, print, print_one, table};
use crate::{drives, scrub, spares};

/// `flashloom pool ...`
pub fn pool(global: &Global, verb: PoolVerb) -> Outcome {
    match verb {
        PoolVerb::Create { name, of, raid, log_size, shards, force, dry_run, how } => {
            let (drives, log) = absolute(of)?;
            let raid = raid.map(Into::into);
            let new = NewPool { name, drives, raid, log, log_size, shards, force, dry_run };
            if dry_run {
                let plan = ask(global, async |client| client.plan_pool(&new).await)?;
                return print(global.output, &plan, plan_facts);
            }
            let begin = async |client: Client, asking: Asking| {
                client.begin_create_pool(&new, &asking).await
            };
            let outcome = async |client: Client, _| client.pool(&new.name).await;
            let made = follow(global, &how, begin, outcome)?;
            made.map_or(Ok(()), |made| print(global.output, &made, pool_facts))
        }
        PoolVerb::List => {
            let all = ask(global, async |client| client.pools().await)?;
            print(global.output, &all, |all| pool_table(all))
        }
        PoolVerb::Show { name } => {
            let pool = ask(global, async |client| client.pool(&name).await)?;
            print(global.output, &pool, pool_facts)
        }
        PoolVerb::Export { name, how } => {
            let begin = async |client: Client, asking: Asking| {
                client.begin_export_pool(&name, &asking).await
            };
            let done = follow(global, &how, begin, async |_, _| Ok(()))?;
            done.map_or(Ok(()), |()| gone(global, "pool", &name, "exported"))
        }
        PoolVerb::Delete { name, sure, how } => {
            let dry_run = async |client: Client| client.delete_pool(&name, Consent::DRY_RUN).await;
            let Some(consent) = meant(global, &sure, dry_run)? else { return Ok(()) };
            let begin = async |client: Client, asking: Asking| {
                client.begin_delete_pool(&name, consent, &asking).await
            };
            let done = follow(global, &how, begin, async |_, _| Ok(()))?;
            done.map_or(Ok(()), |()| gone(global, "pool", &name, "deleted"))
        }
        PoolVerb::Import { name, drive, log, dry_run, yes, degraded, accept_loss, force, how } => {
            let (drives, log) = absolute(MadeOf { drive, log })?;
            let from = PoolImport { name, drives, log, degraded, accept_loss, force };
            import(global, from, dry_run, yes, &how)
        }
        PoolVerb::Rebuild { verb } => drives::rebuild(global, verb),
        PoolVerb::Rejoin { verb } => drives::rejoin(global, verb),
        PoolVerb::Scrub { verb } => scrub::scrub(global, verb),
        PoolVerb::Spare { verb } => spares::spare(global, verb),
        PoolVerb::Log { verb } => log(global, verb),
        PoolVerb::Dump(args) => crate::dump::run(global, args),
    }
}

/// `flashloom pool import`
fn import(global: &Global, from: PoolImport, dry_run: bool, yes: bool, how: &JobArgs) -> Outcome {
    if dry_run {
        let found = ask(global, async |client| client.found_pools(&from).await)?;
        return print(global.output, &found, |found| found_table(found));
    }
    let PoolImport { degraded, accept_loss, .. } = from;
    if degraded {
        let loss = "Drives that are missing count as failed from then on: what they hold is old.";
        confirm(loss, yes)?;
    }
    if accept_loss {
        let loss =
            "Writes that were acknowledged and are in the commit log only may be lost for good.";
        confirm(loss, yes)?;
    }
    let begin =
        async |client: Client, asking: Asking| client.begin_import_pool(&from, &asking).await;
    let outcome =
        async |client: Client, job: Job| client.pool(&job.target.parse().map_err(garbled)?).await;
    let Some(opened) = follow(global, how, begin, outcome)? else { return Ok(()) };
    if accept_loss {
        eprintln!(
            "Opened without what its commit log lost, if anything: writes that were \
             acknowledged may be. `flashloom events` says whether the log was lost as a \
             whole. Check what uses its volumes."
        );
    }
    print(global.output, &opened, pool_facts)
}

fn garbled(what: impl ToString) -> control::client::Error {
    control::client::Error::Garbled(what.to_string())
}

/// `flashloom pool log ...`
fn log(global: &Global, verb: LogVerb) -> Outcome {
    let (name, to, dry_run, how) = match verb {
        LogVerb::Move { name, to, dry_run, how } => (name, to, dry_run, how),
        LogVerb::Policy { name, policy } => {
            let change = LogChange { policy: policy.into() };
            let pool = ask(global, async |client| client.change_log(&name, &change).await)?;
            return print(global.output, &pool, pool_facts);
        }
    };
    let change = LogMove { to: to.into_iter().map(whole_place).collect::<Outcome<_>>()?, dry_run };
    if dry_run {
        let would = ask(global, async |client| client.move_log(&name, &change).await)?;
        return print(global.output, &would, moved_facts);
    }
    let begin =
        async |client: Client, asking: Asking| client.begin_move_log(&name, &change, &asking).await;
    let outcome = async |_, job: Job| {
        job.log_moved.ok_or_else(|| garbled("a log that was moved is not told of"))
    };
    let moved = follow(global, &how, begin, outcome)?;
    moved.map_or(Ok(()), |moved| print(global.output, &moved, moved_facts))
}

/// A log's place, with a path that means the same to the daemon as it does here.
fn whole_place(place: LogPlace) -> Outcome<LogPlace> {
    Ok(match place {
        LogPlace::Pmem(path) => LogPlace::Pmem(whole(&path)?),
        LogPlace::Bbu(path) => LogPlace::Bbu(whole(&path)?),
        LogPlace::Drives | LogPlace::Remote(_) => place,
    })
}

fn moved_facts(moved: &LogMoved) -> Table {
    let words =
        |places: &[LogPlace]| places.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let done = if moved.moved { "yes" } else { "no, this is what would be done" };
    facts([
        ("pool".to_owned(), moved.pool.to_string()),
        ("log from".to_owned(), words(&moved.from)),
        ("log to".to_owned(), words(&moved.to)),
        ("size".to_owned(), Size::new(moved.size).to_string()),
        ("moved".to_owned(), done.to_owned()),
    ])
}

/// What a pool is made of, with paths that mean the same to the daemon as they do here.
fn absolute(of: MadeOf) -> Outcome<(Vec<DrivePath>, Vec<LogPlace>)> {
    Ok((
        of.drive.into_iter().map(absolute_drive).collect::<Outcome<_>>()?,
        of.log.into_iter().map(whole_place).collect::<Outcome<_>>()?,
    ))
}

fn found_table(all: &[FoundPool]) -> Table {
    let header = ["pool", "id", "drives", "bears", "log", "state", "missing", "import needs"];
    let mut table = table(&header, &[3]);
    for pool in all {
        let there = pool.drives.iter().filter(|drive| drive.path.is_some()).count();
        let missing = pool.drives.iter().filter(|drive| drive.path.is_none() && !drive.failed);
        let missing: Vec<_> = missing.map(|drive| drive.index.to_string()).collect();
        table.add_row([
            pool.name.clone(),
            pool.id.to_string(),
            format!("{there} of {}", pool.drives.len()),
            pool.bears.to_string(),
            pool.log.clone(),
            if pool.exported { "exported" } else { "not exported" }.to_owned(),
            or_dash((!missing.is_empty()).then(|| missing.join(", "))),
            or_dash((!pool.needs.is_empty()).then(|| pool.needs.join("; "))),
        ]);
    }
    table
}

fn pool_table(all: &[Pool]) -> Table {
    let header = ["pool", "health", "drives", "raid", "capacity", "used", "log", "volumes"];
    let mut table = table(&header, &[2, 4, 5, 7]);
    for pool in all {
        let status = pool.status.as_ref();
        table.add_row([
            pool.name.to_string(),
            health(pool),
            pool.paths.len().to_string(),
            or_dash(status.map(|status| shape(status.data, status.parity))),
            or_dash(status.map(|status| Size::new(status.capacity))),
            or_dash(status.map(|status| Size::new(status.used))),
            or_dash(status.map(|status| status.log.kind.clone())),
            or_dash(status.map(|status| status.volumes)),
        ]);
    }
    table
}

/// `online`, and what is to be said of its space: `online, low on space`.
fn health(pool: &Pool) -> String {
    let health = pool.health.name();
    match pool.status.as_ref().map(|status| status.space) {
        None | Some(PoolSpace::Enough) => health.to_owned(),
        Some(PoolSpace::Low) => format!("{health}, low on space"),
        Some(PoolSpace::Critical) => format!("{health}, critically low on space"),
        Some(PoolSpace::Full) => format!("{health}, full"),
    }
}

/// `4+2`: data units and parity units; `mirror of 2`: copies.
fn shape(data: u8, parity: u8) -> String {
    match (data, parity) {
        (1, 0) => "single".to_owned(),
        (1, copies) => format!("mirror of {}", copies + 1),
        (data, parity) => format!("{data}+{parity}"),
    }
}

fn pool_facts(pool: &Pool) -> Table {
    let mut rows = vec![
        ("pool".to_owned(), pool.name.to_string()),
        ("id".to_owned(), pool.id.to_string()),
        ("health".to_owned(), health(pool)),
    ];
    rows.extend(pool.problem.iter().map(|problem| ("problem".to_owned(), problem.clone())));
    if pool.scrub.state != ScrubState::Never {
        rows.push(("scrub".to_owned(), scrub::words(&pool.scrub)));
    }
    for spare in &pool.spares {
        let of = (spare.path.as_str(), spares::state(spare), Size::new(spare.size));
        rows.push(("spare".to_owned(), format!("{}, {}, {}", of.0, of.1, of.2)));
    }
    match &pool.status {
        Some(status) => status_facts(status, &mut rows),
        None => {
            // A drive that was removed has left none.
            let paths = pool.paths.iter().filter(|path| !path.is_empty());
            rows.extend(paths.map(|path| ("drive".to_owned(), path.clone())));
        }
    }
    facts(rows)
}

/// A pool as it would be made.
fn plan_facts(plan: &PoolPlan) -> Table {
    let size = |bytes: u64| Size::new(bytes).to_string();
    let mut rows = vec![
        ("pool".to_owned(), plan.name.to_string()),
        ("redundancy".to_owned(), shape(plan.data, plan.parity)),
        ("shards".to_owned(), plan.shards.to_string()),
        ("log".to_owned(), size(plan.log_size)),
        ("usable".to_owned(), size(plan.breakdown.usable)),
        ("of raw".to_owned(), breakdown(&plan.breakdown)),
    ];
    rows.extend(plan.drives.iter().enumerate().map(|(index, drive)| {
        let used = format!("{}, {} of {} used", drive.path, size(drive.used), size(drive.size));
        (format!("drive {index}"), used)
    }));
    rows.push(("made".to_owned(), "no, this is what would be made".to_owned()));
    facts(rows)
}

/// What the bytes of drives are for, beside contents.
fn breakdown(of: &CapacityBreakdown) -> String {
    let CapacityBreakdown { raw, usable: _, parity, log, labels, reserve, unused } = *of;
    let parts = [
        (parity, "parity"),
        (log, "log"),
        (labels, "labels and headers"),
        (reserve, "reserve"),
        (unused, "unused"),
    ];
    let parts = parts.iter().filter(|(bytes, _)| *bytes > 0);
    let parts: Vec<_> =
        parts.map(|(bytes, what)| format!("{} {what}", Size::new(*bytes))).collect();
    format!("{}: {}", Size::new(raw), parts.join(", "))
}

/// What room a pool has, and what of it is taken.
fn space_facts(status: &PoolStatus, row: &mut impl FnMut(&str, String)) {
    let size = |bytes: u64| Size::new(bytes).to_string();
    row("capacity", size(status.capacity));
    row("of raw", breakdown(&status.breakdown));
    if let Some(Spread { capacity, bytes }) = status.spread {
        let (bytes, capacity) = (size(bytes), size(capacity));
        row(
            "spreading",
            format!("{bytes} to move onto drives that came, capacity then {capacity}"),
        );
    }
    let percent = status.used.saturating_mul(100) / status.capacity.max(1);
    let metadata = size(status.metadata);
    row("used", format!("{}, {percent} % ({metadata} of metadata)", size(status.used)));
    if let Some(bytes) = status.held_by_clones.filter(|bytes| *bytes > 0) {
        row(
            "held by clones",
            format!("{} of volumes that are deleted or rolled back", size(bytes)),
        );
    }
    if status.reserved > 0 {
        let (all, kept) = (size(status.reserved), size(status.reserved_kept));
        let lacks = match status.reserved_missing {
            0 => String::new(),
            missing => format!(", {} of it missing", size(missing)),
        };
        row(
            "reserved",
            format!("{all}, of which {kept} is kept for what is yet to be written{lacks}"),
        );
    }
}

fn status_facts(status: &PoolStatus, rows: &mut Vec<(String, String)>) {
    let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
    let size = |bytes: u64| Size::new(bytes).to_string();
    let (shape, left) = (shape(status.data, status.parity), status.redundancy_left);
    row("redundancy", format!("{shape}, bears the loss of {left} more"));
    row("shards", status.shards.to_string());
    space_facts(status, &mut row);
    row("volumes", format!("{}, of {} together", status.volumes, size(status.provisioned)));
    let log = &status.log;
    row("log", format!("{} of {} in use, {}", size(log.used), size(log.size), log.kind));
    row(
        "log copies",
        format!("{} of {}", log.devices.saturating_sub(log.failed_devices), log.devices),
    );
    for away in &log.away {
        row("log copy away", away.clone());
    }
    if let Some(of) = status.window_log {
        let (count, used, all) = (status.windows, size(of.used), size(of.size));
        row("direct write windows", format!("{count}, {used} in use of {all} set aside"));
    }
    row("log policy", log.policy.name().to_owned());
    if log.lost {
        row("log lost", "opened without it: what was in it only is lost".to_owned());
    } else if log.made_anew {
        row("log made anew", "opened without it: nothing was in it".to_owned());
    }
    row("protection", log.protection.clone());
    let segments = status.segments;
    row(
        "segments",
        format!(
            "{} free, {} reserved, {} open, {} sealed, {} reclaimed",
            segments.free,
            segments.reserved,
            segments.open,
            segments.sealed,
            status.segments_reclaimed
        ),
    );
    let out = status.drives.iter().filter(|drive| drive.state == DriveState::Vacant).count();
    if out > 0 {
        row("vacant", format!("{out} drives fewer, redundancy whole"));
    }
    let is_told = |rebuild: &&Rebuild| rebuild.running || rebuild.paused;
    if let Some(rebuild) = status.rebuild.as_ref().filter(is_told) {
        let (done, all) = (size(rebuild.done.min(rebuild.bytes)), size(rebuild.bytes));
        let paused = if rebuild.paused { "paused, " } else { "" };
        row("rebuild", format!("{paused}{done} of {all}"));
    }
    if status.lost_blocks > 0 {
        let lost = format!("{}: reads of them fail until they are written", status.lost_blocks);
        row("lost blocks", lost);
    }
    row("written by hosts", size(status.written));
    row("written to drives", size(status.drive_written));
    let amplification = status.write_amplification.map(|ratio| format!("{ratio:.2}"));
    row("write amplification", or_dash(amplification));
    for drive in &status.drives {
        let at = drive.path.as_deref().unwrap_or("-");
        let (state, bytes) = (drives::state(drive), size(drive.size));
        row(&format!("drive {}", drive.index), format!("{at}, {bytes}, {state}"));
    }
}

/// `flashloom volume ...`
pub fn volume(global: &Global, verb: VolumeVerb) -> Outcome {
    let changed = match verb {
        VolumeVerb::Create { of, size, block_size, quota, reserve, how } => {
            let name = of.volume.volume.clone();
            let (size, (reserve, reserve_all)) = (Some(size), reserve_of(reserve));
            let new = NewVolume { name, size, block_size, from: None, quota, reserve, reserve_all };
            let Some(made) = made(global, &of.volume, &new, &how)? else { return Ok(()) };
            made
        }
        VolumeVerb::Clone { from, volume, size, quota, reserve, how } => {
            let name = volume.volume.clone();
            let (from, (reserve, reserve_all)) = (Some(from), reserve_of(reserve));
            let new = NewVolume { name, size, block_size: None, from, quota, reserve, reserve_all };
            let Some(made) = made(global, &volume, &new, &how)? else { return Ok(()) };
            made
        }
        VolumeVerb::Detach { of, how } => {
            let Some(detached) = detached(global, of.volume, &how)? else { return Ok(()) };
            detached
        }
        VolumeVerb::List => {
            let all = ask(global, async |client| client.volumes().await)?;
            return print(global.output, &all, |all| volume_table(all));
        }
        VolumeVerb::Show { of } => ask(global, async |client| client.volume(&of.volume).await)?,
        VolumeVerb::Resize { of, size, sure, how } => {
            let change = VolumeChange { size: Some(size), ..VolumeChange::default() };
            let dry_run = async |client: Client| {
                client.change_volume(&of.volume, &change, Consent::DRY_RUN).await.map(lost)
            };
            let Some(consent) = meant(global, &sure, dry_run)? else { return Ok(()) };
            let changed = changed(global, of.volume, &change, consent, &how)?;
            let Some(changed) = changed else { return Ok(()) };
            changed
        }
        VolumeVerb::Quota { of, quota, how } => {
            let change = VolumeChange { quota: Some(quota), ..VolumeChange::default() };
            return altered(global, of.volume, &change, &how);
        }
        VolumeVerb::Reserve { of, reserve, how } => {
            let (reserve, reserve_all) = reserve_of(Some(reserve));
            let change = VolumeChange { reserve, reserve_all, ..VolumeChange::default() };
            return altered(global, of.volume, &change, &how);
        }
        VolumeVerb::Rename { of, name, how } => {
            let change = VolumeChange { name: Some(name), ..VolumeChange::default() };
            return altered(global, of.volume, &change, &how);
        }
        VolumeVerb::Delete { of, sure, how } => {
            let dry_run =
                async |client: Client| client.delete_volume(&of.volume, Consent::DRY_RUN).await;
            let Some(consent) = meant(global, &sure, dry_run)? else { return Ok(()) };
            let begin = async |client: Client, asking: Asking| {
                client.begin_delete_volume(&of.volume, consent, &asking).await
            };
            let done = follow(global, &how, begin, async |_, _| Ok(()))?;
            return done.map_or(Ok(()), |()| gone(global, "volume", &of.volume, "deleted"));
        }
        VolumeVerb::Map { of, at } => {
            let new = at.into();
            ask(global, async |client| client.map_volume(&of.volume, &new).await)?
        }
        VolumeVerb::Unmap { of, sure } => {
            return remove(global, &sure, async |client: Client, consent| {
                client.unmap_volume(&of.volume, consent).await
            });
        }
    };
    print_one(global.output, &changed, volume_table)
}

/// Changes a volume, of which nothing is lost, and prints it.
fn altered(global: &Global, path: VolumePath, change: &VolumeChange, how: &JobArgs) -> Outcome {
    let changed = changed(global, path, change, Consent::NONE, how)?;
    changed.map_or(Ok(()), |changed| print_one(global.output, &changed, volume_table))
}

/// A reservation as the API has it.
fn reserve_of(reserve: Option<Reserve>) -> (Option<Size>, bool) {
    match reserve {
        None => (None, false),
        Some(Reserve::Bytes(size)) => (Some(size), false),
        Some(Reserve::All) => (None, true),
    }
}

/// A volume once it is made; `None` when nobody waits for it.
fn made(
    global: &Global,
    path: &VolumePath,
    new: &NewVolume,
    how: &JobArgs,
) -> Outcome<Option<Volume>> {
    let begin = async |client: Client, asking: Asking| {
        client.begin_create_volume(&path.pool, new, &asking).await
    };
    follow(global, how, begin, async |client: Client, _| client.volume(path).await)
}

/// A volume once it is detached; `None` when nobody waits for it.
fn detached(global: &Global, path: VolumePath, how: &JobArgs) -> Outcome<Option<Volume>> {
    let begin =
        async |client: Client, asking: Asking| client.begin_detach_volume(&path, &asking).await;
    // Whatever it is called by then.
    let volume = async |client: Client, job: Job| {
        client.volume(&job.target.parse().unwrap_or_else(|_| path.clone())).await
    };
    follow(global, how, begin, volume)
}

/// A volume after a change; `None` when nobody waits for it.
fn changed(
    global: &Global,
    path: VolumePath,
    change: &VolumeChange,
    consent: Consent,
    how: &JobArgs,
) -> Outcome<Option<Volume>> {
    let volume = change.name.clone().unwrap_or_else(|| path.volume.clone());
    let then = VolumePath { volume, ..path.clone() };
    let begin = async |client: Client, asking: Asking| {
        client.begin_change_volume(&path, change, consent, &asking).await
    };
    follow(global, how, begin, async |client: Client, _| client.volume(&then).await)
}

fn volume_table(all: &[Volume]) -> Table {
    let mut table = table(
        &[
            "volume",
            "state",
            "size",
            "used",
            "inherited",
            "quota",
            "reserved",
            "block",
            "snapshots",
            "origin",
            "group",
            "subsystem",
            "nsid",
            "uuid",
        ],
        &[2, 3, 4, 5, 6, 7, 8, 12],
    );
    for volume in all {
        let mapping = volume.mapping.as_ref();
        table.add_row([
            volume.name.to_string(),
            volume.state.name().to_owned(),
            volume.size.to_string(),
            or_dash(volume.used),
            or_dash(volume.inherited.filter(|inherited| inherited.bytes() > 0)),
            or_dash(volume.quota),
            or_dash(volume.reserve),
            volume.block_size.to_string(),
            or_dash(volume.snapshots),
            or_dash(volume.origin.as_ref()),
            or_dash(volume.group.as_ref().map(|of| &of.group)),
            or_dash(mapping.map(|at| at.subsystem.to_string())),
            or_dash(mapping.map(|at| at.nsid)),
            volume.id.to_string(),
        ]);
    }
    table
}
