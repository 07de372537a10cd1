//! Counting what blocks were before, as well: all versions of them that the map has, in the order in which a reader
//! comes by them.

use super::{Count, MEMTABLES, NEWER, Next, SOURCES, Tally};
use crate::address::Version;
use crate::map::flat::{Flat, Place, end_of_view, low64, unflat};
use crate::map::lookup::Period;
use crate::map::stack::Layer;
use crate::map::state::State;

/// Whether blocks at a place count: what is lost does, until it is written again.
pub(super) fn has_contents(place: Place) -> bool {
    place != Place::Hole
}

/// What some blocks are and were: since when, and whether they had contents; the newest first.
#[derive(Default)]
pub(super) struct Layers {
    all: Vec<(Version, bool)>,
    /// Of a memtable, to be used again.
    some: Vec<Layer>,
}

impl Layers {
    /// Adds what lies below. As a reader does, it looks at nothing that is not older than all above.
    fn add(&mut self, since: Version, has_contents: bool) {
        if self.all.last().is_none_or(|(newer, _)| since < *newer) {
            self.all.push((since, has_contents));
        }
    }

    fn tell(&self, mut told: impl FnMut(Period)) {
        let mut until = None;
        for &(since, has_contents) in &self.all {
            if has_contents {
                told(Period { since, until });
            }
            until = since.before();
        }
    }
}

impl Count<'_> {
    /// Counts all versions of the blocks from `at` on, as far as every layer says the same of them. All stand there, or
    /// begin later.
    pub(super) fn take_versions(&mut self, state: &State, found: &mut impl Tally) -> Option<Next> {
        let at = self.at;
        let is_here = |start: Flat| start == at;
        let sources = self.sources.iter().enumerate();
        let mut closed = sources
            .filter(|(n, source)| is_here(self.starts[SOURCES + n]) && source.unopened().is_some());
        if let Some((n, _)) = closed.next() {
            return Some(Next::Open(n));
        }
        let later = self.starts.iter().copied().filter(|start| !is_here(*start)).min();
        let mut end = self.end.min(end_of_view(at)).min(later.unwrap_or(self.end));
        let mut layers = std::mem::take(&mut self.layers);
        layers.all.clear();
        if is_here(self.starts[NEWER])
            && let Some(span) = self.newer.first()
        {
            end = end.min(span.stretch().end);
            layers.add(Version::LAST, span.has_contents);
        }
        let memtables = [&state.active, &state.frozen];
        for (n, (looked, memtable)) in self.memtables.iter().zip(memtables).enumerate() {
            let Some(next) = looked.next.filter(|_| is_here(self.starts[MEMTABLES + n])) else {
                continue;
            };
            end = end.min(next.end);
            if next.end - next.start > 1 {
                // Blocks that have older versions stand alone.
                layers.add(looked.since, next.has_contents);
                continue;
            }
            let mut some = std::mem::take(&mut layers.some);
            memtable.layers(at, &mut some);
            some.iter().for_each(|layer| layers.add(layer.version, has_contents(layer.place)));
            layers.some = some;
        }
        for (n, source) in self.sources.iter().enumerate() {
            if let Some(item) = source.current().filter(|_| is_here(self.starts[SOURCES + n])) {
                end = end.min(item.end());
                source.each_version(|since, place| layers.add(since, has_contents(place)));
            }
        }
        let (view, blocks) = (unflat(at).view, low64(end - at));
        layers.tell(|period| found.add(view, period, blocks));
        self.layers = layers;
        self.at = end;
        None
    }
}
