//! What the machine says of the drives in use: followed, and told of.

use reactor::Nanos;

use super::Node;
use crate::Result;
use crate::physical::InUse;
use crate::pools::documents;

impl Node {
    /// Has drives in use read that came, or were read some minutes ago, and tells what they warn of, or no longer
    /// do. Waits for no drive.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn look_at_hardware(&self) -> Result<()> {
        self.look_at_hardware_as_of(reactor::now())
    }

    fn look_at_hardware_as_of(&self, now: Nanos) -> Result<()> {
        let shown = self.view().serving()?.pools.shown();
        let subsystems = self.subsystems()?.into_iter();
        let in_use = InUse {
            pools: documents(shown)?,
            spares: self.all_spares()?,
            namespaces: subsystems.flat_map(|subsystem| subsystem.namespaces).collect(),
        };
        for (severity, words) in self.physical.look(&in_use, now) {
            self.events.record(severity, words);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
