//! Reservation Report: the Reservation Status data structure (NVMe Base 2.1, section 7.4).

use super::{HostId, Registration, State};

/// CNTLID of a registrant that has no controller at the moment (dynamic controllers).
const CNTLID_NONE: u16 = 0xffff;
/// Header and entry size of the extended data structure.
const EXTENDED: usize = 64;

impl State {
    /// Appends the *extended* Reservation Status data structure to `page`.
    ///
    /// Each controller of a registrant has its Registered Controller entry; a registrant without
    /// a controller is reported once, as CNTLID FFFFh. `controllers` names the association of
    /// every controller attached to the namespace. The short form has no place for a 128-bit
    /// Host Identifier, so a report without EDS is refused by the caller with Host Identifier
    /// Inconsistent Format.
    pub fn report(&self, controllers: &[(HostId, u16)], page: &mut Vec<u8>) {
        let header = page.len();
        page.resize(header + EXTENDED, 0);
        let mut entries: u16 = 0;
        for registration in self.registrations() {
            let own = controllers.iter().filter(|(host, _)| *host == registration.host);
            let mut listed = false;
            for &(_, cntlid) in own {
                self.entry(registration, cntlid, page);
                entries = entries.saturating_add(1);
                listed = true;
            }
            if !listed {
                self.entry(registration, CNTLID_NONE, page);
                entries = entries.saturating_add(1);
            }
        }
        let head = &mut page[header..header + EXTENDED];
        head[0..4].copy_from_slice(&self.generation().to_le_bytes());
        head[4] = self.held().map_or(0, |held| held.kind().rtype());
        head[5..7].copy_from_slice(&entries.to_le_bytes());
        head[9] = u8::from(self.persists());
    }

    fn entry(&self, registration: &Registration, cntlid: u16, page: &mut Vec<u8>) {
        let at = page.len();
        page.resize(at + EXTENDED, 0);
        let entry = &mut page[at..];
        entry[0..2].copy_from_slice(&cntlid.to_le_bytes());
        entry[2] = u8::from(self.is_holder(registration.host));
        entry[8..16].copy_from_slice(&registration.key.to_le_bytes());
        entry[16..32].copy_from_slice(&registration.host.0);
    }
}
