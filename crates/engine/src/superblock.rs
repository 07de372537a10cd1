//! What every drive of a pool carries alike: its label, the roots of the shards, the catalog.

mod catalog;
mod scrub;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use media::Drive;
use reactor::{join_all, now};

use crate::area;
use crate::canary::{self, Canary, Step};
use crate::drives::{Cause, Company, DriveSet, DriveSlot, DriveState};
use crate::error::{Error, Kind, Result};
use crate::format::label::{
    DriveMark, DriveRecord, Label, LogKind, LogMember, PoolState, StaysOut,
};
use crate::format::root::Root;
use crate::limits::{DRIVES_MAX, NO_SPACE_PAUSE, PUT_PATIENCE};
use crate::log::{Members, Tenant};
use reactor::cross_core::{AsyncMutex, Lock};

use catalog::Writing;
pub use catalog::{Kept, Place};

/// Keeps labels, roots and catalogs alike on all drives that can be used. Whichever reactor changes
/// something writes it.
pub struct Superblock {
    pub drives: DriveSet,
    /// Which devices have the log.
    pub members: Members,
    pool: [u8; 16],
    /// As on the first drive; others differ in their index.
    label: Lock<Label>,
    kept: Kept,
    /// Drives that do not have the newest label yet, by their bits.
    behind: AtomicU64,
    /// One change of labels or catalog at a time. A shard's root is the shard's alone.
    turn: AsyncMutex,
    /// Failures of drives and of the log's devices, as they are counted, that the labels tell of.
    told: AtomicU64,
    /// The term of the labels that were written last as a whole; 0 before any was.
    durable_term: AtomicU64,
}

/// Which drives have a root, of those that are used.
#[derive(Debug, Default)]
pub struct RootOn {
    pub found: Vec<u16>,
    /// Nobody knows what these have.
    pub unread: Vec<u16>,
}

const _: () = assert!(DRIVES_MAX <= u64::BITS as usize);

const fn bit(drive: u16) -> u64 {
    1 << drive
}

