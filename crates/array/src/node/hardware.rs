//! What the machine says of the drives of pools: followed, and told of.

use reactor::Nanos;

use super::Node;
use crate::Result;
use crate::pools::documents;

impl Node {
    /// Has drives of open pools read that came, or were read some minutes ago, and tells what they warn of, or no longer
    /// do. Waits for no drive.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn look_at_hardware(&self) -> Result<()> {
        self.look_at_hardware_as_of(reactor::now())
    }

    fn look_at_hardware_as_of(&self, now: Nanos) -> Result<()> {
        let shown = self.view().serving()?.pools.shown();
        let pools = documents(shown)?;
        for (severity, words) in self.physical.look(&pools, now) {
            self.events.record(severity, words);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
