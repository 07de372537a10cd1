//! Operations of a drive of another machine, as commands of its namespace.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use initiator::{Buffer as Data, Deallocate, Error, Fua, Geometry};
use media::{Kind, Operation, Refused};
use reactor::buffer::Buffer;
use reactor::{Nanos, now_exact};
use stdx::num::{low32, usize32};

use super::association::{Association, associate};
use super::error::{Fault, Why};
use super::incarnation::Core;
use crate::limits::{REMOTE_OPERATION, REMOTE_TRANSFER, REMOTE_ZEROES};

/// One operation, and its time.
pub(super) struct Doing<'a> {
    core: &'a Arc<Core>,
    operation: Operation,
    offset: u64,
    len: u64,
    /// The only incarnation that it may go by.
    by: Option<u64>,
    begun: Nanos,
}

/// Blocks of a namespace.
struct Blocks {
    first: u64,
    count: u64,
}

/// A command that changes something. Dropped before its end, it may be executed at any time, which only another
/// incarnation can prevent.
struct Change<'a> {
    core: &'a Core,
    incarnation: u64,
    ended: bool,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let why = "an operation was given up before it was answered";
            self.core.end(self.incarnation, Why::gone(why));
        }
    }
}

impl<'a> Doing<'a> {
    /// `by`: the only incarnation that it may go by, where there is one.
    pub fn new(
        core: &'a Arc<Core>,
        operation: Operation,
        offset: u64,
        len: u64,
        by: Option<u64>,
    ) -> Self {
        Self { core, operation, offset, len, by, begun: now_exact() }
    }

    fn error(&self, why: &Why) -> media::Error {
        why.error(self.operation, self.offset, self.len)
    }

    fn left(&self) -> Duration {
        let gone = Duration::from_nanos(now_exact().saturating_sub(self.begun));
        REMOTE_OPERATION.saturating_sub(gone)
    }

    /// The association to use, and the range in its blocks.
    async fn begin(&self) -> Result<(Rc<Association>, Geometry, Blocks), media::Error> {
        let associated = match reactor::timeout(self.left(), associate(self.core)).await {
            Ok(associated) => associated,
            Err(_) => Err(late("it was not connected")),
        };
        let association = associated.map_err(|why| self.error(&why))?;
        if self.by.is_some_and(|by| by != association.incarnation) {
            return Err(self.error(&Why::gone("its connection is over, and there is another one")));
        }
        let geometry = association.namespace.geometry();
        let block = u64::from(geometry.block_bytes);
        if !self.offset.is_multiple_of(block) || !self.len.is_multiple_of(block) {
            let words = format!("only whole blocks of {block} bytes are read and written there");
            return Err(self.error(&Why::new(Kind::Unsupported, words)));
        }
        match self.offset.checked_add(self.len) {
            Some(end) if end <= self.core.capacity() => {}
            _ => return Err(self.error(&Why::new(Kind::OutOfRange, "beyond the namespace"))),
        }
        let blocks = Blocks { first: self.offset / block, count: self.len / block };
        Ok((association, geometry, blocks))
    }

    /// Runs a command, which ends within `left`.
    async fn run(
        &self,
        association: &Association,
        left: Duration,
        command: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), media::Error> {
        let incarnation = association.incarnation;
        // What reads and flushes do late does no harm.
        let ended = matches!(self.operation, Operation::Read | Operation::Flush);
        let mut change = Change { core: self.core, incarnation, ended };
        let done = reactor::timeout(left, command).await;
        change.ended = true;
        let fault = match &done {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => Fault::from(error),
            Err(_) => Fault { why: late("it was not answered"), ends: true },
        };
        if fault.ends {
            self.core.end(incarnation, fault.why.clone());
        }
        Err(self.error(&fault.why))
    }

    /// Reads into the start of `buffer`.
    pub async fn read(&self, buffer: Buffer) -> Result<Buffer, Refused> {
        let (association, geometry, blocks) = self.begin().await?;
        let (namespace, most) = (&association.namespace, most(&geometry));
        if blocks.count == 0 {
            return Ok(buffer);
        }
        if blocks.count <= most {
            let mut data = Data::from(buffer);
            let read = namespace.read(blocks.first, low32(blocks.count), &mut data);
            self.run(&association, self.left(), read).await?;
            return Ok(self.pooled(data)?);
        }
        let mut buffer = buffer;
        let mut at = 0;
        for (first, count) in blocks.pieces(most) {
            let bytes = usize32(count * geometry.block_bytes);
            let mut data = Data::from(vec![0; bytes].into_boxed_slice());
            self.run(&association, self.left(), namespace.read(first, count, &mut data)).await?;
            let short = || self.error(&Why::new(Kind::TooLarge, "the buffer is too short"));
            buffer.get_mut(at..at + bytes).ok_or_else(short)?.copy_from_slice(&data[..bytes]);
            at += bytes;
        }
        Ok(buffer)
    }

