//! Mapped memory that cannot be reached: a poisoned line, a file that was cut short. The processor
//! says so with a signal in the midst of a copy, which would end the process and everything it serves.
//!
//! Whoever copies notes which mapping it touches. The signal's handler puts memory of no file in the
//! place of the page that cannot be had, so that the copy goes on, and leaves word; the copy then fails
//! as any other operation on a medium does. So do those of other cores that met the new page and no signal: what is to be
//! replaced is marked before, and everybody looks for marks behind what they copied.
#![allow(unsafe_code, reason = "signals, and memory that is replaced under who uses it")]

use super::marks::Marks;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Once, OnceLock};

/// What a copy notes while it runs.
struct Note {
    base: usize,
    len: usize,
    /// Where it is kept which pages of this mapping were replaced.
    marks: *const Marks,
    hit: AtomicBool,
    /// Of whoever called this one.
    outer: *const Note,
}

thread_local! {
    /// Made without a destructor and without code of its own: a signal's handler looks at it.
    static NOTE: Cell<*const Note> = const { Cell::new(ptr::null()) };
}

/// Which pages of a mapping could not be reached: they hold nothing any more.
#[derive(Debug)]
pub(super) struct Damage(Marks);

impl Damage {
    pub fn new(len: usize) -> Self {
        install();
        Self(Marks::new(len.div_ceil(page_size())))
    }

    /// Runs `work`, which touches these bytes of the mapping of `len` bytes from `base` on, and no others; `None` when
    /// something of them could not be reached, now or before, by whichever core.
    #[inline]
    pub fn watch<R>(
        &self,
        (base, len): (*const u8, usize),
        touches: Range<usize>,
        work: impl FnOnce() -> R,
    ) -> Option<R> {
        if self.is_in(&touches) {
            return None;
        }
        let outer = NOTE.get();
        let marks = &raw const self.0;
        let note = Note { base: base.addr(), len, marks, hit: AtomicBool::new(false), outer };
        let _back = Back(outer);
        NOTE.set(&raw const note);
        // The handler runs between any two instructions of `work`, of which the compiler knows nothing.
        compiler_fence(Ordering::SeqCst);
        let value = work();
        compiler_fence(Ordering::SeqCst);
        // Another core may have met it, and this one what took its place.
        (!note.hit.load(Ordering::Relaxed) && !self.is_in(&touches)).then_some(value)
    }

    /// Whether anything of these bytes was lost.
    #[inline]
    fn is_in(&self, bytes: &Range<usize>) -> bool {
        self.0.has_any() && {
            let page = page_size();
            self.0.has(bytes.start / page..bytes.end.div_ceil(page))
        }
    }
}

/// Puts the note before back, also when `work` panics.
struct Back(*const Note);

impl Drop for Back {
    fn drop(&mut self) {
        NOTE.set(self.0);
    }
}

/// What this process did with the signal before: it may be a program that uses this as a library, and has faults of its
/// own to handle.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeroes is a valid sigaction, and the handler has the signature that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_signal;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) == 0 {
                BEFORE.get_or_init(|| before);
            }
        }
    });
}

/// A page that the kernel found bad while nobody used it. Whoever comes to use it is told again.
const BUS_MCEERR_AO: c_int = 5;

/// Does nothing but look at memory that stays where it is, store to it, and make system calls.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a valid siginfo with an address for this signal.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    let mut note = NOTE.get();
    while !note.is_null() {
        // SAFETY: a note lives on this thread's stack, below this frame, for as long as it is in the list.
        let this = unsafe { &*note };
        if at.wrapping_sub(this.base) < this.len && replace(this, at) {
            this.hit.store(true, Ordering::Relaxed);
            return;
        }
        note = this.outer;
    }
    if code == BUS_MCEERR_AO {
        return;
    }
    pass_on(signal, info, context);
}

/// Not of ours: whoever handled the signal before has it. Else what happens by default happens when the instruction is
/// tried again.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let handled = |before: &&libc::sigaction| {
        before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN
    };
    match BEFORE.get().filter(handled) {
        // SAFETY: the kernel had this address for a handler that takes three arguments; it would have been called with
        // these, in this place.
        Some(before) if before.sa_flags & libc::SA_SIGINFO != 0 => unsafe {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(before.sa_sigaction);
            handler(signal, info, context);
        },
        // SAFETY: the same, for one that takes the signal's number.
        Some(before) => unsafe {
            let handler: extern "C" fn(c_int) = std::mem::transmute(before.sa_sigaction);
            handler(signal);
        },
        // SAFETY: no memory of ours is touched.
        None => unsafe {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        },
    }
}

/// Puts a page of zeroes in the place of the one at `at`; all that come after it too, where the process has too
/// many mappings for that. False when not even that can be done.
fn replace(note: &Note, at: usize) -> bool {
    let page = page_size();
    let begin = (at - note.base) / page * page;
    let all = note.len.next_multiple_of(page);
    [begin + page, all].into_iter().any(|end| cover(note, begin, end))
}

fn cover(note: &Note, begin: usize, end: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let place = ptr::with_exposed_provenance_mut(note.base + begin);
    // First: who finds zeroes there sees it. Where it cannot be done, nothing is lost with it that is not lost.
    // SAFETY: the marks are the mapping's, which outlives the note.
    unsafe { (*note.marks).mark(begin / page_size()..end / page_size()) };
    // SAFETY: the pages are the mapping's own, which begins at a page and is touched by raw copies only while a
    // note tells of it.
    let covered = unsafe { libc::mmap(place, end - begin, access, flags, -1, 0) };
    covered != libc::MAP_FAILED
}

/// Bytes of a page of memory: asked once.
pub(super) fn page_size() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    let known = BYTES.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: the call takes no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let bytes = usize::try_from(bytes).unwrap_or(4096);
    BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    extern "C" fn own(_: c_int) {
        // SAFETY: ends the process, from wherever.
        unsafe { libc::_exit(42) };
    }

    /// A program that uses the library has bus errors of its own: its handler was never called again.
    #[test]
    fn a_fault_of_the_programs_own_is_the_programs() {
        const NAME: &str = "pmem::guard::tests::a_fault_of_the_programs_own_is_the_programs";
        if std::env::var_os("FLASHLOOM_OWN_FAULT").is_none() {
            let program = std::env::current_exe().unwrap();
            let mut child = Command::new(program);
            child.args(["--exact", NAME, "--test-threads=1"]).env("FLASHLOOM_OWN_FAULT", "1");
            assert_eq!(child.output().unwrap().status.code(), Some(42));
            return;
        }
        // SAFETY: the handler does what one may do.
        unsafe { libc::signal(libc::SIGBUS, own as extern "C" fn(c_int) as libc::sighandler_t) };
        let _guarded = crate::Pmem::anonymous(4096).unwrap();
        // SAFETY: the handler above ends the process.
        unsafe { libc::raise(libc::SIGBUS) };
        panic!("the program's own handler was not called");
    }
}
