//! NVMe over RDMA: the bytes that only this transport has (NVMe RDMA Transport Specification 1.1).
//!
//! A capsule is the payload of one RDMA_SEND: the submission queue entry, and in-capsule data right behind it (ICDOFF
//! is 0). A response is a completion queue entry. Data outside of capsules is named by a keyed SGL descriptor, and moved
//! by the controller: RDMA_READ brings what the host gives, RDMA_WRITE what it asked for.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::sqe::Sgl;

/// Port of the transport (IANA, nvme over RDMA).
pub const PORT: u16 = 4420;

/// Record format of all private data there is.
pub const RECFMT: u16 = 0;

/// What a host says when it asks for a connection: private data of the connection manager's request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RequestData {
    /// Record Format.
    pub recfmt: U16,
    /// Queue ID; 0 is the admin queue.
    pub qid: U16,
    /// RDMA QP Host Receive Queue Size: responses that the host has room for.
    pub hrqsize: U16,
    /// RDMA QP Host Send Queue Size: commands that the host has out at once, 0's based.
    pub hsqsize: U16,
    /// Controller ID, of an I/O queue.
    pub cntlid: U16,
    pub reserved: [u8; 22],
}
layout!(RequestData, 32, recfmt @ 0, qid @ 2, hrqsize @ 4, hsqsize @ 6, cntlid @ 8, reserved @ 10);

/// What a controller says when it takes a connection.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AcceptData {
    /// Record Format.
    pub recfmt: U16,
    /// RDMA QP Controller Receive Queue Size: commands that the controller has room for.
    pub crqsize: U16,
    pub reserved: [u8; 28],
}
layout!(AcceptData, 32, recfmt @ 0, crqsize @ 2, reserved @ 4);

/// What a controller says when it does not.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RejectData {
    /// Record Format.
    pub recfmt: U16,
    /// Status; see [`RejectStatus`].
    pub sts: U16,
}
layout!(RejectData, 4, recfmt @ 0, sts @ 2);

wire_enum! {
    /// Why a connection is refused, to the connection manager: before there is a queue to complete a Connect on.
    pub enum RejectStatus: u16 {
        PrivateDataLength = 1, "invalid private data length";
        RecordFormat = 2, "invalid record format";
        QueueId = 3, "invalid queue ID";
        HostSendQueueSize = 4, "invalid host SQ size";
        HostReceiveQueueSize = 5, "invalid host RQ size";
        NoResources = 6, "no resources";
        Ird = 7, "invalid IRD";
        Ord = 8, "invalid ORD";
    }
}

/// What a connection is to be, as its host says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Queue ID.
    pub qid: u16,
    /// Commands that the host has out at once.
    pub commands: u16,
    /// Responses that the host has room for.
    pub responses: u16,
}

/// The most commands that a queue may have, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    pub admin: u16,
    pub io: u16,
}

impl Request {
    /// Reads private data; what is behind the structure is the connection manager's padding.
    ///
    /// # Errors
    /// What the refusal says.
    pub fn parse(bytes: &[u8], most: Most) -> Result<Self, RejectStatus> {
        let (data, _) =
            RequestData::ref_from_prefix(bytes).map_err(|_| RejectStatus::PrivateDataLength)?;
        if data.recfmt.get() != RECFMT {
            return Err(RejectStatus::RecordFormat);
        }
        let qid = data.qid.get();
        let most = if qid == 0 { most.admin } else { most.io };
        let commands = data.hsqsize.get().checked_add(1).filter(|&commands| commands <= most);
        let commands = commands.ok_or(RejectStatus::HostSendQueueSize)?;
        let responses = data.hrqsize.get();
        if responses == 0 {
            return Err(RejectStatus::HostReceiveQueueSize);
        }
        Ok(Self { qid, commands, responses })
    }

    /// The private data that says so, of a queue of controller `cntlid`.
    #[must_use]
    pub fn data(&self, cntlid: u16) -> RequestData {
        let mut data = RequestData::new_zeroed();
        data.recfmt = RECFMT.into();
        data.qid = self.qid.into();
        data.hrqsize = self.responses.into();
        data.hsqsize = self.commands.saturating_sub(1).into();
        data.cntlid = cntlid.into();
        data
    }
}

impl AcceptData {
    /// Takes a connection, with room for so many commands.
    #[must_use]
    pub fn new(commands: u16) -> Self {
        let mut data = Self::new_zeroed();
        data.recfmt = RECFMT.into();
        data.crqsize = commands.into();
        data
    }
}

impl AcceptData {
    /// Reads private data: for how many commands the controller has room. `None` where it is of another format, or says
    /// that it has none.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<u16> {
        let (data, _) = Self::ref_from_prefix(bytes).ok()?;
        let commands = data.crqsize.get();
        (data.recfmt.get() == RECFMT && commands > 0).then_some(commands)
    }
}

impl RejectData {
    /// Reads private data: the raw status; `None` where it is of another format.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<u16> {
        let (data, _) = Self::ref_from_prefix(bytes).ok()?;
        (data.recfmt.get() == RECFMT && data.sts.get() != 0).then(|| data.sts.get())
    }

    /// Refuses a connection.
    #[must_use]
    pub fn new(status: RejectStatus) -> Self {
        Self { recfmt: RECFMT.into(), sts: status.raw().into() }
    }
}

/// The subtype of a keyed descriptor whose key the controller may invalidate with the response.
const INVALIDATE_KEY: u8 = 0x0f;

/// Memory of the host that a command names: a keyed SGL data block descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyed {
    pub address: u64,
    /// Bytes; of 24 bits.
    pub length: u32,
    pub key: u32,
    /// The key is to be invalidated by the response (RDMA_SEND with Invalidate).
    pub invalidate: bool,
}

