//! One queue: commands out, completions in, on one connection.

mod data;

use std::cell::Cell;
use std::future::Future;
use std::task::{Context, Poll};
use std::time::Duration;

use fabric::host::{self, Connection, Event, Flushed, Piece};
use nvme::cqe::Cqe;
use nvme::sqe::{Sgl, Sqe};
use nvme::status::Status;
use reactor::Spun;
use stdx::num::{u16_of, usize32};

use crate::Error;
use crate::poll_backoff::PollBackoff;
pub use data::{Data, Memory};

/// A command that is done.
#[derive(Debug)]
pub struct Completion {
    /// Its identifier, free again.
    pub cid: u16,
    /// Its completion. Made up with success when the controller used the SUCCESS flag, and with a transport
    /// status when data is missing or its digest wrong.
    pub cqe: Cqe,
    /// Its data, given back.
    pub data: Data,
}

/// What a command identifier stands for.
#[derive(Debug, Default)]
struct Slot {
    opcode: u8,
    data: Data,
    /// Pieces of the data that are queued and not sent.
    unsent: Cell<u32>,
    /// All the data it asked for has come.
    complete: bool,
    digest_bad: bool,
}

/// By command identifier.
#[derive(Debug, Default)]
struct Slots(Box<[Slot]>);

impl Slots {
    #[inline]
    fn of(&mut self, cid: u16) -> &mut Slot {
        &mut self.0[usize::from(cid)]
    }
}

impl host::Memory for Slots {
    #[inline]
    fn bytes(&self, piece: &Piece) -> &[u8] {
        &self.0[usize::from(piece.cid)].data.bytes()[usize32(piece.at)..][..usize32(piece.length)]
    }

    #[inline]
    fn hold(&self, piece: &Piece) {
        let unsent = &self.0[usize::from(piece.cid)].unsent;
        unsent.set(unsent.get() + 1);
    }

    #[inline]
    fn release(&self, piece: &Piece) {
        let unsent = &self.0[usize::from(piece.cid)].unsent;
        unsent.set(unsent.get() - 1);
    }
}

/// A submission and completion queue pair over one connection. Command identifiers are `0..depth`.
pub struct Queue {
    connection: Connection,
    slots: Slots,
    free: Vec<u16>,
    /// Completions of commands whose data the controller had not taken yet; they hold until it is sent.
    early: Vec<Cqe>,
    in_capsule: u32,
    /// Data that the controller asked for has been queued since this was last looked at.
    asked: bool,
    /// Where completions are waited for they are looked for, so long.
    spin: Option<Duration>,
    backoff: PollBackoff,
}

impl Queue {
    /// A queue of `depth` commands; writes up to `in_capsule` bytes go in the command capsule. Connect is the
    /// caller's to send.
    pub(crate) fn new(connection: Connection, depth: u16, in_capsule: u32) -> Self {
        Self {
            connection,
            slots: Slots((0..depth).map(|_| Slot::default()).collect()),
            free: (0..depth).rev().collect(),
            early: Vec::new(),
            in_capsule,
            asked: false,
            spin: None,
            backoff: PollBackoff::default(),
        }
    }

    /// Looks for completions where they are waited for, for so long ([`crate::Optimization::Polled`]).
    pub(crate) fn set_spin(&mut self, spin: Option<Duration>) {
        self.spin = spin;
    }

    /// Sends each command by a call of its own, or all that is queued by one. Nothing may be queued.
    pub(crate) fn send_apart(&mut self, apart: bool) {
        self.connection.send_apart(apart);
    }

    /// Commands that can be outstanding.
    #[must_use]
    pub fn depth(&self) -> u16 {
        u16_of(self.slots.0.len())
    }

    /// Commands that are outstanding.
    #[must_use]
    pub fn outstanding(&self) -> u16 {
        u16_of(self.slots.0.len() - self.free.len())
    }

