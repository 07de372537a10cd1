//! What a set may hold: for each sector the writes of which any may be there.

use std::ops::Range;

use stdx::num::{u64_of, usize64};

pub const SECTOR: usize = 512;

/// What a sector of `stamp` holds: its number and the stamp, over and over; zeroes for stamp 0.
pub fn fill(out: &mut [u8], first: u64, stamp: u64) {
    for (sector, bytes) in (first..).zip(out.chunks_exact_mut(SECTOR)) {
        for pair in bytes.chunks_exact_mut(16) {
            let (number, mark) = if stamp == 0 { (0, 0) } else { (sector + 1, stamp) };
            pair[..8].copy_from_slice(&number.to_le_bytes());
            pair[8..].copy_from_slice(&mark.to_le_bytes());
        }
    }
}

/// The stamp of a sector, if it is one that was written there.
fn stamp(bytes: &[u8], sector: u64) -> Option<u64> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (number, mark) = (word(0), word(8));
    let same = bytes.chunks_exact(16).all(|pair| *pair == bytes[..16]);
    let right = if mark == 0 { number == 0 } else { number == sector + 1 };
    (same && right).then_some(mark)
}

/// Allowed contents, and ranges in use.
pub struct Model {
    allowed: Vec<Vec<u64>>,
    busy: Vec<Range<u64>>,
    stamps: u64,
}

impl Model {
    pub fn new(sectors: u64) -> Self {
        Self { allowed: vec![vec![0]; usize64(sectors)], busy: Vec::new(), stamps: 0 }
    }

    pub fn sectors(&self) -> u64 {
        u64_of(self.allowed.len())
    }

    /// Takes a range for oneself, if it is free.
    pub fn take(&mut self, range: &Range<u64>) -> bool {
        let free = self.busy.iter().all(|b| b.end <= range.start || range.end <= b.start);
        if free {
            self.busy.push(range.clone());
        }
        free
    }

    pub fn give(&mut self, range: &Range<u64>) {
        self.busy.retain(|busy| busy != range);
    }

    pub fn next_stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    /// A write begins: its contents may be there from now on.
    pub fn begin(&mut self, range: &Range<u64>, stamp: u64) {
        for sector in range.clone() {
            self.allowed[usize64(sector)].push(stamp);
        }
    }

    /// It was acknowledged: nothing else may be there.
    pub fn end(&mut self, range: &Range<u64>, stamp: u64) {
        for sector in range.clone() {
            self.allowed[usize64(sector)] = vec![stamp];
        }
    }

    /// Nothing is under way any more.
    pub fn crash(&mut self) {
        self.busy.clear();
    }

    /// What was read must be allowed, and stays.
    pub fn check(&mut self, first: u64, bytes: &[u8]) -> Result<(), String> {
        for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            let allowed = &mut self.allowed[usize64(sector)];
            match stamp(bytes, sector) {
                Some(stamp) if allowed.contains(&stamp) => *allowed = vec![stamp],
                Some(stamp) => {
                    return Err(format!("sector {sector} holds write {stamp}, not {allowed:?}"));
                }
                None => return Err(format!("sector {sector} holds nothing that was written")),
            }
        }
        Ok(())
    }
}
