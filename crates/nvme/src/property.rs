//! Controller properties (section 3.1.4): what Property Get and Property Set reach over Fabrics.

use stdx::num;

/// Offsets of the properties a controller over Fabrics has (section 3.1.4, figure "Property
/// Definition"), in bytes.
pub mod offset {
    codes! { u32;
        CAP = 0x00, "Controller Capabilities";
        VS = 0x08, "Version";
        CC = 0x14, "Controller Configuration";
        CSTS = 0x1c, "Controller Status";
        NSSR = 0x20, "NVM Subsystem Reset";
        NSSD = 0x64, "NVM Subsystem Shutdown";
        CRTO = 0x68, "Controller Ready Timeouts";
    }

    /// Bytes of the property at an offset: 8 or 4; `None` when there is none over Fabrics.
    #[must_use]
    pub const fn width(offset: u32) -> Option<usize> {
        match offset {
            CAP => Some(8),
            VS | CC | CSTS | NSSR | NSSD | CRTO => Some(4),
            _ => None,
        }
    }
}

/// Controller Capabilities (CAP), 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cap(pub u64);

impl Cap {
    /// NSSRS: NVM Subsystem Reset Supported.
    pub const NSSRS: u64 = 1 << 36;
    /// CSS bit 0: the NVM Command Set is supported.
    pub const CSS_NVM: u64 = 1 << 37;
    /// CSS bit 6: one or more I/O Command Sets, listed by Identify CNS 1Ch.
    pub const CSS_IOCSS: u64 = 1 << 43;
    /// CSS bit 7: Admin commands only.
    pub const CSS_ADMIN_ONLY: u64 = 1 << 44;
    /// CQR: Contiguous Queues Required.
    pub const CQR: u64 = 1 << 16;
    /// CRMS bit 0: Controller Ready With Media Supported.
    pub const CRWMS: u64 = 1 << 59;
    /// CRMS bit 1: Controller Ready Independent of Media Supported.
    pub const CRIMS: u64 = 1 << 60;

    /// Capabilities of a controller with queues up to `mqes` entries (0's based as on the wire),
    /// that gets ready within `to` times 500 ms; `bits` are the flags above.
    #[must_use]
    pub const fn new(mqes: u16, to: u8, bits: u64) -> Self {
        Self(mqes as u64 | (to as u64) << 24 | bits)
    }

    /// MQES: most entries of a queue, 0's based.
    #[must_use]
    pub const fn mqes(self) -> u16 {
        num::low16(self.0)
    }

    /// TO: longest time to get ready or to shut down the ready state, in 500 ms.
    #[must_use]
    pub const fn to(self) -> u8 {
        num::low8(self.0 >> 24)
    }

    /// DSTRD: doorbell stride.
    #[must_use]
    pub const fn dstrd(self) -> u8 {
        num::low8(self.0 >> 32) & 0x0f
    }

    /// CSS: command sets supported, eight bits.
    #[must_use]
    pub const fn css(self) -> u8 {
        num::low8(self.0 >> 37)
    }

    /// MPSMIN: smallest memory page, 2^(12 + value) bytes.
    #[must_use]
    pub const fn mpsmin(self) -> u8 {
        num::low8(self.0 >> 48) & 0x0f
    }

    /// MPSMAX: largest memory page, 2^(12 + value) bytes.
    #[must_use]
    pub const fn mpsmax(self) -> u8 {
        num::low8(self.0 >> 52) & 0x0f
    }

    /// Whether all of the flags in `bits` are set.
    #[must_use]
    pub const fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }
}

/// A specification version: the Version property and the VER fields of Identify.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

impl Version {
    /// NVM Express Base Specification 2.1.
    pub const V2_1: Self = Self::new(2, 1, 0);
    /// NVM Command Set Specification 1.1.
    pub const V1_1: Self = Self::new(1, 1, 0);

    #[must_use]
    pub const fn new(major: u16, minor: u8, tertiary: u8) -> Self {
        Self((major as u32) << 16 | (minor as u32) << 8 | tertiary as u32)
    }
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [tertiary, minor, ..] = self.0.to_le_bytes();
        write!(f, "{}.{minor}", self.0 >> 16)?;
        if tertiary != 0 {
            write!(f, ".{tertiary}")?;
        }
        Ok(())
    }
}

/// Controller Configuration (CC), 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cc(pub u32);

wire_enum! {
    /// Shutdown Notification (CC.SHN).
    pub enum ShutdownNotification: u8 {
        None = 0, "no notification";
        Normal = 1, "normal shutdown notification";
        Abrupt = 2, "abrupt shutdown notification";
    }
}

wire_enum! {
    /// I/O Command Set Selected (CC.CSS).
    pub enum CommandSetSelected: u8 {
        Nvm = 0, "NVM Command Set";
        All = 6, "all supported I/O Command Sets";
        AdminOnly = 7, "Admin Command Set only";
    }
}

wire_enum! {
    /// Arbitration Mechanism Selected (CC.AMS).
    pub enum Arbitration: u8 {
        RoundRobin = 0, "Round Robin";
        WeightedRoundRobin = 1, "Weighted Round Robin with Urgent Priority Class";
        VendorSpecific = 7, "Vendor Specific";
    }
}

impl Cc {
    /// The bits the specification reserves (3:1 and 31:25).
    pub const RESERVED: u32 = 0xfe00_000e;

