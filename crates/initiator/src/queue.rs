//! One queue: commands out, completions in, on one connection.

use std::ops::Range;
use std::time::Duration;

use fabric::tcp::connect::{self, Connection};
use nvme::cqe::Cqe;
use nvme::sqe::{Sgl, Sqe};
use nvme::status::Status;
use nvme::tcp::host::Event;
use stdx::num::{u16_of, u32_of, usize32};

use crate::Error;

/// Where a command's data is. Positions and lengths are bytes of the queue's data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The command moves none.
    None,
    /// To the controller, from the area; stays as it is until the command completes.
    Send {
        /// Where it starts.
        at: usize,
        /// Length.
        length: u32,
    },
    /// From the controller, into the area.
    Receive {
        /// Where it starts.
        at: usize,
        /// Length.
        length: u32,
    },
    /// From the controller, and of no interest: it is received and counted, not kept.
    Discard {
        /// Length.
        length: u32,
    },
}

impl Data {
    fn length(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Send { length, .. } | Self::Receive { length, .. } | Self::Discard { length } => {
                length
            }
        }
    }

    fn range(at: usize, length: u32) -> Range<usize> {
        at..at + usize32(length)
    }
}

/// A command that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Its identifier, free again.
    pub cid: u16,
    /// Its completion. Made up with success when the controller used the SUCCESS flag, and with a transport
    /// status when data is missing or its digest wrong.
    pub cqe: Cqe,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    data: Data,
    /// All the data it asked for has come.
    complete: bool,
    digest_ok: bool,
}

/// A submission and completion queue pair over one connection. Command identifiers are `0..depth`.
pub struct Queue {
    connection: Connection,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    area: Box<[u8]>,
    in_capsule: u32,
}

impl Queue {
    /// A queue of `depth` commands whose data lies in an area of `area_bytes`; writes up to `in_capsule` bytes
    /// go in the command capsule. Connect is the caller's to send.
    pub(crate) fn new(
        connection: Connection,
        depth: u16,
        area_bytes: usize,
        in_capsule: u32,
    ) -> Self {
        let idle = Slot { data: Data::None, complete: false, digest_ok: true };
        Self {
            connection,
            slots: vec![idle; usize::from(depth)].into_boxed_slice(),
            free: (0..depth).rev().collect(),
            area: vec![0; area_bytes].into_boxed_slice(),
            in_capsule,
        }
    }

    /// Commands that can be outstanding.
    #[must_use]
    pub fn depth(&self) -> u16 {
        u16_of(self.slots.len())
    }

    /// Commands that are outstanding.
    #[must_use]
    pub fn outstanding(&self) -> u16 {
        u16_of(self.slots.len() - self.free.len())
    }

    /// The data area.
    #[must_use]
    pub fn area(&self) -> &[u8] {
        &self.area
    }

    /// The data area, for filling in what is to be sent.
    pub fn area_mut(&mut self) -> &mut [u8] {
        &mut self.area
    }

    /// What ICResp settled: digests, alignment, MAXH2CDATA.
    #[must_use]
    pub fn settled(&self) -> nvme::tcp::host::Initialized {
        self.connection.settled()
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
    /// When the queue is full, which [`Queue::vacant`] tells before, or the data lies outside of the area.
    #[inline]
    pub fn submit(&mut self, mut sqe: Sqe, data: Data) -> u16 {
        let Some(cid) = self.free.pop() else { panic!("submitted to a full queue") };
        sqe.cid = cid.into();
        let mut in_capsule = 0..0;
        sqe.dptr = match data {
            Data::Send { at, length } if length <= self.in_capsule => {
                in_capsule = Data::range(at, length);
                Sgl::in_capsule(0, length)
            }
            other => Sgl::transport(other.length()),
        };
        if let Data::Send { at, length } | Data::Receive { at, length } = data {
            assert!(Data::range(at, length).end <= self.area.len(), "data outside of the area");
        }
        let nothing_due = !matches!(data, Data::Receive { .. } | Data::Discard { .. });
        self.slots[usize::from(cid)] = Slot { data, complete: nothing_due, digest_ok: true };
        self.connection.push_capsule(&sqe, &self.area, in_capsule);
        cid
    }

    /// Sends what is queued without waiting for anything.
    ///
    /// # Errors
    /// [`Error::Transport`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.connection.flush(&self.area)?;
        Ok(())
    }