/// A keyed SGL data block descriptor as it stands in an entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct KeyedBytes {
    address: U64,
    length: [u8; 3],
    key: [u8; 4],
    id: u8,
}
layout!(KeyedBytes, 16, address @ 0, length @ 8, key @ 11, id @ 15);

impl Keyed {
    /// The most bytes a descriptor can name.
    pub const LENGTH_MAX: u32 = (1 << 24) - 1;

    /// Reads a descriptor; `None` when it is another type, or has another subtype.
    #[must_use]
    pub fn parse(sgl: &Sgl) -> Option<Self> {
        let KeyedBytes { address, length: [a, b, c], key, id } = zerocopy::transmute!(*sgl);
        let invalidate = match id.checked_sub(Sgl::KEYED_DATA_BLOCK)? {
            0 => false,
            INVALIDATE_KEY => true,
            _ => return None,
        };
        Some(Self {
            address: address.get(),
            length: u32::from_le_bytes([a, b, c, 0]),
            key: u32::from_le_bytes(key),
            invalidate,
        })
    }

    /// The descriptor. A length beyond [`Keyed::LENGTH_MAX`] is cut.
    #[must_use]
    pub fn sgl(&self) -> Sgl {
        let [a, b, c, _] = self.length.min(Self::LENGTH_MAX).to_le_bytes();
        let subtype = if self.invalidate { INVALIDATE_KEY } else { 0 };
        let bytes = KeyedBytes {
            address: self.address.into(),
            length: [a, b, c],
            key: self.key.to_le_bytes(),
            id: Sgl::KEYED_DATA_BLOCK | subtype,
        };
        zerocopy::transmute!(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Most = Most { admin: 128, io: 1024 };

    /// As Linux sends it for an I/O queue of 128 entries, padded to what a request carries.
    fn linux() -> [u8; 56] {
        let mut bytes = [0; 56];
        bytes[..10].copy_from_slice(&[0, 0, 3, 0, 128, 0, 127, 0, 7, 0]);
        bytes
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let request = Request::parse(&linux(), MOST).unwrap();
        assert_eq!(request, Request { qid: 3, commands: 128, responses: 128 });
        assert_eq!(request.data(7).as_bytes(), &linux()[..32]);
    }

    #[test]
    fn each_wrong_request_is_refused_with_its_reason() {
        let with = |at: usize, value: u16| {
            let mut bytes = linux();
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
            Request::parse(&bytes, MOST)
        };
        assert_eq!(Request::parse(&linux()[..31], MOST), Err(RejectStatus::PrivateDataLength));
        assert_eq!(with(0, 1), Err(RejectStatus::RecordFormat));
        assert_eq!(with(4, 0), Err(RejectStatus::HostReceiveQueueSize));
        assert_eq!(with(6, 1024), Err(RejectStatus::HostSendQueueSize));
        assert_eq!(with(6, u16::MAX), Err(RejectStatus::HostSendQueueSize));
        assert_eq!(with(6, 1023).map(|request| request.commands), Ok(1024));
        // The admin queue is shorter.
        assert_eq!(with(2, 0).map(|request| request.qid), Ok(0));
        let mut admin = linux();
        admin[2..8].copy_from_slice(&[0, 0, 32, 0, 128, 0]);
        assert_eq!(Request::parse(&admin, MOST), Err(RejectStatus::HostSendQueueSize));
    }

    #[test]
    fn answers_have_their_fields_where_hosts_look() {
        let mut taken = [0; 32];
        taken[2] = 129;
        assert_eq!(AcceptData::new(129).as_bytes(), &taken);
        assert_eq!(RejectData::new(RejectStatus::NoResources).as_bytes(), &[0, 0, 6, 0]);
    }

    /// As they come: padded by the connection manager.
    #[test]
    fn answers_are_read_as_they_were_written_and_nothing_else_is_one() {
        let padded = |data: &[u8]| [data, &[0; 164]].concat();
        assert_eq!(AcceptData::parse(&padded(AcceptData::new(129).as_bytes())), Some(129));
        for &status in RejectStatus::ALL {
            let refusal = padded(RejectData::new(status).as_bytes());
            assert_eq!(RejectData::parse(&refusal), Some(status.raw()));
        }
        let mut other = AcceptData::new(129);
        other.recfmt = 1.into();
        assert_eq!(AcceptData::parse(other.as_bytes()), None);
        assert_eq!(AcceptData::parse(AcceptData::new(0).as_bytes()), None);
        assert_eq!(AcceptData::parse(&AcceptData::new(129).as_bytes()[..31]), None);
        for bytes in [&[][..], &[0, 0, 6], &[1, 0, 6, 0], &[0; 8]] {
            assert_eq!(RejectData::parse(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_keyed_descriptor_keeps_each_bit() {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&0x0102_0304_0506_0708_u64.to_le_bytes());
        bytes[8..11].copy_from_slice(&[0x00, 0x10, 0x80]);
        bytes[11..15].copy_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
        bytes[15] = 0x4f;
        let sgl = Sgl::read_from_bytes(&bytes).unwrap();
        let keyed = Keyed::parse(&sgl).unwrap();
        let expected = Keyed {
            address: 0x0102_0304_0506_0708,
            length: 0x80_1000,
            key: 0xa1b2_c3d4,
            invalidate: true,
        };
        assert_eq!((keyed, keyed.sgl()), (expected, sgl));
        let plain = Keyed { invalidate: false, ..keyed };
        assert_eq!((plain.sgl().id, Keyed::parse(&plain.sgl())), (0x40, Some(plain)));
        for other in [0x41, 0x50, 0x5a, 0x01, 0x00, 0x3f] {
            assert_eq!(Keyed::parse(&Sgl { id: other, ..sgl }), None, "{other:#x}");
        }
    }
}
