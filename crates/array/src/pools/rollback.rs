//! Volumes that go back to what a snapshot of theirs has.

use api::v1::Kind;
use api::value::Name;
use engine::RollbackSpec;
use uuid::Uuid;

use super::held::Snapshot;
use super::open::OpenPool;
use crate::events::now_ms;
use crate::{Error, Result};

impl OpenPool {
    /// Gives volumes what the snapshots of this name of theirs have, and the sizes they had then, all or none, and keeps
    /// snapshots of that name of what they had until then, if there is a name. Whoever has them open has to open them again,
    /// whether this succeeds or not.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a name that is taken or while nothing leaves the log, `Limit` when there are too many or
    /// one went back too often to what came after the last time, `Failed`.
    pub fn roll_back(&self, names: &[Name], snapshot: &Name, keep: Option<&Name>) -> Result<()> {
        for name in names {
            self.snapshot(name, snapshot)?;
            if let Some(taken) = keep.filter(|keep| self.snapshot(name, keep).is_ok()) {
                let what = format!("snapshot {}/{name}@{taken} is there already", self.name());
                return Err(Error::new(Kind::Conflict, what).help("keep it under another name"));
            }
        }
        let created = now_ms() / 1000;
        let spec = |name: &Name| RollbackSpec {
            volume: name.to_string(),
            snapshot: snapshot.to_string(),
            keep: keep.map(|keep| (keep.to_string(), *Uuid::new_v4().as_bytes())),
            created,
        };
        let specs: Vec<_> = names.iter().map(spec).collect();
        let of = specs.clone();
        let done = self.call(|pool| async move { pool.rollback_volumes(specs).await });
        let done = done.map_err(|error| self.no_room_to_reserve(error));
        // Whatever came of it.
        let now = self.call(|pool| async move {
            let each = of.into_iter().map(|RollbackSpec { volume, keep, .. }| {
                let kept = keep.and_then(|(kept, _)| pool.snapshot(&volume, &kept).ok());
                Ok((pool.volume(&volume)?, kept))
            });
            each.collect::<engine::Result<Vec<_>>>()
        });
        // Why it was not done tells more than that nothing can be asked any more.
        let now = match (now, &done) {
            (Ok(now), _) => now,
            (Err(_), Err(_)) => return done,
            (Err(error), Ok(())) => return Err(error),
        };
        let mut held = self.held().lock();
        for (name, (volume, kept)) in names.iter().zip(now) {
            let Some(held) = held.get_mut(name) else { continue };
            held.volume = volume;
            let kept = keep.zip(kept);
            held.snapshots.extend(kept.map(|(keep, volume)| Snapshot {
                name: keep.clone(),
                created,
                volume,
            }));
        }
        drop(held);
        done.map_err(|error| match error.kind {
            Kind::Conflict => error.help(
                "a rollback waits for what the commit log has of the snapshot to be on the drives: `flashloom health` \
                 tells what holds that up",
            ),
            Kind::Limit => error.help(
                "delete volumes and snapshots that are not needed, or go back to a snapshot from before the last \
                 rollbacks",
            ),
            _ => error,
        })
    }
}
