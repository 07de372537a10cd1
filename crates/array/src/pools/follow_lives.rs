//! What becomes of the drives of an open pool is followed: remembered, told of, and kept out where they come and go.

use std::collections::BTreeMap;
use std::time::Duration;

use api::v1::Severity;
use engine::drives::Cause;
use engine::format::label::StaysOut;
use engine::{DriveStatus, PoolStatus};
use reactor::Nanos;

use super::lives::{Clock, Life, LifeChange, Seen};
use super::outlook::Outlook;
use super::rebuild::is_lost;
use super::returning::Search;
use crate::limits::{RETURNS_BORNE, RETURNS_WINDOW};

impl Search {
    /// Takes notice of what became of the drives, and has those stay out that come and go; what is to be said of it.
    pub(super) fn follow_lives(
        &mut self,
        status: &PoolStatus,
        clock: Clock,
    ) -> Vec<(Severity, String)> {
        // What takes several is a shelf, or a link: none of them is the one that flaps.
        let lacks_one =
            status.beyond.is_none() && status.drives.iter().filter(|of| is_lost(of)).count() == 1;
        self.lacks_one = lacks_one;
        let mut said = Vec::new();
        for (index, drive) in (0..).zip(&status.drives) {
            let before = self.lives.get(&index);
            let life = Life::see(before, &Seen::of(drive, clock), clock.now_ms);
            said.extend(self.news(index, before, &life, drive));
            let is_often = life.returns(clock.now_ms) >= RETURNS_BORNE;
            self.lives.insert(index, life);
            if is_often && lacks_one && is_lost(drive) && drive.stays_out.is_none() {
                said.extend(self.keep_out(index));
            }
        }
        said
    }

    /// What there is to say of a drive that failed.
    fn news(
        &self,
        index: u16,
        before: Option<&Life>,
        life: &Life,
        drive: &DriveStatus,
    ) -> Option<(Severity, String)> {
        // One that nobody has looked at yet has failed since its pool was opened, too: the engine knows why.
        let was_in = before.is_none_or(|before| before.id != life.id || before.state.works());
        let name = &self.name;
        match &drive.cause {
            Some(cause @ Cause::Faults(_)) if was_in && life.state.is_lost() => {
                let words = format!(
                    "drive {index} of pool {name} is out of use, and stays out: {cause}; \
                     `flashloom drive replace {name}/{index}` puts another one in its place"
                );
                Some((Severity::Error, words))
            }
            Some(cause @ Cause::Failure(_)) if was_in && life.state.is_lost() => {
                Some((Severity::Warning, format!("drive {index} of pool {name} failed: {cause}")))
            }
            _ => None,
        }
    }

    fn keep_out(&mut self, index: u16) -> Option<(Severity, String)> {
        let name = &self.name;
        match self.pool.keep_out(index, StaysOut::Returns) {
            Ok(()) => {
                let lacked = self.away.drives.entry(usize::from(index)).or_default();
                lacked.stays_out = true;
                let words = format!(
                    "drive {index} of pool {name} came and went {RETURNS_BORNE} times within {} minutes, and stays \
                     out: `flashloom drive rejoin {name}/{index}` takes it back",
                    RETURNS_WINDOW.as_secs() / 60
                );
                Some((Severity::Warning, words))
            }
            // The next look tries again, and it is not taken back before.
            Err(error) => {
                tracing::warn!("drive {index} of pool {name} cannot be kept out: {error}");
                None
            }
        }
    }

    /// A drive was taken back by itself.
    pub(super) fn note_return(&mut self, index: u16, clock: Clock) {
        if let Some(life) = self.lives.get_mut(&index) {
            life.comes_back(clock);
        }
    }

    /// Whether a drive came and went so often that it is not taken back by itself.
    pub(super) fn is_worn(&self, index: u16, clock: Clock) -> bool {
        self.lacks_one
            && self
                .lives
                .get(&index)
                .is_some_and(|life| life.returns(clock.now_ms) >= RETURNS_BORNE)
    }

    /// What became of the lives that were known.
    pub(super) fn life_changes(&self) -> Vec<LifeChange> {
        let change = |(index, after): (&u16, &Life)| {
            let before = self.def.lives.get(index);
            (before != Some(after)).then(|| LifeChange {
                index: *index,
                before: before.cloned(),
                after: after.clone(),
            })
        };
        self.lives.iter().filter_map(change).collect()
    }
}

impl Search {
    /// What is going to be done about each drive that the pool lacks.
    pub(super) fn outlooks(
        &self,
        status: &PoolStatus,
        after: Option<Duration>,
    ) -> BTreeMap<u16, Outlook> {
        let lost = (0..).zip(&status.drives).filter(|(_, drive)| is_lost(drive));
        lost.map(|(index, drive)| (index, self.outlook(index, drive, after))).collect()
    }

    fn outlook(&self, index: u16, drive: &DriveStatus, after: Option<Duration>) -> Outlook {
        let lacked = self.away.drives.get(&usize::from(index));
        let since = lacked.map_or_else(reactor::now, |lacked| lacked.since);
        let waits = after.and_then(|after| Nanos::try_from(after.as_nanos()).ok());
        let spare_at = waits.map(|waits| since.saturating_add(waits));
        let fits = self.spares.iter().any(|spare| spare.size >= drive.bytes);
        Outlook {
            tries_at: lacked.map(|lacked| lacked.rests).filter(|at| *at > reactor::now()),
            refused: lacked.filter(|of| of.is_refused).and_then(|lacked| lacked.said.clone()),
            spare: fits.then_some(spare_at),
            rebuild_at: self.away.rebuilds,
        }
    }
}
