//! The direct write windows that a controller was granted: they end with its association, and before.

use super::{Controller, Kind};
use crate::command::Pending;
use crate::windows::Who;

impl Controller {
    /// The controller's host, as the windows know it.
    pub(crate) fn who(&self) -> Who {
        Who { host: self.host_id(), association: self.association.clone() }
    }

    /// Whether windows are granted by this controller.
    pub(crate) fn grants_windows(&self) -> bool {
        self.kind() == Kind::Io && self.target().is_some_and(|target| target.windows().is_some())
    }

    /// Ends those that it has, and those that it is being granted; `pending` has it all when they have ended. Under no lock.
    pub(crate) fn end_windows(&self, pending: &Pending) {
        if !self.association.has_asked() {
            return;
        }
        let Some(target) = self.target() else { return };
        for window in target.windows_of(self) {
            window.end_of(&self.association, Box::new(pending.one_more()));
        }
    }

    /// The same, for a reset or a shutdown, which is not complete before: its host relies on nothing being done of the
    /// association any more, and what it wrote by RDMA may arrive until then. Under no lock.
    pub(super) fn end_windows_first(&self) {
        let Some(target) = self.target() else { return };
        for window in target.windows_of(self) {
            window.end_of(&self.association, Box::new(self.association.leaves()));
        }
    }

    /// The association is over: nobody waits for that, but whoever wants a namespace without a window waits for this one's
    /// end.
    pub(super) fn end_windows_for_ever(&self) {
        self.association.end();
        self.end_windows(&Pending::default());
    }
}
