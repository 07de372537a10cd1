//! Opening a pool from what its drives say.

use std::sync::Arc;

use media::Drive;
use reactor::Handle;

use super::assemble::{Found, Frame, drive_set, is_for_one_that_went};
use super::members::{Begin, Plan, answering};
use super::newest::{Newest, newest_catalog};
use super::{LogSpec, Pool};
use crate::area;
use crate::canary::{self, Canary, Step};
use crate::error::{Error, Kind, Result};
use crate::format::Bad;
use crate::format::label::{DriveMark, Label, PoolState};
use crate::log::LogDevice;

/// How a pool is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Opens with as many drives missing as the redundancy bears. Those count as failed from then
    /// on: what they hold is old.
    pub degraded: bool,
    /// Opens a pool that was exported.
    pub import: bool,
    /// Opens without records of the log that were acknowledged and are damaged so that nothing tells
    /// which blocks they were of: those are as they were before. Where nothing tells which records
    /// are needed, with those that can be. Where no device that has the log is there, with what the
    /// drives have, and a new log.
    pub accept_loss: bool,
    /// Nobody was asked: where the drives that are missing could have gone on without those that are given, only if the
    /// log says that they did not.
    pub unattended: bool,
    /// The term of the labels that whoever opens the pool knows of, 0 for none: with lower ones the drives that went
    /// on are missing.
    pub known_term: u64,
    /// And the log, by [`LogStatus::id`](super::LogStatus::id): where nobody was asked, and the drives that are missing could
    /// go on without those that are given, one of another name is another machine's.
    pub known_log: Option<[u8; 16]>,
    /// What a log is called that is made anew, where whoever opens the pool had to know before; drawn at random, never used
    /// before.
    pub new_log: Option<[u8; 16]>,
}

fn missing(what: impl Into<String>) -> Error {
    Error::new(Kind::Missing, what)
}