/// What is written to all drives.
#[derive(Clone, Copy)]
enum What<'a> {
    Label(&'a Label),
    Root(&'a Root),
    /// In place of whatever other one of the shard may be there.
    OnlyRoot(&'a Root),
    Catalog(&'a Writing<'a>),
    /// Nothing, where an edit was begun that does not count.
    NoEdit(&'a Kept),
    /// A label that is there already.
    Again,
    /// What is there already where a shard's root of a generation goes.
    RootAgain(u16, u64),
}

impl What<'_> {
    async fn write(self, index: u16, drive: &Drive) -> Result<()> {
        match self {
            What::Label(label) => {
                let label = Label { drive: index, ..label.clone() };
                area::write_label(drive, &label).await
            }
            What::Root(root) => area::write_root(drive, root).await,
            What::OnlyRoot(root) => area::write_only_root(drive, root).await,
            What::Catalog(writing) => writing.write(index, drive).await,
            What::NoEdit(kept) => kept.blank_begun(index, drive).await,
            What::Again => area::rewrite_older_label(drive).await,
            What::RootAgain(shard, generation) => {
                area::rewrite_root(drive, shard, generation).await
            }
        }
    }
}

impl Superblock {
    /// With the newest label that was found; the drives that have an older one are to be named.
    #[must_use]
    pub fn new(
        drives: DriveSet,
        label: Label,
        behind: impl IntoIterator<Item = u16>,
        kept: Kept,
        members: Members,
    ) -> Self {
        Self {
            behind: AtomicU64::new(behind.into_iter().map(bit).sum()),
            drives,
            members,
            pool: label.pool,
            label: Lock::new(label),
            kept,
            turn: AsyncMutex::default(),
            told: AtomicU64::new(0),
            durable_term: AtomicU64::new(0),
        }
    }

    pub const fn pool(&self) -> [u8; 16] {
        self.pool
    }

    #[must_use]
    pub fn label(&self) -> Label {
        self.label.lock().clone()
    }

    /// Failures so far.
    fn failures(&self) -> u64 {
        self.drives.changes() + self.members.reported()
    }

    /// Whether something failed that the labels do not tell of yet.
    pub fn has_news(&self) -> bool {
        self.told.load(Ordering::Acquire) != self.failures()
    }

    /// Makes sure that enough drives take writes, and changes nothing: labels that were written by an opening that then
    /// comes to nothing call drives out that were only away. Those that do not are out of use.
    ///
    /// # Errors
    /// `Failed` when too few do.
    pub async fn try_writes(&self) -> Result<()> {
        self.try_some(|_| true).await
    }

    /// As [`try_writes`](Self::try_writes), of some drives.
    ///
    /// # Errors
    /// As [`try_writes`](Self::try_writes).
    pub async fn try_some(&self, wanted: impl Fn(u16) -> bool) -> Result<()> {
        let _turn = self.turn.hold().await;
        match self.put_to(What::Again, wanted).await {
            Err(error) if error.may_pass() => Ok(()),
            tried => tried,
        }
    }

    /// Writes the labels anew, changed, and with a higher epoch; drives that failed, and devices of the log, are
    /// marked as such. A drive that missed it is known by its lower epoch.
    ///
    /// # Errors
    /// `Failed` when so many drives are lost that the pool cannot be opened from the rest.
    pub async fn write_labels(&self, change: impl FnOnce(&mut Label)) -> Result<()> {
        let _turn = self.turn.hold().await;
        let mut label = self.label();
        change(&mut label);
        self.put_labels(label).await
    }

    /// Writes the newest label to the drives that missed it: no other is begun before. A drive that is not marked is
    /// therefore one epoch behind the others at most, and known as an old copy where it is further behind. One that is
    /// marked does not get it: whoever has a label that calls it failed seems to have gone on without the others.
    async fn catch_up(&self) -> Result<()> {
        let label = self.label();
        let marked = self.drives.indices().zip(&label.drives).filter(|(_, record)| record.is_out());
        let marked: u64 = marked.map(|(index, _)| bit(index)).sum();
        let behind = self.behind.load(Ordering::Acquire) & !marked;
        if behind == 0 || canary::skips(Step::LabelsCatchUp) {
            return Ok(());
        }
        self.put_to(What::Label(&label), |drive| behind & bit(drive) != 0).await
    }

    async fn put_labels(&self, mut label: Label) -> Result<()> {
        // Again, if a drive fails on this.
        loop {
            self.catch_up().await?;
            let told = self.failures();
            label.epoch += 1;
            self.mark_failures(&mut label)?;
            self.assert_later(&label);
            *self.label.lock() = label.clone();
            self.behind.store(self.drives.indices().map(bit).sum(), Ordering::Release);
            self.put(What::Label(&label)).await?;
            if !label.closed {
                self.members.follow(&label);
            }
            self.told.store(told, Ordering::Release);
            self.durable_term.store(label.term, Ordering::Release);
            if self.failures() == told {
                return Ok(());
            }
        }
    }

    /// What labels are to say comes after what they said, of the drives there are.
    fn assert_later(&self, label: &Label) {
        let before = self.label.lock();
        assert!(label.epoch > before.epoch, "each label that is written is of a later epoch");
        assert!(label.term >= before.term, "labels do not go back to a former term");
        assert_eq!(label.drives.len(), self.drives.len(), "labels say something of each drive");
    }

    /// Why more is lost than the redundancy bears, if so: no labels can say what failed, and nothing becomes durable
    /// any more. What the drives and their labels have is all that was acknowledged: an opening finds it.
    #[must_use]
    pub fn beyond(&self) -> Option<String> {
        if !self.has_news() {
            return None;
        }
        let mut label = self.label();
        self.mark_failures(&mut label).err().map(|error| error.context)
    }

    /// The newest term that the drives are known to have.
    pub fn durable_term(&self) -> u64 {
        self.durable_term.load(Ordering::Acquire)
    }

    /// Has a label say what failed: what was current and is so no more begins a new term.
    fn mark_failures(&self, label: &mut Label) -> Result<()> {
        let mut fewer = false;
        let mut failed = Vec::new();
        for (index, drive) in self.drives.indices().zip(&mut label.drives) {
            match self.drives.state(index) {
                // Nothing is lost with it.
                _ if drive.mark == DriveMark::Vacant => {}
                // Labels were to call it whole, and nothing has come to lie there: it is no loss.
                DriveState::Failed if self.drives.is_vacant(index) => {
                    fewer = true;
                    drive.set_mark(DriveMark::Vacant, label.epoch);
                    failed.push(index);
                }
                DriveState::Failed => {
                    if !drive.is_out() && matches!(self.drives.cause(index), Some(Cause::Faults(_)))
                    {
                        drive.stays_out = Some(StaysOut::Faults);
                    }
                    fewer |= !drive.is_out();
                    drive.set_mark(DriveMark::Failed, label.epoch);
                    failed.push(index);
                }
                // It stays online in labels that were to say that it is whole.
                DriveState::Rejoining if drive.is_out() => {
                    drive.set_mark(DriveMark::Rejoining, label.epoch);
                }
                DriveState::Online | DriveState::Missing | DriveState::Rejoining => {}
            }
        }
        let lost = label.lost();
        if lost > usize::from(label.layout.parity) {
            // Should they come back, they have all that was acknowledged: no label may say that
            // they do not.
            let context = format!("{lost} drives failed, more than the redundancy bears");
            return Err(Error::new(Kind::Failed, context));
        }
        // Once nothing is in the log, it does not matter who has it.
        if !label.closed && label.state != PoolState::Exported {
            for (slot, member) in label.log_members.iter_mut().enumerate() {
                let gone = member.drive.is_some_and(|drive| failed.contains(&drive));
                if member.current && (gone || self.members.is_lost(slot)) {
                    (member.current, fewer) = (false, true);
                }
            }
            if label.current_members().next().is_none() {
                // As above: the last one to fail has everything.
                return Err(Error::new(Kind::Failed, "no device takes the commit log's writes"));
            }
        }
        label.term += u64::from(fewer);
        Ok(())
    }

    /// Makes sure that the labels tell of every drive, and every device of the log, that failed: before that,
    /// nothing written without it counts as durable.
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels).
    pub async fn tell_failures(&self) -> Result<()> {
        if !self.has_news() {
            return Ok(());
        }
        let _turn = self.turn.hold().await;
        if !self.has_news() {
            return Ok(());
        }
        let label = self.label();
        self.put_labels(label).await
    }

    /// Takes the drive back that is of a place and was out: what is new is written to it from now on, and the labels
    /// say that what was there before is old. One at a time.
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels) and [`DriveSet::take_back`]; `Failed` when the drive failed at once.
    pub async fn readmit(&self, index: u16, drive: Arc<Drive>) -> Result<()> {
        self.check_out(index).await?;
        // A change that was cut short may be there, newer than what all others have. Nobody waits for it.
        if !canary::skips(Step::RejoinWipe) {
            area::wipe_copies(&drive, self.kept.area()).await?;
        }
        let _turn = self.turn.hold().await;
        let mut label = self.label();
        // Why it is out may have been told only just now.
        if let Some(why) = label.drives[usize::from(index)].stays_out {
            let context = format!("drive {index} of pool {} stays out: {why}", label.name);
            return Err(Error::new(Kind::Invalid, context));
        }
        self.drives.take_back(index, drive)?;
        label.drives[usize::from(index)].is_leaving = false;
        self.begin_resync(index, label).await
    }

    /// As [`readmit`](Self::readmit), of a drive that was not of the pool and has nothing of one. With the labels that
    /// give it `id` the one that was there is not of the pool any more, whatever it has.
    ///
    /// # Errors
    /// As [`readmit`](Self::readmit).
    pub async fn replace(&self, index: u16, drive: Arc<Drive>, id: [u8; 16]) -> Result<()> {
        self.check_out(index).await?;
        let _turn = self.turn.hold().await;
        self.drives.put(index, drive)?;
        let mut label = self.label();
        let record = &mut label.drives[usize::from(index)];
        (record.stays_out, record.is_leaving) = (None, false);
        if !canary::has(Canary::KeepsIdentity) {
            record.id = id;
        }
        self.begin_resync(index, label).await
    }

    /// One place more for a drive, and that drive there: it counts once it [is whole](Self::make_online).
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels); `Full` when there are as many as there can be.
    pub async fn add(&self, drive: Arc<Drive>, record: DriveRecord) -> Result<u16> {
        // What labels may fail at comes first: no place is left over for nothing. (The labels that tell of the drive tell of
        // every failure as well: nothing else depends on these.)
        self.tell_failures().await?;
        let _turn = self.turn.hold().await;
        self.catch_up().await?;
        let mut label = self.label();
        self.mark_failures(&mut label.clone())?;
        let begins = label.catalog.end() + record.log_bytes;
        let place = DriveSlot {
            drive: None,
            failed: false,
            begins,
            au_count: record.au_count,
            vacant: true,
        };
        let index = self.drives.add_place(&place)?;
        self.kept.add_place();
        // From here on the place is there for drives and labels alike, whatever becomes of the drive. The next labels
        // are of the next epoch all the same: those of the one after would go where the newest are.
        label.drives.push(record);
        let places = label.drives.len();
        assert_eq!(usize::from(index) + 1, places, "a new place is behind all others");
        *self.label.lock() = label.clone();
        self.drives.put(index, drive)?;
        self.begin_resync(index, label).await?;
        Ok(index)
    }

    /// A drive may come to a place only when the labels say that the one there is out.
    async fn check_out(&self, index: u16) -> Result<()> {
        if !canary::skips(Step::ReadmitTells) {
            self.tell_failures().await?;
        }
        if !self.label.lock().drives[usize::from(index)].is_out() {
            return Err(Error::new(Kind::Busy, "the labels do not say that the drive is out"));
        }
        self.drives.check_vacant(index)
    }

    async fn begin_resync(&self, index: u16, label: Label) -> Result<()> {
        self.kept.forget(index);
        let written = self.put_labels(label).await;
        if let Err(error) = &written {
            // Nobody makes it whole now: it may be taken back later.
            self.drives.fail(index, Cause::of("no labels could say that it is back", error));
        }
        written?;
        match self.drives.state(index) {
            DriveState::Rejoining => Ok(()),
            _ => Err(Error::new(Kind::Failed, "the drive failed as it was taken into use")),
        }
    }

    /// Takes a drive out of use until an operator wants it back, once the labels say so. One that is out already is
    /// not taken back by itself from then on.
    ///
    /// # Errors
    /// `Invalid` when the others do not have all that it has; as [`write_labels`](Self::write_labels).
    pub async fn retire(&self, index: u16) -> Result<()> {
        let _turn = self.turn.hold().await;
        if let Some(drive) = self.drives.written(index).cloned() {
            self.check_log_without(index)?;
            if !self.drives.fail_if_spared(index, &drive, Cause::Operator) {
                let context = format!("the redundancy does not bear the loss of drive {index} now");
                return Err(Error::new(Kind::Invalid, context));
            }
        }
        let mut label = self.label();
        label.drives[usize::from(index)].stays_out = Some(StaysOut::Operator);
        self.put_labels(label).await
    }

    /// A drive that is out is not taken back from now on before an operator wants it back, once the labels say so.
    ///
    /// # Errors
    /// `Exists` when it is in use, or being made whole; as [`write_labels`](Self::write_labels).
    pub async fn keep_out(&self, index: u16, why: StaysOut) -> Result<()> {
        self.check_out(index).await?;
        let keep = |label: &mut Label| {
            let record = &mut label.drives[usize::from(index)];
            record.stays_out = record.stays_out.or(Some(why)).filter(|_| record.is_out());
        };
        self.write_labels(keep).await
    }

    /// A drive that was kept out may be taken back from now on.
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels).
    pub async fn unretire(&self, index: u16) -> Result<()> {
        if self.label.lock().drives[usize::from(index)].stays_out.is_none() {
            return Ok(());
        }
        self.write_labels(|label| label.drives[usize::from(index)].stays_out = None).await
    }

    /// Which drives are being emptied, by their bits: the labels say so, for whoever opens the pool to go on with it.
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels).
    pub async fn set_leaving(&self, drives: u64) -> Result<()> {
        let change = |label: &mut Label| {
            for (index, record) in (0..).zip(&mut label.drives) {
                record.is_leaving = drives & bit(index) != 0;
            }
        };
        self.write_labels(change).await
    }

    /// Nothing of the pool lies in a place any more, durable: the labels say so, and that nothing is there is no loss
    /// from then on. A drive that is there is out of use.
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels), and the place is vacant in spite of it where labels may say so; `Busy` when
    /// a drive came back there meanwhile, or the log has.
    pub async fn vacate(&self, index: u16, is_emptied: bool) -> Result<()> {
        let _turn = self.turn.hold().await;
        let mut label = self.label();
        let record = &label.drives[usize::from(index)];
        if !record.is_leaving || record.is_out() == is_emptied {
            return Err(Error::new(Kind::Busy, "a drive came or went there meanwhile"));
        }
        if label.current_members().any(|member| member.drive == Some(index)) {
            return Err(Error::new(Kind::Busy, "a copy of the log came there meanwhile"));
        }
        let epoch = label.epoch + 1;
        let record = &mut label.drives[usize::from(index)];
        record.set_mark(DriveMark::Vacant, epoch);
        record.is_leaving = false;
        // One that an operator had emptied is not taken back by itself.
        record.stays_out = record.stays_out.or(is_emptied.then_some(StaysOut::Operator));
        let written = self.put_labels(label).await;
        // Where that failed half-way, some labels say so already, and the next ones will: nothing may come to lie there.
        if self.label.lock().drives[usize::from(index)].mark == DriveMark::Vacant {
            self.drives.set_vacant(index);
        }
        written
    }

    fn check_log_without(&self, index: u16) -> Result<()> {
        let label = self.label();
        let has_log = |(slot, member): (usize, &LogMember)| {
            member.current && member.drive != Some(index) && !self.members.is_lost(slot)
        };
        if label.closed || label.log_members.iter().enumerate().any(has_log) {
            return Ok(());
        }
        let context = format!("drive {index} has the last copy of the commit log");
        Err(Error::new(Kind::Invalid, context))
    }

    /// A drive that was made whole has everything, durable: the labels say so, and then it is relied on.
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels); `Failed` when the drive failed meanwhile.
    pub async fn make_online(&self, index: u16) -> Result<()> {
        let _turn = self.turn.hold().await;
        let widens = self.drives.is_vacant(index) && canary::has(Canary::WidensEarly);
        if self.drives.state(index) == DriveState::Rejoining && !widens {
            let mut label = self.label();
            let bears = usize::from(label.layout.parity);
            if self.drives.is_vacant(index) && bears > 0 && label.lost() >= bears {
                // Were it to fail at once, it would be one too many.
                let context = "the pool lacks as many drives as it bears";
                return Err(Error::new(Kind::Failed, context));
            }
            let epoch = label.epoch + 1;
            label.drives[usize::from(index)].set_mark(DriveMark::Online, epoch);
            // Should this fail half-way it is whole all the same: what is new goes there, too, and were that to fail
            // the labels say so before anything is relied on without it.
            self.put_labels(label).await?;
        }
        match self.drives.make_online(index) {
            true => Ok(()),
            false => Err(Error::new(Kind::Failed, "the drive failed while it was made whole")),
        }
    }

    /// Devices that have everything by now, each with the drive of its zone, are the log's from here on: beside
    /// those it has, or in place of all of them, of this kind and so many.
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels); `Failed` when one of them failed meanwhile.
    pub async fn admit(
        &self,
        new: &[(Tenant, Option<u16>)],
        instead: Option<(LogKind, u8)>,
    ) -> Result<()> {
        let _turn = self.turn.hold().await;
        // First: from now on they are not left out in silence.
        if !new.iter().all(|(tenant, _)| self.members.admit(*tenant)) {
            return Err(Error::new(Kind::Failed, "a device failed while it was made whole"));
        }
        let mut label = self.label();
        if let Some((kind, copies)) = instead {
            (label.log, label.log_copies) = (kind, copies);
            label.log_waits &= kind.is_gathered();
            label.log_members.iter_mut().for_each(|member| member.current = false);
        }
        let vacant = LogMember { id: [0; 16], drive: None, current: false };
        let listed = new.iter().map(|(tenant, _)| tenant.slot + 1);
        let listed = listed.chain([label.log_members.len()]).max().unwrap_or(0);
        label.log_members.resize(listed, vacant);
        for (tenant, drive) in new {
            let id = self.members.id(tenant.slot);
            label.log_members[tenant.slot] = LogMember { id, drive: *drive, current: true };
        }
        label.term += 1;
        self.put_labels(label).await
    }

    /// Writes a shard's root; durable on every drive that can be used when this returns.
    ///
    /// # Errors
    /// As [`write_labels`](Self::write_labels).
    pub async fn write_root(&self, root: &Root) -> Result<()> {
        self.put(What::Root(root)).await?;
        if self.kept.is_owed() {
            // A checkpoint does not depend on it.
            let _ = self.settle_catalog().await;
        }
        // A drive that does not have all that the root names, and was called whole by labels that nobody wrote since, would
        // not be made whole: what the root names bears a loss less.
        if canary::skips(Step::RootTells) { Ok(()) } else { self.tell_failures().await }
    }

    /// Has every drive carry the root that a shard goes on from, which an opening found on these: a checkpoint was cut short.
    /// What the one before it names is written over from now on. What a drive has no space for it gets with the next
    /// checkpoint, as long as no opening can miss the root until then. A drive of which nothing could be read may have a later
    /// one, which nobody is to find.
    ///
    /// # Errors
    /// As [`write_root`](Self::write_root).
    pub async fn spread_root(&self, root: &Root, on: &RootOn) -> Result<()> {
        let lacks_it = |index| !on.found.contains(&index);
        if !self.drives.indices().any(|index| self.drives.is_online(index) && lacks_it(index)) {
            return Ok(());
        }
        self.put_to(What::OnlyRoot(root), |index| on.unread.contains(&index)).await?;
        let lacks_it = |index| lacks_it(index) && !on.unread.contains(&index);
        match self.put_to(What::Root(root), lacks_it).await {
            Err(error) if error.may_pass() && self.is_root_spread(root).await => {}
            done => done?,
        }
        self.tell_failures().await
    }

    async fn is_root_spread(&self, root: &Root) -> bool {
        let mut having = 0;
        for index in self.drives.indices() {
            if let Some(drive) = self.drives.drive(index)
                && let Ok(Ok(found)) = area::read_root(drive, self.pool, root.shard).await
            {
                having += usize::from(found == *root);
            }
        }
        self.is_more_than_may_go(having)
    }

    /// Whether an opening finds one at least of so many drives in use.
    fn is_more_than_may_go(&self, drives: usize) -> bool {
        let label = self.label();
        drives + label.lost() > usize::from(label.layout.parity)
    }

    /// Whether a shard's root of this generation finds room on all drives, before anything is written for it.
    ///
    /// # Errors
    /// As [`write_root`](Self::write_root).
    pub async fn try_root(&self, shard: u16, generation: u64) -> Result<()> {
        self.put(What::RootAgain(shard, generation)).await
    }

    /// How many drives have to be usable for what is written to count.
    fn needed(&self) -> usize {
        // One that is about to count has what is written, too, or the next labels say that it failed.
        let label = self.label();
        let is_coming = |(index, record): &(u16, &DriveRecord)| {
            !record.is_out() && self.drives.is_vacant(*index)
        };
        let coming = self.drives.indices().zip(&label.drives).filter(is_coming).count();
        label.needed() - coming
    }

    /// # Errors
    /// `Full` and `Busy` of a drive that cannot be spared, `Failed` when too few are left.
    async fn put(&self, what: What<'_>) -> Result<()> {
        self.put_to(what, |_| true).await
    }

    async fn put_to(&self, what: What<'_>, wanted: impl Fn(u16) -> bool) -> Result<()> {
        let usable = |&index: &u16| self.drives.is_online(index);
        let (chosen, others): (Vec<u16>, Vec<u16>) =
            self.drives.indices().filter(usable).partition(|&index| wanted(index));
        let needed = self.needed();
        // Those that have it already are company as well.
        let company = Company::new(needed.saturating_sub(others.len()));
        let written = join_all(chosen.iter().map(|&index| self.put_one(index, what, &company)));
        let (mut failure, mut passing) = (None, None);
        for (index, done) in chosen.iter().zip(written.await) {
            match done {
                Ok(()) => {}
                // What the drive has is whole: it may be tried again, unless it has left.
                Err(error) if error.may_pass() && usable(index) => passing = Some(error),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = passing {
            return Err(error);
        }
        let left = self.drives.indices().filter(usable).count();
        // A place that became vacant meanwhile needs nothing any more.
        if left >= needed.min(self.needed()) {
            self.put_on_returned(what, wanted, &chosen).await;
            return Ok(());
        }
        let context = format!("only {left} of {} drives can be written", self.drives.len());
        Err(match failure {
            Some(cause) => Error::caused(Kind::Failed, context, cause),
            None => Error::new(Kind::Failed, context),
        })
    }

    /// Writes to drives that are being made whole, or were so when those were `chosen` that have it. After all others: what
    /// such a drive says is never newer than what those have that count. None is waited for once it is late, nor again when
    /// it is busy.
    async fn put_on_returned(&self, what: What<'_>, wanted: impl Fn(u16) -> bool, chosen: &[u16]) {
        let others = self.drives.indices().filter(|index| !chosen.contains(index));
        for index in others.filter(|&index| wanted(index)) {
            if self.drives.state(index).is_written()
                && let Err(error) = self.put_one(index, what, &Company::new(0)).await
                && let Some(drive) = self.drives.written(index)
            {
                self.drives.fail_one(index, drive, Cause::of("a write", &error));
            }
        }
    }

    /// Writes to one drive, which is out of use when that fails, but for what passes.
    async fn put_one(&self, index: u16, what: What<'_>, company: &Company) -> Result<()> {
        let gone = || Error::new(Kind::Failed, format!("drive {index} does not answer"));
        let Some(drive) = self.drives.written(index).cloned() else { return Err(gone()) };
        let begun = now();
        let write = async {
            loop {
                match what.write(index, &drive).await {
                    // For as long as it takes to tell a drive that is always told so from a system that is short of
                    // something.
                    Err(error)
                        if error.kind == Kind::Busy
                            && Duration::from_nanos(now() - begun) < PUT_PATIENCE =>
                    {
                        reactor::sleep(NO_SPACE_PAUSE).await;
                    }
                    done => return done,
                }
            }
        };
        let written = self.drives.in_company(index, company, write).await;
        let written = written.unwrap_or_else(|| Err(gone()));
        let written = written.map_err(|e| Error::caused(e.kind, format!("drive {index}"), e));
        if let Err(error) = &written
            && !error.may_pass()
        {
            self.drives.fail_one(index, &drive, Cause::of("a write", error));
        }
        written?;
        if matches!(what, What::Label(_)) {
            self.behind.fetch_and(!bit(index), Ordering::AcqRel);
        }
        Ok(())
    }
}
