//! The control block: where the log begins. Two slots, written in turn, so that one is always whole.

use super::limits::ALIGN;
use crate::format::{Bad, VERSION, check, seal};
use stdx::num::u64_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"FLMLOGCB";

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Slot {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    reserved: U16,
    ring: U64,
    generation: U64,
    ring_bytes: U64,
    position: U64,
    trimmed: U64,
    durable_stripe: U64,
    epoch: U32,
    reserved2: U32,
    settled: U64,
    term: U64,
    pool: [u8; 16],
    member: [u8; 16],
    reserved3: [u8; 8],
}

/// No log lives long enough to count so far: nothing computed from counters below it overflows.
pub(super) const COUNTERS_END: u64 = 1 << 62;

/// Bytes of a slot that mean something; the rest of its page is zero.
pub(super) const SLOT: usize = 128;
const _: () = assert!(size_of::<Slot>() == SLOT);
const _: () = assert!(std::mem::offset_of!(Slot, ring) == 16);
const _: () = assert!(std::mem::offset_of!(Slot, epoch) == 64);
const _: () = assert!(std::mem::offset_of!(Slot, settled) == 72);
const _: () = assert!(std::mem::offset_of!(Slot, member) == 104);

/// What a device says of itself beside the control block, which is the same on all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holder {
    pub pool: [u8; 16],
    /// Which device of the log it is; another number each time it is made whole.
    pub member: [u8; 16],
    /// The term of the labels when this was written: labels with a lower one are older.
    pub term: u64,
}

/// What the control block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    /// The log's own number, drawn at random when it was created.
    pub ring: u64,
    /// Counts the writes of this block; its parity is the slot.
    pub generation: u64,
    /// Counts how often the log was opened.
    pub epoch: u32,
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// Where the first record after `trimmed` is, in bytes since the log's beginning; modulo the
    /// ring's length that is its place.
    pub position: u64,
    /// The sequence of the last record that is not needed any more.
    pub trimmed: u64,
    /// The last stripe of this shard all whose contents are durable on the drives.
    pub durable_stripe: u64,
    /// Records up to this sequence were durable when this was written: also the very last one, which has no
    /// record behind it that would know.
    pub settled: u64,
}

impl Control {
    /// That of an empty log.
    pub const fn of_empty(ring: u64, ring_bytes: u64) -> Self {
        Self {
            ring,
            generation: 0,
            epoch: 1,
            ring_bytes,
            position: 0,
            trimmed: 0,
            durable_stripe: 0,
            settled: 0,
        }
    }

    pub fn encode(&self, holder: &Holder) -> [u8; SLOT] {
        let slot = Slot {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            reserved: 0.into(),
            ring: self.ring.into(),
            generation: self.generation.into(),
            ring_bytes: self.ring_bytes.into(),
            position: self.position.into(),
            trimmed: self.trimmed.into(),
            durable_stripe: self.durable_stripe.into(),
            epoch: self.epoch.into(),
            reserved2: 0.into(),
            settled: self.settled.into(),
            term: holder.term.into(),
            pool: holder.pool,
            member: holder.member,
            reserved3: [0; 8],
        };
        let mut bytes: [u8; SLOT] = zerocopy::transmute!(slot);
        seal(&mut bytes, MAGIC);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<(Self, Holder), Bad> {
        let bytes = bytes.get(..SLOT).ok_or(Bad::Blank)?;
        check(bytes, MAGIC)?;
        let slot = Slot::ref_from_bytes(bytes).map_err(|_| Bad::Blank)?;
        let Slot { generation, position, trimmed, durable_stripe, settled, .. } = slot;
        let counters = [generation, position, trimmed, durable_stripe, settled];
        if counters.iter().any(|c| c.get() >= COUNTERS_END) || slot.epoch.get() == u32::MAX {
            return Err(Bad::Field("counter"));
        }
        // Between two lines there is no record, and none put there would be found again.
        if !slot.position.get().is_multiple_of(ALIGN) {
            return Err(Bad::Field("position"));
        }
        let holder = Holder { pool: slot.pool, member: slot.member, term: slot.term.get() };
        let control = Self {
            ring: slot.ring.get(),
            generation: slot.generation.get(),
            epoch: slot.epoch.get(),
            ring_bytes: slot.ring_bytes.get(),
            position: slot.position.get(),
            trimmed: slot.trimmed.get(),
            durable_stripe: slot.durable_stripe.get(),
            settled: slot.settled.get(),
        };
        Ok((control, holder))
    }

    /// As it is to be after records up to `trimmed` are dropped, which end at `position`, while those up to
    /// `settled` are durable.
    pub fn after_trim(
        &self,
        trimmed: u64,
        position: u64,
        durable_stripe: u64,
        settled: u64,
    ) -> Self {
        assert!(durable_stripe >= self.durable_stripe, "what is durable stays so");
        assert!(settled >= self.settled, "what is durable stays so");
        assert!(trimmed >= self.trimmed && position >= self.position, "a log is trimmed forwards");
        assert!(trimmed <= settled, "what is trimmed was durable");
        let generation = self.generation + 1;
        Self { generation, trimmed, position, durable_stripe, settled, ..*self }
    }

    /// As it is to be when the log is opened once more.
    pub const fn after_open(&self) -> Self {
        Self { generation: self.generation + 1, epoch: self.epoch + 1, ..*self }
    }

    /// As it is to be when records up to `settled` are durable, and none beyond them.
    pub const fn after_settling(&self, settled: u64) -> Self {
        Self { generation: self.generation + 1, settled, ..*self }
    }

    /// What bytes are that are no whole slot: `None` for nothing, true for what power left of one that was being
    /// written for this pool, false for somebody's.
    pub fn remains(bytes: &[u8; SLOT], pool: [u8; 16]) -> Option<bool> {
        let (first, second) = bytes.split_at(SLOT / 2);
        let is_blank = |half: &[u8]| half.iter().all(|byte| *byte == 0);
        let slot = Slot::ref_from_bytes(bytes).ok()?;
        match (is_blank(first), is_blank(second)) {
            (true, true) => None,
            (false, true) => Some(slot.magic == MAGIC),
            (blank, false) => Some((blank || slot.magic == MAGIC) && slot.pool == pool),
        }
    }

    /// The same once more, for a device that has no slot yet.
    pub const fn again(&self) -> Self {
        Self { generation: self.generation + 1, ..*self }
    }

    /// Where the slot of this generation lies, in bytes from the log's beginning.
    pub const fn offset(&self) -> u64 {
        (self.generation % 2) * super::limits::PAGE
    }
}

const _: () = assert!(u64_of(SLOT) <= super::limits::PAGE);
