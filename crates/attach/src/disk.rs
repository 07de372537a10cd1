//! The namespace in bytes: requests need not begin or end at blocks.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use hostraid::Volume;
use initiator::{Buffer, Deallocate, Error, Fua, Geometry};
use nvme::status::Status;
use reactor::sync::Semaphore;
use stdx::num::{align_down, low32, usize64};

use crate::limits::{PIECE_BYTES, ZEROES_BYTES};
use crate::ranges::{Ranges, Turn};

/// Bytes of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

impl Span {
    /// Where it ends. No span that a request was let through with goes beyond it.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.offset + self.length
    }
}

/// Error numbers: those of Linux, which are NBD's as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Operation not permitted.
    Perm = 1,
    /// Input/output error.
    Io = 5,
    /// Cannot allocate memory.
    NoMemory = 12,
    /// Invalid argument.
    Invalid = 22,
    /// No space left on device.
    NoSpace = 28,
    /// Value too large: a reply in one piece was asked for, and is not to be had.
    Overflow = 75,
    /// Operation not supported: zeroes that would be slow.
    NotSupported = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub errno: Errno,
    /// For people.
    pub words: &'static str,
}

/// Data of a request, or a part of it, within whole blocks.
pub struct Room {
    buffer: Buffer,
    /// Where the data is in the buffer.
    at: usize,
    length: usize,
}

impl Room {
    /// The data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.buffer[self.at..self.at + self.length]
    }

    /// The data, to be filled in.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.at..self.at + self.length]
    }
}

/// Blocks that a span touches.
#[derive(Clone, Copy)]
struct Blocks {
    first: u64,
    count: u64,
    /// It covers them whole.
    whole: bool,
}

/// A namespace or a set, addressed in bytes.
pub struct Disk {
    namespace: Volume,
    ranges: Rc<Ranges>,
    /// Whose writes come by this, in `ranges`.
    owner: u64,
    /// For one block at a time, read to be completed with a part that is written.
    edge: Cell<Option<Buffer>>,
    edging: Semaphore,
}

type Done = Result<(), Refusal>;

impl Disk {
    #[must_use]
    pub fn new(namespace: impl Into<Volume>) -> Self {
        Self::of(namespace.into(), Rc::default())
    }

    fn of(namespace: Volume, ranges: Rc<Ranges>) -> Self {
        let owner = ranges.owner();
        Self { namespace, ranges, owner, edge: Cell::default(), edging: Semaphore::new(1) }
    }

