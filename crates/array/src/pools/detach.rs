//! Volumes that are given what they share with what they were made of as their own.

use std::time::Duration;

use api::v1::Kind;
use api::value::{Name, VolumePath};
use engine::{Detaching, Volume};

use super::open::OpenPool;
use crate::Result;

impl OpenPool {
    /// Begins to give a volume what it shares, or goes on with it.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` where it shares nothing; `Conflict` while it is still being left; `Failed`.
    pub fn detach(&self, name: &Name) -> Result<()> {
        let of = name.to_string();
        let done = self.call(|pool| async move { pool.detach_volume(&of).await });
        done.map_err(|error| match error.kind {
            Kind::Invalid => error.help("there is nothing to do: it can be used as it is"),
            Kind::Limit if error.context.contains("group") => self.named(error).help(format!(
                "give its group more, or none for as long: `flashloom group quota {}/GROUP none`",
                self.name()
            )),
            Kind::Limit => self.named(error).help(format!(
                "give it more, or none for as long: `flashloom volume quota {}/{name} none`",
                self.name()
            )),
            _ => error,
        })
    }

    /// How far that is, after a moment; `None` where it is not under way.
    ///
    /// # Errors
    /// `Failed` when the pool was closed.
    pub fn detaching(&self, volume: &Volume, after: Duration) -> Result<Option<Detaching>> {
        let volume = volume.clone();
        self.call(move |pool| async move {
            reactor::sleep(after).await;
            Ok(pool.detaching(&volume))
        })
    }

    /// Leaves a volume as it is by now, whatever it is called.
    ///
    /// # Errors
    /// `Invalid` where nothing is under way; `Failed`.
    pub fn stop_detaching(&self, volume: &Volume) -> Result<()> {
        let name = volume.name();
        self.call(|pool| async move { pool.stop_detaching(&name).await })
    }

    /// Volumes that are being given what they share.
    pub fn detached_volumes(&self) -> Vec<VolumePath> {
        let held = self.held().lock();
        let detaching = held.iter().filter(|(_, held)| held.volume.detaching().is_some());
        let path = |name: &Name| VolumePath { pool: self.name().clone(), volume: name.clone() };
        detaching.map(|(name, _)| path(name)).collect()
    }
}
