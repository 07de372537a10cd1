//! The discovery log (Base 2.1 section 5.1.12.3.1): what one host may know of where to connect.

use std::net::IpAddr;

use nvme::discovery::{AddressFamily, Entry, Header, SubsystemType, bits};
use nvme::nqn::Nqn;
use stdx::num::{u64_of, usize64};
use zerocopy::IntoBytes;

use crate::controller::Path;
use crate::limits::ADMIN_QUEUE_ENTRIES_MAX;
use crate::listener::ListenerId;
use crate::registry::Registry;

/// Log Specific Parameter bits that a host may set. Extended entries are not among them.
pub(crate) const LSP_SUPPORTED: u8 = bits::LSP_PORT_LOCAL | bits::LSP_ALL_SUBSYSTEMS;

/// Bytes of the header and of each entry.
const UNIT: u64 = 1024;

#[cfg(test)]
mod tests;

/// One row of the log, before it becomes an [`Entry`].
struct Row<'a> {
    subtype: SubsystemType,
    nqn: &'a Nqn,
    address: (IpAddr, u16),
    port: u16,
    flags: u16,
}

/// Writes the bytes of `host`'s log that lie at `offset` and behind into `out`; what is behind the
/// log's end stays as it is. Returns the length of the whole log in bytes.
pub(crate) fn read(
    registry: &Registry,
    host: &Nqn,
    path: &Path,
    lsp: u8,
    offset: u64,
    out: &mut [u8],
) -> u64 {
    let rows = rows(registry, host, path, lsp);
    let count = u64_of(rows.len());
    let header = Header::new(registry.generation, count);
    place(header.as_bytes(), 0, offset, out);
    let end = offset.saturating_add(u64_of(out.len()));
    for (row, at) in rows.iter().zip((UNIT..).step_by(usize64(UNIT))) {
        if at < end && at + UNIT > offset {
            place(entry(row).as_bytes(), at, offset, out);
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

/// The rows a host gets: the discovery service itself, the subsystems that admit the host, both
/// for every listener that it can reach, and the referrals.
fn rows<'a>(registry: &'a Registry, host: &Nqn, path: &Path, lsp: u8) -> Vec<Row<'a>> {
    let local = path.local.ip();
    let mut rows = Vec::new();
    for (&id, info) in &registry.listeners {
        let is_own = id == path.listener;
        if lsp & bits::LSP_PORT_LOCAL != 0 && !is_own {
            continue;
        }
        let Some(address) = info.reachable_at(local, is_own) else { continue };
        let ListenerId(port) = id;
        let nqn = &registry.discovery_name;
        let flags = bits::EFLAGS_DUPLICATE | bits::EFLAGS_PERSISTENT;
        rows.push(Row { subtype: SubsystemType::CurrentDiscovery, nqn, address, port, flags });
        if info.discovery_only {
            continue;
        }
        let admitting = registry.subsystems.iter().filter(|(_, s)| s.admission.admits(host));
        for (nqn, _) in admitting {
            rows.push(Row { subtype: SubsystemType::Nvm, nqn, address, port, flags: 0 });
        }
    }
    for referral in &registry.referrals {
        let address = (referral.traddr, referral.trsvcid);
        let (subtype, nqn) = (SubsystemType::Referral, &referral.nqn);
        rows.push(Row { subtype, nqn, address, port: 0, flags: 0 });
    }
    rows
}

fn entry(row: &Row<'_>) -> Entry {
    let (address, port) = row.address;
    let family = match address {
        IpAddr::V4(_) => AddressFamily::Ipv4,
        IpAddr::V6(_) => AddressFamily::Ipv6,
    };
    let mut entry = Entry::tcp(row.subtype, family, row.nqn);
    entry.treq = bits::TREQ_SECURE_CHANNEL_NOT_REQUIRED | bits::TREQ_SQ_FLOW_CONTROL_DISABLE;
    entry.portid = row.port.into();
    entry.asqsz = ADMIN_QUEUE_ENTRIES_MAX.into();
    entry.eflags = row.flags.into();
    entry.set_address(&address.to_string(), &port.to_string());
    entry
}