    fn pooled(&self, data: Data) -> Result<Buffer, media::Error> {
        let missing = || self.error(&Why::gone("the command kept its buffer"));
        data.into_pooled().ok_or_else(missing)
    }

    /// Writes what `buffer` shows. Where there is no space for it, it comes back.
    pub async fn write(&self, buffer: Buffer, fua: bool) -> Result<(), Refused> {
        let (association, geometry, blocks) = self.begin().await?;
        let (namespace, most) = (&association.namespace, most(&geometry));
        let fua = if fua { Fua::Yes } else { Fua::No };
        let back = |error: media::Error, data: Option<Buffer>| {
            let full = error.kind == Kind::Full;
            Refused { error, data: data.filter(|_| full) }
        };
        if blocks.count == 0 {
            return Ok(());
        }
        if blocks.count <= most {
            let mut data = Data::from(buffer);
            let write = namespace.write(blocks.first, low32(blocks.count), &mut data, fua);
            let written = self.run(&association, self.left(), write).await;
            return written.map_err(|error| back(error, data.into_pooled()));
        }
        let pieces = buffer.chunks(usize32(low32(most) * geometry.block_bytes));
        for (piece, (first, count)) in pieces.zip(blocks.pieces(most)) {
            let mut data = Data::from(Box::from(piece));
            let write = namespace.write(first, count, &mut data, fua);
            if let Err(error) = self.run(&association, self.left(), write).await {
                return Err(back(error, Some(buffer)));
            }
        }
        Ok(())
    }

    pub async fn flush(&self) -> Result<(), media::Error> {
        let (association, ..) = self.begin().await?;
        self.run(&association, self.left(), association.namespace.flush()).await
    }

    /// Each command has the time of an operation: a range may be long.
    pub async fn deallocate(&self) -> Result<(), media::Error> {
        let (association, geometry, blocks) = self.begin().await?;
        if !geometry.supports.deallocate {
            let words = "the namespace has no way to free space";
            return Err(self.error(&Why::new(Kind::Unsupported, words)));
        }
        for (first, count) in blocks.pieces(REMOTE_ZEROES / u64::from(geometry.block_bytes)) {
            let ranges = [(first, count)];
            let command = association.namespace.deallocate(&ranges);
            self.run(&association, REMOTE_OPERATION, command).await?;
        }
        Ok(())
    }

    /// As [`Doing::deallocate`].
    pub async fn write_zeroes(&self, deallocate: bool) -> Result<(), media::Error> {
        let (association, geometry, blocks) = self.begin().await?;
        let namespace = &association.namespace;
        if geometry.supports.write_zeroes {
            let frees = deallocate && geometry.supports.zeroes_deallocate;
            let how = if frees { Deallocate::Yes } else { Deallocate::No };
            let most = REMOTE_ZEROES / u64::from(geometry.block_bytes);
            for (first, count) in blocks.pieces(most.min(1 << 16)) {
                let command = namespace.write_zeroes(first, count, how, Fua::No);
                self.run(&association, REMOTE_OPERATION, command).await?;
            }
            return Ok(());
        }
        let most = most(&geometry);
        let zeroes: Rc<[u8]> = vec![0; usize32(low32(most) * geometry.block_bytes)].into();
        for (first, count) in blocks.pieces(most) {
            let mut data = Data::from(Rc::clone(&zeroes));
            let command = namespace.write(first, count, &mut data, Fua::No);
            self.run(&association, REMOTE_OPERATION, command).await?;
        }
        Ok(())
    }
}

impl Blocks {
    /// The range in pieces of at most so many blocks, which are less than 2^32.
    fn pieces(&self, most: u64) -> impl Iterator<Item = (u64, u32)> {
        let (end, most) = (self.first + self.count, most.max(1));
        let first = move |nth: u64| self.first + nth * most;
        let pieces = (0..self.count.div_ceil(most)).map(first);
        pieces.map(move |first| (first, low32((end - first).min(most))))
    }
}

/// Blocks that one command moves.
fn most(geometry: &Geometry) -> u64 {
    u64::from(geometry.transfer_max_bytes.min(REMOTE_TRANSFER) / geometry.block_bytes)
}

fn late(what: &str) -> Why {
    Why::gone(format!("{what} within {} s", REMOTE_OPERATION.as_secs()))
}
