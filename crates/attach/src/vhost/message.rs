//! Messages of a front end: bytes become what it wants, or the connection ends. No I/O.

use std::os::fd::OwnedFd;

use stdx::num::{low16, u32_of, usize32, usize64};
use zerocopy::FromBytes;

use super::wire::{
    ConfigHead, Header, InflightHead, MemoryTable, NO_FD, RegionHead, RingAddress, RingState, flag,
    request,
};
use crate::limits::{CONFIG_BYTES_MAX, MESSAGE_BYTES_MAX, QUEUES_MAX, REGIONS_MAX, RING_MAX};

/// Bytes that QEMU sends behind an [`InflightHead`], and wants to have behind one.
pub const INFLIGHT_PADDING: usize = 4;

/// The front end broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Not this version of the protocol, or a reply.
    #[error("message {request} has flags {flags:#x}")]
    Flags { request: u32, flags: u32 },
    /// Longer than any message is.
    #[error("message {request} has {size} bytes")]
    TooLong { request: u32, size: u32 },
    /// Not as long as it has to be, or with values that cannot be.
    #[error("message {0} is malformed")]
    Malformed(u32),
    /// Descriptors are missing, or too many.
    #[error("message {0} comes with the wrong number of descriptors")]
    Descriptors(u32),
    /// Something that was not offered.
    #[error("message {0} was not offered")]
    Unknown(u32),
}

/// A message's head, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub request: u32,
    /// An answer is wanted even where the message itself has none.
    pub acknowledge: bool,
    /// Bytes of the payload that follows, [`MESSAGE_BYTES_MAX`] at most.
    pub size: usize,
}

impl Head {
    /// # Errors
    /// [`Broken`].
    pub fn parse(header: &Header) -> Result<Self, Broken> {
        let (request, flags, size) = (header.request.get(), header.flags.get(), header.size.get());
        if flags & flag::VERSION_MASK != flag::VERSION || flags & flag::REPLY != 0 {
            return Err(Broken::Flags { request, flags });
        }
        if usize32(size) > MESSAGE_BYTES_MAX {
            return Err(Broken::TooLong { request, size });
        }
        let acknowledge = flags & flag::NEED_REPLY != 0;
        Ok(Self { request, acknowledge, size: usize32(size) })
    }
}

/// A region of memory, with the file that it is in.
#[derive(Debug)]
pub struct Region {
    /// Where the guest sees it.
    pub guest: u64,
    /// Bytes.
    pub size: usize,
    /// Where the front end sees it.
    pub front_end: u64,
    /// Where it begins in the file.
    pub offset: u64,
    pub file: OwnedFd,
}

/// What a front end wants.
#[derive(Debug)]
pub enum Message {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemory(Vec<Region>),
    /// Of a ring: entries, a power of two.
    SetSize(usize, u16),
    SetAddress(usize, RingAddress),
    /// Where it goes on.
    SetBase(usize, u16),
    /// Stops it, and asks where it would go on.
    GetBase(usize),
    SetKick(usize, Option<OwnedFd>),
    SetCall(usize, Option<OwnedFd>),
    SetErr(usize, Option<OwnedFd>),
    Enable(usize, bool),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueCount,
    SetChannel(OwnedFd),
    /// Bytes of the configuration space from an offset on.
    GetConfig(ConfigHead),
    /// Which this device lets nobody write.
    SetConfig,
    /// Asks for memory in which to say what is in flight: queues, and entries of each.
    GetInflight(u16, u16),
    /// Such memory, as the front end has kept it.
    SetInflight(InflightHead, OwnedFd),
}

impl Message {
    /// What `payload` and the descriptors with it say.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn parse(number: u32, payload: &[u8], mut fds: Vec<OwnedFd>) -> Result<Self, Broken> {
        let takes_many = number == request::SET_MEM_TABLE;
        let takes_one = matches!(
            number,
            request::SET_VRING_KICK
                | request::SET_VRING_CALL
                | request::SET_VRING_ERR
                | request::SET_BACKEND_REQ_FD
                | request::SET_INFLIGHT_FD
        );
        if fds.len() > usize::from(takes_one) && !takes_many {
            return Err(Broken::Descriptors(number));
        }
        let fields = Fields { number, payload };
        Ok(match number {
            request::GET_FEATURES => Self::GetFeatures,
            request::SET_FEATURES => Self::SetFeatures(fields.word()?),
            request::SET_OWNER => Self::SetOwner,
            request::RESET_OWNER => Self::ResetOwner,
            request::SET_MEM_TABLE => Self::SetMemory(fields.regions(fds)?),
            request::SET_VRING_NUM => {
                let (ring, size) = fields.ring()?;
                Self::SetSize(ring, fields.size(size)?)
            }
            request::SET_VRING_ADDR => {
                let address: RingAddress = fields.read()?;
                Self::SetAddress(fields.index(address.index.get())?, address)
            }
            request::SET_VRING_BASE => {
                let (ring, base) = fields.ring()?;
                Self::SetBase(ring, low16(base.into()))
            }
            request::GET_VRING_BASE => Self::GetBase(fields.ring()?.0),
            request::SET_VRING_KICK => {
                let (ring, fd) = fields.ring_fd(fds.pop())?;
                Self::SetKick(ring, fd)
            }
            request::SET_VRING_CALL => {
                let (ring, fd) = fields.ring_fd(fds.pop())?;
                Self::SetCall(ring, fd)
            }
            request::SET_VRING_ERR => {
                let (ring, fd) = fields.ring_fd(fds.pop())?;
                Self::SetErr(ring, fd)
            }
            request::GET_PROTOCOL_FEATURES => Self::GetProtocolFeatures,
            request::SET_PROTOCOL_FEATURES => Self::SetProtocolFeatures(fields.word()?),
            request::GET_QUEUE_NUM => Self::GetQueueCount,
            request::SET_VRING_ENABLE => {
                let (ring, enabled) = fields.ring()?;
                Self::Enable(ring, enabled != 0)
            }
            request::SET_BACKEND_REQ_FD => {
                Self::SetChannel(fds.pop().ok_or(Broken::Descriptors(number))?)
            }
            request::GET_CONFIG => Self::GetConfig(fields.config()?),
            request::SET_CONFIG => Self::SetConfig,
            request::GET_INFLIGHT_FD => {
                let head = fields.inflight()?;
                Self::GetInflight(head.queues.get(), head.size.get())
            }
            request::SET_INFLIGHT_FD => {
                let file = fds.pop().ok_or(Broken::Descriptors(number))?;
                Self::SetInflight(fields.inflight()?, file)
            }
            _ => return Err(Broken::Unknown(number)),
        })
    }

    /// Whether it has an answer of its own, whatever was asked for.
    #[must_use]
    pub fn is_question(&self) -> bool {
        matches!(
            self,
            Self::GetFeatures
                | Self::GetProtocolFeatures
                | Self::GetQueueCount
                | Self::GetBase(_)
                | Self::GetConfig(_)
                | Self::GetInflight(..)
        )
    }
}

