//! What is known of parts of things, in bounded memory. Each part may come to one of few places, so that a new one takes
//! that of the one that is there longest.
//!
//! Parts that follow each other come to places that do, too: as many as there are of both have one each, all at once. Of
//! those that are a power of two apart not all come to the same few.

use stdx::num::{low32, u64_of, usize64};

/// Places that a part may come to.
pub(crate) const WAYS: usize = 4;

/// A part of something, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub of: u64,
    pub number: u64,
}

impl Part {
    /// Nothing has so many.
    const NONE: Self = Self { of: u64::MAX, number: u64::MAX };
}

/// So many parts of which something is known at most; a new one begins with what all begin with. Nothing is allocated
/// before the first.
#[derive(Debug)]
pub(crate) struct Parts<V, const PLACES: usize> {
    new: V,
    parts: Vec<[Part; WAYS]>,
    known: Vec<[V; WAYS]>,
    /// Which of those next to each other gives way next.
    next: Vec<u8>,
}

impl<V: Copy, const PLACES: usize> Parts<V, PLACES> {
    const SETS: usize = PLACES / WAYS;
    const FITS: () = assert!(Self::SETS.is_power_of_two() && Self::SETS * WAYS == PLACES);

    pub const fn new(new: V) -> Self {
        let () = Self::FITS;
        Self { new, parts: Vec::new(), known: Vec::new(), next: Vec::new() }
    }

    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes of memory held.
    pub const fn bytes(&self) -> usize {
        self.parts.len() * size_of::<[Part; WAYS]>()
            + self.known.len() * size_of::<[V; WAYS]>()
            + self.next.len()
    }

    fn set_of(part: Part) -> usize {
        let sets = u64_of(Self::SETS);
        // Those of a row come to one set each; where the first does is as good as random.
        let mix = |of: u64| of.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
        let row = low32(mix(mix(part.of) ^ (part.number / sets)));
        usize64((u64::from(row) + part.number) % sets)
    }

    fn place_of(&self, part: Part) -> Option<(usize, usize)> {
        let set = Self::set_of(part);
        let way = self.parts.get(set)?.iter().position(|other| *other == part)?;
        Some((set, way))
    }

    /// What is known of a part.
    pub fn get(&self, part: Part) -> Option<&V> {
        let (set, way) = self.place_of(part)?;
        Some(&self.known[set][way])
    }

    /// As [`get`](Self::get), to be changed.
    pub fn get_mut(&mut self, part: Part) -> Option<&mut V> {
        let (set, way) = self.place_of(part)?;
        Some(&mut self.known[set][way])
    }

    /// As [`get_mut`](Self::get_mut), of a part that may be new: some other one is known no more then.
    pub fn enter(&mut self, part: Part) -> &mut V {
        if self.is_empty() {
            self.parts = vec![[Part::NONE; WAYS]; Self::SETS];
            self.known = vec![[self.new; WAYS]; Self::SETS];
            self.next = vec![0; Self::SETS];
        }
        let (set, way) = self.place_of(part).unwrap_or_else(|| self.take_place(part));
        &mut self.known[set][way]
    }

    fn take_place(&mut self, part: Part) -> (usize, usize) {
        let set = Self::set_of(part);
        let way = usize::from(self.next[set]) % WAYS;
        self.next[set] = self.next[set].wrapping_add(1);
        self.parts[set][way] = part;
        self.known[set][way] = self.new;
        (set, way)
    }

    /// All of which something is known.
    pub fn each_mut(&mut self) -> impl Iterator<Item = (Part, &mut V)> {
        let parts = self.parts.as_flattened().iter().copied();
        parts.zip(self.known.as_flattened_mut()).filter(|(part, _)| *part != Part::NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: usize = 64;

    fn known(parts: &Parts<u64, PLACES>, all: impl Iterator<Item = Part>) -> usize {
        all.filter(|part| parts.get(*part).is_some_and(|known| *known == part.number + 1)).count()
    }

    fn entered(all: impl Iterator<Item = Part> + Clone) -> usize {
        let mut parts = Parts::<u64, PLACES>::new(0);
        assert!(parts.is_empty() && parts.bytes() == 0);
        all.clone().for_each(|part| *parts.enter(part) = part.number + 1);
        assert_eq!(parts.each_mut().filter(|(part, known)| **known == part.number + 1).count(), {
            known(&parts, all.clone())
        });
        known(&parts, all)
    }

    #[test]
    fn as_many_parts_in_a_row_are_known_as_there_are_places() {
        for of in 0..100 {
            assert_eq!(entered((0..u64_of(PLACES)).map(|number| Part { of, number })), PLACES);
        }
        let twice = entered((0..2 * u64_of(PLACES)).map(|number| Part { of: 7, number }));
        assert!((PLACES / 2..=PLACES).contains(&twice), "{twice}");
    }

    #[test]
    fn few_parts_are_known_together_wherever_they_are() {
        // The first of each of many things, and parts far from each other.
        let alike = entered((0..u64_of(PLACES / 4)).map(|of| Part { of, number: 0 }));
        assert!(alike >= PLACES / 4 - 2, "{alike}");
        for apart in [16, 64, 1024, 4096, 1 << 20] {
            let far = entered((0..u64_of(PLACES / 4)).map(|n| Part { of: 7, number: n * apart }));
            assert!(far >= PLACES / 4 - 4, "{far} of those {apart} apart");
        }
        assert_eq!(entered((0..u64_of(WAYS)).map(|n| Part { of: n << 32, number: n << 30 })), WAYS);
    }

    #[test]
    fn a_part_that_is_new_begins_anew() {
        let mut parts = Parts::<u64, WAYS>::new(9);
        let part = |number| Part { of: 1, number };
        for number in 0..10 {
            assert_eq!(*parts.enter(part(number)), 9);
            *parts.enter(part(number)) = number;
            assert_eq!(parts.get(part(number)), Some(&number));
        }
        assert_eq!(parts.get(part(5)), None);
        *parts.get_mut(part(6)).unwrap() = 60;
        assert_eq!((parts.get(part(6)), parts.get(part(9))), (Some(&60), Some(&9)));
        assert_eq!(parts.each_mut().count(), WAYS);
    }
}
