//! What leads to shared blocks: references, and whatever lies in views of which old versions are needed.
//!
//! Tables say whether they have references, so that of a pool in which little is shared little is read.

use super::flat::{Flat, flat, unflat};
use super::memtable::Known;
use super::state::State;
use super::{Map, Pages};
use crate::address::{Key, Location, Version, View};
use crate::error::Result;

/// Tables that are passed by without a pause.
const AT_ONCE: usize = 64;

/// Up to where nothing from `at` on may lead to a shared block, or so many tables further; `at` itself where something may.
fn silent_until(state: &State, old: &[View], at: Flat, end: Flat) -> Flat {
    let mut until = at;
    for _ in 0..AT_ONCE {
        let next = silent_for(state, old, until, end);
        if next == until || next >= end {
            return next;
        }
        until = next;
    }
    until
}

/// As [`silent_until`], as far as what each layer has there reaches. All of the views `old`, which are in order, may.
fn silent_for(state: &State, old: &[View], at: Flat, end: Flat) -> Flat {
    let view = unflat(at).view;
    let mut until = match old.get(old.partition_point(|of| *of < view)) {
        Some(of) if *of == view => return at,
        Some(of) => end.min(flat(*of, 0)),
        None => end,
    };
    for memtable in [&state.active, &state.frozen] {
        match memtable.get(at, Version::LAST) {
            Known::Nothing(next) => until = until.min(next),
            Known::Data(..) | Known::Lost(_) | Known::Hole(..) => return at,
        }
    }
    for level in state.sorted() {
        match level.get(level.position(at)) {
            Some(table) if table.low > at => until = until.min(table.low),
            Some(table) if table.may_refer => return at,
            Some(table) => until = until.min(table.high),
            None => {}
        }
    }
    until
}

impl<P: Pages> Map<P> {
    /// As [`scan`](Self::scan), with all that may lead to shared blocks, and more: all references, and in these views, in
    /// order, all that has contents. Tables that have neither are not read.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup).
    pub async fn scan_referring(
        &self,
        old: &[View],
        until: Key,
        mut found: impl FnMut(Location, u32),
    ) -> Result<()> {
        let from = Key::new(View::METADATA, 0);
        let pass = |state: &State, at, end| silent_until(state, old, at, end);
        self.scan_but(pass, from, Some(until), |_, at, count, _| {
            if let Some(at) = at {
                found(at, count);
            }
            true
        })
        .await
    }
}
