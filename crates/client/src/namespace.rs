//! A namespace for any thread: each function blocks until it is done.
#![allow(unsafe_code, reason = "the caller's memory crosses by its address")]

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use initiator::{Deallocate, Fua, Geometry};

use crate::command::Command;
use crate::limits::{BLOCKS_MAX, KEPT_QUEUE_DEPTH, QUEUES_KEPT, RANGES_MAX};
use crate::queue::{By, Queue};
use crate::thread::{Thread, lock};
use crate::window::Window;
use crate::{Error, Options};

/// A namespace of a remote subsystem. Cloning is cheap and shares it; all of it may be used from many threads at
/// once. Its thread ends with the last handle and queue.
///
/// LBAs and counts are in logical blocks. Data may be of any length in whole blocks: it is cut into as many
/// commands as it takes, which are in flight together. When one of them fails, the others may have been executed.
///
/// A function returns when its commands have ended: as long as the target is away, [`Options`] says when that is.
#[derive(Clone)]
pub struct Namespace {
    inner: Arc<Inner>,
}

struct Inner {
    /// Queues for blocking calls that nobody uses now. They go before the thread does.
    queues: Mutex<Vec<Queue>>,
    thread: Arc<Thread>,
}

impl std::fmt::Debug for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let remote = &self.inner.thread.options.remote;
        f.debug_struct("Namespace").field("subnqn", &remote.subnqn).finish_non_exhaustive()
    }
}

