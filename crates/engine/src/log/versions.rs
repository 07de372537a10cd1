//! Which versions of their volumes records are of (decision 0026).

use std::collections::{BTreeMap, VecDeque};

use super::record::Kind;
use crate::address::{Version, View};

/// The versions of views that have others than the first.
#[derive(Default)]
pub(super) struct Versions {
    /// Of what is reserved now.
    now: BTreeMap<View, Version>,
    /// From which position on what can be looked up is of which.
    since: BTreeMap<View, VecDeque<(u64, Version)>>,
}

impl Versions {
    /// Records of this view that are reserved from now on are of this version.
    pub fn set(&mut self, view: View, version: Version) {
        match version {
            Version::FIRST => self.now.remove(&view),
            _ => self.now.insert(view, version),
        };
    }

    /// Which version a record is of that is reserved now.
    pub fn of(&self, kind: Kind) -> Version {
        if self.now.is_empty() {
            return Version::FIRST;
        }
        let version = kind.view().and_then(|view| self.now.get(&view));
        version.copied().unwrap_or(Version::FIRST)
    }

    /// A record at `position`, behind all there are, can be looked up.
    pub fn note(&mut self, position: u64, kind: Kind, version: Version) {
        if version == Version::FIRST && self.since.is_empty() {
            return;
        }
        let Some(view) = kind.view() else { return };
        let before = self.since.get(&view).and_then(VecDeque::back);
        assert!(before.is_none_or(|(at, _)| *at < position), "records are noted in their order");
        if before.map_or(Version::FIRST, |(_, before)| *before) != version {
            self.since.entry(view).or_default().push_back((position, version));
        }
    }

    /// Whether what a view has at a position is of a later version than this.
    pub fn is_later(&self, view: View, position: u64, version: Version) -> bool {
        if self.since.is_empty() {
            return false;
        }
        let since = self.since.get(&view);
        let found = since.and_then(|all| all.iter().rev().find(|(from, _)| *from <= position));
        found.is_some_and(|(_, there)| *there > version)
    }

    /// All before this position is forgotten.
    pub fn trimmed(&mut self, position: u64) {
        self.since.retain(|_, since| {
            while since.get(1).is_some_and(|(from, _)| *from <= position) {
                since.pop_front();
            }
            since.len() > 1 || since.front().is_some_and(|(_, version)| *version != Version::FIRST)
        });
    }
}