    /// The command identifier that [`Queue::submit`] takes next; `None` while the queue is full.
    #[must_use]
    pub fn vacant(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// Queues a command; [`Queue::wait`] or [`Queue::flush`] sends it. Sets the entry's identifier and data
    /// pointer. Returns the identifier.
    ///
    /// # Panics
    /// When the queue is full, which [`Queue::vacant`] tells before, or the data's memory is shorter than it.
    #[inline]
    pub fn submit(&mut self, mut sqe: Sqe, data: Data) -> u16 {
        let Some(cid) = self.free.pop() else { panic!("submitted to a full queue") };
        assert!(data.is_sound(), "data outside of its memory");
        sqe.cid = cid.into();
        let length = data.length();
        let mut in_capsule = 0;
        sqe.dptr = match data {
            Data::Send { .. } if length <= self.in_capsule => {
                in_capsule = length;
                Sgl::in_capsule(0, length)
            }
            _ => Sgl::transport(length),
        };
        let slot = self.slots.of(cid);
        slot.complete = !matches!(data, Data::Receive { .. } | Data::Discard { .. });
        slot.digest_bad = false;
        slot.opcode = sqe.opcode;
        slot.data = data;
        self.connection.push_capsule(&sqe, &self.slots, in_capsule);
        cid
    }

    /// Sends what is queued without waiting for anything.
    ///
    /// # Errors
    /// [`Error::Transport`].
    pub fn flush(&mut self) -> Result<Flushed, Error> {
        Ok(self.connection.flush(&self.slots)?)
    }

    /// Whether nothing is left to send.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.connection.is_flushed()
    }

