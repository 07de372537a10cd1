//! Bugs planted on purpose, so that it can be seen that the simulator finds their like.
//!
//! Only with the feature `canary`, which nothing but the simulator asks for, or in this crate's tests, and only those a
//! thread was told to have.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A write is acknowledged before the log's drives have it.
    AcknowledgesEarly,
    /// A record in persistent memory is not fenced.
    SkipsFence,
    /// The log is trimmed of what is still in the drives' caches.
    TrimsEarly,
    /// Stripes are written without their parity.
    ForgetsParity,
    /// Stripes are rolled forward newest first.
    ReplaysInWrongOrder,
    /// Reclaim moves a block for the key it was written under, not for those that refer to it.
    ForgetsReferences,
    /// A sweep does not look at what the log refers to.
    SweepsWhatLogRefersTo,
    /// Tables of the map deny that they have references, so that sweeps pass them by.
    PassesByReferences,
    /// A block that the map gives up is counted down twice, so that a segment with live blocks seems dead.
    CountsDownTwice,
    /// Without its log a shard goes on with every stripe that has a header, whole or not.
    TrustsHeaders,
    /// Without its log a shard goes on with its last checkpoint alone.
    ForgetsStripes,
    /// Without its log a shard takes a stripe for torn that the redundancy would give back.
    TakesDamagedForTorn,
    /// A copy that a drive left of itself long ago is taken for the drive.
    TakesOldCopies,
    /// An opening writes labels before it knows whether the pool can be opened.
    WritesFirst,
    /// The labels go on saying that the pool was closed in order, with nothing in its log, while it is in use.
    StaysClosed,
    /// A drive that refuses a write for a reason that passes is given up.
    CondemnsPassing,
    /// A drive that is taken back counts before it is made whole.
    CountsReturned,
    /// A drive that another one replaces leaves that its identity.
    KeepsIdentity,
    /// The place of a drive is called vacant while segments have something there.
    VacatesEarly,
    /// What was asked of a shard on another reactor happens although its sender is gone.
    AttendsForgotten,
    /// What volumes use is counted without what is in the log only.
    CountsWithoutLog,
    /// A device of memory that does not take what is stored in the log, or does not give it, counts as before.
    KeepsUnreachable,
    /// What is moved off a drive counts as moved before a checkpoint knows of it.
    CountsMovedEarly,
    /// A place that a drive has come to, and segments with it, is still called vacant.
    BelievesVacated,
    /// A drive that is added counts before the labels tell of it.
    WidensEarly,
    /// The space of a segment that was emptied is given back before the map knows for good where its blocks are.
    FreesEarly,
    /// A scrub leaves stripes out, and says that it checked them.
    ScrubSkips,
    /// Units of a drive that another one replaces are given to new segments beside those they belong to.
    UsesTwice,
    /// A read does not look at what a host stored in a window.
    ReadsPastWindow,
    /// Nor does a write.
    WritesPastWindow,
    /// Nor does whoever gives blocks back, or has them be zeroes.
    ClearsPastWindow,
    /// Nor does a copy by reference.
    CopiesPastWindow,
    /// A snapshot is taken while volumes have windows.
    SnapshotsPastWindow,
    /// What is in a window is taken before its host is told that it ends.
    DrainsBeforeEnd,
    /// A host is given credit for what is not taken yet.
    CreditsEarly,
    /// The files of a window go before the catalog has forgotten it.
    ReleasesWindowEarly,
    /// An opening forgets a window that it does not find.
    ForgetsWindow,
    /// What is kept for a volume others may have.
    OthersTakeReserved,
    /// A snapshot of a volume with a reservation is taken whether there is room for what it shares or not.
    SnapshotSkipsRoom,
    /// What a volume with a reservation gives back is not kept for it again.
    TrimForgetsReserved,
    /// Whoever writes is let in, whatever the quota.
    QuotaLetsAllIn,
    /// Whoever writes looks at the quota of the volume alone, not at that of its group.
    QuotaForgetsGroup,
    /// What snapshots hold counts against no quota.
    QuotaForgetsSnapshots,
    /// Nor does what a clone holds of its parent once the snapshot is gone that it was made of.
    QuotaForgetsClones,
    /// What was let in and not written stays charged.
    QuotaKeepsCharge,
    /// A writer is refused without a count of what was given back since the last one.
    QuotaRefusesUncounted,
    /// A namespace of another target that did not take a write to the log has it all as before.
    KeepsSilent,
    /// A namespace of another target that is reached by another connection has what it had.
    BelievesReconnected,
    /// A device becomes one of the log's without what is in the log already.
    JoinsWithoutRing,
    /// New logs that halves of a pool get which go on from the same labels have the same names.
    NamesLogsAlike,
    /// Older labels than those that whoever opens the pool knows of are taken.
    ForgetsTerm,
    /// A pool whose missing drives could have gone on without those that are given opens by itself, whatever its log says.
    AsksNoWitness,
    /// Half of a pool opens by itself, whatever log it was used with.
    ForgetsLog,
    /// A write is acknowledged without waiting for the log's other device, where it is to wait.
    WritesAhead,
    /// Likewise what makes a hole.
    ClearsAhead,
    /// Likewise a copy by reference.
    CopiesAhead,
    /// A drive is taken while the kernel still has writes for it of a process that is gone.
    TakesEarly,
    /// A writer is refused without a search for what was given back and replaced.
    RefusesUnsearched,
    /// A drive that does not answer is waited for until its deadline, though the others have what it was asked to take.
    WaitsForHung,
    /// An opening fails that finds no space behind the drives.
    OpeningNeedsSpace,
    /// A drive that is only slow is taken out of use where others have what it has.
    CondemnsSlow,
    /// A step is left out.
    Skips(Step),
}

