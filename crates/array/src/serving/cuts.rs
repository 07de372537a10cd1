//! Cutting off what is behind the new end of a namespace that became smaller: of memory and of drives that are files.
//!
//! Not in the change itself: a drive that does not answer would hold up whoever else changes something, and a change
//! that is taken back would have lost what was cut off.

use std::time::Duration;

use api::v1::Kind;
use target::Draining;

use super::media::Media;
use super::{Place, Serving};
use crate::limits::NAMESPACE_DRAIN;
use crate::{Error, Result};

/// Media that is longer than its namespace.
#[derive(Clone, Debug)]
pub struct Cut {
    pub place: Place,
    number: u64,
    media: Media,
    draining: Draining,
    /// The new size is written down. Until then it may be taken back.
    is_kept: bool,
}

impl Cut {
    /// Cuts it when no command is behind the new end any more, which is waited for for `limit` at most.
    ///
    /// # Errors
    /// They do not end, or what the drive says.
    pub fn finish(&self, limit: Duration) -> Result<()> {
        drained(&self.draining, limit)?;
        self.media.cut()
    }

    /// Whether no command is there any more.
    pub fn is_due(&self) -> bool {
        self.draining.wait(Duration::ZERO)
    }
}

impl Serving {
    pub(super) fn cut_later(&mut self, place: Place, draining: Draining) {
        let Some(media) = self.media.get(&place).cloned() else { return };
        self.cuts_made += 1;
        let number = self.cuts_made;
        // What the later one waits for is all that the earlier one would have.
        self.cuts.retain(|cut| cut.place != place);
        self.cuts.push(Cut { place, number, media, draining, is_kept: false });
    }

    /// What is served is written down.
    pub fn kept(&mut self) {
        self.cuts.iter_mut().for_each(|cut| cut.is_kept = true);
    }

    /// Forgets those of a change that was not kept: whatever comes now takes it back.
    pub(super) fn drop_cuts(&mut self) {
        self.cuts.retain(|cut| cut.is_kept);
    }

    /// What is to be cut, with nothing held.
    pub fn cuts(&self) -> Vec<Cut> {
        self.cuts.iter().filter(|cut| cut.is_kept).cloned().collect()
    }

    /// It is cut, or never will be.
    pub fn cut_is_over(&mut self, over: &Cut) {
        self.cuts.retain(|cut| cut.number != over.number);
    }

    /// Refuses to let a namespace grow over what is to be cut off: its hosts would find there what was before.
    pub(super) fn check_uncut(&self, place: &Place) -> Result<()> {
        if !self.cuts.iter().any(|cut| cut.is_kept && cut.place == *place) {
            return Ok(());
        }
        let (nqn, nsid) = place;
        let what =
            format!("namespace {nsid} of {nqn} became smaller, and what it had is not cut off yet");
        Err(Error::new(Kind::Conflict, what).help("try again in a moment"))
    }
}

/// Waits for what commands still have behind a namespace's new end.
///
/// # Errors
/// They do not end.
pub(crate) fn drained(draining: &Draining, limit: Duration) -> Result<()> {
    if draining.wait(limit) {
        return Ok(());
    }
    let seconds = NAMESPACE_DRAIN.as_secs();
    Err(Error::new(Kind::Failed, format!("commands have not ended in {seconds} s"))
        .help("look at the drive: it does not answer"))
}
