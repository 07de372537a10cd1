//! `fl_queue`.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::time::Duration;

use client::{Command, Completion, Error, Queue};
use stdx::num::usize32;

use crate::border::{Code, FlError, array, given, given_mut, guard, invalid, shield, status_of};
use crate::namespace::FlNamespace;
use crate::types::{FlRange, Known, flags, ranges};

/// A queue, and the words of the completions reaped last.
pub struct FlQueue {
    queue: Queue,
    messages: Vec<CString>,
}

/// `fl_command`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FlCommand {
    pub opcode: u32,
    pub flags: u32,
    pub lba: u64,
    pub blocks: u32,
    pub range_count: u32,
    pub buffer: *mut c_void,
    pub ranges: *const FlRange,
    pub user_data: u64,
}
const _: () = assert!(size_of::<FlCommand>() == 48);

/// `fl_completion`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FlCompletion {
    pub user_data: u64,
    pub code: i32,
    pub status: u16,
    pub reserved: u16,
    pub message: *const c_char,
}
const _: () = assert!(size_of::<FlCompletion>() == 24);

/// `enum fl_opcode`.
mod op {
    pub use nvme::opcode::io::{
        COMPARE, COPY, DATASET_MANAGEMENT as DEALLOCATE, FLUSH, READ, VERIFY, WRITE, WRITE_ZEROES,
    };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_queue_new(
    ns: *mut FlNamespace,
    depth: u32,
    queue: *mut *mut FlQueue,
    error: *mut FlError,
) -> c_int {
    guard(error, || {
        // SAFETY: valid or NULL, by the header.
        let (ns, to) = unsafe { (given(ns, "ns")?, given_mut(queue, "queue")?) };
        let depth = u16::try_from(depth).unwrap_or(u16::MAX);
        let queue = ns.0.queue(depth)?;
        *to = Box::into_raw(Box::new(FlQueue { queue, messages: Vec::new() }));
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_queue_free(queue: *mut FlQueue) {
    if !queue.is_null() {
        // SAFETY: from `fl_queue_new`, and given back once.
        shield((), || drop(unsafe { Box::from_raw(queue) }));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_queue_submit(
    queue: *mut FlQueue,
    commands: *const FlCommand,
    count: usize,
    error: *mut FlError,
) -> c_int {
    guard(error, || {
        // SAFETY: valid or NULL, and `count` commands, by the header.
        let (queue, commands) = unsafe { (given_mut(queue, "queue")?, array(commands, count)?) };
        let queue = &mut queue.queue;
        let block = usize32(queue.geometry().block_bytes);
        for (taken, given) in (0..).zip(commands) {
            // SAFETY: the buffers are as the header has callers promise it, until the completion is reaped.
            let submitted = unsafe {
                command(given, block).and_then(|command| queue.submit_raw(given.user_data, command))
            };
            match submitted {
                Ok(()) => {}
                Err(Error::Full) => return Ok(taken),
                Err(why) if taken == 0 => return Err(why),
                Err(_) => return Ok(taken),
            }
        }
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    })
}

/// A command with the memory that its blocks take.
///
/// # Safety
/// Its ranges are valid.
unsafe fn command(given: &FlCommand, block: usize) -> Result<Command<NonNull<[u8]>>, Error> {
    let &FlCommand { lba, blocks, .. } = given;
    let opcode = u8::try_from(given.opcode).unwrap_or(u8::MAX);
    let known = match opcode {
        op::WRITE => Known::Fua,
        op::WRITE_ZEROES => Known::All,
        _ => Known::None,
    };
    let (fua, deallocate) = flags(given.flags, known)?;
    let buffer = || {
        let start = NonNull::new(given.buffer.cast::<u8>());
        let length = usize32(blocks) * block;
        let memory = start.map(|start| NonNull::slice_from_raw_parts(start, length));
        memory.ok_or_else(|| invalid("a command's buffer is NULL"))
    };
    // SAFETY: the caller's promise.
    let ranges = || unsafe { ranges(given.ranges, usize32(given.range_count)) };
    Ok(match opcode {
        op::FLUSH => Command::Flush,
        op::WRITE => Command::Write { lba, blocks, buffer: buffer()?, fua },
        op::READ => Command::Read { lba, blocks, buffer: buffer()? },
        op::COMPARE => Command::Compare { lba, blocks, buffer: buffer()? },
        op::WRITE_ZEROES => Command::WriteZeroes { lba, blocks, deallocate, fua },
        op::VERIFY => Command::Verify { lba, blocks },
        op::DEALLOCATE => Command::Deallocate(ranges()?),
        op::COPY => Command::Copy { sources: ranges()?, destination: lba },
        _ => return Err(invalid("there is no command of this opcode")),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_queue_commit(queue: *mut FlQueue) -> c_int {
    guard(ptr::null_mut(), || {
        // SAFETY: valid or NULL, by the header.
        unsafe { given_mut(queue, "queue") }?.queue.commit();
        Ok(0)
    })
}

/// Reaps with `reap`, which calls back for each completion, `room` at most.
///
/// # Safety
/// `queue` is valid or NULL, and there is room for so many completions.
unsafe fn reap(
    queue: *mut FlQueue,
    completions: *mut FlCompletion,
    room: usize,
    reap: impl FnOnce(&mut Queue, &mut dyn FnMut(Completion)) -> usize,
) -> c_int {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let FlQueue { queue, messages } = unsafe { given_mut(queue, "queue") }?;
        if completions.is_null() && room > 0 {
            return Err(invalid("there is nothing to write to"));
        }
        messages.clear();
        let mut next = 0;
        let mut done = |done: Completion| {
            let completion = told(&done, messages);
            // SAFETY: no more than `room` are reaped.
            unsafe { completions.add(next).write(completion) };
            next += 1;
        };
        let count = reap(queue, &mut done);
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    })
}

fn told(done: &Completion, messages: &mut Vec<CString>) -> FlCompletion {
    let user_data = done.user;
    let Err(error) = &done.result else {
        return FlCompletion { user_data, code: 0, status: 0, reserved: 0, message: ptr::null() };
    };
    let words = error.to_string().replace('\0', " ");
    let words = CString::new(words).unwrap_or_default();
    let message = words.as_ptr();
    messages.push(words);
    let (code, status) = (Code::of(error).raw(), status_of(error));
    FlCompletion { user_data, code, status, reserved: 0, message }
}

/// What a call can count.
const MOST: usize = c_int::MAX as usize;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_queue_poll(
    queue: *mut FlQueue,
    completions: *mut FlCompletion,
    room: usize,
) -> c_int {
    let room = room.min(MOST);
    // SAFETY: by the header.
    unsafe { reap(queue, completions, room, |queue, done| queue.poll_up_to(room, done)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_queue_wait(
    queue: *mut FlQueue,
    completions: *mut FlCompletion,
    room: usize,
    least: usize,
    timeout: i64,
) -> c_int {
    let room = room.min(MOST);
    let timeout = u64::try_from(timeout).ok().map(Duration::from_nanos);
    // SAFETY: by the header.
    unsafe {
        reap(queue, completions, room, |queue, done| queue.wait_up_to(least, room, timeout, done))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_queue_outstanding(queue: *const FlQueue) -> usize {
    // SAFETY: valid or NULL, by the header.
    shield(0, || unsafe { queue.as_ref() }.map_or(0, |queue| queue.queue.outstanding()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_queue_fd(queue: *const FlQueue) -> c_int {
    guard(ptr::null_mut(), || {
        // SAFETY: valid or NULL, by the header.
        Ok(unsafe { given(queue, "queue") }?.queue.as_fd().as_raw_fd())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_queue_arm(queue: *mut FlQueue) -> c_int {
    guard(ptr::null_mut(), || {
        // SAFETY: valid or NULL, by the header.
        Ok(c_int::from(unsafe { given_mut(queue, "queue") }?.queue.arm()))
    })
}