/// A step that something relies on: a flush, a fence, a wait, or that somebody is told. Each is left out in turn, and
/// missed by the simulator, or by a test that plays the moment it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Before the log is trimmed, the labels tell of drives that what was carried is not on.
    TrimTells,
    /// Before records are forgotten and their room given away, a control slot says where the log begins.
    TrimControl,
    /// Before a root names a checkpoint, all of that is durable.
    CheckpointFlush,
    /// Metadata on its way to the drives is there before they are flushed.
    MetadataInFlight,
    /// Before space is given back, nobody reads there any more.
    CheckpointGrace,
    /// Nor puts anything right there.
    CheckpointRepairs,
    /// The same before a shard's end, and that of an opening that comes to nothing.
    StopGrace,
    StopRepairs,
    /// Before a sweep decides, whoever found a reference has told the log.
    SweepGrace,
    /// The same before a segment is called dead.
    DeadGrace,
    /// A sweep hears of references the map learns meanwhile.
    SweepHearsReferences,
    SweepHearsShared,
    /// What was moved is in the map before its old place is counted.
    ReclaimLearnt,
    /// Of a block that is lost goes what it had where it was found lost, and not what was written meanwhile.
    LostLooks,
    /// What a volume had is taken away once nobody writes there any more.
    TakesAwayWriters,
    /// What lies beyond a volume's end is taken away before it is made larger.
    GrowTakesAway,
    /// Who changes parts of blocks takes turns.
    PartTurns,
    /// What was given up half way shows before a part of the block is changed.
    PartSettles,
    /// Without its log, a shard goes on with stripes that were made whole once that is durable.
    WholeFlush,
    /// What was put right in the log is durable.
    RepairFence,
    /// Labels, roots and catalogs are durable when they are written.
    SuperblockFua,
    /// Drives that missed the newest label get it before there is another.
    LabelsCatchUp,
    /// Before a checkpoint counts, the labels tell of drives that what it names is not on.
    RootTells,
    /// Before a change of the catalog counts, the labels tell of drives that do not have it.
    CatalogTells,
    /// The labels tell of a drive that failed before it is taken back.
    ReadmitTells,
    /// What is read of labels, roots and catalogs at an opening lasts from then on.
    OpeningFlush,
    /// A log ends no earlier than what the drives have of it.
    OpeningMarks,
    /// Before the labels call drives out, enough of the others are known to take writes.
    OpeningTries,
    /// Before an opening changes anything else, the labels say which drives miss that.
    OpeningTells,
    /// Twice, so that those are known that missed a whole life.
    OpeningTwice,
    /// The root that an opening goes on from is on all drives.
    OpeningRoot,
    /// A change of the catalog that an opening shows is on all drives.
    OpeningCatalog,
    /// It has a generation that no drive which could not be read has.
    OpeningApart,
    /// A base of the catalog goes where the newest one is not.
    CatalogHalf,
    /// A change of the catalog that was given up is taken back before the next.
    CatalogTakesBack,
    /// One that failed and cannot be taken back is blanked where it lies.
    CatalogBlanks,
    /// What recovery stores again in memory is durable.
    RecoverFence,
    /// A control slot in memory is durable.
    ControlFence,
    /// What group commit writes to memory is durable.
    CommitFence,
    /// So is the page's end that is skipped before group commit begins.
    PadFence,
    /// What was stored before is durable, and told of, before records gather for group commit.
    GatherSettles,
    /// What gathered is on the log's devices before records go straight to memory again.
    StraightSettles,
    /// What was being written when a device joined the log is there before the rest is copied.
    JoinSettles,
    /// A device that is about to get a copy of the log says whose it is before it has anything of that.
    MarkFence,
    /// Before the log is copied, each device of memory has what any of them has.
    RingMends,
    /// That all records there are are durable is noted before whatever else has them goes, and when there is leisure.
    NoteDurable,
    /// Before anything is acknowledged that a device of the log did not take, the labels say so.
    LogTells,
    /// What a write was about that was on its way when the log failed is not read as it was before.
    DoubtHides,
    /// Before a pool is called closed in order, nothing is left in its log.
    CloseDrains,
    /// Stripes on their way when a shard stops are there before it has.
    StopStripes,
    /// Roots and catalogs on a drive that is taken back are wiped: they may be newer than what all others have.
    RejoinWipe,
    /// Stripes begun before a drive is written again are made anew there.
    RejoinBetween,
    /// What is made anew in a segment is not another one's by then.
    RejoinHold,
    /// Who holds a segment that a checkpoint is giving back hears of that.
    HoldWaits,
    /// A drive that is made whole has the headers of its allocation units.
    RejoinHeaders,
    /// It has the roots before it counts.
    RejoinRoot,
    /// And the catalog.
    RejoinCatalog,
    /// What was made anew there is durable before it counts.
    RejoinFlush,
    /// What goes there while it is made whole is flushed with the others.
    RejoinFlushesToo,
    /// What a scrub put right is durable before it is told of.
    ScrubFlush,
    /// What reads put right is durable when the pool is closed.
    CloseFlush,
    /// While versions are taken, no shard lets records be reserved before all have.
    SnapshotPauses,
    /// Before a snapshot is told of, what was reserved before it is committed or given up.
    SnapshotWaits,
    /// Before a snapshot is read, what it sees of the log is on the drives.
    SnapshotCarries,
    /// A hole of a clone hides what its parent has, wherever in the map it comes to lie.
    CloneHoles,
    /// What comes into the map is not known to be absent any more.
    AbsentForgets,
    /// What a clone sees of its parent stays when the snapshot goes that it was made of.
    CloneHolds,
    /// What was acknowledged before a volume is rolled back is in the snapshot that is kept of it.
    RollbackWriters,
    /// An opened log goes on with the versions of volumes that have snapshots.
    OpeningVersions,
    /// What only a snapshot sees is moved before its place is given back.
    ReclaimLooksBack,
    /// What was moved so is kept by a sweep, whose only reference is where it lay.
    SweepKeepsOld,
    /// A search for space gives up what only deleted snapshots saw.
    SearchPrunes,
    /// A clone is given what it inherits once whoever wrote to it before is done, in turn with whoever does since.
    DetachWriters,
    DetachTurns,
    /// Ancestors are needed no more once those are done who found something there.
    DetachHeirs,
    /// What is put into a copy of a window's ring is there before the header that says so.
    WindowMends,
    /// A checkpoint writes the pages of its manifest on which something changed.
    ManifestChanges,
    /// Pages of a manifest leave a segment that is emptied.
    ManifestLeaves,
}

