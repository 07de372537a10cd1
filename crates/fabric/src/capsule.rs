//! What comes out of a connection and goes into it, at either end.

use core::ops::Range;

use nvme::cqe::Cqe;
use nvme::sqe::Sqe;

/// A command capsule as it arrived.
pub struct Capsule<'a> {
    pub sqe: &'a Sqe,
    /// In-capsule data, whole.
    pub data: &'a [u8],
    /// False when the data came damaged.
    pub digest_ok: bool,
    /// Where `data` is, for [`in_capsule`](crate::controller::Connection::in_capsule).
    pub place: CapsulePlace,
}

/// Where a capsule's data is, good for the turn in which it arrived.
#[derive(Clone, Debug)]
pub struct CapsulePlace {
    pub(crate) range: Range<usize>,
    pub(crate) turn: u64,
}

/// Whether the receiver of a capsule can take another at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    /// Hand over no more until the next call of [`receive`](crate::controller::Connection::receive).
    Pause,
}

/// Whether everything queued has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing is left to send.
    All,
    /// The connection takes no more for now.
    Blocked,
    /// A turn's share has been sent; others on this reactor should have theirs before more.
    Shared,
}

/// A part of a command's data that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The command.
    pub cid: u16,
    /// Where in its data the part begins, bytes.
    pub at: u32,
    /// Its length, bytes; never 0.
    pub length: u32,
}

/// Where the data of commands lies while it is sent.
pub trait Memory {
    /// The bytes of a queued piece: the same at each call until it is released.
    fn bytes(&self, piece: &Piece) -> &[u8];
    /// A piece has been queued.
    fn hold(&self, piece: &Piece);
    /// A queued piece has been sent to its end.
    fn release(&self, piece: &Piece);
}

/// No data at all.
impl Memory for () {
    fn bytes(&self, _: &Piece) -> &[u8] {
        &[]
    }

    fn hold(&self, _: &Piece) {}

    fn release(&self, _: &Piece) {}
}

/// Data of a command that lies in memory which a network card wrote.
#[derive(Clone, Copy)]
pub struct Placed<'a> {
    pub(crate) memory: &'a verbs::Memory,
    pub(crate) place: verbs::Place,
}

impl Placed<'_> {
    /// Its length, bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.place.length
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies as much of it as `into` has room for.
    pub fn copy_to(&self, into: &mut [u8]) {
        let length = self.len().min(into.len());
        self.memory.copy_out(self.place.offset, &mut into[..length]);
    }
}

impl core::fmt::Debug for Placed<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.place.fmt(out)
    }
}

/// Something a controller did.
#[derive(Debug)]
pub enum Event<'a> {
    /// A command's completion; its identifier is free again.
    Response { cqe: &'a Cqe },
    /// The next piece of a command's data; it goes to `offset` of its buffer.
    Data { cid: u16, offset: u32, bytes: &'a [u8] },
    /// All of a command's data, from its beginning.
    Placed { cid: u16, data: Placed<'a> },
    /// A run of pieces ended. `success`: the command is complete without a response, its identifier free again.
    /// `complete`: all the data it asked for has come; a `success` without it is a short answer. `digest_ok`: none of
    /// this command's data came damaged so far; otherwise the command failed, whatever its status.
    DataEnd { cid: u16, success: bool, complete: bool, digest_ok: bool },
    /// The controller asks for `length` bytes from `offset` of a command's data, to be sent by
    /// [`push_transfer`](crate::host::Connection::push_transfer). They are within what the command sends.
    Transfer { cid: u16, tag: u16, offset: u32, length: u32 },
}
