//! Wakers without memory: the 64 bits of a waker name reactor, task slot and generation.
//!
//! Cloning copies and dropping does nothing, so waking costs no reference count, and a waker may
//! outlive its task and its reactor: the generation then no longer fits and the wake is void (a
//! generation that wrapped around would be a spurious wake, which every future must bear anyway).
#![allow(unsafe_code, reason = "RawWaker is an unsafe contract")]

use crate::limits::waker_bits::{GENERATION, REACTOR, SLOT};
use crate::{core, mail};
use std::ptr;
use std::task::{RawWaker, RawWakerVTable, Waker};
use stdx::num::{low32, u64_of, usize64};

/// What a waker names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskRef {
    pub reactor: u32,
    pub slot: u32,
    pub generation: u32,
}

impl TaskRef {
    const fn pack(self) -> u64 {
        debug_assert!(self.slot < 1 << SLOT && self.reactor < 1 << REACTOR);
        self.slot as u64
            | (self.reactor as u64) << SLOT
            | (self.generation as u64) << (u64::BITS - GENERATION)
    }

    const fn unpack(bits: u64) -> Self {
        Self {
            slot: low32(bits) & ((1 << SLOT) - 1),
            reactor: low32(bits >> SLOT) & ((1 << REACTOR) - 1),
            generation: low32(bits >> (u64::BITS - GENERATION)),
        }
    }

    pub fn waker(self) -> Waker {
        let raw = RawWaker::new(ptr::without_provenance(usize64(self.pack())), &VTABLE);
        // SAFETY: the vtable's functions treat the data as 64 plain bits, never as an address, and
        // may be called from any thread any number of times: `wake` reaches the task through the
        // thread-local reactor: its own tasks directly, others by that reactor's ring to theirs; threads
        // without one go through a locked mailbox.
        unsafe { Waker::from_raw(raw) }
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, drop_nothing);

const fn clone(data: *const ()) -> RawWaker {
    RawWaker::new(data, &VTABLE)
}

fn wake(data: *const ()) {
    let task = TaskRef::unpack(u64_of(data.addr()));
    let by_reactor = core::try_with(|core| match core.id == task.reactor {
        true => core.executor.wake(task.slot, task.generation),
        false => core.peers.wake(task),
    });
    if by_reactor.is_none() {
        mail::wake(task);
    }
}

const fn drop_nothing(_: *const ()) {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packing_loses_nothing(
            slot in 0u32..1 << SLOT, reactor in 0u32..1 << REACTOR, generation: u32,
        ) {
            let task = TaskRef { reactor, slot, generation };
            prop_assert_eq!(TaskRef::unpack(task.pack()), task);
        }
    }

    #[test]
    fn a_waker_outlives_its_reactor() {
        let waker = crate::run(crate::Config::default(), async {
            std::future::poll_fn(|cx| std::task::Poll::Ready(cx.waker().clone())).await
        })
        .unwrap();
        waker.wake_by_ref();
        waker.wake();
    }
}
