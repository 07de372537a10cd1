//! What reservations need of controllers: who is attached, and notices to hosts (Base 2.1 section
//! 8.1.22).

use std::sync::Arc;

use super::Controller;
use crate::event::Event;
use crate::reservation::{HostId, Notice, NoticeMask};

impl Controller {
    /// Every controller of the subsystem with its host: all have every namespace attached.
    #[must_use]
    pub fn associations(&self) -> Vec<(HostId, u16)> {
        self.siblings().iter().map(|c| (c.host_id(), c.cntlid())).collect()
    }

    /// Puts notices about a namespace into the Reservation Notification log of every controller of
    /// the hosts concerned, and tells those hosts.
    pub fn notify(&self, nsid: u32, notices: &[Notice]) {
        if notices.is_empty() {
            return;
        }
        let siblings = self.siblings();
        for notice in notices {
            for controller in siblings.iter().filter(|c| c.host_id() == notice.host) {
                controller.notice(nsid, *notice);
            }
        }
    }

    fn notice(&self, nsid: u32, notice: Notice) {
        let mut state = self.lock();
        let mask = state.features.reservation_masks.get(&nsid).copied().unwrap_or_default();
        let due = state.reservations.push(nsid, notice.kind, mask);
        drop(state);
        if due {
            self.raise(Event::ReservationLog);
        }
    }

    /// The controllers of the subsystem, this one among them.
    fn siblings(&self) -> Vec<Arc<Controller>> {
        let Some(target) = self.target() else { return Vec::new() };
        let registry = target.lock();
        let subsystem = registry.subsystems.get(self.subsystem_nqn());
        subsystem.map(|s| s.controllers.iter().cloned().collect()).unwrap_or_default()
    }

    /// The mask of notices about a namespace (feature 82h).
    pub(crate) fn reservation_mask(&self, nsid: u32) -> NoticeMask {
        self.lock().features.reservation_masks.get(&nsid).copied().unwrap_or_default()
    }

    /// Sets it.
    pub(crate) fn set_reservation_mask(&self, nsid: u32, mask: NoticeMask) {
        self.lock().features.reservation_masks.insert(nsid, mask);
    }
}
