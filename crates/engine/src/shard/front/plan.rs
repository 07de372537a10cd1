//! Where the blocks of a read are, as the log and the map said at one moment.

use std::ops::Range;
use std::sync::Arc;

use reactor::ReadGuard;
use stdx::num::{u32_of, usize32};

use crate::address::{BLOCK, BLOCK_GRAINS, Key, Location};
use crate::error::{Error, Kind};
use crate::log::Data;
use crate::map::{Contents, Extents};
use crate::volume::state::Ancestor;

/// A read that was looked up: its pieces in order, and later those of them that are not in the reader's memory
/// yet. Kept and used again, it allocates nothing in steady state.
///
/// What was found in the log is good until the next await, so that [`Front::copy_known`](super::Front) takes it in
/// the same call: a plan that is waited with has none of it. What lies in segments stays where it is while
/// `reading` is held, which therefore nobody keeps who waits for a host, or for the log to be carried.
#[derive(Debug)]
pub struct Plan {
    /// Where the read begins.
    pub first: Key,
    pub pieces: Vec<Piece>,
    pub crcs: Vec<u32>,
    pub reading: Option<ReadGuard>,
    /// What is asked where the view has nothing, if it is a clone's: of a read that waits for some of that.
    pub ancestors: Option<Arc<[Ancestor]>>,
    /// To look up into.
    pub extents: Extents,
}

/// Blocks next to each other that are in the same state.
#[derive(Debug)]
pub struct Piece {
    /// Its first block, counted from that of the read.
    pub at: u32,
    pub count: u32,
    pub place: Place,
}

/// Where blocks are.
#[derive(Debug)]
pub enum Place {
    /// One block in the log.
    Log(Data),
    /// Never written or deallocated: zeroes.
    Hole,
    /// In adjacent slots, or under adjacent names. Their checksums are the plan's from this one on.
    Stored { location: Location, crcs: usize },
    /// The log has nothing of them, and the map has to read a page to tell.
    Unread,
    /// Neither the view has anything of them nor its ancestors before this one, which is asked next.
    Inherited { from: usize },
    /// One block that is damaged in the log: destage may have carried it as it was, with this checksum.
    Damaged { crc: u32, error: Box<Error> },
    /// For good; what is said of it.
    Lost(Box<Error>),
}

impl Piece {
    /// Where its bytes are wanted.
    pub const fn bytes(&self) -> Range<usize> {
        let begin = usize32(self.at) * BLOCK;
        begin..begin + usize32(self.count) * BLOCK
    }

    /// Where its checksums are.
    pub const fn crcs(&self, first: usize) -> Range<usize> {
        first..first + usize32(self.count)
    }
}

/// What is said of a block that is lost. Trying again does not help.
pub fn lost(key: Key) -> Error {
    let (view, block) = (key.view.get(), key.block);
    let context = format!("block {block} of view {view} is lost, until it is written again");
    Error::new(Kind::Corrupt, context)
}

/// What is said of a block that a write was about which was on its way when the log failed.
pub fn in_doubt(key: Key) -> Error {
    let (view, block) = (key.view.get(), key.block);
    let context =
        format!("a write of block {block} of view {view} or beside it failed: it may be done");
    Error::new(Kind::Failed, context)
}

impl Plan {
    /// Of a read that begins there.
    pub fn new(first: Key) -> Self {
        let (pieces, crcs, extents) = (Vec::new(), Vec::new(), Extents::default());
        Self { first, pieces, crcs, reading: None, ancestors: None, extents }
    }