    /// The same bytes for another user, whose writes to blocks that one of the others writes wait for it: a client that
    /// lost its connection sends again by another one what may be in flight yet.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::of(self.namespace.clone(), Rc::clone(&self.ranges))
    }

    async fn turn(&self, blocks: Range<u64>, alone: bool) -> Result<Turn<'_>, Refusal> {
        let words = "too many writes at once";
        let turn = self.ranges.take(self.owner, blocks, alone).await;
        turn.ok_or(Refusal { errno: Errno::NoMemory, words })
    }

    /// What the namespace is now.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.namespace.geometry()
    }

    /// As [`Volume::succeed`].
    pub fn succeed(&self) {
        self.namespace.succeed();
    }

    fn blocks(geometry: &Geometry, span: Span) -> Blocks {
        let block = u64::from(geometry.block_bytes);
        let first = span.offset / block;
        let whole = span.offset.is_multiple_of(block) && span.end().is_multiple_of(block);
        Blocks { first, count: span.end().div_ceil(block) - first, whole }
    }

    /// The parts in which a span is moved: cut where no block is.
    pub fn parts(&self, span: Span) -> impl Iterator<Item = Span> + use<> {
        let geometry = self.namespace.geometry();
        let most = u64::from(geometry.transfer_max_bytes).min(PIECE_BYTES as u64);
        let step =
            (most / u64::from(geometry.block_bytes)).max(1) * u64::from(geometry.block_bytes);
        let mut offset = span.offset;
        std::iter::from_fn(move || {
            let start = offset;
            let end = span.end().min((start / step + 1) * step);
            offset = end;
            (start < end).then(|| Span { offset: start, length: end - start })
        })
    }

    /// Room for a part's data; waits while there is none.
    pub async fn room(&self, part: Span) -> Room {
        let geometry = self.namespace.geometry();
        let block = u64::from(geometry.block_bytes);
        let bytes = Self::blocks(&geometry, part).count * block;
        Room {
            buffer: self.namespace.buffer(usize64(bytes)).await,
            at: usize64(part.offset % block),
            length: usize64(part.length),
        }
    }

    /// Fills a part's room.
    pub async fn read(&self, part: Span, room: &mut Room) -> Done {
        let blocks = Self::blocks(&self.namespace.geometry(), part);
        let read = self.namespace.read(blocks.first, low32(blocks.count), &mut room.buffer).await;
        read.map_err(|error| refusal(&error))
    }

    /// Writes a part's room.
    pub async fn write(&self, part: Span, room: &mut Room, fua: bool) -> Done {
        let blocks = Self::blocks(&self.namespace.geometry(), part);
        let range = blocks.first..blocks.first + blocks.count;
        let _turn = self.turn(range, !blocks.whole).await?;
        if !blocks.whole {
            self.complete(part, blocks, room).await.map_err(|error| refusal(&error))?;
        }
        let count = low32(blocks.count);
        let wrote = self.namespace.write(blocks.first, count, &mut room.buffer, durable(fua)).await;
        wrote.map_err(|error| refusal(&error))
    }

    /// Reads what the first and last block have beside a part.
    async fn complete(&self, part: Span, blocks: Blocks, room: &mut Room) -> Result<(), Error> {
        let block = u64::from(self.namespace.geometry().block_bytes);
        let _one = self.edging.hold(1).await;
        let mut edge = match self.edge.take() {
            Some(edge) if !edge.is_empty() => edge,
            _ => self.namespace.buffer(usize64(block)).await,
        };
        let (before, behind) = (usize64(part.offset % block), usize64(part.end() % block));
        if before > 0 {
            self.namespace.read(blocks.first, 1, &mut edge).await?;
            room.buffer[..before].copy_from_slice(&edge[..before]);
        }
        if behind > 0 {
            self.namespace.read(blocks.first + blocks.count - 1, 1, &mut edge).await?;
            let last = usize64((blocks.count - 1) * block);
            room.buffer[last + behind..last + usize64(block)].copy_from_slice(&edge[behind..]);
        }
        self.edge.set(Some(edge));
        Ok(())
    }

    /// Makes durable what has completed.
    pub async fn flush(&self) -> Done {
        self.namespace.flush().await.map_err(|error| refusal(&error))
    }

    /// Gives the whole blocks of a span up.
    pub async fn trim(&self, span: Span, fua: bool) -> Done {
        for part in self.whole_blocks(span) {
            let _turn = self.turn(part.first..part.first + part.count, false).await?;
            let gone = self.namespace.deallocate(&[(part.first, low32(part.count))]).await;
            gone.map_err(|error| refusal(&error))?;
        }
        if fua { self.flush().await } else { Ok(()) }
    }

    /// Zeroes a span; its whole blocks without sending zeroes, if the namespace takes that.
    pub async fn zero(&self, span: Span, fua: bool, no_hole: bool, fast: bool) -> Done {
        let geometry = self.namespace.geometry();
        let block = u64::from(geometry.block_bytes);
        if !geometry.supports.write_zeroes {
            if fast {
                let words = "the namespace has no fast way to zeroes";
                return Err(Refusal { errno: Errno::NotSupported, words });
            }
            return self.write_zeroes(span, fua).await;
        }
        let deallocate = geometry.supports.zeroes_deallocate && !no_hole;
        let deallocate = if deallocate { Deallocate::Yes } else { Deallocate::No };
        for part in self.whole_blocks(span) {
            let _turn = self.turn(part.first..part.first + part.count, false).await?;
            let count = low32(part.count);
            let zeroed = self.namespace.write_zeroes(part.first, count, deallocate, durable(fua));
            zeroed.await.map_err(|error| refusal(&error))?;
        }
        // What is left at both ends, or the whole when it holds no whole block.
        let start = span.offset.next_multiple_of(block).min(span.end());
        let end = align_down(span.end(), block).max(start);
        for (from, to) in [(span.offset, start), (end, span.end())] {
            if from < to {
                self.write_zeroes(Span { offset: from, length: to - from }, fua).await?;
            }
        }
        Ok(())
    }

    async fn write_zeroes(&self, span: Span, fua: bool) -> Done {
        for part in self.parts(span) {
            let mut room = self.room(part).await;
            room.data_mut().fill(0);
            self.write(part, &mut room, fua).await?;
        }
        Ok(())
    }

    /// The blocks that a span covers whole, as many as one command names at a time.
    fn whole_blocks(&self, span: Span) -> impl Iterator<Item = Blocks> + use<> {
        let block = u64::from(self.namespace.geometry().block_bytes);
        let (mut first, end) = (span.offset.div_ceil(block), span.end() / block);
        std::iter::from_fn(move || {
            let count = end.saturating_sub(first).min(ZEROES_BYTES / block);
            let blocks = Blocks { first, count, whole: true };
            first += count;
            (count > 0).then_some(blocks)
        })
    }
}

fn durable(fua: bool) -> Fua {
    if fua { Fua::Yes } else { Fua::No }
}

/// What a user is told of an error of the namespace.
fn refusal(error: &Error) -> Refusal {
    let Error::Command { status, .. } = error else {
        let words = match error {
            Error::InDoubt(_) => {
                "the target went away, and what became of the request is not known"
            }
            Error::Removed(_) | Error::Replaced(_) => "the namespace is not there any more",
            _ => "the target cannot be reached",
        };
        return Refusal { errno: Errno::Io, words };
    };
    let errno = match status.kind() {
        Status::CAPACITY_EXCEEDED => Errno::NoSpace,
        Status::LBA_OUT_OF_RANGE | Status::INVALID_FIELD => Errno::Invalid,
        Status::NAMESPACE_IS_WRITE_PROTECTED
        | Status::WRITE_TO_READ_ONLY_RANGE
        | Status::RESERVATION_CONFLICT
        | Status::ACCESS_DENIED => Errno::Perm,
        _ => Errno::Io,
    };
    Refusal { errno, words: status.name().unwrap_or("the namespace reports an error") }
}
