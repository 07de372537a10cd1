//! What is thought of drives by how they answer: which are out of use, which are gone around.

use super::counters::count;
use super::health::{self, Health, Lateness};
use super::{Cause, Company, DriveSet, DriveState};
use crate::canary::{self, Canary};
use crate::limits::ERRORS_BORNE;
use media::Drive;
use reactor::{Nanos, timeout};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use stdx::num::u64_of;

impl DriveSet {
    /// Takes a drive out of use, whichever is in this place.
    pub fn fail(&self, drive: u16, why: Cause) {
        self.slot(drive).fail(why);
    }

    /// Takes a drive out of use, if it is still this one.
    pub fn fail_one(&self, drive: u16, media: &Arc<Drive>, why: Cause) {
        self.slot(drive).fail_one(media, why);
    }

    /// Takes a drive out of use if the others have all that it has, which is always so for one that is being made
    /// whole; tells whether it is out of use.
    pub fn fail_if_spared(&self, drive: u16, media: &Arc<Drive>, why: Cause) -> bool {
        let _one = self.shared.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        let is_out = |&d: &u16| d != drive && !self.is_online(d) && !self.is_vacant(d);
        let out = self.indices().filter(is_out).count();
        if !self.is_online(drive) || out < self.shared.bears {
            self.fail_one(drive, media, why);
        }
        !self.slot(drive).drive_if(DriveState::is_written).is_some_and(|d| Arc::ptr_eq(d, media))
    }

    /// Of a medium that falls apart, nothing more is wanted while others have what it has.
    pub(super) fn note_errors(&self, drive: u16, errors: u64) {
        let lately = self.slot(drive).health.note_errors(errors);
        if lately > ERRORS_BORNE
            && let Some(media) = self.drive(drive)
        {
            self.fail_if_spared(drive, media, Cause::Faults(lately));
        }
    }

    /// It did not answer within a deadline.
    pub(super) fn note_hang(&self, drive: u16) {
        count(&self.counts(drive).timeouts, 1);
        self.slot(drive).health.hangs();
    }

    /// A read took so long that the others were asked: the next ones go around the drive.
    pub(crate) fn note_slow(&self, drive: u16) {
        count(&self.counts(drive).slow, 1);
        self.slot(drive).health.avoid();
    }

    /// How long a read took that was answered, or is not waited for any more. Where most of a drive's are late and those
    /// of the others are not, reads go around it, until they are in time again.
    pub(super) fn note_read(&self, drive: u16, span: Nanos) {
        let is_late = u128::from(span) > self.reads.patience().as_nanos();
        self.reads.note(span);
        let health = &self.slot(drive).health;
        health.note_read(is_late);
        if is_late
            && health.reads.is_high()
            && !health.is_avoided()
            && self.is_alone_late(drive, |h| &h.reads)
        {
            if canary::has(Canary::CondemnsSlow)
                && let Some(media) = self.drive(drive)
            {
                self.fail_if_spared(drive, media, Cause::because("it is slow"));
            }
            health.avoid();
        }
    }

    /// How long a write took.
    pub(super) fn note_write(&self, drive: u16, span: Nanos) {
        let is_late = u128::from(span) > self.writes.patience().as_nanos();
        self.writes.note(span);
        self.slot(drive).health.writes.note(is_late);
    }

    /// A drive took what others took of the log, too, of which this is the company.
    pub(crate) fn note_append(&self, drive: u16, company: &Company) {
        self.slot(drive).health.appends.note(company.is_late());
    }

    /// Whether a drive takes most of the log's writes later than the others that have it: hosts wait for it.
    pub(crate) fn is_late_to_append(&self, drive: u16) -> bool {
        self.slot(drive).health.appends.is_high()
    }

    /// A drive does not have the log any more.
    pub(crate) fn forget_appends(&self, drive: u16) {
        self.slot(drive).health.appends.forget();
    }

    /// Whether the others are in time.
    fn is_alone_late(&self, drive: u16, what: impl Fn(&Health) -> &Lateness) -> bool {
        let others = self.indices().filter(|&d| d != drive && self.is_online(d));
        let others = others.map(|d| &self.slot(d).health).filter(|health| !health.is_avoided());
        health::are_in_time(others.map(|health| what(health).rate()))
    }

    /// Whether a drive is slower than the others, to read or to write.
    #[must_use]
    pub fn is_slow(&self, drive: u16) -> bool {
        let late = self.slot(drive).health.writes.is_high();
        self.is_avoided(drive)
            || self.is_late_to_append(drive)
            || late && self.is_alone_late(drive, |health| &health.writes)
    }

    /// Whether reads go around a drive.
    pub(crate) fn is_avoided(&self, drive: u16) -> bool {
        self.slot(drive).health.is_avoided()
    }

    /// Whether a read of these bytes is to go around a drive. Now and then they are read beside, to see whether the next
    /// one is to.
    pub(crate) fn goes_around(&self, drive: u16, at: u64) -> bool {
        let is_avoided = self.is_avoided(drive);
        if is_avoided && self.slot(drive).health.is_probe_due() {
            self.probe(drive, at, self.reads.patience());
        }
        is_avoided
    }

    /// Has a drive that reads go around asked whether that is still needed.
    pub(crate) fn probe_avoided(&self, drive: u16) {
        self.goes_around(drive, 0);
    }

    /// Waits for a read for as long as the others are not to be asked for what it is to give: `None` then.
    pub(crate) async fn unless_late<F: Future>(
        &self,
        drive: u16,
        mut read: Pin<&mut F>,
    ) -> Option<F::Output> {
        let patience = self.reads.patience();
        if let Ok(done) = timeout(patience, read.as_mut()).await {
            return Some(done);
        }
        if self.hedges.take() {
            count(&self.counts(drive).slow, 1);
            return None;
        }
        let rest = self.reads.hedge().saturating_sub(patience);
        if let Ok(done) = timeout(rest, read).await {
            return Some(done);
        }
        self.note_slow(drive);
        None
    }

    /// After how long a read is late, and whether others may be asked then for what it is to give.
    pub(crate) fn patience(&self) -> Duration {
        self.reads.patience()
    }

    /// Whether others may be asked for what late reads are to give.
    pub(crate) fn may_hedge(&self) -> bool {
        self.hedges.take()
    }

    /// How long what may hang is waited for while there is another way.
    pub(crate) fn hedge(&self) -> Duration {
        self.reads.hedge()
    }

    pub(crate) fn count_corrupt(&self, drive: u16, blocks: usize) {
        count(&self.counts(drive).corrupt, blocks);
        self.note_errors(drive, u64_of(blocks));
    }

    pub(crate) fn count_reconstructed(&self, drive: u16, blocks: usize) {
        count(&self.counts(drive).reconstructed, blocks);
    }

    pub(crate) fn count_repaired(&self, drive: u16, blocks: usize) {
        count(&self.counts(drive).repaired, blocks);
    }
}
