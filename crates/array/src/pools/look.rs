//! What is there of a pool: its drives are known by their labels, wherever they are now.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::v1::{FoundDrive, FoundPool, PoolImport};
use api::value::LogPlace;
use engine::format::label::{DriveRecord, Label, PoolState};
use media::Drive;
use media::drive::OpenDrive;
use reactor::Handle;
use uuid::Uuid;

use super::PoolDef;
use super::made_of::{Made, MadeOf, Member, Progress, Seen, open_drive, open_known_log, seen};
use crate::Result;
use crate::limits::PLACES_SEARCHED;
use crate::lock::{Lock, Patience};

/// Where the system gives drives names that stay.
pub const BY_ID: &str = "/dev/disk/by-id";

/// What lies in `folders` and where the system names drives, each once: by the path that comes first.
pub fn places(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let mut places = Vec::new();
    for folder in folders.iter().map(PathBuf::as_path).chain([Path::new(BY_ID)]) {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        let mut paths: Vec<_> =
            entries.flatten().take(PLACES_SEARCHED).map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(of) = fs::metadata(&path) else { continue };
            // Anything else may wait for ever to be opened.
            if !of.is_file() && !of.file_type().is_block_device() {
                continue;
            }
            if path.canonicalize().is_ok_and(|real| seen.insert(real)) {
                places.push(path);
            }
        }
    }
    places
}

/// The labels of what lies at `paths`. It is only read, and taken from nobody.
pub fn peek(home: &Handle, paths: Vec<PathBuf>) -> Result<Vec<(PathBuf, Label)>> {
    let all = peek_at(home, paths)?.into_iter();
    Ok(all.filter_map(|at| Some((at.path, at.seen.ok()?))).collect())
}

/// What lies at a path.
pub struct Peeked {
    pub path: PathBuf,
    pub bytes: u64,
    /// Its label, or why that is not known.
    pub seen: Seen,
}

/// As [`peek`], with what carries no label that can be read.
pub fn peek_at(home: &Handle, paths: Vec<PathBuf>) -> Result<Vec<Peeked>> {
    let block_size = stdx::num::u32_of(engine::address::BLOCK);
    let open = |path: PathBuf| {
        let options = OpenDrive { read_only: true, block_size, ..OpenDrive::default() };
        let drive = Drive::open(&path, options).ok()?;
        Some(Member { path, drive: Arc::new(drive) })
    };
    let members: Vec<_> = paths.into_iter().filter_map(open).collect();
    let seen = seen(home, &members, |_| false, &Progress::default())?;
    let both = members.into_iter().zip(seen);
    let peeked = |(member, seen): (Member, Seen)| {
        let (path, bytes) = (member.path, member.drive.capacity());
        Peeked { path, bytes, seen }
    };
    Ok(both.map(peeked).collect())
}

/// The pools that these drives are of, as their newest labels describe them.
pub fn pools(home: &Handle, paths: Vec<PathBuf>) -> Result<Vec<FoundPool>> {
    let mut by_pool: BTreeMap<[u8; 16], Vec<(PathBuf, Label)>> = BTreeMap::new();
    for (path, label) in peek(home, paths)? {
        by_pool.entry(label.pool).or_default().push((path, label));
    }
    Ok(by_pool.into_values().filter_map(|drives| described(&drives)).collect())
}

fn described(found: &[(PathBuf, Label)]) -> Option<FoundPool> {
    let (_, label) = found.iter().max_by_key(|(_, label)| label.epoch)?;
    // The first of those that are as new.
    let at = |index: usize| {
        let here = found.iter().rev().filter(|(_, of)| usize::from(of.drive) == index);
        let here = here.max_by_key(|(_, of)| of.epoch).filter(|(_, of)| !is_old(of, label));
        here.map(|(path, _)| path.display().to_string())
    };
    let records = label.drives.iter().enumerate();
    let drive = |(index, record): (usize, &DriveRecord)| FoundDrive {
        index,
        id: Uuid::from_bytes(record.id),
        path: at(index),
        failed: record.is_out(),
    };
    Some(FoundPool {
        name: label.name.clone(),
        id: Uuid::from_bytes(label.pool),
        exported: label.state == PoolState::Exported,
        known: false,
        bears: label.layout.parity,
        log: super::view::log_kind(label.log).to_owned(),
        drives: records.map(drive).collect(),
        needs: Vec::new(),
    })
}

