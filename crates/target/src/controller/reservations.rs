//! Reservation notices on their way to a host (Base 2.1 section 8.1.22.1).

use super::Controller;
use crate::event::Event;
use crate::reservation::NoticeKind;

impl Controller {
    /// Enters a notice into the Reservation Notification log, unless the host masks its kind.
    pub(crate) fn notice(&self, nsid: u32, kind: NoticeKind) {
        let mut state = self.lock();
        let mask = state.features.reservation_masks.get(&nsid).copied().unwrap_or_default();
        let due = state.reservations.push(nsid, kind, mask);
        drop(state);
        if due {
            self.raise(Event::ReservationLog);
        }
    }
}
