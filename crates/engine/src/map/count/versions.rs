//! Counting what blocks were before, as well: all versions of them that the map has, in the order in which a reader
//! comes by them.

use super::{Count, MEMTABLES, NEWER, Next, SOURCES, Span, Stretch, Tally};
use crate::address::Version;
use crate::map::flat::{Flat, Place, end_of_view, low64, unflat};
use crate::map::lookup::Period;
use crate::map::stack::{Layer, Spare};
use crate::map::state::State;

/// Whether blocks at a place count: what is lost does, until it is written again.
pub(super) fn has_contents(place: Place) -> bool {
    place != Place::Hole
}

/// Whether blocks at a place have space that is nobody else's.
pub(super) fn is_alone(place: Place) -> bool {
    place.location().is_some_and(|location| location.name().is_none())
}

/// What some blocks are since a version.
struct Said {
    since: Version,
    has_contents: bool,
    is_alone: bool,
}

impl Said {
    fn of(since: Version, place: Place) -> Self {
        Self { since, has_contents: has_contents(place), is_alone: is_alone(place) }
    }
}

/// What some blocks are and were: since when, and whether they had contents; the newest first.
#[derive(Default)]
pub(super) struct Layers {
    all: Vec<Said>,
    /// Of a memtable, to be used again.
    some: Vec<Layer>,
}

impl Layers {
    /// Adds what lies below. As a reader does, it looks at nothing that is not older than all above.
    fn add(&mut self, said: Said) {
        if self.all.last().is_none_or(|newer| said.since < newer.since) {
            self.all.push(said);
        }
    }

    fn tell(&self, mut told: impl FnMut(Period, bool)) {
        let mut until = None;
        for said in &self.all {
            if said.has_contents {
                told(Period { since: said.since, until }, said.is_alone);
            }
            until = said.since.before();
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
            let Span { has_contents, is_alone, .. } = *span;
            layers.add(Said { since: Version::LAST, has_contents, is_alone });
        }
        let memtables = [&state.active, &state.frozen];
        for (n, (looked, memtable)) in self.memtables.iter().zip(memtables).enumerate() {
            let Some(next) = looked.next.filter(|_| is_here(self.starts[MEMTABLES + n])) else {
                continue;
            };
            end = end.min(next.end);
            if next.end - next.start > 1 {
                // Blocks that have older versions stand alone.
                let Stretch { has_contents, is_alone, .. } = next;
                layers.add(Said { since: looked.since, has_contents, is_alone });
                continue;
            }
            let mut some = std::mem::take(&mut layers.some);
            memtable.layers(at, &mut some, &mut Spare::default());
            some.iter().for_each(|layer| layers.add(Said::of(layer.version, layer.place)));
            layers.some = some;
        }
        for (n, source) in self.sources.iter().enumerate() {
            if let Some(item) = source.current().filter(|_| is_here(self.starts[SOURCES + n])) {
                end = end.min(item.end());
                source.each_version(|since, place| layers.add(Said::of(since, place)));
            }
        }
        let (view, blocks) = (unflat(at).view, low64(end - at));
        layers.tell(|period, is_alone| {
            found.add(view, period, blocks);
            if !is_alone {
                found.add_shared(view, period, blocks);
            }
        });
        self.layers = layers;
        self.at = end;
        None
    }
}