    /// EN.
    #[must_use]
    pub const fn enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// CSS; `None` when reserved.
    #[must_use]
    pub const fn css(self) -> Option<CommandSetSelected> {
        CommandSetSelected::from_raw(num::low8(self.0 as u64 >> 4) & 0x07)
    }

    /// MPS: memory page of the host, 2^(12 + value) bytes.
    #[must_use]
    pub const fn mps(self) -> u8 {
        num::low8(self.0 as u64 >> 7) & 0x0f
    }

    /// AMS; `None` when reserved.
    #[must_use]
    pub const fn ams(self) -> Option<Arbitration> {
        Arbitration::from_raw(num::low8(self.0 as u64 >> 11) & 0x07)
    }

    /// SHN; `None` when reserved.
    #[must_use]
    pub const fn shn(self) -> Option<ShutdownNotification> {
        ShutdownNotification::from_raw(num::low8(self.0 as u64 >> 14) & 0x03)
    }

    /// IOSQES: I/O submission queue entry, 2^value bytes.
    #[must_use]
    pub const fn iosqes(self) -> u8 {
        num::low8(self.0 as u64 >> 16) & 0x0f
    }

    /// IOCQES: I/O completion queue entry, 2^value bytes.
    #[must_use]
    pub const fn iocqes(self) -> u8 {
        num::low8(self.0 as u64 >> 20) & 0x0f
    }

    /// CRIME: Controller Ready Independent of Media Enable.
    #[must_use]
    pub const fn crime(self) -> bool {
        self.0 & 1 << 24 != 0
    }

    /// The configuration a host writes to enable: 64-byte and 16-byte entries, everything else 0.
    #[must_use]
    pub const fn enable(css: CommandSetSelected) -> Self {
        Self(1 | (css.raw() as u32) << 4 | 6 << 16 | 4 << 20)
    }

    /// The same with EN clear: resets the controller (section 3.7.2).
    #[must_use]
    pub const fn disabled(self) -> Self {
        Self(self.0 & !1)
    }

    /// The same with a shutdown notification.
    #[must_use]
    pub const fn with_shn(self, shn: ShutdownNotification) -> Self {
        Self((self.0 & !(3 << 14)) | (shn.raw() as u32) << 14)
    }
}

wire_enum! {
    /// Shutdown Status (CSTS.SHST).
    pub enum ShutdownStatus: u8 {
        Normal = 0, "normal operation";
        Occurring = 1, "shutdown processing occurring";
        Complete = 2, "shutdown processing complete";
    }
}

/// Controller Status (CSTS), 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Csts(pub u32);

impl Csts {
    /// RDY: Ready.
    pub const RDY: u32 = 1;
    /// CFS: Controller Fatal Status.
    pub const CFS: u32 = 1 << 1;
    /// NSSRO: NVM Subsystem Reset Occurred; written 1 to clear.
    pub const NSSRO: u32 = 1 << 4;
    /// PP: Processing Paused.
    pub const PP: u32 = 1 << 5;
    /// ST: Shutdown Type, 1 for an NVM Subsystem shutdown.
    pub const ST: u32 = 1 << 6;

    #[must_use]
    pub const fn new(ready: bool, fatal: bool, shst: ShutdownStatus) -> Self {
        Self(ready as u32 | (fatal as u32) << 1 | (shst.raw() as u32) << 2)
    }

    #[must_use]
    pub const fn ready(self) -> bool {
        self.0 & Self::RDY != 0
    }

    #[must_use]
    pub const fn fatal(self) -> bool {
        self.0 & Self::CFS != 0
    }

    /// SHST; `None` when reserved.
    #[must_use]
    pub const fn shst(self) -> Option<ShutdownStatus> {
        ShutdownStatus::from_raw(num::low8(self.0 as u64 >> 2) & 0x03)
    }
}

/// What is written to NSSR to ask for an NVM Subsystem Reset: "NVMe".
pub const NSSR_RESET: u32 = 0x4e56_4d65;

/// Controller Ready Timeouts (CRTO), 32 bits: both in 500 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Crto(pub u32);

impl Crto {
    /// CRWMT: ready with media; CRIMT: ready independent of media.
    #[must_use]
    pub const fn new(crwmt: u16, crimt: u16) -> Self {
        Self(crwmt as u32 | (crimt as u32) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_specification_has_them() {
        let cap = Cap::new(1023, 15, Cap::CQR | Cap::CSS_NVM | Cap::CRWMS);
        assert_eq!(cap.0, 0x0800_0020_0f01_03ff);
        assert_eq!((cap.mqes(), cap.to(), cap.css()), (1023, 15, 1));
        // What the Linux host writes: EN, CSS 0, AMS 0, IOSQES 6, IOCQES 4.
        let cc = Cc(0x0046_0001);
        assert!(cc.enabled());
        assert_eq!((cc.iosqes(), cc.iocqes(), cc.mps()), (6, 4, 0));
        assert_eq!(cc, Cc::enable(CommandSetSelected::Nvm));
        assert_eq!(cc.with_shn(ShutdownNotification::Normal).0, 0x0046_4001);
        assert_eq!(Csts::new(true, false, ShutdownStatus::Complete).0, 0x9);
        assert_eq!(Version::V2_1.0, 0x0002_0100);
        assert_eq!(Version::new(1, 4, 1).to_string(), "1.4.1");
    }
}
