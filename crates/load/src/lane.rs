//! Where a worker's commands go: a queue of a controller, or a file on this machine.

use std::cell::RefCell;
use std::rc::Rc;

use initiator::{Completion, Data, Error, Queue};
use nvme::cqe::Cqe;
use nvme::opcode::io;
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::buffer::{self, Buffer};
use reactor::file::File;
use reactor::sync::Notify;
use stdx::num::{u16_of, usize32};

/// Takes commands and gives completions; what differs is behind it.
#[allow(
    clippy::large_enum_variant,
    reason = "a worker has one, and a queue is used for each command"
)]
pub enum Lane {
    /// A queue of an NVMe/TCP controller.
    Fabric(Queue),
    /// A file or block device, through the ring of the same reactor.
    File(FileQueue),
}

impl Lane {
    /// Commands that can be outstanding.
    pub fn depth(&self) -> u16 {
        match self {
            Self::Fabric(queue) => queue.depth(),
            Self::File(queue) => u16_of(queue.slots.len()),
        }
    }

    /// Commands that are outstanding.
    #[inline]
    pub fn outstanding(&self) -> u16 {
        match self {
            Self::Fabric(queue) => queue.outstanding(),
            Self::File(queue) => u16_of(queue.slots.len() - queue.free.len()),
        }
    }

    /// The command identifier that [`Lane::submit`] takes next; `None` while it is full.
    #[inline]
    pub fn vacant(&self) -> Option<u16> {
        match self {
            Self::Fabric(queue) => queue.vacant(),
            Self::File(queue) => queue.free.last().copied(),
        }
    }

    /// Starts a Read or a Write.
    #[inline]
    pub fn submit(&mut self, sqe: Sqe, data: Data) {
        match self {
            Self::Fabric(queue) => {
                queue.submit(sqe, data);
            }
            Self::File(queue) => queue.submit(&sqe, data),
        }
    }

    /// Waits until [`Lane::poll`] has something to say.
    pub async fn wait(&mut self) -> Result<(), Error> {
        match self {
            Self::Fabric(queue) => queue.wait().await,
            Self::File(queue) => {
                queue.wait().await;
                Ok(())
            }
        }
    }

    /// Calls `done` for each completed command.
    #[inline]
    pub fn poll(&mut self, done: impl FnMut(Completion)) -> Result<(), Error> {
        match self {
            Self::Fabric(queue) => queue.poll(done),
            Self::File(queue) => {
                queue.poll(done);
                Ok(())
            }
        }
    }
}

/// A command that the file has answered.
struct Done {
    cid: u16,
    /// Whether all its bytes were moved.
    whole: bool,
    buffer: Option<Buffer>,
    data: Data,
}

#[derive(Default)]
struct Inbox {
    done: RefCell<Vec<Done>>,
    notify: Notify,
}

/// Commands to a file, each a task and an operation of the ring.
pub struct FileQueue {
    file: File,
    logical: u32,
    /// A buffer for each command: the ring wants memory that is aligned and its own.
    slots: Vec<Option<Buffer>>,
    free: Vec<u16>,
    inbox: Rc<Inbox>,
}

impl FileQueue {
    /// For `depth` commands of `largest` bytes at most; addresses are in blocks of `logical` bytes.
    pub async fn new(file: File, logical: u32, depth: u16, largest: u32) -> Self {
        let mut slots = Vec::with_capacity(depth.into());
        for _ in 0..depth {
            slots.push(Some(buffer::alloc(usize32(largest)).await));
        }
        let free = (0..depth).rev().collect();
        Self { file, logical, slots, free, inbox: Rc::default() }
    }

    fn submit(&mut self, sqe: &Sqe, data: Data) {
        let Some(cid) = self.free.pop() else { panic!("submitted to a full queue") };
        let Some(mut buffer) = self.slots[usize::from(cid)].take() else {
            panic!("a free command has its buffer")
        };
        let lba = u64::from(sqe.cdw10.get()) | u64::from(sqe.cdw11.get()) << 32;
        let length = usize32((sqe.cdw12.get() + 1) * self.logical);
        let offset = lba * u64::from(self.logical);
        let write = sqe.opcode == io::WRITE;
        buffer.show(0, length);
        if write {
            buffer.copy_from_slice(data.bytes());
        }
        let (file, inbox) = (self.file.clone(), Rc::clone(&self.inbox));
        reactor::spawn(async move {
            let (result, buffer) = if write {
                file.write_at(buffer, offset, false).await
            } else {
                file.read_at(buffer, offset).await
            };
            let whole = result.is_ok_and(|moved| moved == length);
            inbox.done.borrow_mut().push(Done { cid, whole, buffer, data });
            inbox.notify.notify();
        });
    }

    async fn wait(&self) {
        while self.inbox.done.borrow().is_empty() {
            self.inbox.notify.notified().await;
        }
    }

    fn poll(&mut self, mut done: impl FnMut(Completion)) {
        for Done { cid, whole, buffer, mut data } in self.inbox.done.take() {
            if let (Data::Receive { memory, length }, Some(buffer)) = (&mut data, &buffer) {
                memory.bytes_mut()[..usize32(*length)].copy_from_slice(buffer);
            }
            let status = if whole { Status::SUCCESS } else { Status::INTERNAL_ERROR };
            if buffer.is_some() {
                self.slots[usize::from(cid)] = buffer;
                self.free.push(cid);
            }
            done(Completion { cid, cqe: Cqe::new(cid, status), data });
        }
    }
}
