//! P and Q over GF(2^8): P is the sum (xor) of the data units, Q the sum of 2^i times unit i, with
//! the polynomial 0x11d, as Linux md has it. With one data unit both are copies of it: a mirror.

mod gf;
mod kernel;

pub use kernel::Level;

use crate::limits::{DATA_MAX, PARITY_MAX, STRIP};

static ZEROES: [u8; STRIP] = [0; STRIP];

/// Computes the parity units of a stripe: P, then Q when there are two.
///
/// # Panics
/// When units differ in length, or there are more of them than the limits allow.
pub fn encode(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    encode_at(kernel::best(), data, parity);
}

/// As [`encode`], with instructions of a given level: for comparing them.
///
/// # Panics
/// As [`encode`], and when the machine has no such instructions.
pub fn encode_at(level: Level, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    assert!((1..=DATA_MAX).contains(&data.len()), "{} data units", data.len());
    if let [only] = data {
        parity.iter_mut().for_each(|copy| copy.copy_from_slice(only));
        return;
    }
    match parity {
        [] => {}
        [p] => kernel::xor(level, data, p),
        [p, q] => kernel::syndrome(level, data, p, q),
        _ => panic!("more than {PARITY_MAX} parity units"),
    }
}

/// Adds what `change`, a sum of the old and the new contents of data unit `unit`, changes in parity unit
/// `parity`: 0 is P, 1 is Q. With one data unit both are copies of it, and change as it does.
///
/// # Panics
/// When the lengths differ, or there are no such units.
pub fn update(unit: usize, change: &[u8], parity: usize, to: &mut [u8]) {
    assert!(unit < DATA_MAX && parity < PARITY_MAX, "unit {unit}, parity {parity}");
    let factor = if parity == 0 { 1 } else { gf::power(unit) };
    kernel::add(kernel::best(), to, change, factor);
}

/// Adds `from` to `to`: the sum of old and new contents is their change.
///
/// # Panics
/// When the lengths differ.
pub fn add(to: &mut [u8], from: &[u8]) {
    kernel::add(kernel::best(), to, from, 1);
}

/// What was lost of a stripe, at most as many units as it has parity.
#[derive(Clone, Copy, Default)]
struct Lost {
    /// Ascending.
    data: [Option<usize>; 2],
    p: bool,
    q: bool,
}

impl Lost {
    fn new(lost: &[usize], data: usize, width: usize) -> Self {
        let mut this = Self::default();
        let mut list = [usize::MAX; PARITY_MAX];
        assert!(lost.len() <= width - data, "more units are lost than parity can make up for");
        list[..lost.len()].copy_from_slice(lost);
        list.sort_unstable();
        assert!(lost.len() < 2 || list[0] != list[1], "a unit is lost once");
        for (n, &unit) in list[..lost.len()].iter().enumerate() {
            assert!(unit < width, "unit {unit} of {width}");
            match unit.checked_sub(data) {
                None => this.data[n] = Some(unit),
                Some(0) => this.p = true,
                Some(_) => this.q = true,
            }
        }
        this
    }
}

/// Recovers the units listed in `lost` from the others. `units` are all of a stripe's, `data` data
/// units and then its parity; the contents of lost ones do not matter and are replaced.
///
/// # Panics
/// When more units are lost than there is parity, a number in `lost` is out of range or twice there,
/// or units differ in length.
pub fn reconstruct(units: &mut [&mut [u8]], data: usize, lost: &[usize]) {
    reconstruct_at(kernel::best(), units, data, lost);
}

/// As [`reconstruct`], with instructions of a given level.
///
/// # Panics
/// As [`reconstruct`], and when the machine has no such instructions.
pub fn reconstruct_at(level: Level, units: &mut [&mut [u8]], data: usize, lost: &[usize]) {
    let width = units.len();
    assert!((1..=DATA_MAX).contains(&data) && data <= width && width <= data + PARITY_MAX);
    let what = Lost::new(lost, data, width);
    if lost.is_empty() {
        return;
    }
    let len = units[0].len();
    assert!(units.iter().all(|u| u.len() == len), "units differ in length");
    for from in (0..len).step_by(STRIP) {
        let to = len.min(from + STRIP);
        strip(level, units, data, what, from..to);
    }
}

fn strip(
    level: Level,
    units: &mut [&mut [u8]],
    data: usize,
    lost: Lost,
    range: std::ops::Range<usize>,
) {
    let len = range.len();
    let (mut p_sum, mut q_sum) = ([0; STRIP], [0; STRIP]);
    let (p_sum, q_sum) = (&mut p_sum[..len], &mut q_sum[..len]);
    let two_parities = units.len() == data + 2;
    let q_solves = lost.data[1].is_some() || (lost.p && lost.data[0].is_some());
    let needs_q = two_parities && (lost.q || q_solves);
    let mut present: [&[u8]; DATA_MAX] = [&ZEROES[..len]; DATA_MAX];
    for (n, slice) in present[..data].iter_mut().enumerate() {
        if !lost.data.contains(&Some(n)) {
            *slice = &units[n][range.clone()];
        }
    }
    if needs_q {
        kernel::syndrome(level, &present[..data], p_sum, q_sum);
    } else {
        kernel::xor(level, &present[..data], p_sum);
    }
    // From here on the sums become what the lost units add to them.
    match lost.data {
        [Some(x), Some(y)] => {
            kernel::add(level, p_sum, &units[data][range.clone()], 1);
            kernel::add(level, q_sum, &units[data + 1][range.clone()], 1);
            let factor = gf::inverse(gf::power(y - x) ^ 1);
            let of_p = gf::multiply(gf::power(y - x), factor);
            let of_q = gf::divide(factor, gf::power(x));
            let first = &mut units[x][range.clone()];
            first.fill(0);
            kernel::add(level, first, p_sum, of_p);
            kernel::add(level, first, q_sum, of_q);
            kernel::add(level, p_sum, &units[x][range.clone()], 1);
            units[y][range].copy_from_slice(p_sum);
        }
        [Some(x), None] | [None, Some(x)] => {
            one_data(level, units, data, (x, lost), range, (p_sum, q_sum))
        }
        [None, None] => {
            if lost.p {
                units[data][range.clone()].copy_from_slice(p_sum);
            }
            if lost.q {
                units[data + 1][range].copy_from_slice(q_sum);
            }
        }
    }
}

/// Recovers data unit `x`, and the parity unit lost besides.
fn one_data(
    level: Level,
    units: &mut [&mut [u8]],
    data: usize,
    (x, lost): (usize, Lost),
    range: std::ops::Range<usize>,
    (p_sum, q_sum): (&mut [u8], &mut [u8]),
) {
    if lost.p {
        kernel::add(level, q_sum, &units[data + 1][range.clone()], 1);
        let unit = &mut units[x][range.clone()];
        unit.fill(0);
        kernel::add(level, unit, q_sum, gf::inverse(gf::power(x)));
        kernel::add(level, p_sum, unit, 1);
        units[data][range].copy_from_slice(p_sum);
        return;
    }
    kernel::add(level, p_sum, &units[data][range.clone()], 1);
    units[x][range.clone()].copy_from_slice(p_sum);
    if lost.q {
        kernel::add(level, q_sum, p_sum, gf::power(x));
        units[data + 1][range].copy_from_slice(q_sum);
    }
}

#[cfg(test)]
mod tests;