    /// Forgets what it was for.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.crcs.clear();
        self.reading = None;
        self.ancestors = None;
    }

    pub fn push(&mut self, at: u32, count: u32, place: Place) {
        self.pieces.push(Piece { at, count, place });
    }

    /// Adds blocks that lie in adjacent slots, or have adjacent names; what goes on where the last piece ends is part of
    /// it, if the checksums go on there, too: pieces are not always in the order in which they were learnt.
    pub fn push_stored(&mut self, at: u32, location: Location, crcs: &[u32]) {
        let count = u32_of(crcs.len());
        if let Some(Piece {
            at: before,
            count: blocks,
            place: Place::Stored { location: place, crcs: first },
        }) = self.pieces.last_mut()
            && *before + *blocks == at
            && *first + usize32(*blocks) == self.crcs.len()
            && place.is_followed(u64::from(*blocks * BLOCK_GRAINS), location)
        {
            *blocks += count;
        } else {
            self.push(at, count, Place::Stored { location, crcs: self.crcs.len() });
        }
        self.crcs.extend_from_slice(crcs);
    }

    /// Takes what the map said of blocks from number `at` of the read on, which is in `extents`. What it has nothing of is
    /// to be asked of this ancestor, if of any.
    pub fn learn(&mut self, at: u32, next: Option<usize>) {
        let extents = std::mem::take(&mut self.extents);
        let absent = || next.map_or(Place::Hole, |from| Place::Inherited { from });
        let mut at = at;
        for extent in extents.iter() {
            match extent.contents {
                Contents::Stored { location, encoding, crcs } => match encoding.check() {
                    Ok(()) => self.push_stored(at, location, crcs),
                    Err(error) => self.push(at, extent.count, Place::Lost(Box::new(error))),
                },
                Contents::Absent => self.push(at, extent.count, absent()),
                Contents::Hole => self.push(at, extent.count, Place::Hole),
                Contents::Lost => {
                    let lost = Box::new(lost(self.first.forward(u64::from(at))));
                    self.push(at, extent.count, Place::Lost(lost));
                }
            }
            at += extent.count;
        }
        self.extents = extents;
    }

    /// Takes pieces that an ancestor is to be asked of, one by one, as many as there were before; from the last one on.
    pub fn inherited(&mut self, from: usize, before: &mut usize) -> Option<Piece> {
        while let Some(n) = before.checked_sub(1) {
            *before = n;
            let is_asked =
                |place: &Place| matches!(place, Place::Inherited { from: next } if *next == from);
            if self.pieces.get(n).is_some_and(|piece| is_asked(&piece.place)) {
                return Some(self.pieces.swap_remove(n));
            }
        }
        None
    }

    /// The nearest ancestor that something is to be asked of, from this one on.
    pub fn asked_next(&self, from: usize) -> Option<usize> {
        let asked = |piece: &Piece| match piece.place {
            Place::Inherited { from: asked } if asked >= from => Some(asked),
            _ => None,
        };
        self.pieces.iter().filter_map(asked).min()
    }

    /// Whether the map is to be asked more once there is something to wait for.
    pub fn asks_more(&self) -> bool {
        let asks = |piece: &Piece| matches!(piece.place, Place::Unread | Place::Inherited { .. });
        self.pieces.iter().any(asks)
    }

    /// What is said of the first block that is lost, if one is.
    pub fn take_lost(&mut self) -> Option<Error> {
        let lost = self.pieces.iter().position(|piece| matches!(piece.place, Place::Lost(_)))?;
        match self.pieces.swap_remove(lost).place {
            Place::Lost(error) => Some(*error),
            _ => None,
        }
    }

    /// Whether each block has contents that nobody else has. `None` where a page of the map would have to be read.
    pub fn is_own(&self) -> Option<bool> {
        let is_own = |piece: &Piece| match piece.place {
            Place::Log(_) | Place::Damaged { .. } => Some(true),
            Place::Stored { location, .. } => Some(location.name().is_none()),
            Place::Hole | Place::Inherited { .. } | Place::Lost(_) => Some(false),
            Place::Unread => None,
        };
        self.pieces.iter().try_fold(true, |own, piece| is_own(piece).map(|this| own && this))
    }

    /// Whether it has each of so many blocks once, in order.
    pub fn covers(&self, blocks: u32) -> bool {
        let end = self.pieces.iter().try_fold(0, |end, piece| {
            (piece.at == end && piece.count > 0).then_some(end + piece.count)
        });
        end == Some(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{SegmentId, View};

    fn checksums_of(plan: &Plan) -> Vec<(u32, Vec<u32>)> {
        let mut found = Vec::new();
        for piece in &plan.pieces {
            if let Place::Stored { crcs, .. } = piece.place {
                found.push((piece.at, plan.crcs[piece.crcs(crcs)].to_vec()));
            }
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn each_piece_has_its_own_checksums_in_whatever_order_they_are_learnt() {
        let here = Location::new(SegmentId::new(1), 8);
        let elsewhere = Location::new(SegmentId::new(2), 8);
        let mut plan = Plan::new(Key::new(View::METADATA, 0));
        plan.push_stored(4, here, &[104]);
        plan.push_stored(0, elsewhere, &[100]);
        // As where pages are read for what is unknown before and behind what is known.
        plan.pieces.swap(0, 1);
        plan.push_stored(5, here.offset(1), &[105, 106]);
        plan.push_stored(7, here.offset(3), &[107]);
        assert_eq!(checksums_of(&plan), [(0, vec![100]), (4, vec![104]), (5, vec![105, 106, 107])]);
    }

    #[test]
    fn what_goes_on_where_the_last_piece_ends_is_one_piece() {
        let here = Location::new(SegmentId::new(1), 8);
        let mut plan = Plan::new(Key::new(View::METADATA, 0));
        plan.push_stored(0, here, &[100, 101]);
        plan.push_stored(2, here.offset(2), &[102]);
        assert_eq!(checksums_of(&plan), [(0, vec![100, 101, 102])]);
    }
}
