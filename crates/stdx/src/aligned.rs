//! Zeroed bytes that begin at an address of our choosing.

use std::ops::{Deref, DerefMut};

/// Bytes that begin at a multiple of [`Aligned::ALIGN`].
#[derive(Debug)]
pub struct Aligned {
    bytes: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// A page: direct I/O asks for no more.
    pub const ALIGN: usize = 4096;

    /// `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let bytes = vec![0; len + Self::ALIGN].into_boxed_slice();
        let start = bytes.as_ptr().addr().wrapping_neg() % Self::ALIGN;
        Self { bytes, start, len }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for Aligned {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_where_it_should_and_is_as_long_as_asked() {
        for len in [0, 1, 4096, 300_000] {
            let mut bytes = Aligned::zeroed(len);
            assert_eq!(bytes.len(), len);
            assert!(bytes.as_ptr().addr().is_multiple_of(Aligned::ALIGN));
            bytes.fill(7);
            assert!(bytes.iter().all(|&b| b == 7));
        }
    }
}