impl Step {
    pub const ALL: [Self; 78] = [
        Self::TrimTells,
        Self::TrimControl,
        Self::CheckpointFlush,
        Self::MetadataInFlight,
        Self::CheckpointGrace,
        Self::CheckpointRepairs,
        Self::StopGrace,
        Self::StopRepairs,
        Self::SweepGrace,
        Self::DeadGrace,
        Self::SweepHearsReferences,
        Self::SweepHearsShared,
        Self::ReclaimLearnt,
        Self::LostLooks,
        Self::TakesAwayWriters,
        Self::GrowTakesAway,
        Self::PartTurns,
        Self::PartSettles,
        Self::WholeFlush,
        Self::RepairFence,
        Self::SuperblockFua,
        Self::LabelsCatchUp,
        Self::RootTells,
        Self::CatalogTells,
        Self::ReadmitTells,
        Self::OpeningFlush,
        Self::OpeningMarks,
        Self::OpeningTries,
        Self::OpeningTells,
        Self::OpeningTwice,
        Self::OpeningRoot,
        Self::OpeningCatalog,
        Self::OpeningApart,
        Self::CatalogHalf,
        Self::CatalogTakesBack,
        Self::CatalogBlanks,
        Self::RecoverFence,
        Self::ControlFence,
        Self::CommitFence,
        Self::PadFence,
        Self::GatherSettles,
        Self::StraightSettles,
        Self::JoinSettles,
        Self::MarkFence,
        Self::RingMends,
        Self::NoteDurable,
        Self::LogTells,
        Self::DoubtHides,
        Self::CloseDrains,
        Self::StopStripes,
        Self::RejoinWipe,
        Self::RejoinBetween,
        Self::RejoinHold,
        Self::HoldWaits,
        Self::RejoinHeaders,
        Self::RejoinRoot,
        Self::RejoinCatalog,
        Self::RejoinFlush,
        Self::RejoinFlushesToo,
        Self::ScrubFlush,
        Self::CloseFlush,
        Self::SnapshotPauses,
        Self::SnapshotWaits,
        Self::SnapshotCarries,
        Self::CloneHoles,
        Self::AbsentForgets,
        Self::CloneHolds,
        Self::RollbackWriters,
        Self::OpeningVersions,
        Self::ReclaimLooksBack,
        Self::SweepKeepsOld,
        Self::SearchPrunes,
        Self::DetachWriters,
        Self::DetachTurns,
        Self::DetachHeirs,
        Self::WindowMends,
        Self::ManifestChanges,
        Self::ManifestLeaves,
    ];
}