    /// Waits until the socket takes bytes again. Borrows nothing.
    pub(crate) fn writable(&self) -> impl Future<Output = Result<(), Error>> + 'static {
        let writable = self.connection.writable();
        async move { Ok(writable.await?) }
    }

    /// Sends what is queued and waits until something has been received. [`Queue::poll`] says what.
    ///
    /// # Errors
    /// [`Error::Transport`].
    pub async fn wait(&mut self) -> Result<(), Error> {
        if !self.early.is_empty() {
            return Ok(self.connection.send_all(&self.slots).await?);
        }
        if self.spin.is_some() {
            match self.flush()? {
                Flushed::All => {
                    let looked = self.look_until(|queue| {
                        queue.look().map_or_else(|e| Some(Err(e)), |came| came.then_some(Ok(())))
                    });
                    if let Some(looked) = looked {
                        return looked;
                    }
                }
                Flushed::Shared => reactor::yield_now().await,
                Flushed::Blocked => {}
            }
        }
        Ok(self.connection.ready(&self.slots).await?)
    }

    /// Calls `look` until it finds something, as long as this queue looks for its completions, that pays and the
    /// reactor has nothing else to do.
    #[inline]
    pub(crate) fn look_until<T>(
        &mut self,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let most = self.spin?;
        if !self.backoff.looks() {
            return None;
        }
        match reactor::spin(most, || look(self)) {
            Spun::Found(found) => {
                self.backoff.found();
                Some(found)
            }
            Spun::InVain => {
                self.backoff.in_vain();
                None
            }
            Spun::Stopped => None,
        }
    }

    /// Receives what is there, sends nothing. [`Queue::poll`] says what came.
    ///
    /// # Errors
    /// [`Error::Transport`].
    pub(crate) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.connection.poll_receive(cx).map_err(Error::from)
    }

    /// Receives what is there without waiting, beside a task in [`Queue::poll_receive`]; whether there was
    /// anything.
    ///
    /// # Errors
    /// [`Error::Transport`].
    #[inline]
    pub(crate) fn look(&mut self) -> Result<bool, Error> {
        Ok(self.connection.look()?)
    }

    /// Whether data that the controller asked for has been queued since this was last asked.
    pub(crate) fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }

    /// System calls made to send.
    #[must_use]
    pub fn sends(&self) -> u64 {
        self.connection.sends()
    }

    /// The network card's queue (NAPI identifier) that data comes by; `None` within this machine.
    #[must_use]
    pub fn napi_id(&self) -> Option<u32> {
        self.connection.napi_id().ok().flatten()
    }

    /// Whether a completion waits for its data to be sent. Call [`Queue::poll`] after each flush then.
    pub(crate) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Handles what has been received: calls `done` for each completed command.
    ///
    /// # Errors
    /// [`Error::Transport`]. The queue is of no use after that.
    #[inline]
    pub fn poll(&mut self, mut done: impl FnMut(Completion)) -> Result<(), Error> {
        if !self.early.is_empty() {
            self.settle_early(&mut done);
        }
        while let Some(event) = self.connection.next_event()? {
            match event {
                Event::Data { cid, offset, bytes } => {
                    if let Data::Receive { memory, .. } = &mut self.slots.of(cid).data {
                        let start = usize32(offset);
                        memory.bytes_mut()[start..start + bytes.len()].copy_from_slice(bytes);
                    }
                }
                Event::Placed { cid, data } => {
                    if let Data::Receive { memory, length } = &mut self.slots.of(cid).data {
                        data.copy_to(&mut memory.bytes_mut()[..usize32(*length)]);
                    }
                }
                Event::DataEnd { cid, success, complete, digest_ok } => {
                    let slot = self.slots.of(cid);
                    slot.complete = complete;
                    slot.digest_bad = !digest_ok;
                    if success {
                        self.finish(Cqe::new(cid, Status::SUCCESS), &mut done);
                    }
                }
                Event::Response { cqe } => {
                    let cqe = *cqe;
                    self.finish(cqe, &mut done);
                }
                Event::Transfer { cid, tag, offset, length } => {
                    self.transfer(tag, Piece { cid, at: offset, length })?;
                }
            }
        }
        Ok(())
    }

    /// Completes a command. A success with data missing or damaged is none.
    #[inline]
    fn finish(&mut self, mut cqe: Cqe, done: &mut impl FnMut(Completion)) {
        let cid = cqe.cid.get();
        let slot = self.slots.of(cid);
        if slot.unsent.get() > 0 {
            self.early.push(cqe);
            return;
        }
        if cqe.status().is_success() {
            if slot.digest_bad {
                cqe.status = Status::TRANSIENT_TRANSPORT_ERROR.to_field().into();
            } else if !slot.complete {
                cqe.status = Status::DATA_TRANSFER_ERROR.to_field().into();
            }
        }
        let data = std::mem::take(&mut slot.data);
        self.free.push(cid);
        done(Completion { cid, cqe, data });
    }

    /// Completes those commands whose data has been sent by now.
    #[cold]
    fn settle_early(&mut self, done: &mut impl FnMut(Completion)) {
        for cqe in std::mem::take(&mut self.early) {
            self.finish(cqe, done);
        }
    }

    /// Queues data that the controller asks for.
    fn transfer(&mut self, tag: u16, piece: Piece) -> Result<(), Error> {
        let Data::Send { .. } = self.slots.of(piece.cid).data else {
            return Err(Error::Answer("a transfer for a command that sends nothing"));
        };
        self.connection.push_transfer(tag, piece, &self.slots);
        self.asked = true;
        Ok(())
    }

    /// Ends the queue: gives back identifier, opcode and data of the commands that were outstanding. Nothing is
    /// received into it any more.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = (u16, u8, Data)> {
        let slots = std::mem::take(&mut self.slots);
        let free = std::mem::take(&mut self.free);
        let taken = (0..).zip(slots.0).filter(move |(cid, _)| !free.contains(cid));
        taken.map(|(cid, slot)| (cid, slot.opcode, slot.data))
    }

    /// Runs one command to its completion, at most for `after`. For queues on which nothing else is
    /// outstanding that the caller cares for: other completions are dropped.
    ///
    /// # Errors
    /// [`Error::Transport`], [`Error::Timeout`]. The completion's status is the caller's to judge.
    pub async fn execute(
        &mut self,
        command: &'static str,
        sqe: Sqe,
        data: Data,
        after: Duration,
    ) -> Result<(Cqe, Data), Error> {
        if self.vacant().is_none() {
            return Err(Error::Unsupported("the queue is full".to_owned()));
        }
        let cid = self.submit(sqe, data);
        let run = async {
            loop {
                self.wait().await?;
                let mut answer = None;
                self.poll(|completion| {
                    if completion.cid == cid {
                        answer = Some((completion.cqe, completion.data));
                    }
                })?;
                if let Some(answer) = answer {
                    return Ok(answer);
                }
            }
        };
        match reactor::timeout(after, run).await {
            Ok(result) => result,
            Err(reactor::Elapsed) => Err(Error::Timeout { command, after }),
        }
    }

    /// Has one command less outstanding from now on. None may be.
    pub(crate) fn shorten(&mut self) {
        debug_assert_eq!(self.outstanding(), 0, "a queue is shortened before it is used");
        let depth = self.depth() - 1;
        self.slots = Slots((0..depth).map(|_| Slot::default()).collect());
        self.free = (0..depth).rev().collect();
    }

    /// What goes in the capsule from now on, bytes.
    pub(crate) fn set_in_capsule(&mut self, bytes: u32) {
        self.in_capsule = bytes;
    }
}
