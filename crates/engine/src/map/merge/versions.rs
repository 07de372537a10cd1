//! Merging where there are versions: what all inputs have of the same blocks becomes one stack, of which what no snapshot
//! sees is left out.

use super::{Dropped, STEP_REPORTS, Step};
use crate::error::Result;
use crate::map::Pages;
use crate::map::flat::{END, Flat, Item, end_of_view, low64};
use crate::map::stack::{Layer, Stack, drop_last_hole, settle, width};
use crate::map::writer::{Pushed, Writer};

/// Puts stacks into a table. Those next to each other become one while they are the same.
#[derive(Default)]
pub(in crate::map) struct Outlet {
    waiting: Option<Stack>,
}

impl Outlet {
    /// Adds a stack after all others. When the table is full: where the next begins.
    pub async fn push<P: Pages>(
        &mut self,
        pages: &P,
        writer: &mut Writer,
        stack: Stack,
    ) -> Result<Option<Flat>> {
        let stack = match &mut self.waiting {
            Some(waiting) if stack.layers.len() > 1 => match waiting.join(stack) {
                None => return Ok(None),
                Some(stack) => stack,
            },
            _ => stack,
        };
        if let Some(from) = self.finish(pages, writer).await? {
            return Ok(Some(from));
        }
        let [layer] = &stack.layers[..] else {
            self.waiting = Some(stack);
            return Ok(None);
        };
        let item = Item { start: stack.start, blocks: stack.blocks, place: layer.place };
        let pushed = writer.push(pages, &item, layer.version, &layer.crcs).await?;
        Ok(if let Pushed::Full(from) = pushed { Some(from) } else { None })
    }

    /// Adds what waits for more of its kind.
    pub async fn finish<P: Pages>(
        &mut self,
        pages: &P,
        writer: &mut Writer,
    ) -> Result<Option<Flat>> {
        let Some(stack) = self.waiting.take() else { return Ok(None) };
        let pushed = writer.push_stack(pages, &stack).await?;
        Ok(if let Pushed::Full(from) = pushed { Some(from) } else { None })
    }
}

impl<P: Pages> Step<'_, P> {
    /// As [`fill`](Self::fill).
    pub(super) async fn fill_versions(&mut self, writer: &mut Writer, least: usize) -> Result<()> {
        let (pages, mut outlet, mut layers) = (self.pages, Outlet::default(), Vec::new());
        loop {
            let start = match self.start_now() {
                Some(start) => start,
                None => self.next_start(writer, least).await?.unwrap_or(END),
            };
            if start >= self.limit || self.dropped.len() >= STEP_REPORTS {
                if let Some(from) = outlet.finish(pages, writer).await? {
                    self.leave(from);
                } else if self.began.is_none() {
                    (self.began, self.at) = (Some(self.limit), self.limit);
                }
                return Ok(());
            }
            self.began.get_or_insert(start);
            let end = self.gather(start, &mut layers);
            let found = self.dropped.len();
            settle(pages, start, &mut layers, |place| {
                self.dropped.push(Dropped { start, blocks: low64(end - start), place });
            });
            let end = end.min(start + Flat::from(most(&layers)));
            for dropped in &mut self.dropped[found..] {
                dropped.blocks = low64(end - start);
            }
            if self.drops_hole(start) {
                drop_last_hole(&mut layers);
            }
            for source in &mut self.sources {
                if source.current().is_some_and(|item| item.start == start)
                    && !source.take_now(end)?
                {
                    source.take_until(pages, end).await?;
                }
            }
            self.at = end;
            if layers.is_empty() {
                continue;
            }
            let stack = stack_of(start, low64(end - start), &mut layers);
            if let Some(from) = outlet.push(pages, writer, stack).await? {
                self.leave(from);
                return Ok(());
            }
        }
    }

    /// Gathers what all inputs have of the blocks at `start`, and tells how far all of it goes.
    fn gather(&self, start: Flat, layers: &mut Vec<Layer>) -> Flat {
        let mut end = self.limit.min(end_of_view(start));
        for source in &self.sources {
            match source.current() {
                Some(item) if item.start == start => end = end.min(item.end()),
                Some(item) => end = end.min(item.start),
                None => {
                    let next = source.unopened().filter(|table| table.low > start);
                    end = end.min(next.map_or(END, |table| table.low));
                }
            }
        }
        layers.clear();
        for (n, source) in self.sources.iter().enumerate() {
            if source.current().is_some_and(|item| item.start == start) {
                source.gather(n, low64(end - start), layers);
            }
        }
        end
    }
}

/// How many blocks layers go on for at most.
fn most(layers: &[Layer]) -> u64 {
    if layers.len() > 1 { width(layers.len()) } else { u64::MAX }
}

/// The layers' first `blocks` blocks.
fn stack_of(start: Flat, blocks: u64, layers: &mut Vec<Layer>) -> Stack {
    let mut layers = std::mem::take(layers);
    for layer in &mut layers {
        if layer.place.has_contents() {
            layer.crcs.truncate(stdx::num::usize64(blocks));
        }
    }
    Stack { start, blocks, layers }
}
