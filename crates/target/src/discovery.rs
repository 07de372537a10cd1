//! The discovery log (Base 2.1 section 5.1.12.3.1): what one host may know of where to connect.

use std::net::IpAddr;

use nvme::discovery::{AddressFamily, Entry, Header, SubsystemType, TransportType, bits};
use nvme::nqn::Nqn;
use stdx::num::{u64_of, usize64};
use zerocopy::IntoBytes;

use crate::controller::Path;
use crate::host::Admission;
use crate::limits::ADMIN_QUEUE_ENTRIES_MAX;
use crate::listener::{ListenerId, ListenerInfo, Referral};

/// Log Specific Parameter bits that a host may set. Extended entries are not among them.
pub(crate) const LSP_SUPPORTED: u8 = bits::LSP_PORT_LOCAL | bits::LSP_ALL_SUBSYSTEMS;

/// Bytes of the header and of each entry.
const UNIT: u64 = 1024;

#[cfg(test)]
mod tests;

/// What every host's log is made of, as it was at one generation: read under no lock.
#[derive(Debug)]
pub(crate) struct Listed {
    pub generation: u64,
    /// The discovery subsystem's own name.
    pub service: Nqn,
    pub listeners: Vec<(ListenerId, ListenerInfo)>,
    pub subsystems: Vec<(Nqn, Admission)>,
    pub referrals: Vec<Referral>,
}

/// One row of the log, before it becomes an [`Entry`].
struct Row<'a> {
    trtype: TransportType,
    subtype: SubsystemType,
    nqn: &'a Nqn,
    address: (IpAddr, u16),
    port: u16,
    flags: u16,
}

/// Writes the bytes of `host`'s log that lie at `offset` and behind into `out`; what is behind the
/// log's end stays as it is. Returns the length of the whole log in bytes.
pub(crate) fn read(
    listed: &Listed,
    host: &Nqn,
    path: &Path,
    lsp: u8,
    offset: u64,
    out: &mut [u8],
) -> u64 {
    let log = Log::of(listed, host, path, lsp);
    let count = u64_of(log.rows().count());
    place(Header::new(listed.generation, count).as_bytes(), 0, offset, out);
    let end = offset.saturating_add(u64_of(out.len()));
    for (row, at) in log.rows().zip((UNIT..).step_by(usize64(UNIT))) {
        if at < end && at + UNIT > offset {
            place(entry(&row).as_bytes(), at, offset, out);
        }
    }
    UNIT * (count + 1)
}

/// Copies `bytes`, which start at `at` in the log, to where they are in a window at `offset`.
fn place(bytes: &[u8], at: u64, offset: u64, out: &mut [u8]) {
    let skip = usize64(offset.saturating_sub(at));
    let start = usize64(at.saturating_sub(offset));
    let (Some(bytes), Some(room)) = (bytes.get(skip..), out.get_mut(start..)) else { return };
    let length = bytes.len().min(room.len());
    room[..length].copy_from_slice(&bytes[..length]);
}

/// What one host gets of it: the discovery service itself and the subsystems that admit the host, both for every
/// listener that it can reach, and the referrals.
struct Log<'a> {
    listed: &'a Listed,
    reachable: Vec<(u16, (IpAddr, u16), &'a ListenerInfo)>,
    admitting: Vec<&'a Nqn>,
}

impl<'a> Log<'a> {
    fn of(listed: &'a Listed, host: &Nqn, path: &Path, lsp: u8) -> Self {
        let local = path.local.traddr();
        let reachable = listed.listeners.iter().filter_map(|&(id, ref info)| {
            let is_own = id == path.listener;
            let is_asked_for = is_own || lsp & bits::LSP_PORT_LOCAL == 0;
            let address = info.reachable_at(local, is_own).filter(|_| is_asked_for)?;
            let ListenerId(port) = id;
            Some((port, address, info))
        });
        let admitting = listed.subsystems.iter().filter(|(_, admission)| admission.admits(host));
        let admitting = admitting.map(|(nqn, _)| nqn).collect();
        Self { listed, reachable: reachable.collect(), admitting }
    }

    fn rows(&self) -> impl Iterator<Item = Row<'a>> {
        let reached = self.reachable.iter().flat_map(|&(port, address, info)| {
            let trtype = info.trtype;
            let own = Row {
                trtype,
                subtype: SubsystemType::CurrentDiscovery,
                nqn: &self.listed.service,
                address,
                port,
                flags: bits::EFLAGS_DUPLICATE | bits::EFLAGS_PERSISTENT,
            };
            let admitting = if info.discovery_only { &[][..] } else { &self.admitting[..] };
            let subtype = SubsystemType::Nvm;
            let nvm = admitting.iter().map(move |&nqn| Row {
                trtype,
                subtype,
                nqn,
                address,
                port,
                flags: 0,
            });
            core::iter::once(own).chain(nvm)
        });
        let referred = self.listed.referrals.iter().map(|referral| Row {
            trtype: referral.address.trtype(),
            subtype: SubsystemType::Referral,
            nqn: &referral.nqn,
            address: (referral.address.traddr(), referral.address.trsvcid()),
            port: 0,
            flags: 0,
        });
        reached.chain(referred)
    }
}

fn entry(row: &Row<'_>) -> Entry {
    let (address, port) = row.address;
    let family = match address {
        IpAddr::V4(_) => AddressFamily::Ipv4,
        IpAddr::V6(_) => AddressFamily::Ipv6,
    };
    let mut entry = Entry::new(row.trtype, row.subtype, family, row.nqn);
    entry.treq = bits::TREQ_SECURE_CHANNEL_NOT_REQUIRED | bits::TREQ_SQ_FLOW_CONTROL_DISABLE;
    entry.portid = row.port.into();
    entry.asqsz = ADMIN_QUEUE_ENTRIES_MAX.into();
    entry.eflags = row.flags.into();
    entry.set_address(&address.to_string(), &port.to_string());
    entry
}
