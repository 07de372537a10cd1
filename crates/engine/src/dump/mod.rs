//! Dumping a pool: every structure on its drives is looked at, and what is found is explained.
//!
//! Nothing is written, repaired or opened for others: the drives are used for reading only. What
//! opening a pool decides (which label, root and record counts) is decided here in the same way, but
//! where opening ends at the first thing it cannot do without, a dump goes on with what is left.

mod blocks;
mod catalog;
mod checkpoint;
mod drives;
mod live;
mod log;
mod map;
mod members;
mod report;
mod stripes;

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use media::Drive;
use raid::Geometry;

use crate::address::{Key, SharedBlockId, View};
use crate::drives::DriveSet;
use crate::format::catalog::{Catalog, Object};
use crate::format::label::{Label, LogKind, PoolState};
use crate::pool::LogSpec;
use crate::segment::Segments;
use crate::snapshots::Snapshots;

pub use report::{
    DriveSeen, Fate, Finding, LogSeen, Place, PoolSeen, Report, SegmentSeen, Severity, ShardSeen,
    Structure, VolumeSeen,
};

/// A drive to look at, opened for reading.
#[derive(Debug)]
pub struct Given {
    /// What it is called in the report.
    pub name: String,
    /// The drive, or why it cannot be opened.
    pub drive: Result<Arc<Drive>, String>,
}

/// What to dump.
#[derive(Debug, Default)]
pub struct Spec {
    pub drives: Vec<Given>,
    /// The devices of a log in memory, and what they are called. A log on the drives needs none.
    pub log: Option<LogSpec>,
    pub log_names: Vec<String>,
    /// Reads all contents and parity too.
    pub data: bool,
    /// Tells the log's records one by one.
    pub log_records: bool,
}

/// How far a dump is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: &'static str,
    pub done: u64,
    pub of: u64,
}

/// What advice is given for more than one finding.
mod advice {
    pub const REPAIRS: &str =
        "nothing is lost: the open pool puts it right from the redundancy when it reads it";
    pub const RESTORE: &str =
        "restore what is named from a backup; everything else in the pool stays readable";
    pub const OUTVOTED: &str =
        "nothing is lost: the other copies count, and it is written anew in the normal course";
    pub const REPORT: &str = "the drives say what the program never writes: keep them as they \
                              are and report this with the output of `flashloom pool dump -o json`";
}

/// What all parts of a dump share.
struct Look<'a> {
    label: Label,
    geometry: Geometry,
    set: Arc<DriveSet>,
    segments: Segments,
    /// What the drives are called, by index.
    names: Vec<String>,
    /// Not set when there is none.
    catalog: OnceCell<Catalog>,
    snapshots: OnceCell<Snapshots>,
    spec: &'a Spec,
    report: RefCell<Report>,
    progress: RefCell<&'a mut dyn FnMut(Progress)>,
    stage: Cell<Progress>,
}

impl Look<'_> {
    fn add(&self, finding: Finding) {
        self.report.borrow_mut().add(finding);
    }

    fn not_checked(&self, what: &'static str) {
        self.report.borrow_mut().not_checked.push(what);
    }

    /// Begins a part of the work.
    fn begin(&self, stage: &'static str, of: u64) {
        self.stage.set(Progress { stage, done: 0, of });
        (self.progress.borrow_mut())(self.stage.get());
    }

    /// Some of the part is done.
    fn advance(&self, by: u64) {
        let now = self.stage.get();
        self.stage.set(Progress { done: now.done + by, ..now });
        (self.progress.borrow_mut())(self.stage.get());
    }

    fn count_blocks(&self, blocks: usize) {
        self.report.borrow_mut().blocks_read += stdx::num::u64_of(blocks);
    }

    /// What a drive is called.
    fn name(&self, drive: u16) -> String {
        self.names.get(usize::from(drive)).cloned().unwrap_or_else(|| format!("drive {drive}"))
    }

    fn volume(&self, view: View) -> Option<&Object> {
        self.catalog.get()?.get(view)
    }

    /// A block, as operators know it.
    fn block(&self, key: Key) -> String {
        if let Some(name) = SharedBlockId::of_key(key) {
            return format!("{name:?}");
        }
        match self.volume(key.view) {
            Some(volume) => format!("block {} of volume {}", key.block, volume.name),
            None => format!("block {} of view {}", key.block, key.view.get()),
        }
    }
}

/// Looks at everything, and tells what it is and what is wrong with it. `progress` is called now and
/// then. Runs on a reactor.
pub async fn dump(spec: &Spec, progress: &mut dyn FnMut(Progress)) -> Report {
    let mut report = Report::default();
    let Some(found) = drives::find(spec, &mut report).await else {
        let what = "none of the drives has a label that can be read";
        let advice = "name the drives of one pool, all of them if possible";
        report.add(Finding::error(Structure::Label, what).advise(advice));
        return report;
    };
    let look = match found.look(spec, report, progress) {
        Ok(look) => look,
        Err(report) => return *report,
    };
    look.begin("catalog", 0);
    if let Some(catalog) = catalog::find(&look).await {
        catalog::list(&look, &catalog);
        let _ = look.snapshots.set(Snapshots::of(&catalog));
        let _ = look.catalog.set(catalog);
    }
    let mut units = checkpoint::Units::default();
    for shard in 0..look.label.shards {
        dump_shard(&look, shard, &mut units).await;
    }
    units.tell(&look);
    if !spec.data {
        look.not_checked("contents and parity (--data reads them all)");
    }
    look.report.into_inner()
}

async fn dump_shard(look: &Look<'_>, shard: u16, units: &mut checkpoint::Units) {
    let mut seen = ShardSeen { shard, ..ShardSeen::default() };
    look.begin("commit log", 0);
    let durable = log::check(look, shard, &mut seen).await;
    look.begin("checkpoint", 0);
    if let Some(mut found) = checkpoint::find(look, shard, units).await {
        (seen.generation, seen.cut) = (found.generation, found.cut);
        (seen.durable, seen.segments) = (durable, stdx::num::u64_of(found.table.len()));
        let headers = stripes::roll(look, &mut found, durable).await;
        seen.rolled = stdx::num::u64_of(headers.len());
        units.take(look, &found);
        let mut live = live::Live::new(look.geometry);
        if let Some(map) = map::check(look, &found, &mut live, &mut seen).await {
            map::learn(look, &map, shard, &headers).await;
            map::walk(look, &found, &map, &mut live, &mut seen).await;
            live::compare(look, &found, &live, &mut seen);
            members::check(look, &found, &live).await;
            let doubtful = stripes::check(look, &found, &live).await;
            map::explain(look, shard, &map, doubtful).await;
        }
        found.tell(look, |segment| live.blocks_of(segment));
    }
    look.report.borrow_mut().shards.push(seen);
}

/// Whether a log must have come along for the pool to be opened.
const fn needs_log(label: &Label) -> bool {
    matches!(label.state, PoolState::Active)
        && !label.closed
        && !matches!(label.log, LogKind::Drives)
}

#[cfg(test)]
mod tests;