impl Namespace {
    /// Connects, identifies namespace `nsid`, and keeps the association alive.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn open(options: &Options, nsid: u32) -> Result<Self, Error> {
        let thread = Arc::new(Thread::start(options, nsid)?);
        Ok(Self { inner: Arc::new(Inner { queues: Mutex::default(), thread }) })
    }

    /// What the namespace is, as far as is known now: it changes when the namespace is resized, or another
    /// controller offers other limits.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.inner.thread.geometry()
    }

    /// Writes that went by a direct write window ([`Options::window`]), and needed no command.
    #[must_use]
    pub fn direct_writes(&self) -> u64 {
        self.inner.thread.window.as_ref().map_or(0, Window::writes)
    }

    /// Its window, which tests put one into.
    #[cfg(test)]
    pub(crate) fn window(&self) -> Option<&Window> {
        self.inner.thread.window.as_ref()
    }

    /// A queue for `depth` commands in flight.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a depth that no queue has, [`Error::System`], [`Error::Closed`].
    pub fn queue(&self, depth: u16) -> Result<Queue, Error> {
        Queue::new(&self.inner.thread, depth, depth == 1, By::WindowFirst)
    }

    /// Reads from block `lba` on until `data` is full.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn read(&self, lba: u64, data: &mut [u8]) -> Result<(), Error> {
        // SAFETY: `data` is ours alone until this returns.
        unsafe {
            self.transfer(lba, NonNull::from(data), |lba, blocks, buffer| Command::Read {
                lba,
                blocks,
                buffer,
            })
        }
    }

    /// Writes `data` to block `lba` and those that follow.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn write(&self, lba: u64, data: &[u8], fua: Fua) -> Result<(), Error> {
        if self.inner.thread.window.as_ref().is_some_and(|window| window.write(lba, data)) {
            return Ok(());
        }
        // SAFETY: nobody changes `data` until this returns, and nothing is read into it.
        unsafe {
            self.transfer(lba, NonNull::from(data), |lba, blocks, buffer| Command::Write {
                lba,
                blocks,
                buffer,
                fua,
            })
        }
    }

    /// Compares the blocks from `lba` on with `data`: a difference is an error of status Compare Failure.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn compare(&self, lba: u64, data: &[u8]) -> Result<(), Error> {
        // SAFETY: as in `write`.
        unsafe {
            self.transfer(lba, NonNull::from(data), |lba, blocks, buffer| Command::Compare {
                lba,
                blocks,
                buffer,
            })
        }
    }

    /// Makes every write that has completed durable.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn flush(&self) -> Result<(), Error> {
        self.order([Command::Flush])
    }

    /// Writes zeroes over `blocks` from `lba` on.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn write_zeroes(
        &self,
        lba: u64,
        blocks: u64,
        deallocate: Deallocate,
        fua: Fua,
    ) -> Result<(), Error> {
        self.order(pieces(lba, blocks)?.map(move |(lba, blocks)| Command::WriteZeroes {
            lba,
            blocks,
            deallocate,
            fua,
        }))
    }

    /// Has the controller read `blocks` from `lba` on: an error if they cannot be read.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn verify(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        self.order(pieces(lba, blocks)?.map(|(lba, blocks)| Command::Verify { lba, blocks }))
    }

    /// Tells the controller that the blocks of `ranges` (first block and count) are not needed.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn deallocate(&self, ranges: &[(u64, u32)]) -> Result<(), Error> {
        self.order(ranges.chunks(RANGES_MAX).map(|some| Command::Deallocate(some.into())))
    }

    /// Copies the blocks of `sources` (first block and count), one behind the other, to `destination` on, with one
    /// command: within the limits that [`Geometry::copy`] tells.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn copy(&self, sources: &[(u64, u32)], destination: u64) -> Result<(), Error> {
        self.order([Command::Copy { sources: sources.into(), destination }])
    }

    /// Ends the association in order, as the end of the last handle does, and tells how that went. Commands in
    /// flight end with an error, and so do all that follow.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub fn shut_down(&self) -> Result<(), Error> {
        let ended =
            self.inner.thread.ask(|namespace| async move { namespace.shut_down().await })?;
        Ok(ended?)
    }

    /// Runs as many commands as it takes for all of `data`.
    ///
    /// # Safety
    /// Until this returns, `data` is valid and nobody else's; for reads only unless the commands are Reads.
    unsafe fn transfer(
        &self,
        lba: u64,
        data: NonNull<[u8]>,
        command: impl Fn(u64, u32, NonNull<[u8]>) -> Command<NonNull<[u8]>>,
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let block = stdx::num::usize32(geometry.block_bytes);
        if !data.len().is_multiple_of(block) {
            let length = data.len();
            return Err(Error::invalid(format!("{length} bytes are not whole blocks of {block}")));
        }
        let most = stdx::num::usize32(geometry.transfer_max_bytes);
        let piece = |at: usize| {
            let length = most.min(data.len() - at);
            // SAFETY: `at` is less than the length of `data`.
            let start = unsafe { data.cast::<u8>().add(at) };
            let blocks = stdx::num::u32_of(length / block);
            let first = lba.saturating_add(stdx::num::u64_of(at / block));
            command(first, blocks, NonNull::slice_from_raw_parts(start, length))
        };
        let commands = (0..data.len()).step_by(most).map(piece);
        // SAFETY: the pieces are parts of `data` that do not overlap.
        unsafe { self.run(commands) }
    }

    /// Runs commands that move no data.
    fn order(
        &self,
        commands: impl IntoIterator<Item = Command<NonNull<[u8]>>>,
    ) -> Result<(), Error> {
        // SAFETY: they bring no memory.
        unsafe { self.run(commands) }
    }

    /// Runs commands until all have ended, or the first one has failed and those in flight have ended.
    ///
    /// # Safety
    /// As [`Queue::submit_raw`], until this returns.
    unsafe fn run(
        &self,
        commands: impl IntoIterator<Item = Command<NonNull<[u8]>>>,
    ) -> Result<(), Error> {
        let kept = lock(&self.inner.queues).pop();
        let mut queue = match kept {
            Some(queue) => queue,
            None => Queue::new(&self.inner.thread, KEPT_QUEUE_DEPTH, true, By::Commands)?,
        };
        // SAFETY: the caller's promise. However that ends, nothing is outstanding then.
        let result = unsafe { run(&mut queue, commands) };
        let mut queues = lock(&self.inner.queues);
        if queues.len() < QUEUES_KEPT && !matches!(result, Err(Error::Closed)) {
            queues.push(queue);
        }
        result
    }
}

/// # Safety
/// As [`Queue::submit_raw`], until this returns.
unsafe fn run(
    queue: &mut Queue,
    commands: impl IntoIterator<Item = Command<NonNull<[u8]>>>,
) -> Result<(), Error> {
    let mut result = Ok(());
    let mut note = |ended: Result<(), Error>| {
        if result.is_ok() {
            result = ended;
        }
        result.is_err()
    };
    for command in commands {
        // SAFETY: the caller's promise.
        let mut failed = unsafe { queue.submit_raw(0, command) }.is_err_and(|why| note(Err(why)));
        if queue.outstanding() == queue.depth() {
            queue.wait(1, None, |done| failed |= note(done.result));
        }
        if failed {
            break;
        }
    }
    queue.wait(usize::MAX, None, |done| {
        note(done.result);
    });
    result
}

/// `blocks` from `lba` on, in pieces that one command can name.
fn pieces(lba: u64, blocks: u64) -> Result<impl Iterator<Item = (u64, u32)>, Error> {
    let end = lba.checked_add(blocks);
    let end = end.ok_or_else(|| Error::invalid("the range goes beyond any namespace"))?;
    let step = stdx::num::usize32(BLOCKS_MAX);
    Ok((lba..end)
        .step_by(step)
        .map(move |at| (at, stdx::num::low32((end - at).min(u64::from(BLOCKS_MAX))))))
}