/// What an import of a pool that was found is refused for; `log` says whether its log's devices are named or known.
pub fn needs(pool: &FoundPool, from: &PoolImport, has_log: bool) -> Vec<String> {
    let mut needs = Vec::new();
    let lacks = |drive: &&FoundDrive| drive.path.is_none() || drive.failed;
    let lacking = pool.drives.iter().filter(lacks).count();
    let absent = pool.drives.iter().filter(|drive| drive.path.is_none() && !drive.failed).count();
    let bears = usize::from(pool.bears);
    if lacking > bears {
        needs.push(format!("{} more of its drives", lacking - bears));
    } else if absent > 0 && !from.degraded {
        needs.push("all its drives, or --degraded".to_owned());
    }
    if !(pool.exported || pool.known || from.force) {
        needs.push("--force, for it was not exported".to_owned());
    }
    if !(pool.exported || has_log || pool.log == LogPlace::Drives.to_string()) {
        needs.push("--log, where its log is".to_owned());
    }
    needs
}

/// A drive that is held, with what its label says.
struct Held {
    member: Member,
    lock: Option<Arc<Lock>>,
    label: Label,
}

/// Why what is at a path is not taken for a drive of the pool.
struct Fault {
    path: PathBuf,
    what: String,
    /// The drive did not say what it is of, or that does not last.
    is_drives: bool,
}

/// What there is of a pool.
pub struct Found {
    pub made_of: MadeOf,
    /// What is missing; `None` when all is there that is not known to be lost.
    pub lacks: Option<Lacks>,
    /// Its drives say that it was exported, or opened elsewhere since.
    pub is_given: bool,
    /// The name of its log, by its drives, and whether it gets a new one when it is opened.
    pub log_id: Uuid,
    pub gets_log: bool,
}

/// What a pool lacks.
pub struct Lacks {
    /// In words, with the paths where it was last.
    pub words: String,
    /// Whether the redundancy bears it. Whether something else may have become of the pool meanwhile, the log says.
    pub is_borne: bool,
}

/// Looks for the pool: at the paths where it was, and if it lacks anything there, among what is in `folders`
/// and where the system names drives. What carries no label of the pool is left alone, and counts as missing. With
/// `anew` a log that is gone is made again where nothing was in it.
///
/// # Errors
/// `Failed` when there is no drive of the pool at all, or none of its log.
pub fn find(
    home: &Handle,
    def: &PoolDef,
    (folders, node): (&[PathBuf], Uuid),
    anew: bool,
    progress: &Progress,
) -> Result<Found> {
    let mut faults = Vec::new();
    let own: Vec<_> = def.places().cloned().collect();
    let mut held = one_of_each(hold(home, def.id, &own, &mut faults, progress)?, def);
    let (mut newest, mut absent) = absent(&held);
    if newest.is_none() || !absent.is_empty() {
        let wanted = |label: &Label| {
            Uuid::from_bytes(label.pool) == def.id
                && (newest.is_none() || absent.contains(&usize::from(label.drive)))
        };
        // Whose label is not known by now is not waited for once more.
        let asked = faults.iter().filter(|fault| fault.is_drives).map(|fault| &fault.path);
        let known = held.iter().map(|held| &held.member.path).chain(asked);
        let known: BTreeSet<_> = known.filter_map(|path| path.canonicalize().ok()).collect();
        let others = places(folders)
            .into_iter()
            .filter(|path| path.canonicalize().is_ok_and(|real| !known.contains(&real)));
        let moved = peek(home, others.collect())?.into_iter().filter(|(_, label)| wanted(label));
        let moved: Vec<_> = moved.map(|(path, _)| path).collect();
        held.extend(hold(home, def.id, &moved, &mut faults, progress)?);
        held = one_of_each(held, def);
        (newest, absent) = self::absent(&held);
    }
    let Some(newest) = newest else { return Err(none_found(def, &faults)) };
    // They are given all the same: they may be made whole.
    let old = held.iter().filter(|held| is_old(&held.label, &newest));
    faults.extend(old.map(|held| {
        let path = held.member.path.clone();
        let what = match newest.has_drive_of(&held.label) {
            true => format!("{} is an old copy of it", path.display()),
            false => format!("{} was replaced by another drive", path.display()),
        };
        Fault { path, what, is_drives: false }
    }));
    // Closed in order, it left nothing in its log.
    let size = newest.log_bytes * u64::from(newest.shards);
    let (log, log_locks, mut lost) = open_known_log(
        &def.log,
        node,
        ((anew && newest.closed).then_some(size), anew.then_some(size)),
    )?;
    let is_borne = absent.len() <= usize::from(newest.layout.parity);
    let mut words: Vec<_> = absent.iter().map(|&index| missing(index, def, &faults)).collect();
    words.append(&mut lost);
    let mut locks = log_locks;
    let mut drives = Vec::new();
    for Held { member, lock, .. } in held {
        drives.push(member);
        locks.extend(lock);
    }
    let made_of = MadeOf { drives, log, places: def.log.clone(), locks, made: Made::default() };
    let words = (!words.is_empty()).then(|| words.join("; "));
    let lacks = words.map(|words| Lacks { words, is_borne });
    let (log_id, gets_log) = (Uuid::from_bytes(newest.log_id), newest.closed);
    Ok(Found { made_of, lacks, is_given: is_given(&newest, def), log_id, gets_log })
}

