//! What a host does that none may.

use super::{Held, Pending};
use media::Pmem;
use stdx::Prng;
use stdx::num::{low32, u64_of, usize32, usize64};
use window::record::{HEADER, Header, Kind, Record};
use window::{ALIGN, Bad};

/// What a host does that none may, sometime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malice {
    /// A record whose data has another checksum.
    Checksum,
    /// One that goes beyond the volume.
    BeyondVolume,
    /// One of no whole blocks.
    Unaligned,
    /// One of blocks of another ring, if there is one.
    Elsewhere,
    /// One that says that it is further on.
    Jump,
    /// One that goes beyond the ring.
    BeyondRing,
    /// Garbage anywhere.
    Garbage,
    /// The ring is cut short.
    CutShort,
    /// A record of another window: that is nothing.
    Epoch,
    /// A record of the last lap: likewise.
    Replay,
}

impl Malice {
    const ALL: [Self; 10] = [
        Self::Checksum,
        Self::BeyondVolume,
        Self::Unaligned,
        Self::Elsewhere,
        Self::Jump,
        Self::BeyondRing,
        Self::Garbage,
        Self::CutShort,
        Self::Epoch,
        Self::Replay,
    ];

    pub fn any(prng: &mut Prng) -> Self {
        Self::ALL[usize64(prng.below(u64_of(Self::ALL.len())))]
    }

    /// Why the window ends then, if that can be told.
    pub const fn ends_with(self) -> Option<Bad> {
        match self {
            Self::Checksum => Some(Bad::Checksum),
            Self::BeyondVolume | Self::Unaligned => Some(Bad::BeyondVolume),
            Self::Elsewhere => Some(Bad::Elsewhere),
            Self::Jump => Some(Bad::Misplaced),
            Self::BeyondRing => Some(Bad::BeyondRing),
            Self::Garbage | Self::CutShort | Self::Epoch | Self::Replay => None,
        }
    }

    /// Whether what is in the ring may be lost by it.
    pub const fn destroys(self) -> bool {
        matches!(self, Self::Garbage | Self::CutShort)
    }

    /// Does it in place of a write. Tells whether it did.
    pub fn act(self, held: &Held, pending: &Pending, prng: &mut Prng) -> bool {
        // Sometimes in one of two copies only.
        let copies = &held.memory[pending.ring];
        let copies = &copies[..1 + usize64(prng.below(u64_of(copies.len())))];
        let header = self.header(held, pending);
        if !self.destroys() && header.is_none() {
            return false;
        }
        held.act(|| {
            for copy in copies {
                match header {
                    None if self == Self::CutShort => cut_short(&copy.ring, prng),
                    None => garbage(&copy.ring, prng),
                    Some(header) => {
                        let place = pending.writing.place();
                        // What cannot be stored is not there.
                        let _ = copy.ring.write(place.at + u64_of(HEADER), &pending.data);
                        copy.ring.fence();
                        let _ = copy.ring.write(place.at, &header);
                    }
                }
                copy.ring.full_fence();
            }
        });
        true
    }

    /// The header of a record that is wrong.
    fn header(self, held: &Held, pending: &Pending) -> Option<[u8; HEADER]> {
        let place = pending.writing.place();
        let header = held.header(pending);
        let Header { epoch, position, kind } =
            Header::decode(&header).filter(|_| place.pad.is_none())?;
        let Some(kind @ Kind::Write { offset, length, data_crc }) = kind else { return None };
        let record = Record { epoch, position, kind };
        let to = |offset| Record { kind: Kind::Write { offset, length, data_crc }, ..record };
        let record = match self {
            Self::Checksum => {
                let kind = Kind::Write { offset, length, data_crc: data_crc ^ 1 };
                Record { kind, ..record }
            }
            Self::BeyondVolume => to(held.grant.volume_bytes.next_multiple_of(1 << 30)),
            Self::Unaligned => to(offset + 1),
            Self::Elsewhere => {
                let Held { grant, .. } = held;
                let mut chunks = (0..grant.volume_bytes).step_by(usize64(grant.chunk_bytes));
                let is_other = |at: &u64| {
                    let ring = grant.ring_of(*at, usize32(length));
                    ring.is_some_and(|ring| ring != pending.ring)
                };
                to(chunks.find(is_other)?)
            }
            Self::Jump => Record { position: record.position + ALIGN, ..record },
            Self::BeyondRing => {
                let left = held.grant.ring_bytes - place.at;
                let fits = left <= u64_of(window::DATA_BYTES_MAX);
                fits.then_some(())?;
                let kind = Kind::Write { offset: 0, length: low32(left), data_crc };
                Record { kind, ..record }
            }
            Self::Epoch => Record { epoch: record.epoch ^ 1, ..record },
            Self::Replay => {
                let position = record.position.checked_sub(held.grant.ring_bytes)?;
                Record { position, ..record }
            }
            Self::Garbage | Self::CutShort => return None,
        };
        Some(record.encode())
    }
}

fn garbage(ring: &Pmem, prng: &mut Prng) {
    for _ in 0..=prng.below(8) {
        let mut bytes = vec![0; usize64(1 << prng.below(12))];
        prng.fill(&mut bytes);
        let at = prng.below(ring.capacity() - u64_of(bytes.len()));
        // What cannot be stored is not there.
        let _ = ring.write(at, &bytes);
    }
}

fn cut_short(ring: &Pmem, prng: &mut Prng) {
    if let Pmem::Simulated(simulated) = ring {
        let from = prng.below(ring.capacity() / 4096) * 4096;
        simulated.poison(from..ring.capacity());
    }
}
