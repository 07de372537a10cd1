//! The lists that Identify returns, and namespace identification descriptors (CNS 03h).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::CommandSet;
use crate::limits::{CONTROLLER_LIST_MAX, IDENTIFY_BYTES, NAMESPACE_LIST_MAX};

/// NSID that stands for every namespace.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// A namespace list (section 4.4.2): ascending, unused entries 0.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NamespaceList {
    pub entries: [U32; NAMESPACE_LIST_MAX],
}
layout!(NamespaceList, IDENTIFY_BYTES);

impl NamespaceList {
    /// The first of `nsids`, which ascend, as many as fit.
    #[must_use]
    pub fn new(nsids: impl IntoIterator<Item = u32>) -> Self {
        let mut list = Self::new_zeroed();
        for (entry, nsid) in list.entries.iter_mut().zip(nsids) {
            *entry = nsid.into();
        }
        list
    }

    /// The identifiers up to the first unused entry.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().map(|entry| entry.get()).take_while(|&nsid| nsid != 0)
    }
}

/// A controller list (section 4.4.1): a count, then identifiers ascending.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ControllerList {
    /// Identifiers in the list.
    pub num: U16,
    pub entries: [U16; CONTROLLER_LIST_MAX],
}
layout!(ControllerList, IDENTIFY_BYTES, num @ 0, entries @ 2);

impl ControllerList {
    /// The first of `cntlids`, which ascend, as many as fit.
    #[must_use]
    pub fn new(cntlids: impl IntoIterator<Item = u16>) -> Self {
        let mut list = Self::new_zeroed();
        let mut num = 0u16;
        for (entry, cntlid) in list.entries.iter_mut().zip(cntlids) {
            *entry = cntlid.into();
            num += 1;
        }
        list.num = num.into();
        list
    }

    /// The identifiers; a count larger than the list is cut.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.entries.iter().take(self.num.get().into()).map(|entry| entry.get())
    }
}

/// Identify I/O Command Set data structure (CNS 1Ch): combinations of command sets, one bit each.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommandSets {
    /// Command set vectors: bit n is the command set with CSI n.
    pub vectors: [U64; 512],
}
layout!(CommandSets, IDENTIFY_BYTES);

impl CommandSets {
    /// One combination: the NVM Command Set alone.
    #[must_use]
    pub fn nvm_only() -> Self {
        let mut sets = Self::new_zeroed();
        sets.vectors[0] = 1.into();
        sets
    }
}

wire_enum! {
    /// Namespace Identifier Type (NIDT).
    pub enum DescriptorType: u8 {
        Eui64 = 1, "IEEE Extended Unique Identifier";
        Nguid = 2, "Namespace Globally Unique Identifier";
        Uuid = 3, "Namespace UUID";
        CommandSet = 4, "Command Set Identifier";
    }
}

/// One namespace identification descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceDescriptor {
    Eui64([u8; 8]),
    Nguid([u8; 16]),
    Uuid([u8; 16]),
    CommandSet(CommandSet),
}

/// Header of a descriptor: the identifier follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DescriptorHeader {
    /// Namespace Identifier Type; 0 ends the list.
    pub nidt: u8,
    /// Namespace Identifier Length, bytes.
    pub nidl: u8,
    pub reserved: [u8; 2],
}
layout!(DescriptorHeader, 4, nidt @ 0, nidl @ 1);

impl NamespaceDescriptor {
    /// Writes a list of descriptors into a page of zeros: the CNS 03h data.
    ///
    /// At most one of each type, as the specification wants, always fits.
    #[must_use]
    pub fn page(descriptors: &[Self]) -> [u8; IDENTIFY_BYTES] {
        let mut page = [0; IDENTIFY_BYTES];
        let mut rest = page.as_mut_slice();
        for descriptor in descriptors {
            let (nidt, nid): (_, &[u8]) = match descriptor {
                Self::Eui64(nid) => (DescriptorType::Eui64, nid),
                Self::Nguid(nid) => (DescriptorType::Nguid, nid),
                Self::Uuid(nid) => (DescriptorType::Uuid, nid),
                Self::CommandSet(set) => (DescriptorType::CommandSet, &[set.raw()]),
            };
            let Some((entry, behind)) = rest.split_at_mut_checked(4 + nid.len()) else { break };
            entry[0] = nidt.raw();
            entry[1] = u8::try_from(nid.len()).unwrap_or_default();
            entry[4..].copy_from_slice(nid);
            rest = behind;
        }
        page
    }

    /// Reads a CNS 03h page: descriptors of a known type and right length, up to the first type 0
    /// or the first that does not fit the page.
    #[must_use]
    pub fn parse_page(mut page: &[u8]) -> Vec<Self> {
        let mut found = Vec::new();
        while let Ok((header, rest)) = DescriptorHeader::read_from_prefix(page) {
            if header.nidt == 0 {
                break;
            }
            let Some((nid, rest)) = rest.split_at_checked(header.nidl.into()) else { break };
            found.extend(Self::from_parts(header.nidt, nid));
            page = rest;
        }
        found
    }

    fn from_parts(nidt: u8, nid: &[u8]) -> Option<Self> {
        match DescriptorType::from_raw(nidt)? {
            DescriptorType::Eui64 => nid.try_into().ok().map(Self::Eui64),
            DescriptorType::Nguid => nid.try_into().ok().map(Self::Nguid),
            DescriptorType::Uuid => nid.try_into().ok().map(Self::Uuid),
            DescriptorType::CommandSet => match nid {
                [csi] => CommandSet::from_raw(*csi).map(Self::CommandSet),
                _ => None,
            },
        }
    }
}