/// Whether a pool is another's to open by now: its label says that it was exported, or has a log of which this node does
/// not know. Whoever imports a pool that was exported makes it a new one.
pub(super) fn is_given(newest: &Label, def: &PoolDef) -> bool {
    newest.state == PoolState::Exported || !def.knows_log(Uuid::from_bytes(newest.log_id))
}

/// Holds those of `paths` that are of the pool, and says of the others why not.
fn hold(
    home: &Handle,
    pool: Uuid,
    paths: &[PathBuf],
    faults: &mut Vec<Fault>,
    progress: &Progress,
) -> Result<Vec<Held>> {
    let (mut members, mut locks) = (Vec::new(), Vec::new());
    // Of many that hang each would cost as much.
    let patience = Patience::begin();
    for path in paths {
        match open_drive(path, None, patience) {
            Ok((member, lock)) => {
                members.push(member);
                locks.push(lock);
            }
            Err(error) => {
                let (path, what) = (path.clone(), error.context);
                faults.push(Fault { path, what, is_drives: false });
            }
        }
    }
    let is_its = move |label: &Label| Uuid::from_bytes(label.pool) == pool;
    let labels = seen(home, &members, is_its, progress)?;
    let mut held = Vec::new();
    for ((member, lock), label) in members.into_iter().zip(locks).zip(labels) {
        let path = member.path.display();
        let (what, is_drives) = match label {
            Ok(label) if member.drive.capacity() < label.drive_bytes(label.drive) => {
                let (has, had) = (member.drive.capacity(), label.drive_bytes(label.drive));
                (format!("{path} has {has} bytes, and had {had}: it was cut short"), false)
            }
            Ok(label) if Uuid::from_bytes(label.pool) == pool => {
                held.push(Held { member, lock, label });
                continue;
            }
            Ok(label) => (format!("{path} is of another pool, {}", label.name), false),
            Err(unknown) => (format!("{path} {unknown}"), unknown.is_faulty()),
        };
        faults.push(Fault { path: member.path, what, is_drives });
    }
    Ok(held)
}

/// Whether this is the label of a drive that the others do not know to be out, and that lacks what they have, or that
/// another has replaced.
fn is_old(label: &Label, newest: &Label) -> bool {
    let record = newest.drives.get(usize::from(label.drive));
    let is_out = record.is_some_and(|record| record.is_out());
    !is_out && (newest.shows_old(label.epoch) || !newest.has_drive_of(label))
}

/// Of several that say to be the same drive, the newest: others are copies of it. Of those that are as new, the one at
/// its place; where that says nothing, whoever opens them has to refuse.
fn one_of_each(mut held: Vec<Held>, def: &PoolDef) -> Vec<Held> {
    let rank = |held: &Held| {
        let place = def.drives.get(usize::from(held.label.drive));
        (held.label.epoch, place == Some(&held.member.path))
    };
    held.sort_by_key(|held| (held.label.drive, std::cmp::Reverse(rank(held))));
    held.dedup_by(|next, first| next.label.drive == first.label.drive && rank(next) < rank(first));
    held
}

/// The newest label, and the drives that are not here though it does not say that they are lost.
fn absent(held: &[Held]) -> (Option<Label>, Vec<usize>) {
    let newest = held.iter().map(|held| &held.label).max_by_key(|label| label.epoch).cloned();
    let Some(label) = newest else { return (None, Vec::new()) };
    let here = held.iter().filter(|held| !is_old(&held.label, &label));
    let here: BTreeSet<_> = here.map(|held| usize::from(held.label.drive)).collect();
    let is_here = |index: usize| here.contains(&index);
    let records = label.drives.iter().enumerate();
    let absent = records.filter(|(index, record)| !record.is_out() && !is_here(*index));
    let absent = absent.map(|(index, _)| index).collect();
    (Some(label), absent)
}

/// Says of a drive that is missing where it was, and what is there now.
fn missing(index: usize, def: &PoolDef, faults: &[Fault]) -> String {
    let Some(path) = def.drives.get(index) else { return format!("drive {index} is missing") };
    let fault = faults.iter().find(|fault| fault.path == *path);
    let why = fault.map_or_else(String::new, |fault| format!(": {}", fault.what));
    format!("drive {index} is missing, which was {}{why}", path.display())
}

fn none_found(def: &PoolDef, faults: &[Fault]) -> crate::Error {
    let why: Vec<_> = faults.iter().map(|fault| fault.what.as_str()).collect();
    let what = format!("none of its {} drives is there: {}", def.drives.len(), why.join("; "));
    crate::Error::new(api::v1::Kind::Failed, what)
}
