//! Mapped memory that cannot be reached: a poisoned line, a file that was cut short. The processor
//! says so with a signal in the midst of a copy, which would end the process and everything it serves.
//!
//! Whoever copies notes which mapping it touches. The signal's handler puts memory of no file in the
//! place of the page that cannot be had, so that the copy goes on, and leaves word; the copy then fails
//! as any other operation on a medium does.
#![allow(unsafe_code, reason = "signals, and memory that is replaced under who uses it")]

use super::mapped::page_size;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, compiler_fence};

/// What a copy notes while it runs.
struct Note {
    base: usize,
    len: usize,
    /// Where the pages of this mapping that were replaced are kept, a byte each.
    bad: *const AtomicU8,
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
pub(super) struct Damage {
    any: AtomicBool,
    pages: Box<[AtomicU8]>,
}

impl Damage {
    pub fn new(len: usize) -> Self {
        install();
        let pages = len.div_ceil(page_size());
        Self { any: AtomicBool::new(false), pages: (0..pages).map(|_| AtomicU8::new(0)).collect() }
    }

    /// Whether anything was lost.
    pub fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether anything of a range was lost.
    pub fn touches(&self, offset: usize, len: usize) -> bool {
        let page = page_size();
        let pages = offset / page..(offset + len).div_ceil(page).min(self.pages.len());
        self.is_any() && self.pages[pages].iter().any(|page| page.load(Ordering::Relaxed) != 0)
    }

    /// Runs `work`, which touches the mapping from `base` on; `None` when something could not be reached.
    #[inline]
    pub fn watch<R>(&self, base: *const u8, len: usize, work: impl FnOnce() -> R) -> Option<R> {
        let outer = NOTE.get();
        let bad = self.pages.as_ptr();
        let note = Note { base: base.addr(), len, bad, hit: AtomicBool::new(false), outer };
        let _back = Back(outer);
        NOTE.set(&raw const note);
        // The handler runs between any two instructions of `work`, of which the compiler knows nothing.
        compiler_fence(Ordering::SeqCst);
        let value = work();
        compiler_fence(Ordering::SeqCst);
        if note.hit.load(Ordering::Relaxed) {
            self.any.store(true, Ordering::Relaxed);
            return None;
        }
        Some(value)
    }
}

/// Puts the note before back, also when `work` panics.
struct Back(*const Note);

impl Drop for Back {
    fn drop(&mut self) {
        NOTE.set(self.0);
    }
}

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
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    });
}

/// A page that the kernel found bad while nobody used it. Whoever comes to use it is told again.
const BUS_MCEERR_AO: c_int = 5;

/// Does nothing but look at memory that stays where it is, store to it, and make system calls.
extern "C" fn on_signal(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
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
    // Not of ours: what happens by default happens when the instruction is tried again.
    // SAFETY: no memory of ours is touched.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
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
    // SAFETY: the pages are the mapping's own, which begins at a page and is touched by raw copies only while a
    // note tells of it.
    let covered = unsafe { libc::mmap(place, end - begin, access, flags, -1, 0) };
    if covered == libc::MAP_FAILED {
        return false;
    }
    for page in begin / page_size()..end / page_size() {
        // SAFETY: there is an entry for each page of the mapping, which outlives the note.
        unsafe { (*note.bad.add(page)).store(1, Ordering::Relaxed) };
    }
    true
}
