//! The loops over bytes, in the widest instructions the machine has.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::limits::{STRIP, UNITS_AT_ONCE};
use std::ops::Range;
use std::sync::OnceLock;

/// Instructions to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every machine has; the compiler vectorises it for the baseline.
    Portable,
    /// 32 bytes at a time.
    Avx2,
    /// 64 bytes at a time, doubling by one instruction.
    Gfni512,
}

impl Level {
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Gfni512];

    /// Whether this machine has them.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Gfni512 => {
                std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("gfni")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The widest that this machine has and that computes what it should: parity that was computed
    /// wrongly shows only when it is needed.
    #[must_use]
    pub fn best() -> Self {
        best()
    }
}

pub(super) fn best() -> Level {
    static BEST: OnceLock<Level> = OnceLock::new();
    *BEST.get_or_init(|| {
        let good = |level: &Level| level.is_available() && agrees(*level);
        Level::ALL.into_iter().rev().find(good).unwrap_or(Level::Portable)
    })
}

/// Whether a level computes a sample as the portable code does.
fn agrees(level: Level) -> bool {
    let mut units = [[0u8; 256]; 3];
    for (n, byte) in units.as_flattened_mut().iter_mut().enumerate() {
        *byte = stdx::num::low8(stdx::num::u64_of(n * 167 + n / 256 * 29));
    }
    let data: [&[u8]; 3] = [&units[0], &units[1], &units[2]];
    let run = |level| {
        let (mut p, mut q, mut sum, mut x) = ([0; 256], [0; 256], [7; 256], [0; 256]);
        syndrome(level, &data, &mut p, &mut q);
        xor(level, &data, &mut x);
        add(level, &mut sum, &units[0], 0x8e);
        (p, q, sum, x)
    };
    run(level) == run(Level::Portable)
}

fn check_units(data: &[&[u8]], len: usize) {
    assert!(data.iter().all(|unit| unit.len() == len), "units differ in length");
}

/// The pieces to work on one after the other: few enough units at once for the machine to see each
/// as a stream, few enough bytes that the sums stay in the first-level cache meanwhile. Units come
/// from the last group to the first, as Q wants them.
fn pieces(data: usize, len: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>, bool)> {
    let groups = data.div_ceil(UNITS_AT_ONCE);
    // A single group needs no sums kept, and so no strips.
    let strip = if groups == 1 { len } else { STRIP };
    (0..len).step_by(strip.max(1)).flat_map(move |from| {
        (0..groups).rev().map(move |group| {
            let units = group * UNITS_AT_ONCE..data.min((group + 1) * UNITS_AT_ONCE);
            (units, from..len.min(from + strip), group + 1 < groups)
        })
    })
}

/// P and Q of `data`.
pub(super) fn syndrome(level: Level, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    assert_eq!(p.len(), q.len(), "units differ in length");
    check_units(data, p.len());
    for (units, bytes, goes_on) in pieces(data.len(), p.len()) {
        let data = &data[units];
        let done = match level {
            Level::Portable => 0,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => x86::syndrome_avx2(data, p, q, bytes.clone(), goes_on),
            #[cfg(target_arch = "x86_64")]
            Level::Gfni512 => x86::syndrome_gfni(data, p, q, bytes.clone(), goes_on),
            #[cfg(not(target_arch = "x86_64"))]
            _ => 0,
        };
        portable::syndrome(data, p, q, bytes.start + done..bytes.end, goes_on);
    }
}

/// P of `data`.
pub(super) fn xor(level: Level, data: &[&[u8]], p: &mut [u8]) {
    check_units(data, p.len());
    for (units, bytes, goes_on) in pieces(data.len(), p.len()) {
        let data = &data[units];
        let done = match level {
            Level::Portable => 0,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => x86::xor_avx2(data, p, bytes.clone(), goes_on),
            #[cfg(target_arch = "x86_64")]
            Level::Gfni512 => x86::xor_gfni(data, p, bytes.clone(), goes_on),
            #[cfg(not(target_arch = "x86_64"))]
            _ => 0,
        };
        portable::xor(data, p, bytes.start + done..bytes.end, goes_on);
    }
}

/// Adds `factor` times `from` to `to`.
pub(super) fn add(level: Level, to: &mut [u8], from: &[u8], factor: u8) {
    assert_eq!(to.len(), from.len(), "units differ in length");
    let done = match level {
        Level::Portable => 0,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => x86::add_avx2(to, from, factor),
        #[cfg(target_arch = "x86_64")]
        Level::Gfni512 => x86::add_gfni(to, from, factor),
        #[cfg(not(target_arch = "x86_64"))]
        _ => 0,
    };
    portable::add(&mut to[done..], &from[done..], factor);
}
