//! Get Log Page (Base 2.1 section 5.1.12).

use nvme::ana;
use nvme::event::Event;
use nvme::identify::NSID_ALL;
use nvme::log::persistent::{Action, LogHeader};
use nvme::log::{ChangedNamespaces, FirmwareSlots, GetLogPage, LogOffset, lid};
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::{low32, u64_of};
use zerocopy::IntoBytes;

use super::{Fault, Outcome, features, prepare, window};
use crate::controller::{Changed, Controller, Kind};
use crate::describe;
use crate::discovery;
use crate::limits::TRANSFER_BYTES_MAX;

/// The log pages of I/O controllers.
pub(crate) const IO: [u8; 10] = [
    lid::SUPPORTED_PAGES,
    lid::ERROR_INFORMATION,
    lid::SMART,
    lid::FIRMWARE_SLOT,
    lid::CHANGED_NAMESPACES,
    lid::EFFECTS,
    lid::ANA,
    lid::PERSISTENT_EVENT,
    lid::FEATURE_EFFECTS,
    lid::RESERVATION_NOTIFICATION,
];

/// The log pages of discovery controllers (section 3.1.3.3.2).
pub(crate) const DISCOVERY: [u8; 5] = [
    lid::SUPPORTED_PAGES,
    lid::ERROR_INFORMATION,
    lid::EFFECTS,
    lid::FEATURE_EFFECTS,
    lid::DISCOVERY,
];

