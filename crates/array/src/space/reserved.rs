//! What a pool keeps for volumes with a reservation, and when that is worth telling.

use engine::Reservations;

/// What was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Bytes that are to be kept, and are not there.
    missing: u64,
    /// Nothing is free but what is kept.
    is_all: bool,
}

/// What is to be told, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Missing(u64),
    Whole,
    /// All that is free is kept.
    All(u64),
    /// There is more than that again.
    More,
}

/// A pool with less room than one part in so many beside what is kept has none for others.
const NONE_LEFT: u64 = 100;

impl Reserved {
    /// Bytes that are to be kept, and are not there.
    pub const fn missing(self) -> u64 {
        self.missing
    }

    /// Takes what a pool of that capacity uses and keeps; gives what of it is new.
    pub fn look(&mut self, used: u64, capacity: u64, of: Reservations) -> Vec<Told> {
        if !of.is_counted {
            // What volumes have counts twice until it is.
            return Vec::new();
        }
        let mut told = Vec::new();
        match (self.missing > 0, of.missing > 0) {
            (false, true) => told.push(Told::Missing(of.missing)),
            (true, false) => told.push(Told::Whole),
            _ => {}
        }
        let (free, least) = (capacity.saturating_sub(used + of.kept), capacity / NONE_LEFT);
        let is_all = of.kept > 0 && free < if self.is_all { 2 * least } else { least };
        match (self.is_all, is_all) {
            (false, true) => told.push(Told::All(of.kept)),
            (true, false) => told.push(Told::More),
            _ => {}
        }
        (self.missing, self.is_all) = (of.missing, is_all);
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_and_that_all_is_kept_is_told_once() {
        let mut reserved = Reserved::default();
        let mut look = |used, kept, missing, is_counted| {
            let of = Reservations { bytes: 500, kept, missing, is_counted };
            reserved.look(used, 1000, of)
        };
        assert_eq!(look(400, 500, 0, true), []);
        assert_eq!(look(600, 500, 0, false), []);
        assert_eq!(look(495, 500, 0, true), [Told::All(500)]);
        assert_eq!(look(485, 500, 0, true), []);
        assert_eq!(look(600, 500, 100, true), [Told::Missing(100)]);
        assert_eq!(look(600, 500, 90, true), []);
        assert_eq!(look(480, 500, 0, true), [Told::Whole, Told::More]);
        assert_eq!(look(999, 0, 0, true), []);
    }
}