impl Canary {
    pub const ALL: [Self; 61] = [
        Self::AcknowledgesEarly,
        Self::SkipsFence,
        Self::TrimsEarly,
        Self::ForgetsParity,
        Self::ReplaysInWrongOrder,
        Self::ForgetsReferences,
        Self::SweepsWhatLogRefersTo,
        Self::PassesByReferences,
        Self::CountsDownTwice,
        Self::TrustsHeaders,
        Self::ForgetsStripes,
        Self::TakesDamagedForTorn,
        Self::TakesOldCopies,
        Self::WritesFirst,
        Self::StaysClosed,
        Self::CondemnsPassing,
        Self::CountsReturned,
        Self::KeepsIdentity,
        Self::VacatesEarly,
        Self::AttendsForgotten,
        Self::CountsWithoutLog,
        Self::KeepsUnreachable,
        Self::CountsMovedEarly,
        Self::BelievesVacated,
        Self::WidensEarly,
        Self::FreesEarly,
        Self::ScrubSkips,
        Self::UsesTwice,
        Self::ReadsPastWindow,
        Self::WritesPastWindow,
        Self::ClearsPastWindow,
        Self::CopiesPastWindow,
        Self::SnapshotsPastWindow,
        Self::DrainsBeforeEnd,
        Self::CreditsEarly,
        Self::ReleasesWindowEarly,
        Self::ForgetsWindow,
        Self::OthersTakeReserved,
        Self::SnapshotSkipsRoom,
        Self::TrimForgetsReserved,
        Self::QuotaLetsAllIn,
        Self::QuotaForgetsGroup,
        Self::QuotaForgetsSnapshots,
        Self::QuotaForgetsClones,
        Self::QuotaKeepsCharge,
        Self::QuotaRefusesUncounted,
        Self::KeepsSilent,
        Self::BelievesReconnected,
        Self::JoinsWithoutRing,
        Self::NamesLogsAlike,
        Self::ForgetsTerm,
        Self::AsksNoWitness,
        Self::ForgetsLog,
        Self::WritesAhead,
        Self::ClearsAhead,
        Self::CopiesAhead,
        Self::TakesEarly,
        Self::RefusesUnsearched,
        Self::WaitsForHung,
        Self::OpeningNeedsSpace,
        Self::CondemnsSlow,
    ];
}

