//! Which pages of a mapping have nothing any more, as the cores that use it share it.
//!
//! A page is marked before another one takes its place: whoever then finds what is in that, sees the mark behind it.

use crate::concurrent::{AtomicBool, AtomicU8, Ordering, fence};
use std::ops::Range;

/// By page, whether it could not be had.
#[derive(Debug)]
pub struct Marks {
    any: AtomicBool,
    pages: Box<[AtomicU8]>,
}

impl Marks {
    pub fn new(pages: usize) -> Self {
        Self { any: AtomicBool::new(false), pages: (0..pages).map(|_| AtomicU8::new(0)).collect() }
    }

    /// Marks pages that are about to be replaced. A signal's handler may call it.
    pub fn mark(&self, pages: Range<usize>) {
        let end = pages.end.min(self.pages.len());
        for page in self.pages.get(pages.start..end).unwrap_or_default() {
            page.store(1, Ordering::Relaxed);
        }
        self.any.store(true, Ordering::Relaxed);
        // Before what takes their place is there.
        fence(Ordering::Release);
    }

    /// Whether any page was marked, before what was read so far was read.
    #[inline]
    pub fn has_any(&self) -> bool {
        fence(Ordering::Acquire);
        self.any.load(Ordering::Relaxed)
    }

    /// Whether any of these was, likewise.
    pub fn has(&self, pages: Range<usize>) -> bool {
        if !self.has_any() {
            return false;
        }
        let end = pages.end.min(self.pages.len());
        let there = self.pages.get(pages.start..end).unwrap_or_default();
        there.iter().any(|page| page.load(Ordering::Relaxed) != 0)
    }
}
