//! Volumes that go back to a snapshot, under the hosts that have them or not.

use api::v1::{Consent, Kind, Losses, NewRollback, RolledBack, Severity};
use api::value::{Backend, GroupPath, Name, SnapshotPath, VolumePath};

use super::Node;
use crate::events::now_ms;
use crate::jobs::Task;
use crate::limits::NAMESPACE_DRAIN;
use crate::losses::check_meant;
use crate::pools::OpenPool;
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
        if view.serving()?.pools.snapshot(path)?.volume.is_too_deep() {
            let what = format!("volume {of} went back too often to what came after the last time");
            return Err(Error::new(Kind::Limit, what).help(
                "go back to a snapshot from before the last rollbacks; `flashloom volume detach` makes the next snapshots \
                 shallow again",
            ));
        }
        let mut losses = Vec::new();
        if !new.keep {
            losses.push(format!(
                "volume {of} as it is now would be lost, but for what its snapshots have"
            ));
        }
        if let Some(at) = view.mapping(&Backend::Volume(of.clone())) {
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
        let _turn = self.turn(&of.pool, &Task::default())?;
        check_meant(&self.losses_of_rollback(path, new)?, consent.force)?;
        let all = std::slice::from_ref(&of.volume);
        let kept = self.roll_all_back(&of.pool, all, &path.snapshot, new)?;
        let kept = kept.map(|snapshot| SnapshotPath { volume: of.clone(), snapshot });
        let had = kept.as_ref().map(|kept| format!("; {kept} has what it had before"));
        let words = format!("volume {of} went back to {path}{}", had.unwrap_or_default());
        self.events.record(Severity::Info, words);
        Ok(RolledBack { volume: self.volume(of)?, kept })
    }

    /// What a rollback of all volumes of a group would lose.
    ///
    /// # Errors
    /// As the rollback, as far as it is known before.
    pub fn losses_of_group_rollback(
        &self,
        path: &GroupPath,
        snapshot: &Name,
        new: &NewRollback,
    ) -> Result<Losses> {
        let volumes = self.group(path)?.volumes;
        if volumes.is_empty() {
            let what = format!("group {path} has no volumes");
            return Err(Error::new(Kind::Invalid, what)
                .help(format!("`flashloom group add {path}` adds some")));
        }
        let of = |volume: VolumePath| {
            let path = SnapshotPath { volume, snapshot: snapshot.clone() };
            Ok(self.losses_of_rollback(&path, new)?.losses)
        };
        let losses = volumes.into_iter().map(of).collect::<Result<Vec<_>>>()?;
        Ok(Losses { losses: losses.concat() })
    }

    /// Gives all volumes of a group what their snapshots of this name have, all or none.
    ///
    /// # Errors
    /// As [`roll_back`](Self::roll_back); `NotFound` where one of the volumes has no such snapshot.
    pub fn roll_group_back(
        &self,
        path: &GroupPath,
        snapshot: &Name,
        new: &NewRollback,
        consent: Consent,
    ) -> Result<Vec<RolledBack>> {
        let _turn = self.turn(&path.pool, &Task::default())?;
        check_meant(&self.losses_of_group_rollback(path, snapshot, new)?, consent.force)?;
        let volumes = self.group(path)?.volumes;
        let names: Vec<_> = volumes.iter().map(|path| path.volume.clone()).collect();
        let kept = self.roll_all_back(&path.pool, &names, snapshot, new)?;
        let had = kept.as_ref().map(|kept| format!("; snapshots {kept} have what they had before"));
        let words = format!("the volumes of group {path} went back to {path}@{snapshot}");
        self.events.record(Severity::Info, format!("{words}{}", had.unwrap_or_default()));
        let each = volumes.into_iter().map(|of| {
            let kept = kept.clone();
            let kept = kept.map(|snapshot| SnapshotPath { volume: of.clone(), snapshot });
            Ok(RolledBack { volume: self.volume(&of)?, kept })
        });
        each.collect()
    }

    /// Takes volumes of a pool back, and gives what the snapshots are called that have what they had before. Whoever calls
    /// has the turn.
    fn roll_all_back(
        &self,
        pool: &Name,
        volumes: &[Name],
        snapshot: &Name,
        new: &NewRollback,
    ) -> Result<Option<Name>> {
        let open = self.open_pool_named(pool)?;
        let keep = name_to_keep(&open, volumes, new);
        let mapping = |volume: &Name| {
            let volume = VolumePath { pool: pool.clone(), volume: volume.clone() };
            let at = self.view().mapping(&Backend::Volume(volume))?;
            Some((at.subsystem, at.nsid))
        };
        let places: Vec<Place> = volumes.iter().filter_map(mapping).collect();
        let is_mapped = !places.is_empty();
        let withheld = if is_mapped { self.withhold(places) } else { Ok(()) };
        let done = withheld.and_then(|()| open.roll_back(volumes, snapshot, keep.as_ref()));
        if is_mapped {
            let name = pool.clone();
            let failed = self.owner.ask(move |owned| {
                let failed = owned.attach(&name);
                owned.keep().map(|()| failed)
            })?;
            for error in &failed {
                let words = format!("a volume of {pool} is not served again: {error}");
                self.events.record(Severity::Error, words);
            }
        }
        done.map(|()| keep)
    }

    /// Has hosts hold back what they send for some namespaces, and waits for what they sent before.
    fn withhold(&self, places: Vec<Place>) -> Result<()> {
        let draining = self.owner.ask(move |owned| {
            let serving = owned.serving_mut()?;
            places.iter().map(|place| serving.withdraw_one(place)).collect::<Result<Vec<_>>>()
        })?;
        // What does not end in time is told that its volume is gone, and that it may try again.
        draining.iter().for_each(|draining| drop(drained(draining, NAMESPACE_DRAIN)));
        Ok(())
    }
}

/// What the snapshots are to be called that have what these volumes had before.
fn name_to_keep(pool: &OpenPool, volumes: &[Name], new: &NewRollback) -> Option<Name> {
    if !new.keep || new.keep_as.is_some() {
        return new.keep_as.clone();
    }
    let time = schedules::written(now_ms() / 1000);
    let names = (1..).map(|n| match n {
        1 => format!("before-rollback-{time}").parse::<Name>(),
        n => format!("before-rollback-{time}-{n}").parse::<Name>(),
    });
    // Twice within a second is twice.
    let is_free = |name: &Name| volumes.iter().all(|volume| pool.snapshot(volume, name).is_err());
    names.filter_map(std::result::Result::ok).find(is_free)
}

fn check_asked(new: &NewRollback) -> Result<()> {
    match (&new.keep_as, new.keep) {
        (Some(name), false) => {
            let what = format!("nothing is to be kept, and it is to be called {name}");
            Err(Error::new(Kind::Invalid, what).help("say one of both"))
        }
        _ => Ok(()),
    }
}
