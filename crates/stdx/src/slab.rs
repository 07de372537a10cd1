//! A slab of bounded size: insert gives the index, remove takes it back, both in constant time.

use crate::num::{u32_of, usize32};

const END: u32 = u32::MAX;

#[derive(Debug)]
enum Entry<T> {
    Free { next: u32 },
    Used(T),
}

/// Grows to `capacity` entries and no further; never moves an index.
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: u32,
    used: usize,
    capacity: usize,
}

impl<T> Slab<T> {
    /// An empty slab of at most `capacity` entries. Allocates as it fills.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        assert!(capacity < END as usize, "a slab index has 32 bits");
        Self { entries: Vec::new(), free: END, used: 0, capacity }
    }

    /// An empty slab with the memory of all its entries taken now.
    #[must_use]
    pub fn preallocated(capacity: usize) -> Self {
        let mut slab = Self::new(capacity);
        slab.entries.reserve_exact(capacity);
        slab
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.used
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.used == self.capacity
    }

    /// The index taken, or the value back when the slab is full.
    ///
    /// # Errors
    /// The value, when `capacity` entries are in use.
    pub fn insert(&mut self, value: T) -> Result<u32, T> {
        if self.is_full() {
            return Err(value);
        }
        self.used += 1;
        if self.free == END {
            let index = u32_of(self.entries.len());
            self.entries.push(Entry::Used(value));
            return Ok(index);
        }
        let index = self.free;
        let entry = &mut self.entries[usize32(index)];
        match std::mem::replace(entry, Entry::Used(value)) {
            Entry::Free { next } => self.free = next,
            Entry::Used(_) => unreachable!("the free list names only free entries"),
        }
        Ok(index)
    }

    /// Takes the value at `index` out, or `None` when that entry is free.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(usize32(index))?;
        if matches!(entry, Entry::Free { .. }) {
            return None;
        }
        let taken = std::mem::replace(entry, Entry::Free { next: self.free });
        self.free = index;
        self.used -= 1;
        match taken {
            Entry::Used(value) => Some(value),
            Entry::Free { .. } => None,
        }
    }

    #[must_use]
    pub fn get(&self, index: u32) -> Option<&T> {
        match self.entries.get(usize32(index)) {
            Some(Entry::Used(value)) => Some(value),
            _ => None,
        }
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.entries.get_mut(usize32(index)) {
            Some(Entry::Used(value)) => Some(value),
            _ => None,
        }
    }

    /// Every entry in use with its index, in index order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().enumerate().filter_map(|(i, e)| match e {
            Entry::Used(value) => Some((u32_of(i), value)),
            Entry::Free { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn a_full_slab_gives_the_value_back() {
        let mut s = Slab::new(2);
        assert_eq!(s.insert('a'), Ok(0));
        assert_eq!(s.insert('b'), Ok(1));
        assert_eq!(s.insert('c'), Err('c'));
        assert_eq!(s.remove(0), Some('a'));
        assert_eq!(s.insert('c'), Ok(0));
        assert_eq!(s.get(0), Some(&'c'));
        assert_eq!(s.remove(9), None);
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(ops in proptest::collection::vec((any::<bool>(), 0u32..16), 0..200)) {
            let mut slab = Slab::preallocated(8);
            let mut model = HashMap::new();
            for (n, (insert, at)) in ops.into_iter().enumerate() {
                if insert {
                    match slab.insert(n) {
                        Ok(i) => prop_assert!(model.insert(i, n).is_none()),
                        Err(_) => prop_assert_eq!(model.len(), 8),
                    }
                } else {
                    prop_assert_eq!(slab.remove(at), model.remove(&at));
                }
                prop_assert_eq!(slab.len(), model.len());
                for (i, v) in slab.iter() {
                    prop_assert_eq!(model.get(&i), Some(v));
                }
            }
        }
    }
}
