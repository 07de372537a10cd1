//! Volumes that go back to a snapshot, under the hosts that have them or not.

use api::v1::{Consent, Losses, NewRollback, RolledBack, Severity};
use api::value::{Backend, Name, SnapshotPath};

use super::Node;
use crate::events::now_ms;
use crate::jobs::Task;
use crate::limits::NAMESPACE_DRAIN;
use crate::losses::check_meant;
use crate::serving::{Place, drained};
use crate::{Error, Result, schedules};

impl Node {
    /// What a rollback would lose, and whom it would surprise.
    ///
    /// # Errors
    /// As the rollback, as far as it is known before.
    pub fn losses_of_rollback(&self, path: &SnapshotPath, new: &NewRollback) -> Result<Losses> {
        let of = &path.volume;
        check_asked(new)?;
        let view = self.view();
        view.serving()?.pools.snapshot(path)?;
        let mut losses = Vec::new();
        if !new.keep {
            losses.push(format!(
                "volume {of} as it is now would be lost, but for what its snapshots have"
            ));
        }
        if let Some(at) = view.state.mapping(&Backend::Volume(of.clone())) {
            losses.push(format!(
                "volume {of} would change under the hosts that have it as namespace {} of {}: what they keep of it in \
                 memory would be wrong, and may be written back; unmount it there first",
                at.nsid, at.subsystem
            ));
        }
        Ok(Losses { losses })
    }

    /// Gives a volume what one of its snapshots has. Hosts that have it wait meanwhile, and are told that it changed.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`, `Conflict` where what is lost is not meant, while nothing leaves the commit log or for a name
    /// that is taken, `Limit`, `Failed`.
    pub fn roll_back(
        &self,
        path: &SnapshotPath,
        new: &NewRollback,
        consent: Consent,
    ) -> Result<RolledBack> {
        let of = &path.volume;
        let turn = self.turn(&of.pool, &Task::default())?;
        check_meant(&self.losses_of_rollback(path, new)?, consent.force)?;
        let keep = self.name_to_keep(path, new)?;
        let pool = self.open_pool_named(&of.pool)?;
        let place = self.view().state.mapping(&Backend::Volume(of.clone()));
        let place = place.map(|at| (at.subsystem, at.nsid));
        if let Some(place) = &place {
            self.withhold(place.clone())?;
        }
        let done = pool.roll_back(&of.volume, &path.snapshot, keep.as_ref());
        if place.is_some() {
            let name = of.pool.clone();
            let failed = self.owner.ask(move |owned| {
                let failed = owned.attach(&name);
                owned.keep().map(|()| failed)
            })?;
            for error in &failed {
                let words = format!("{of} is not served again: {error}");
                self.events.record(Severity::Error, words);
            }
        }
        done?;
        drop(turn);
        let kept = keep.map(|snapshot| SnapshotPath { volume: of.clone(), snapshot });
        let had = kept.as_ref().map(|kept| format!("; {kept} has what it had before"));
        let words = format!("volume {of} went back to {path}{}", had.unwrap_or_default());
        self.events.record(Severity::Info, words);
        Ok(RolledBack { volume: self.volume(of)?, kept })
    }

    /// What the snapshot is to be called that has what the volume had before.
    fn name_to_keep(&self, path: &SnapshotPath, new: &NewRollback) -> Result<Option<Name>> {
        if !new.keep || new.keep_as.is_some() {
            return Ok(new.keep_as.clone());
        }
        let pool = self.open_pool_named(&path.volume.pool)?;
        let time = schedules::written(now_ms() / 1000);
        let names = (1..).map(|n| match n {
            1 => format!("before-rollback-{time}").parse::<Name>(),
            n => format!("before-rollback-{time}-{n}").parse::<Name>(),
        });
        // Twice within a second is twice.
        let is_free = |name: &Name| pool.snapshot(&path.volume.volume, name).is_err();
        let free = names.filter_map(std::result::Result::ok).find(is_free);
        Ok(free)
    }

    /// Has hosts hold back what they send for a namespace, and waits for what they sent before.
    fn withhold(&self, place: Place) -> Result<()> {
        let draining = self.owner.ask(move |owned| owned.serving_mut()?.withdraw_one(&place))?;
        // What does not end in time is told that its volume is gone, and that it may try again.
        drop(drained(&draining, NAMESPACE_DRAIN));
        Ok(())
    }
}

fn check_asked(new: &NewRollback) -> Result<()> {
    match (&new.keep_as, new.keep) {
        (Some(name), false) => {
            let what = format!("nothing is to be kept, and it is to be called {name}");
            Err(Error::new(api::v1::Kind::Invalid, what).help("say one of both"))
        }
        _ => Ok(()),
    }
}