#[cfg(any(test, feature = "canary"))]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Canary>> = const { std::cell::Cell::new(None) };
    static SMALL_MAPS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Gives every pool this thread opens maps of tiny tables in hardly any memory, which have as many levels as those of
/// huge pools, and manifests with as many pages, or as much as they want.
#[cfg(any(test, feature = "canary"))]
pub fn make_maps_small(small: bool) {
    SMALL_MAPS.set(small);
}

/// Plants a bug in every pool this thread opens, or none.
#[cfg(any(test, feature = "canary"))]
pub fn plant(canary: Option<Canary>) {
    PLANTED.set(canary);
}

/// Whether maps, and pages of manifests, are limited to next to nothing, where the simulator wants it. Never, without the feature.
pub(crate) fn has_small_maps() -> bool {
    #[cfg(any(test, feature = "canary"))]
    return SMALL_MAPS.get();
    #[cfg(not(any(test, feature = "canary")))]
    false
}

/// Whether this step is to be left out. Never, without the feature.
#[inline]
pub(crate) fn skips(step: Step) -> bool {
    has(Canary::Skips(step))
}

/// Whether this bug is planted on this thread. Never, without the feature.
#[inline]
pub(crate) fn has(canary: Canary) -> bool {
    #[cfg(any(test, feature = "canary"))]
    return PLANTED.get() == Some(canary);
    #[cfg(not(any(test, feature = "canary")))]
    {
        let _ = canary;
        false
    }
}

/// Runs a story, which is a test itself and ends well, without a step that it relies on: something in it fails, and says
/// this. A story that no longer needs the step is found by that.
///
/// # Panics
/// When nobody misses the step, or something else fails.
#[cfg(test)]
pub(crate) fn misses(step: Step, says: &str, story: fn()) {
    // On a thread of its own: no other test has the step left out.
    let ended = std::thread::spawn(move || {
        plant(Some(Canary::Skips(step)));
        story();
    });
    let Err(panic) = ended.join() else { panic!("nobody misses {step:?}") };
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(said.contains(says), "without {step:?}: {said}");
}

#[cfg(test)]
mod tests {
    use super::Step;

    /// Who adds a step has to know who misses it: the simulator, or a test that there is.
    #[test]
    fn the_docs_say_of_each_step_who_misses_it() {
        fn gather(folder: &std::path::Path, text: &mut String) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    gather(&path, text);
                } else if path.extension().is_some_and(|is| is == "rs") {
                    text.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        let mut source = String::new();
        gather(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut source);
        let docs = include_str!("../../../docs/simulator.md");
        let rows: Vec<&str> = docs.lines().filter(|line| line.starts_with("| `")).collect();
        for step in Step::ALL {
            let name = format!("`{step:?}`");
            let has_test = |row: &&&str| {
                let (steps, test) = row.trim_matches('|').split_once('|').unwrap();
                let test = test.trim().trim_matches('`');
                steps.contains(&name) && source.contains(&format!("fn {test}()"))
            };
            assert!(rows.iter().any(|row| has_test(&row)), "no test is named that misses {step:?}");
            assert!(
                source.contains(&format!("misses(Step::{step:?},"))
                    || source.contains(&format!("Step::{step:?},\n")),
                "{step:?}"
            );
        }
    }
}
