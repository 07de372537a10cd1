//! Asymmetric Namespace Access (section 8.1.1) and its log page, 0Ch (section 5.1.12.1.13).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::status::Status;

wire_enum! {
    /// Asymmetric Namespace Access State.
    pub enum State: u8 {
        Optimized = 0x1, "ANA Optimized state";
        NonOptimized = 0x2, "ANA Non-Optimized state";
        Inaccessible = 0x3, "ANA Inaccessible state";
        PersistentLoss = 0x4, "ANA Persistent Loss state";
        Change = 0xf, "ANA Change state";
    }
}

impl State {
    /// The status that a command gets which needs the namespace while it is in this state; `None`
    /// where it is accessible (section 8.1.1.5 and following).
    #[must_use]
    pub const fn refusal(self) -> Option<Status> {
        match self {
            Self::Optimized | Self::NonOptimized => None,
            Self::Inaccessible => Some(Status::ANA_INACCESSIBLE),
            Self::PersistentLoss => Some(Status::ANA_PERSISTENT_LOSS),
            Self::Change => Some(Status::ANA_TRANSITION),
        }
    }
}

/// Header of the log page: 16 bytes, group descriptors follow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LogHeader {
    /// Change Count.
    pub chgcnt: U64,
    /// Number of ANA Group Descriptors.
    pub ngrps: U16,
    pub reserved_10: [u8; 6],
}
layout!(LogHeader, 16, chgcnt @ 0, ngrps @ 8);

/// Header of an ANA group descriptor: 32 bytes, namespace identifiers follow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct GroupDescriptor {
    /// ANA Group ID.
    pub grpid: U32,
    /// Number of NSID Values; 0 when Return Groups Only was asked for.
    pub nnsids: U32,
    /// Change Count of the group.
    pub chgcnt: U64,
    /// State in bits 3:0.
    pub state: u8,
    pub reserved_17: [u8; 15],
}
layout!(GroupDescriptor, 32, grpid @ 0, nnsids @ 4, chgcnt @ 8, state @ 16);

/// LSP bit 0 of Get Log Page: Return Groups Only.
pub const RETURN_GROUPS_ONLY: u8 = 1;

/// A group for [`page`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub id: u32,
    pub change_count: u64,
    pub state: State,
    /// Ascending.
    pub nsids: Vec<u32>,
}

/// The log page of `groups`, ascending by identifier.
#[must_use]
pub fn page(change_count: u64, groups: &[Group], groups_only: bool) -> Vec<u8> {
    let count = u16::try_from(groups.len()).unwrap_or(u16::MAX);
    let mut header = LogHeader::new_zeroed();
    header.chgcnt = change_count.into();
    header.ngrps = count.into();
    let mut page = header.as_bytes().to_vec();
    for group in groups.iter().take(count.into()) {
        let nsids: &[u32] = if groups_only { &[] } else { &group.nsids };
        let mut descriptor = GroupDescriptor::new_zeroed();
        descriptor.grpid = group.id.into();
        descriptor.nnsids = u32::try_from(nsids.len()).unwrap_or(u32::MAX).into();
        descriptor.chgcnt = group.change_count.into();
        descriptor.state = group.state.raw();
        page.extend_from_slice(descriptor.as_bytes());
        for nsid in nsids {
            page.extend_from_slice(&nsid.to_le_bytes());
        }
    }
    page
}

/// Reads a log page; `None` when it is cut short or has an unknown state.
#[must_use]
pub fn parse_page(page: &[u8]) -> Option<(u64, Vec<Group>)> {
    let (header, mut rest) = LogHeader::read_from_prefix(page).ok()?;
    let mut groups = Vec::new();
    for _ in 0..header.ngrps.get() {
        let (descriptor, behind) = GroupDescriptor::read_from_prefix(rest).ok()?;
        let count = usize::try_from(descriptor.nnsids.get()).ok()?;
        let (nsids, behind) = <[U32]>::ref_from_prefix_with_elems(behind, count).ok()?;
        groups.push(Group {
            id: descriptor.grpid.get(),
            change_count: descriptor.chgcnt.get(),
            state: State::from_raw(descriptor.state & 0x0f)?,
            nsids: nsids.iter().map(|nsid| nsid.get()).collect(),
        });
        rest = behind;
    }
    Some((header.chgcnt.get(), groups))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_back() {
        let groups = vec![
            Group { id: 1, change_count: 7, state: State::Optimized, nsids: vec![1, 3] },
            Group { id: 2, change_count: 9, state: State::Inaccessible, nsids: vec![] },
        ];
        let bytes = page(12, &groups, false);
        assert_eq!(bytes.len(), 16 + 32 + 8 + 32);
        assert_eq!(parse_page(&bytes), Some((12, groups.clone())));
        assert_eq!(parse_page(&bytes[..bytes.len() - 1]), None);
        assert_eq!(page(12, &groups, true).len(), 16 + 64);
    }

    #[test]
    fn a_count_behind_the_page_is_no_page() {
        let mut bytes = page(
            0,
            &[Group { id: 1, change_count: 0, state: State::Change, nsids: vec![1] }],
            false,
        );
        bytes[16 + 4..16 + 8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(parse_page(&bytes), None);
    }
}
