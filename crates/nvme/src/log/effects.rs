//! What is supported, and with which effects: log pages 00h, 05h and 12h.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One LID Supported and Effects entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SupportedPage(pub u32);

impl SupportedPage {
    /// LSUPP: the page is supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// IOS: an index offset is supported.
    pub const INDEX_OFFSET: u32 = 1 << 1;
    /// LID Specific, bits 31:16; of the Persistent Event log bit 0 is "512 byte header".
    pub const SPECIFIC_SHIFT: u32 = 16;
}

/// Supported Log Pages log page, 00h: 1024 bytes, one entry a log page identifier.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SupportedPages {
    pub lids: [U32; 256],
}
layout!(SupportedPages, 1024);

impl SupportedPages {
    /// A page that lists `lids` as supported.
    #[must_use]
    pub fn new(lids: &[u8]) -> Self {
        let mut page = Self::new_zeroed();
        for &lid in lids {
            page.lids[usize::from(lid)] = SupportedPage::SUPPORTED.into();
        }
        page
    }

    /// Whether `lid` is supported.
    #[must_use]
    pub fn supports(&self, lid: u8) -> bool {
        self.lids[usize::from(lid)].get() & SupportedPage::SUPPORTED != 0
    }
}

/// One command's entry: bits of [`EffectsLog`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandEffects(pub u32);

impl CommandEffects {
    /// CSUPP: Command Supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// LBCC: Logical Block Content Change.
    pub const CONTENT_CHANGE: u32 = 1 << 1;
    /// NCC: Namespace Capability Change.
    pub const NAMESPACE_CAPABILITY_CHANGE: u32 = 1 << 2;
    /// NIC: Namespace Inventory Change.
    pub const NAMESPACE_INVENTORY_CHANGE: u32 = 1 << 3;
    /// CCC: Controller Capability Change.
    pub const CONTROLLER_CAPABILITY_CHANGE: u32 = 1 << 4;
    /// CSE bits 18:16 = 001b: no other command to the same namespace while it runs.
    pub const EXCLUSIVE_NAMESPACE: u32 = 1 << 16;
    /// CSE bits 18:16 = 010b: no other command to any namespace while it runs.
    pub const EXCLUSIVE_ALL: u32 = 2 << 16;
    /// USS: UUID selection is supported.
    pub const UUID_SELECTION: u32 = 1 << 19;
    /// CSP bits 31:20, scope: namespace.
    pub const SCOPE_NAMESPACE: u32 = 1 << 20;
    /// CSP: controller scope.
    pub const SCOPE_CONTROLLER: u32 = 1 << 21;
    /// CSP: NVM subsystem scope.
    pub const SCOPE_SUBSYSTEM: u32 = 1 << 25;
}

/// Commands Supported and Effects log page, 05h: 4096 bytes.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EffectsLog {
    /// Admin Command Supported, by opcode.
    pub acs: [U32; 256],
    /// I/O Command Supported, by opcode, of the command set asked for.
    pub iocs: [U32; 256],
    pub reserved_2048: [u8; 2048],
}
layout!(EffectsLog, 4096, acs @ 0, iocs @ 1024, reserved_2048 @ 2048);

impl EffectsLog {
    /// A page of `(opcode, effects)` lists; [`CommandEffects::SUPPORTED`] is added to each.
    #[must_use]
    pub fn new(admin: &[(u8, u32)], io: &[(u8, u32)]) -> Self {
        let mut page = Self::new_zeroed();
        for &(opcode, effects) in admin {
            page.acs[usize::from(opcode)] = (effects | CommandEffects::SUPPORTED).into();
        }
        for &(opcode, effects) in io {
            page.iocs[usize::from(opcode)] = (effects | CommandEffects::SUPPORTED).into();
        }
        page
    }
}

/// One feature's entry: bits of [`FeatureEffectsLog`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureEffects(pub u32);

impl FeatureEffects {
    /// FSUPP: the feature is supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// UDCC: User Data Content Change.
    pub const CONTENT_CHANGE: u32 = 1 << 1;
    /// NCC: Namespace Capability Change.
    pub const NAMESPACE_CAPABILITY_CHANGE: u32 = 1 << 2;
    /// NIC: Namespace Inventory Change.
    pub const NAMESPACE_INVENTORY_CHANGE: u32 = 1 << 3;
    /// CCC: Controller Capability Change.
    pub const CONTROLLER_CAPABILITY_CHANGE: u32 = 1 << 4;
    /// FSP bits 31:20, scope: namespace.
    pub const SCOPE_NAMESPACE: u32 = 1 << 20;
    /// FSP: controller scope.
    pub const SCOPE_CONTROLLER: u32 = 1 << 21;
    /// FSP: NVM subsystem scope.
    pub const SCOPE_SUBSYSTEM: u32 = 1 << 25;
}

/// Feature Identifiers Supported and Effects log page, 12h: 1024 bytes.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FeatureEffectsLog {
    /// FID Supported and Effects, by feature identifier.
    pub fids: [U32; 256],
}
layout!(FeatureEffectsLog, 1024);

impl FeatureEffectsLog {
    /// A page of `(fid, effects)`; [`FeatureEffects::SUPPORTED`] is added to each.
    #[must_use]
    pub fn new(features: &[(u8, u32)]) -> Self {
        let mut page = Self::new_zeroed();
        for &(fid, effects) in features {
            page.fids[usize::from(fid)] = (effects | FeatureEffects::SUPPORTED).into();
        }
        page
    }
}
