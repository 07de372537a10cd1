//! Copies to memory that is not looked at again soon.

/// From this length on a copy goes past the caches. A block that a host writes is not read again
/// soon, and to fetch its lines first only to overwrite them is half of a copy's time: 4 KiB at
/// random took 0.38 us so, and 0.70 by way of the caches.
const STREAM_BYTES: usize = 4096;

/// Copies `from` to `to`; ordered before whatever this core stores next.
///
/// # Safety
/// `to` is writable for the length of `from`, and the two do not overlap.
#[inline]
pub unsafe fn copy(from: &[u8], to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if from.len() >= STREAM_BYTES {
        // SAFETY: the caller's promise.
        return unsafe { past_the_caches(from, to) };
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
}

#[cfg(target_arch = "x86_64")]
unsafe fn past_the_caches(from: &[u8], to: *mut u8) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LINE: usize = 64;
    let head = to.align_offset(LINE).min(from.len());
    let (head, rest) = from.split_at(head);
    let lines = rest.chunks_exact(LINE);
    let tail = lines.remainder();
    // SAFETY: `to` is writable for all of `from`, whose parts go where they belong, one behind the
    // other; each line of the destination is aligned. SSE2 is part of x86-64.
    unsafe {
        std::ptr::copy_nonoverlapping(head.as_ptr(), to, head.len());
        let mut at = to.add(head.len());
        for line in lines {
            let source = line.as_ptr().cast::<__m128i>();
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| _mm_loadu_si128(source.add(i)));
            let place = at.cast::<__m128i>();
            _mm_stream_si128(place, a);
            _mm_stream_si128(place.add(1), b);
            _mm_stream_si128(place.add(2), c);
            _mm_stream_si128(place.add(3), d);
            at = at.add(LINE);
        }
        std::ptr::copy_nonoverlapping(tail.as_ptr(), at, tail.len());
        // Such stores are not ordered by a lock's release.
        _mm_sfence();
    }
}

/// Fetches the lines of `bytes` into the cache, without waiting for them.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, on an address that is readable anyway.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}
