//! A target's end of a direct write window, in memory of this process: for tests, and for measuring.
#![allow(clippy::unwrap_used, reason = "a test says what it met by failing there")]

use std::os::fd::AsFd;

use media::Pmem;
use reactor::shared::Mapping;
use reactor::{Bell, PacketListener};
use stdx::crc32c;
use stdx::num::{u32_of, u64_of, usize64};
use window::page::{CREDIT_AT, PAGE, PHASE_AT, TAKEN_AT};
use window::record::HEADER;
use window::{Bad, DATA_BYTES_MAX, Grant, Identity, Look, Phase, Reader};

use crate::Descriptors;

/// What takes the records of a ring.
pub struct Taker {
    reader: Reader,
    /// State page and ring of each copy.
    copies: Vec<[Pmem; 2]>,
    bell: Bell,
    credit: u64,
    ring_bytes: u64,
    data: Box<[u8]>,
}

/// A grant of rings of so many bytes, in memory of this process, for a volume of 1 GiB in blocks of 512 bytes.
#[must_use]
pub fn grant(rings: usize, ring_bytes: u64) -> Grant {
    Grant {
        number: 7,
        epoch: 0x0123_4567_89ab_cdef,
        ring_bytes,
        rings,
        volume_bytes: 1 << 30,
        block_bytes: 512,
        chunk_bytes: 1 << 20,
        placement: 0,
        token: [9; 16],
        path: String::new(),
    }
}

/// Gives the rings of a grant, in order, to one who comes to its socket and shows its token; false for one who shows
/// another.
///
/// # Panics
/// When nobody comes.
pub fn hand_over(listener: &PacketListener, grant: &Grant, rings: &[Descriptors]) -> bool {
    let asking = listener.accept().unwrap();
    let mut token = [0; 64];
    let length = asking.recv(&mut token, &mut Vec::new()).unwrap();
    if token[..length] != grant.token {
        return false;
    }
    for (at, ring) in rings.iter().enumerate() {
        let mut message = [0; 8];
        message[..4].copy_from_slice(&u32_of(at).to_le_bytes());
        message[4..].copy_from_slice(&u32_of(ring.copies.len()).to_le_bytes());
        let files = ring.copies.iter().flatten().map(AsFd::as_fd);
        let fds: Vec<_> = std::iter::once(ring.bell.as_fd()).chain(files).collect();
        asking.send(&message, &fds).unwrap();
    }
    true
}

impl Taker {
    /// A ring of a grant, which stands and has been given no credit, and what its host maps it by.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    pub fn new(grant: &Grant, shard: u32, copies: usize) -> (Self, Descriptors) {
        let identity = Identity {
            epoch: grant.epoch,
            ring_bytes: grant.ring_bytes,
            pool: [1; 16],
            view: 2,
            shard,
            number: grant.number,
        };
        let bell = Bell::new().unwrap();
        let rung = bell.as_fd().try_clone_to_owned().unwrap();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..copies {
            let made = [u64_of(PAGE), grant.ring_bytes].map(|bytes| {
                let (_, fd) = Mapping::create(c"window", usize64(bytes)).unwrap();
                (Pmem::of_fd(&fd, bytes).unwrap(), fd)
            });
            made[0].0.write(0, &identity.encode()).unwrap();
            let [(state, state_fd), (memory, memory_fd)] = made;
            ours.push([state, memory]);
            theirs.push([state_fd, memory_fd]);
        }
        let taker = Self {
            reader: Reader::new(grant.epoch, grant.ring_bytes, 0),
            copies: ours,
            bell,
            credit: 0,
            ring_bytes: grant.ring_bytes,
            data: vec![0; DATA_BYTES_MAX].into(),
        };
        taker.set_phase(Phase::Stands);
        (taker, Descriptors { bell: rung, copies: theirs })
    }

    fn store(&self, at: u64, word: u64) {
        for [state, _] in &self.copies {
            state.write(at, &word.to_le_bytes()).unwrap();
        }
        self.copies[0][0].full_fence();
    }

    /// Says whether the window stands.
    pub fn set_phase(&self, phase: Phase) {
        self.store(PHASE_AT, phase.word());
    }

    /// The state page of a copy.
    #[must_use]
    pub fn state(&self, copy: usize) -> &Pmem {
        &self.copies[copy][0]
    }

    /// The ring of a copy.
    #[must_use]
    pub fn memory(&self, copy: usize) -> &Pmem {
        &self.copies[copy][1]
    }

    /// What the host rings.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// The host may store up to this position.
    pub fn set_credit(&mut self, credit: u64) {
        self.credit = credit;
        self.store(CREDIT_AT, credit);
    }

    /// Gives credit for all of the ring.
    pub fn give_all(&mut self) {
        self.set_credit(self.reader.position() + self.ring_bytes);
    }

    /// Up to where records were taken.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// Takes what is there, from the first copy: `each` is given offset and data. Gives how many there were.
    ///
    /// # Errors
    /// What no host that obeys stores.
    pub fn take(&mut self, mut each: impl FnMut(u64, &[u8])) -> Result<usize, Bad> {
        let memory = &self.copies[0][1];
        let mut count = 0;
        loop {
            let mut header = [0; HEADER];
            memory.read(self.reader.at(), &mut header).unwrap();
            let look = self.reader.look(&header, self.credit);
            match look {
                Look::Nothing => break,
                Look::Bad(bad) => return Err(bad),
                Look::Pad => {}
                Look::Write { at, offset, length, data_crc } => {
                    let data = &mut self.data[..length];
                    memory.read(at, data).unwrap();
                    if crc32c(data) != data_crc {
                        return Err(Bad::Checksum);
                    }
                    each(offset, data);
                    count += 1;
                }
            }
            self.reader.advance(&look);
        }
        if count > 0 {
            self.store(TAKEN_AT, self.reader.position());
        }
        Ok(count)
    }
}
