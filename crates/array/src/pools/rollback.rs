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
    /// Gives a volume what one of its snapshots has, and the size it had then, and keeps a snapshot of this name of what it
    /// had until then, if there is a name. Whoever has it open has to open it again, whether this succeeds or not.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` for a name that is taken or while nothing leaves the log, `Limit` when there are too many or
    /// it went back too often to what came after the last time, `Failed`.
    pub fn roll_back(&self, name: &Name, snapshot: &Name, keep: Option<&Name>) -> Result<()> {
        self.snapshot(name, snapshot)?;
        let is_taken = |keep: &&Name| self.snapshot(name, keep).is_ok();
        if let Some(taken) = keep.filter(is_taken) {
            let what = format!("snapshot {}/{name}@{taken} is there already", self.name());
            return Err(Error::new(Kind::Conflict, what).help("keep it under another name"));
        }
        let created = now_ms() / 1000;
        let spec = RollbackSpec {
            volume: name.to_string(),
            snapshot: snapshot.to_string(),
            keep: keep.map(|keep| (keep.to_string(), *Uuid::new_v4().as_bytes())),
            created,
        };
        let (of, kept) = (spec.volume.clone(), spec.keep.clone());
        let done = self.call(|pool| async move { pool.rollback_volume(spec).await.map(drop) });
        // Whatever came of it.
        let (kept, volume) = self.call(|pool| async move {
            let kept = kept.and_then(|(kept, _)| pool.snapshot(&of, &kept).ok());
            Ok((kept, pool.volume(&of)?))
        })?;
        if let Some(held) = self.held().lock().get_mut(name) {
            held.volume = volume;
            let kept = keep.zip(kept);
            held.snapshots.extend(kept.map(|(keep, volume)| Snapshot {
                name: keep.clone(),
                created,
                volume,
            }));
        }
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