/// A payload to be read.
struct Fields<'a> {
    number: u32,
    payload: &'a [u8],
}

impl Fields<'_> {
    fn malformed(&self) -> Broken {
        Broken::Malformed(self.number)
    }

    fn read<T: FromBytes>(&self) -> Result<T, Broken> {
        T::read_from_bytes(self.payload).map_err(|_| self.malformed())
    }

    fn word(&self) -> Result<u64, Broken> {
        self.read().map(u64::from_le_bytes)
    }

    fn index(&self, index: u32) -> Result<usize, Broken> {
        let index = usize32(index);
        if index < QUEUES_MAX { Ok(index) } else { Err(self.malformed()) }
    }

    fn ring(&self) -> Result<(usize, u32), Broken> {
        let state: RingState = self.read()?;
        Ok((self.index(state.index.get())?, state.number.get()))
    }

    fn size(&self, size: u32) -> Result<u16, Broken> {
        let fits = size.is_power_of_two() && size <= u32::from(RING_MAX);
        if fits { Ok(low16(size.into())) } else { Err(self.malformed()) }
    }

    fn ring_fd(&self, fd: Option<OwnedFd>) -> Result<(usize, Option<OwnedFd>), Broken> {
        let word = self.word()?;
        let index = usize64(word & (NO_FD - 1));
        if index >= QUEUES_MAX {
            return Err(self.malformed());
        }
        if fd.is_some() == (word & NO_FD != 0) {
            return Err(Broken::Descriptors(self.number));
        }
        Ok((index, fd))
    }

    fn regions(&self, fds: Vec<OwnedFd>) -> Result<Vec<Region>, Broken> {
        let (table, rest) =
            MemoryTable::read_from_prefix(self.payload).map_err(|_| self.malformed())?;
        let count = usize32(table.regions.get());
        if count > REGIONS_MAX || rest.len() < count * size_of::<RegionHead>() {
            return Err(self.malformed());
        }
        if fds.len() != count {
            return Err(Broken::Descriptors(self.number));
        }
        let heads = rest.as_chunks::<{ size_of::<RegionHead>() }>().0;
        heads.iter().zip(fds).map(|(head, file)| self.region(head, file)).collect()
    }

    fn region(
        &self,
        head: &[u8; size_of::<RegionHead>()],
        file: OwnedFd,
    ) -> Result<Region, Broken> {
        let head = RegionHead::read_from_bytes(head).map_err(|_| self.malformed())?;
        let size = head.size.get();
        let ends = |from: u64| from.checked_add(size).is_some();
        let sound = size > 0
            && i64::try_from(size).is_ok()
            && ends(head.guest.get())
            && ends(head.front_end.get())
            && ends(head.offset.get());
        if !sound {
            return Err(self.malformed());
        }
        Ok(Region {
            guest: head.guest.get(),
            size: usize64(size),
            front_end: head.front_end.get(),
            offset: head.offset.get(),
            file,
        })
    }

    /// QEMU pads it.
    fn inflight(&self) -> Result<InflightHead, Broken> {
        let (head, rest) =
            InflightHead::read_from_prefix(self.payload).map_err(|_| self.malformed())?;
        let queues = usize::from(head.queues.get());
        let sound = (1..=QUEUES_MAX).contains(&queues) && rest.len() <= INFLIGHT_PADDING;
        self.size(head.size.get().into())?;
        if sound { Ok(head) } else { Err(self.malformed()) }
    }

    fn config(&self) -> Result<ConfigHead, Broken> {
        let (head, rest) =
            ConfigHead::read_from_prefix(self.payload).map_err(|_| self.malformed())?;
        let end = head.offset.get().checked_add(head.size.get());
        let fits = end.is_some_and(|end| usize32(end) <= CONFIG_BYTES_MAX);
        if fits && u32_of(rest.len()) == head.size.get() { Ok(head) } else { Err(self.malformed()) }
    }
}
