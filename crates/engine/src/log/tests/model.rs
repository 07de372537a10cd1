//! What a log must hold, told from what was appended and acknowledged.

use super::super::{Append, Data, Found, Log};
use super::{block, key};
use crate::address::{BLOCK, Key};
use crate::error::Result;
use std::collections::BTreeMap;
use stdx::Prng;
use stdx::num::{low32, u64_of};

/// Blocks of each view the stories play on.
pub const BLOCKS: u64 = 48;

#[derive(Clone, Debug)]
pub enum Op {
    Write { key: Key, tags: Vec<u64> },
    Hole { key: Key, count: u64 },
}

/// What a lookup gives for each block: `None` for a hole.
pub type Contents = BTreeMap<u64, Option<u64>>;

impl Op {
    /// Something to do to a view; its tags were never used before.
    pub fn random(view: u32, next_tag: &mut u64, prng: &mut Prng) -> Self {
        let first = prng.below(BLOCKS);
        let count = if prng.below(4) == 0 { 1 + prng.below(BLOCKS - first) } else { 1 };
        let key = key(view, first);
        if prng.below(5) == 0 {
            return Self::Hole { key, count };
        }
        let tags = *next_tag..*next_tag + count;
        *next_tag += count;
        Self::Write { key, tags: tags.collect() }
    }

    pub async fn append(&self, log: &Log) -> Result<u64> {
        match self {
            Self::Write { key, tags } => {
                let data = tags.iter().map(|tag| block(*tag)).collect::<Vec<_>>().concat();
                log.append(Append::Write { key: *key, data: &[&data] }).await
            }
            Self::Hole { key, count } => {
                log.append(Append::Hole { key: *key, count: *count }).await
            }
        }
    }

    fn apply(&self, to: &mut Contents) {
        match self {
            Self::Write { key, tags } => {
                to.extend((key.block..).zip(tags.iter().map(|tag| Some(*tag))));
            }
            Self::Hole { key, count } => {
                to.extend((key.block..key.block + count).map(|n| (n, None)));
            }
        }
    }
}

/// What was done to one view by one writer, who waits for each answer.
#[derive(Default)]
pub struct History {
    /// Acknowledged, by sequence.
    pub acked: BTreeMap<u64, Op>,
    /// Asked for, and not answered.
    pub asked: Option<Op>,
}

impl History {
    fn contents(&self, trimmed: u64, asked: Option<&Op>) -> Contents {
        let mut contents = Contents::new();
        for (_, op) in self.acked.range(trimmed + 1..) {
            op.apply(&mut contents);
        }
        if let Some(op) = asked {
            op.apply(&mut contents);
        }
        contents
    }

    /// Checks that a log holds what was acknowledged and not trimmed, and nothing else but, as a
    /// whole, what was asked for last. That becomes part of the history then.
    pub fn check(&mut self, log: &Log, view: u32, trimmed: u64, story: &str) {
        let found = contents(log, view);
        let asked = self.asked.take();
        if found == self.contents(trimmed, None) {
            return;
        }
        assert_eq!(found, self.contents(trimmed, asked.as_ref()), "{story}, view {view}");
        let mut items = Vec::new();
        log.shared.ring.borrow_mut().hand_out(1 << 20, &mut items, &log.shared.store).unwrap();
        let tail = log.shared.ring.borrow().tail;
        log.shared.ring.borrow_mut().handed = tail;
        let of_view = |i: &&super::Item| i.key.view.get() == view;
        let last = items.iter().rfind(of_view).unwrap().sequence;
        self.acked.insert(last, asked.unwrap());
    }
}

fn tag_of(log: &Log, data: Data) -> u64 {
    let mut out = vec![0; BLOCK];
    log.copy_out(data, &mut out).unwrap();
    let tag = u64::from_le_bytes(out[..8].try_into().unwrap());
    assert_eq!(out, block(tag));
    tag
}

/// All a log has of a view.
pub fn contents(log: &Log, view: u32) -> Contents {
    let mut contents = Contents::new();
    let mut at = 0;
    while at < BLOCKS {
        let (found, same) = log.lookup(key(view, at), BLOCKS - at);
        match found {
            Found::Data(data) => {
                contents.insert(at, Some(tag_of(log, data)));
            }
            Found::Hole => contents.extend((at..at + same).map(|n| (n, None))),
            Found::Nothing | Found::Refers { .. } | Found::Lost => {}
        }
        at += same;
    }
    contents
}

/// The next few tags of a writer: no two writers share any.
pub fn first_tag(writer: usize) -> u64 {
    u64_of(writer) << 32 | u64::from(low32(1))
}