    /// Sends what is queued and waits until something has been received. [`Queue::poll`] says what.
    ///
    /// # Errors
    /// [`Error::Transport`].
    pub async fn wait(&mut self) -> Result<(), Error> {
        Ok(self.connection.ready(&self.area).await?)
    }

    /// Handles what has been received: calls `done` for each completed command, with the data area.
    ///
    /// # Errors
    /// [`Error::Transport`]. The queue is of no use after that.
    #[inline]
    pub fn poll(&mut self, mut done: impl FnMut(&mut [u8], Completion)) -> Result<(), Error> {
        while let Some(event) = self.connection.next_event()? {
            match event {
                Event::Data { cid, offset, bytes } => {
                    if let Data::Receive { at, .. } = self.slots[usize::from(cid)].data {
                        let start = at + usize32(offset);
                        self.area[start..start + bytes.len()].copy_from_slice(bytes);
                    }
                }
                Event::DataEnd { cid, success, complete, digest_ok, .. } => {
                    let slot = &mut self.slots[usize::from(cid)];
                    slot.complete = complete;
                    slot.digest_ok = digest_ok;
                    if success {
                        let cqe = Cqe::new(cid, Status::SUCCESS);
                        Self::finish(slot, &mut self.free, &mut self.area, cqe, &mut done);
                    }
                }
                Event::Response { cqe } => {
                    let cqe = *cqe;
                    let slot = &mut self.slots[usize::from(cqe.cid.get())];
                    Self::finish(slot, &mut self.free, &mut self.area, cqe, &mut done);
                }
                Event::ReadyToTransfer { cid, ttag, offset, length } => {
                    self.transfer(cid, ttag, offset, length)?;
                }
                Event::Terminated(told) => {
                    return Err(connect::Error::Terminated(told.to_string()).into());
                }
                Event::Initialized(_) => return Err(Error::Answer("a second ICResp")),
            }
        }
        Ok(())
    }

    /// Completes a command. A success with data missing or damaged is none.
    #[inline]
    fn finish(
        slot: &mut Slot,
        free: &mut Vec<u16>,
        area: &mut [u8],
        mut cqe: Cqe,
        done: &mut impl FnMut(&mut [u8], Completion),
    ) {
        if cqe.status().is_success() {
            if !slot.digest_ok {
                cqe.status = Status::TRANSIENT_TRANSPORT_ERROR.to_field().into();
            } else if !slot.complete {
                cqe.status = Status::DATA_TRANSFER_ERROR.to_field().into();
            }
        }
        let cid = cqe.cid.get();
        free.push(cid);
        done(area, Completion { cid, cqe });
    }

    /// Answers an R2T. The machine has checked it against the length of the command's data.
    fn transfer(&mut self, cid: u16, ttag: u16, offset: u32, length: u32) -> Result<(), Error> {
        let Data::Send { at, .. } = self.slots[usize::from(cid)].data else {
            return Err(Error::Answer("an R2T for a command that sends nothing"));
        };
        let range = Data::range(at + usize32(offset), length);
        self.connection.push_h2c_data(cid, ttag, offset, &self.area, range);
        Ok(())
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
    ) -> Result<Cqe, Error> {
        if self.vacant().is_none() {
            return Err(Error::Unsupported("the queue is full".to_owned()));
        }
        let cid = self.submit(sqe, data);
        let run = async {
            let mut answer = None;
            while answer.is_none() {
                self.wait().await?;
                self.poll(|_, completion| {
                    if completion.cid == cid {
                        answer = Some(completion.cqe);
                    }
                })?;
            }
            answer.ok_or(Error::Timeout { command, after })
        };
        match reactor::timeout(after, run).await {
            Ok(result) => result,
            Err(reactor::Elapsed) => Err(Error::Timeout { command, after }),
        }
    }

    /// What goes in the capsule from now on, bytes.
    pub(crate) fn set_in_capsule(&mut self, bytes: u32) {
        self.in_capsule = bytes;
    }

    /// Copies `bytes` to the start of the data area and describes them as data to send.
    ///
    /// # Panics
    /// When the area is smaller.
    pub fn stage(&mut self, bytes: &[u8]) -> Data {
        self.area[..bytes.len()].copy_from_slice(bytes);
        Data::Send { at: 0, length: u32_of(bytes.len()) }
    }
}