impl Controller {
    /// The log pages this controller has.
    fn pages(&self) -> &'static [u8] {
        match self.kind() {
            Kind::Io => &IO,
            Kind::Discovery => &DISCOVERY,
        }
    }

    pub(super) fn get_log_page(&self, sqe: &Sqe, out: &mut Vec<u8>) -> Result<Outcome, Fault> {
        let command = GetLogPage::parse(sqe)?;
        if !self.pages().contains(&command.lid) {
            return Err(Fault::at(Status::INVALID_LOG_PAGE, 10, 0));
        }
        // No page here is indexed, and there is no UUID list.
        let LogOffset::Bytes(offset) = command.offset else { return Err(Fault::field(14, 23)) };
        if command.uuid_index != 0 {
            return Err(Fault::field(14, 0));
        }
        if command.bytes > u64::from(TRANSFER_BYTES_MAX) {
            return Err(Fault::field(10, 16));
        }
        prepare(sqe, low32(command.bytes), out)?;
        if let Some(asked) = self.asked_drive(&command, offset)? {
            // Its room is not kept while the drive is waited for.
            *out = Vec::new();
            return Ok(Outcome::AskDrive(asked));
        }
        // First: what happens while the page is made may not be in it, and is told of again.
        let told = match command.retain_event {
            true => Vec::new(),
            false => self.lock().events.acknowledge(command.lid),
        };
        match self.read_page(&command, offset, out) {
            Ok(()) if !command.retain_event => self.tell_of_more(command.lid),
            Ok(()) => {}
            Err(fault) => {
                told.into_iter().for_each(|event| self.raise(event));
                return Err(fault);
            }
        }
        Ok(Outcome::Data)
    }

    fn read_page(&self, command: &GetLogPage, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        let size = if command.lid == lid::DISCOVERY {
            self.discovery_log(command, offset, out)?
        } else {
            let page = self.page(command, offset)?;
            window(&page, offset, out);
            u64_of(page.len())
        };
        // Section 5.1.12: an offset behind the page's end is refused.
        if offset > size { Err(Fault::field(12, 0)) } else { Ok(()) }
    }

    /// A whole page; all but Discovery are a few KiB at most.
    fn page(&self, command: &GetLogPage, offset: u64) -> Result<Vec<u8>, Fault> {
        Ok(match command.lid {
            lid::SUPPORTED_PAGES => describe::supported_pages(self.pages()).as_bytes().to_vec(),
            lid::ERROR_INFORMATION => self.lock().errors.page(),
            lid::SMART => {
                self.check_smart_of(command.nsid)?;
                self.smart()?.as_bytes().to_vec()
            }
            lid::FIRMWARE_SLOT => {
                let target = self.target().ok_or(Fault::from(Status::INTERNAL_ERROR))?;
                FirmwareSlots::single(&target.identity.firmware).as_bytes().to_vec()
            }
            lid::CHANGED_NAMESPACES => {
                let is_refused = offset > u64_of(size_of::<ChangedNamespaces>());
                self.changed_namespaces(command.retain_event || is_refused).as_bytes().to_vec()
            }
            lid::EFFECTS => {
                describe::effects(self.kind(), command.csi, &self.view(), self.grants_windows())
                    .ok_or(Fault::field(14, 24))?
                    .as_bytes()
                    .to_vec()
            }
            lid::FEATURE_EFFECTS => features::feature_effects(self.kind()).as_bytes().to_vec(),
            lid::ANA if command.lsp & !ana::RETURN_GROUPS_ONLY != 0 => {
                return Err(Fault::field(10, 8));
            }
            lid::ANA => self.ana_log(command.lsp & ana::RETURN_GROUPS_ONLY != 0),
            lid::PERSISTENT_EVENT => self.persistent_events(command.lsp)?,
            // Reading the start of Reservation Notification takes the oldest notice out of it.
            lid::RESERVATION_NOTIFICATION if offset == 0 => {
                self.lock().reservations.take_page().to_vec()
            }
            _ => vec![0; crate::reservation::NotificationLog::PAGE],
        })
    }

    /// Persistent Event log (0Dh): read within a reporting context, which holds it still.
    fn persistent_events(&self, lsp: u8) -> Result<Vec<u8>, Fault> {
        let out_of_sequence = || Fault::at(Status::COMMAND_SEQUENCE_ERROR, 10, 8);
        let action = Action::from_raw(lsp & 0x03).ok_or(Fault::field(10, 8))?;
        match action {
            Action::Read => self.lock().event_context.clone().ok_or_else(out_of_sequence),
            Action::Release => {
                self.lock().event_context = None;
                Ok(vec![0; size_of::<LogHeader>()])
            }
            Action::EstablishAndRead | Action::EstablishAndReadHeader => {
                if self.lock().event_context.is_some() {
                    return Err(out_of_sequence());
                }
                let target = self.target().ok_or(Fault::from(Status::INTERNAL_ERROR))?;
                let now = self.now();
                let timestamp = self.lock().features.timestamp(now);
                let mut registry = target.lock();
                let subsystem = registry
                    .subsystem(self.subsystem_nqn())
                    .map_err(|_| Fault::from(Status::INTERNAL_ERROR))?;
                let page = subsystem.event_page(timestamp, target.hours(now));
                drop(registry);
                self.lock().event_context = Some(page.clone());
                Ok(match action {
                    Action::EstablishAndReadHeader => page[..size_of::<LogHeader>()].to_vec(),
                    _ => page,
                })
            }
        }
    }

    /// The namespaces that changed since this was read without `retain`.
    fn changed_namespaces(&self, retain: bool) -> ChangedNamespaces {
        let mut state = self.lock();
        let list = if state.changed.overflow {
            let mut list = ChangedNamespaces::new([]);
            list.nsids[0] = NSID_ALL.into();
            list
        } else {
            ChangedNamespaces::new(state.changed.nsids.iter().copied())
        };
        if !retain {
            state.changed = Changed::default();
        }
        list
    }

    /// One event for each reservation notice that can be read (section 8.1.22.1).
    fn tell_of_more(&self, page: u8) {
        if page == lid::RESERVATION_NOTIFICATION && !self.lock().reservations.is_empty() {
            self.raise(Event::ReservationLog);
        }
    }

    fn discovery_log(
        &self,
        command: &GetLogPage,
        offset: u64,
        out: &mut [u8],
    ) -> Result<u64, Fault> {
        if command.lsp & !discovery::LSP_SUPPORTED != 0 {
            return Err(Fault::field(10, 8));
        }
        let target = self.target().ok_or(Fault::from(Status::INTERNAL_ERROR))?;
        let (host, path) = (self.host_nqn(), self.path());
        Ok(discovery::read(&target.listed(), host, path, command.lsp, offset, out))
    }
}