fn hex(id: [u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Drives sorted into their places by what their labels say.
struct Sorted {
    label: Label,
    drives: Vec<Option<Arc<Drive>>>,
    /// Drives that missed the newest label: the write of it was cut short.
    behind: Vec<u16>,
    /// What was given in place of these is an old copy.
    old: Vec<u16>,
    /// And what was given in place of these was replaced: it is not of the pool any more.
    replaced: Vec<u16>,
    /// Drives that are out, or were old copies: they may be taken back.
    returned: Vec<Arc<Drive>>,
}

/// The label of a drive, from which on what is read of it lasts: a process that was killed in the midst of a
/// write of labels, roots or catalog may have left it in the drive's cache, where power takes it away.
pub(super) async fn lasting_label(drive: &Drive) -> Result<std::result::Result<Label, Bad>> {
    if drive.has_volatile_cache() && !canary::skips(Step::OpeningFlush) {
        drive.flush().await?;
    }
    area::read_label(drive).await
}

/// Reads the labels of these drives. With `degraded`, a drive whose label cannot be read is as good
/// as missing.
async fn labels(given: Vec<Arc<Drive>>, degraded: bool) -> Result<Vec<(Label, Arc<Drive>)>> {
    let mut labels = Vec::new();
    for (n, drive) in given.into_iter().enumerate() {
        match lasting_label(&drive).await {
            Ok(Ok(label)) => labels.push((label, drive)),
            Ok(Err(Bad::Blank)) => {
                let what =
                    format!("drive {n} of those given carries no pool's label: leave it out");
                return Err(missing(what));
            }
            Ok(Err(_)) | Err(_) if degraded => {}
            Ok(Err(bad)) => {
                let context = format!("the label of drive {n} of those given");
                return Err(Error::caused(Kind::Corrupt, context, bad));
            }
            Err(error) => {
                let context = format!("drive {n} of those given cannot be read");
                return Err(Error::caused(Kind::Missing, context, error));
            }
        }
    }
    Ok(labels)
}

async fn sort(given: Vec<Arc<Drive>>, options: OpenOptions) -> Result<Sorted> {
    let labels = labels(given, options.degraded).await?;
    let newest = labels.iter().map(|(label, _)| label).max_by_key(|label| label.epoch);
    let newest = newest.ok_or_else(|| Error::new(Kind::Invalid, "a pool needs drives"))?.clone();
    let mut drives: Vec<Option<Arc<Drive>>> = vec![None; newest.drives.len()];
    let mut epochs = Vec::new();
    let (mut others, mut replaced) = (Vec::new(), Vec::new());
    for (n, (label, drive)) in labels.into_iter().enumerate() {
        if label.pool != newest.pool {
            let (one, other) = (&label.name, &newest.name);
            let context =
                format!("drive {n} of those given is of pool {one}, others of pool {other}");
            return Err(Error::new(Kind::Invalid, context));
        }
        let index = usize::from(label.drive);
        if !newest.has_drive_of(&label) {
            replaced.push(label.drive);
            others.push(label);
            continue;
        }
        epochs.push((label.drive, label.epoch));
        if index >= drives.len() || drives[index].replace(drive).is_some() {
            let context = format!("drive {n} of those given is there twice, or a copy of another");
            return Err(Error::new(Kind::Invalid, context));
        }
        others.push(label);
    }
    check_history(&others, &newest)?;
    // What is beyond its end is lost, and nobody knows what was there.
    for (index, place) in (0..).zip(&mut drives) {
        let _ = place.take_if(|drive| drive.capacity() < newest.drive_bytes(index));
    }
    // One that failed holds what was there before: it is as good as missing.
    let mut returned = Vec::new();
    for (drive, record) in drives.iter_mut().zip(&newest.drives) {
        if record.is_out() {
            returned.extend(drive.take());
        }
    }
    let (mut behind, mut old) = (Vec::new(), Vec::new());
    for (index, epoch) in epochs {
        let drive = &mut drives[usize::from(index)];
        if drive.is_none() || epoch == newest.epoch {
            continue;
        }
        if !newest.shows_old(epoch) || canary::has(Canary::TakesOldCopies) {
            behind.push(index);
        } else {
            returned.extend(drive.take());
            old.push(index);
        }
    }
    Ok(Sorted { label: newest, drives, behind, old, replaced, returned })
}

/// The pool did not go on with drives after the others had gone on without them.
fn check_history(labels: &[Label], newest: &Label) -> Result<()> {
    let epoch_of = |index| labels.iter().find(|l| l.drive == index).map(|l| l.epoch);
    match labels.iter().find(|label| newest.is_forked_by(label, epoch_of)) {
        None => Ok(()),
        Some(Label { drive, name, .. }) => {
            let context = format!(
                "drive {drive} of pool {name} went on by itself after the others had gone on without it: give either, \
                 not both"
            );
            Err(Error::new(Kind::Invalid, context))
        }
    }
}

impl Sorted {
    /// Whether the drives that are missing could have been opened without those that are given.
    fn could_have_gone_on(&self) -> bool {
        let absent = self.drives.iter().zip(&self.label.drives);
        let is_new = absent.into_iter().any(|(drive, record)| drive.is_none() && !record.is_out());
        is_new && self.others_suffice()
    }

    /// Whether the drives that are missing are enough for the pool.
    fn others_suffice(&self) -> bool {
        self.lost() >= self.label.needed()
    }

    /// Whether these are the drives that whoever opens the pool used last, as far as that is known.
    fn check_known(&self, options: OpenOptions) -> Result<()> {
        let label = &self.label;
        if label.term < options.known_term && !canary::has(Canary::ForgetsTerm) {
            return Err(missing(format!(
                "pool {} was last used with later labels than the drives given have: newer drives are missing",
                label.name
            )));
        }
        let is_anothers = options.known_log.is_some_and(|known| known != label.log_id);
        let is_anothers = is_anothers && !canary::has(Canary::ForgetsLog);
        if is_anothers && options.unattended && self.others_suffice() {
            return Err(missing(format!(
                "the drives given of pool {} were used with another log than it was here, and those that are missing \
                 have what it was here: give them, or open the pool degraded by hand for what these have",
                label.name
            )));
        }
        Ok(())
    }

    /// Drives that are not there, or not any more, of those that something of the pool lies on.
    fn lost(&self) -> usize {
        let both = self.drives.iter().zip(&self.label.drives);
        both.filter(|(drive, record)| drive.is_none() && record.mark != DriveMark::Vacant).count()
    }

    fn check(&self, options: OpenOptions) -> Result<()> {
        let name = &self.label.name;
        if self.label.state == PoolState::Exported && !options.import {
            let context = format!("pool {name} was exported: import it");
            return Err(Error::new(Kind::Invalid, context));
        }
        let lost = self.lost();
        if lost > usize::from(self.label.layout.parity) {
            let bears = self.label.layout.parity;
            return Err(missing(format!(
                "pool {name} lacks {lost} drives, and bears the loss of {bears}{}",
                self.old_copies()
            )));
        }
        let known = self.label.lost();
        if lost > known && !options.degraded {
            let absent = self.drives.iter().zip(&self.label.drives).enumerate();
            let absent = absent.filter(|(_, (drive, record))| drive.is_none() && !record.is_out());
            let ids: Vec<_> =
                absent.map(|(n, (_, record))| format!("{n} ({})", hex(record.id))).collect();
            return Err(missing(format!(
                "pool {name} lacks drive {}: give it, or open the pool degraded{}",
                ids.join(", "),
                self.old_copies()
            )));
        }
        Ok(())
    }

    fn old_copies(&self) -> String {
        let words = |drives: &[u16], how: &str| {
            let drives: Vec<_> = drives.iter().map(u16::to_string).collect();
            match drives.is_empty() {
                true => String::new(),
                false => format!("; what is given as drive {} {how}", drives.join(", ")),
            }
        };
        words(&self.old, "is an old copy of it") + &words(&self.replaced, "was replaced by another")
    }
}

impl Pool {
    /// Opens the pool that these drives make, with the log it was created with. Its shards live on
    /// the reactors `on` by turns, or on this one if there are none.
    ///
    /// # Errors
    /// `Missing` when drives or the log are missing, blank or too old; `Invalid` when they are not of
    /// one pool, or it was exported; `Corrupt` when what they say is damaged beyond the redundancy; `Loss` when
    /// that is acknowledged contents nobody can name, and `options` do not accept it.
    pub async fn open(
        drives: Vec<Arc<Drive>>,
        log: LogSpec,
        options: OpenOptions,
        on: &[Handle],
    ) -> Result<Self> {
        let mut options = options;
        for _ in 1..drives.len() {
            match Self::try_open(drives.clone(), log.clone(), options, on).await {
                // A log of that name may lie there by now.
                Err(error) if is_for_one_that_went(&error) => options.new_log = None,
                opened => return opened,
            }
        }
        Self::try_open(drives, log, options, on).await
    }

    async fn try_open(
        drives: Vec<Arc<Drive>>,
        log: LogSpec,
        options: OpenOptions,
        on: &[Handle],
    ) -> Result<Self> {
        let sorted = sort(drives, options).await?;
        sorted.check(options)?;
        sorted.check_known(options)?;
        let risky = options.unattended && sorted.could_have_gone_on();
        let Sorted { mut label, drives, behind, returned, .. } = sorted;
        let newest_label = label.clone();
        // Whoever is absent now misses what is written from now on.
        let mut fewer = false;
        for (drive, record) in drives.iter().zip(&mut label.drives) {
            if drive.is_none() && record.mark != DriveMark::Vacant {
                fewer |= !record.is_out();
                // One that was being made whole begins again: what is written from now on is not on it.
                record.set_mark(DriveMark::Failed, label.epoch + 1);
            }
        }
        let found_term = label.term;
        label.term += u64::from(fewer);
        let set = drive_set(&label, drives.clone());
        let newest = newest_catalog(&set, &label, options.accept_loss).await?;
        if canary::has(Canary::WritesFirst) {
            for (index, drive) in set.indices().filter_map(|n| Some((n, set.drive(n)?))) {
                let early = Label { epoch: label.epoch + 1, drive: index, ..label.clone() };
                area::write_label(drive, &early).await?;
            }
        }
        let named = log.devices();
        let (log, silent) = answering(&log).await;
        if log.devices().is_empty()
            && let Some(error) = silent
        {
            return Err(error);
        }
        let plan =
            Plan::new(label.clone(), found_term, (&log, silent), &set, options.accept_loss).await?;
        if risky && !plan.is_witness() && !canary::has(Canary::AsksNoWitness) {
            return Err(missing(format!(
                "the drives of pool {} that are missing could have gone on without these: give them, or open the \
                 pool degraded by hand",
                plan.before.name
            )));
        }
        let without_log = Plan::without_log(label, plan.given.clone(), &set);
        let has_log = matches!(plan.begin, Begin::Found { .. });
        let found = |drives| Found { newest: newest_label.clone(), behind: behind.clone(), drives };
        let opened = Self::open_as(plan, newest, found(set), (options, &named), on).await;
        let pool = match opened {
            Err(error) if error.kind == Kind::Loss && has_log && options.accept_loss => {
                // An old copy is no log at all.
                let without_log = without_log?;
                let set = drive_set(&without_log.before, drives);
                let newest = newest_catalog(&set, &without_log.before, options.accept_loss).await?;
                Self::open_as(without_log, newest, found(set), (options, &named), on).await?
            }
            opened => opened?,
        };
        if !returned.is_empty() {
            let back = pool.clone();
            reactor::spawn(async move { back.take_back_all(returned).await });
        }
        Ok(pool)
    }

    async fn open_as(
        plan: Plan,
        newest: Newest,
        found: Found,
        (options, named): (OpenOptions, &[LogDevice]),
        on: &[Handle],
    ) -> Result<Self> {
        let Plan { before, mut after, begin, media, spare, without, given: _ } = plan;
        if matches!(begin, Begin::Clean | Begin::LogLost) {
            after.log_id = options.new_log.unwrap_or(after.log_id);
        }
        let (alike, kept) = (newest.alike, newest.kept(&before));
        let frame = Frame::new(found, before, after.clone(), media.clone(), kept)?;
        let pool = Self::assemble(frame, on, begin).await?;
        pool.0.log_lost.set(begin == Begin::LogLost);
        pool.0.log_rebuilt.set(begin == Begin::Clean && without);
        if matches!(begin, Begin::Clean | Begin::LogLost) {
            // Not before it has a log: an opening that is cut short is made again.
            let open = |label: &mut Label| {
                label.log = after.log;
                label.log_id = after.log_id;
                label.log_members = after.log_members;
                label.log_copies = after.log_copies;
                label.log_waits = after.log_waits;
                label.term = after.term.max(label.term + 1);
                label.closed = canary::has(Canary::StaysClosed);
                label.state = PoolState::Active;
            };
            let written = pool.0.common.superblock.write_labels(open).await;
            pool.or_stop(written).await?;
        }
        if !alike && !canary::skips(Step::OpeningCatalog) {
            // A change that was cut short is on some drives only, and from now on everybody sees it.
            let written = pool.0.common.superblock.spread_catalog().await;
            pool.or_stop(written).await?;
        }
        if options.accept_loss {
            pool.or_stop(pool.free_orphans().await).await?;
        }
        pool.or_stop(pool.adopt_volumes().await).await?;
        pool.or_stop(pool.recover_windows(options.accept_loss).await).await?;
        pool.note_remotes(&media.devices(), named);
        pool.keep_copies(spare);
        Ok(pool)
    }
}
