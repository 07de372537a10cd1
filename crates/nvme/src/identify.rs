//! Identify data structures (section 5.1.13; NVM Command Set section 4.1.5).

mod controller;
mod list;
mod namespace;
mod resource;

pub use controller::{IdentifyController, PowerState, bits};
pub use list::*;
pub use namespace::*;
pub use resource::*;

wire_enum! {
    /// Controller or Namespace Structure (CNS): what an Identify command asks for.
    pub enum Cns: u8 {
        Namespace = 0x00, "Identify Namespace";
        Controller = 0x01, "Identify Controller";
        ActiveNamespaces = 0x02, "Active Namespace ID list";
        NamespaceDescriptors = 0x03, "Namespace Identification Descriptor list";
        NvmSets = 0x04, "NVM Set List";
        CommandSetNamespace = 0x05, "I/O Command Set specific Identify Namespace";
        CommandSetController = 0x06, "I/O Command Set specific Identify Controller";
        CommandSetActiveNamespaces = 0x07, "I/O Command Set specific Active Namespace ID list";
        IndependentNamespace = 0x08, "I/O Command Set Independent Identify Namespace";
        NamespaceUserDataFormat = 0x09, "Identify Namespace for a User Data Format";
        CommandSetNamespaceUserDataFormat = 0x0a,
            "I/O Command Set specific Identify Namespace for a User Data Format";
        AllocatedNamespaces = 0x10, "Allocated Namespace ID list";
        AllocatedNamespace = 0x11, "Identify Namespace for an allocated namespace";
        NamespaceControllers = 0x12, "Namespace Attached Controller list";
        Controllers = 0x13, "Controller list";
        PrimaryControllerCapabilities = 0x14, "Primary Controller Capabilities";
        SecondaryControllers = 0x15, "Secondary Controller list";
        NamespaceGranularities = 0x16, "Namespace Granularity List";
        Uuids = 0x17, "UUID List";
        Domains = 0x18, "Domain List";
        EnduranceGroups = 0x19, "Endurance Group List";
        CommandSetAllocatedNamespaces = 0x1a,
            "I/O Command Set specific Allocated Namespace ID list";
        CommandSetAllocatedNamespace = 0x1b,
            "I/O Command Set specific Identify Namespace for an allocated namespace";
        CommandSets = 0x1c, "Identify I/O Command Set";
        UnderlyingNamespaces = 0x1d, "Get Underlying Namespace List";
        Ports = 0x1e, "Get Ports List";
        IndependentAllocatedNamespace = 0x1f,
            "I/O Command Set Independent Identify Namespace for an allocated namespace";
        ControllerStateFormats = 0x20, "Supported Controller State Formats";
    }
}

wire_enum! {
    /// Command Set Identifier (CSI, section 3.1.3.5).
    pub enum CommandSet: u8 {
        Nvm = 0x00, "NVM Command Set";
        KeyValue = 0x01, "Key Value Command Set";
        Zoned = 0x02, "Zoned Namespace Command Set";
        SubsystemLocalMemory = 0x03, "Subsystem Local Memory Command Set";
        ComputationalPrograms = 0x04, "Computational Programs Command Set";
    }
}

/// An Identify command's fields; which of them count depends on the CNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    pub cns: Cns,
    /// Controller Identifier (CNTID).
    pub cntid: u16,
    /// CNS Specific Identifier: NVM set, domain, endurance group.
    pub cns_specific: u16,
    /// Command Set Identifier, raw: whether it matters and may be refused depends on the CNS.
    pub csi: u8,
    pub nsid: u32,
    /// UUID Index.
    pub uuid_index: u8,
}

impl Identify {
    /// Reads an Identify command. An unknown CNS is refused (section 5.1.13: Invalid Field).
    pub fn parse(sqe: &crate::sqe::Sqe) -> Result<Self, crate::refusal::Refusal> {
        use crate::refusal::{Reason, Refusal};
        use stdx::num::{low8, low16};
        let (cdw10, cdw11) = (u64::from(sqe.cdw10.get()), u64::from(sqe.cdw11.get()));
        let cns = Cns::from_raw(low8(cdw10)).ok_or(Refusal::at(Reason::Value, 10, 0))?;
        if cdw10 & 0xff00 != 0 {
            return Err(Refusal::at(Reason::Reserved, 10, 8));
        }
        Ok(Self {
            cns,
            cntid: low16(cdw10 >> 16),
            cns_specific: low16(cdw11),
            csi: low8(cdw11 >> 24),
            nsid: sqe.nsid.get(),
            uuid_index: low8(sqe.cdw14.get().into()) & 0x7f,
        })
    }

    /// The entry a host sends; its data pointer is the caller's to set.
    #[must_use]
    pub fn to_sqe(self, cid: u16) -> crate::sqe::Sqe {
        let mut sqe = crate::sqe::Sqe::new(crate::opcode::admin::IDENTIFY, cid, self.nsid);
        sqe.cdw10 = (u32::from(self.cntid) << 16 | u32::from(self.cns.raw())).into();
        sqe.cdw11 = (u32::from(self.csi) << 24 | u32::from(self.cns_specific)).into();
        sqe.cdw14 = u32::from(self.uuid_index & 0x7f).into();
        sqe
    }

    /// A command that asks for `cns` of namespace `nsid`, all else 0.
    #[must_use]
    pub const fn new(cns: Cns, nsid: u32) -> Self {
        Self { cns, cntid: 0, cns_specific: 0, csi: 0, nsid, uuid_index: 0 }
    }
}

/// Writes `text` into an ASCII field, padded with spaces as the specification wants; what does not
/// fit is cut, what is not printable ASCII becomes `?`.
pub fn set_ascii(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (slot, byte) in field.iter_mut().zip(text.bytes()) {
        *slot = if (0x20..0x7f).contains(&byte) { byte } else { b'?' };
    }
}

/// The text of an ASCII field without its trailing spaces and NULs.
#[must_use]
pub fn ascii(field: &[u8]) -> String {
    String::from_utf8_lossy(field).trim_end_matches([' ', '\0']).to_owned()
}
