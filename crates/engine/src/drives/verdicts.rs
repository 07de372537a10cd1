//! What is thought of drives by how they answer: which are out of use, which are gone around.

use super::counters::count;
use super::{DriveSet, DriveState};
use crate::limits::ERRORS_BORNE;
use media::Drive;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use stdx::num::u64_of;

impl DriveSet {
    /// Takes a drive out of use, whichever is in this place.
    pub fn fail(&self, drive: u16) {
        self.slot(drive).fail();
    }

    /// Takes a drive out of use, if it is still this one.
    pub fn fail_one(&self, drive: u16, media: &Arc<Drive>) {
        self.slot(drive).fail_one(media);
    }

    /// Takes a drive out of use if the others have all that it has, which is always so for one that is being made
    /// whole; tells whether it is out of use.
    pub fn fail_if_spared(&self, drive: u16, media: &Arc<Drive>) -> bool {
        let _one = self.shared.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        let is_out = |&d: &u16| d != drive && !self.is_online(d) && !self.is_vacant(d);
        let out = self.indices().filter(is_out).count();
        if !self.is_online(drive) || out < self.shared.bears {
            self.fail_one(drive, media);
        }
        !self.slot(drive).drive_if(DriveState::is_written).is_some_and(|d| Arc::ptr_eq(d, media))
    }

    /// Of a medium that falls apart, nothing more is wanted while others have what it has.
    pub(super) fn note_errors(&self, drive: u16, errors: u64) {
        if self.slot(drive).health.note_errors(errors) > ERRORS_BORNE
            && let Some(media) = self.drive(drive)
        {
            self.fail_if_spared(drive, media);
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

    /// Whether a drive was too slow lately.
    pub(crate) fn is_slow(&self, drive: u16) -> bool {
        self.slot(drive).health.is_slow()
    }

    /// Whether reads are to go around a drive. Now and then one is to try it.
    pub(crate) fn is_avoided(&self, drive: u16) -> bool {
        self.slot(drive).health.is_avoided()
    }

    /// How long a read is waited for before the others are asked.
    pub(crate) fn hedge(&self) -> Duration {
        self.pace.hedge()
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
