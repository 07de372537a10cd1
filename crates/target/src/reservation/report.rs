//! Reservation Report: the Reservation Status data structure (Base 2.1, section 7.7).

use nvme::reservation::{CNTLID_NONE, ExtendedStatusHeader, RegistrantExtended, StatusHeader};
use zerocopy::IntoBytes;

use super::{HostId, State};

impl State {
    /// Appends the *extended* Reservation Status data structure to `page`.
    ///
    /// Each controller of a registrant has its entry; a registrant without a controller is reported
    /// once, as CNTLID FFFFh. `controllers` names every controller that has the namespace attached,
    /// with its host. The short form has no place for a 128-bit Host Identifier, so a report without
    /// EDS is refused by the caller with Host Identifier Inconsistent Format.
    pub fn report(&self, controllers: &[(HostId, u16)], page: &mut Vec<u8>) {
        let mut entries = Vec::new();
        for registration in self.registrations() {
            let holds = self.is_holder(registration.host);
            let mut entry = |cntlid| {
                let host = registration.host.0;
                entries.push(RegistrantExtended::new(cntlid, holds, registration.key, host));
            };
            let own = controllers.iter().filter(|(host, _)| *host == registration.host);
            if own.clone().next().is_none() {
                entry(CNTLID_NONE);
            }
            own.for_each(|&(_, cntlid)| entry(cntlid));
        }
        let head = ExtendedStatusHeader::new(StatusHeader {
            generation: self.generation().into(),
            rtype: self.held().map_or(0, |held| held.kind().raw()),
            regstrnt: u16::try_from(entries.len()).unwrap_or(u16::MAX).into(),
            ptpls: u8::from(self.persists()),
            ..StatusHeader::default()
        });
        page.extend_from_slice(head.as_bytes());
        page.extend_from_slice(entries.as_bytes());
    }
}
