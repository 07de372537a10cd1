//! Tasks of a host that write and read blocks of their own, one command at a time, and what they were told.

use crate::contents::BLOCK;
use crate::life::Run;
use initiator::{Fua, Namespace};
use reactor::random;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use stdx::num::{low32, usize64};

/// Workers of the host that is troubled; the neighbour is the one after them.
pub const WORKERS: u64 = 4;

/// Blocks of each: few, so that what comes late finds something newer.
const OWN: u64 = 16;

/// Where the neighbour's begin, and all there are.
pub const NEIGHBOUR: u64 = WORKERS * OWN;
pub const BLOCKS: u64 = NEIGHBOUR + OWN;

/// Blocks of the longest command: most do not go in a capsule, and their data is asked for.
const LONGEST: u64 = 16;

/// What a block may hold.
#[derive(Clone, Default)]
struct Known {
    /// The write that was acknowledged last; none leaves zeroes.
    acknowledged: u32,
    /// Writes after it that nobody heard the end of.
    unheard: Vec<u32>,
}

/// What hosts were told of all blocks, over all lives.
pub struct Truth {
    blocks: RefCell<Vec<Known>>,
    writes: Cell<u32>,
}

impl Default for Truth {
    fn default() -> Self {
        let blocks = RefCell::new(vec![Known::default(); usize64(BLOCKS)]);
        Self { blocks, writes: Cell::new(0) }
    }
}

/// The bytes of `block` after a write.
fn fill(bytes: &mut [u8], block: u64, write: u32) {
    for (n, word) in (0..).zip(bytes.chunks_exact_mut(8)) {
        let value = if write == 0 { 0 } else { u64::from(write) << 32 | block << 16 | n };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Which write the bytes of `block` are of; `None` when they are of no single one.
fn write_of(bytes: &[u8], block: u64) -> Option<u32> {
    let first = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    let write = low32(first >> 32);
    let mut expected = vec![0; bytes.len()];
    fill(&mut expected, block, write);
    (expected == bytes).then_some(write)
}

impl Truth {
    /// Looks at blocks that nobody writes: each holds what was acknowledged, or a whole write after it.
    fn look(&self, first: u64, bytes: &[u8]) {
        for (block, bytes) in (first..).zip(bytes.chunks_exact(BLOCK)) {
            let known = &mut self.blocks.borrow_mut()[usize64(block)];
            let Known { acknowledged, unheard } = &*known;
            let Some(write) = write_of(bytes, block) else {
                panic!("block {block} is torn, or was never written so: {:02x?}", &bytes[..16]);
            };
            assert!(
                write == *acknowledged || unheard.contains(&write),
                "block {block} holds write {write}: {acknowledged} was acknowledged, unheard {unheard:?}"
            );
            *known = Known { acknowledged: write, unheard: Vec::new() };
        }
    }

    /// Reads blocks that nobody writes, and of which nothing is under way any more.
    pub async fn settle(&self, run: &Run, host: &Namespace, blocks: Range<u64>) {
        for first in blocks.clone().step_by(usize64(LONGEST)) {
            let count = LONGEST.min(blocks.end - first);
            self.read(run, host, first, count).await;
        }
    }

    async fn read(&self, run: &Run, host: &Namespace, first: u64, count: u64) {
        let mut buffer = host.buffer(usize64(count) * BLOCK).await;
        let read = host.read(first, low32(count), &mut buffer).await;
        assert!(read.is_ok(), "a read failed: {read:?}");
        self.look(first, &buffer);
        run.counts.borrow_mut().reads += 1;
    }

    async fn write(&self, run: &Run, host: &Namespace, first: u64, count: u64) {
        let write = self.writes.get() + 1;
        self.writes.set(write);
        let mut buffer = host.buffer(usize64(count) * BLOCK).await;
        for (block, bytes) in (first..).zip(buffer.chunks_exact_mut(BLOCK)) {
            fill(bytes, block, write);
            self.blocks.borrow_mut()[usize64(block)].unheard.push(write);
        }
        let wrote = host.write(first, low32(count), &mut buffer, Fua::No).await;
        assert!(wrote.is_ok(), "a write failed: {wrote:?}");
        for block in first..first + count {
            let known = Known { acknowledged: write, unheard: Vec::new() };
            self.blocks.borrow_mut()[usize64(block)] = known;
        }
        run.counts.borrow_mut().writes += 1;
        run.note(format_args!("write {write} of {count} at {first}"));
    }
}

/// One command of a worker, and its answer.
pub async fn step(run: &Run, truth: &Truth, host: &Namespace, worker: u64) {
    let first = random() % OWN;
    let count = 1 + random() % LONGEST.min(OWN - first);
    let first = worker * OWN + first;
    if random().is_multiple_of(3) {
        truth.read(run, host, first, count).await;
    } else {
        truth.write(run, host, first, count).await;
    }
}

pub async fn work(run: Rc<Run>, truth: Rc<Truth>, host: Namespace, worker: u64, steps: u64) {
    for _ in 0..steps {
        step(&run, &truth, &host, worker).await;
    }
}
