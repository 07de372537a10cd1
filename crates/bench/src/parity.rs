//! Parity of one stripe against a copy of its data, in the same run: a stripe is copied once anyway.

use raid::parity::{Level, encode_at, reconstruct_at};
use reactor::now_exact;
use std::hint::black_box;
use stdx::Prng;
use stdx::num::u64_of;

/// Data bytes gone through for one figure.
const BYTES: usize = 256 << 20;
/// Data bytes of the stripes taken in turn when they shall not be in a cache.
const COLD: usize = 128 << 20;

struct Case {
    data: usize,
    parity: usize,
    unit: usize,
}

const CASES: [Case; 8] = [
    Case { data: 8, parity: 2, unit: 4 << 10 },
    Case { data: 8, parity: 2, unit: 64 << 10 },
    Case { data: 8, parity: 2, unit: 256 << 10 },
    Case { data: 4, parity: 2, unit: 128 << 10 },
    Case { data: 20, parity: 2, unit: 64 << 10 },
    Case { data: 22, parity: 2, unit: 64 << 10 },
    Case { data: 8, parity: 1, unit: 64 << 10 },
    Case { data: 1, parity: 2, unit: 512 << 10 },
];

type Stripe = Vec<Vec<u8>>;

fn stripes(case: &Case, bytes: usize) -> Vec<Stripe> {
    let mut prng = Prng::new(7);
    let count = (bytes / (case.data * case.unit)).max(1);
    let width = case.data + case.parity;
    let mut stripes = vec![vec![vec![0; case.unit]; width]; count];
    stripes.iter_mut().flatten().for_each(|unit| prng.fill(unit));
    stripes
}

/// Gigabytes of user data a second that `work` gets through.
fn rate(case: &Case, stripes: &mut [Stripe], mut work: impl FnMut(&mut Stripe)) -> f64 {
    let stripe_bytes = case.data * case.unit;
    let turns = (BYTES / stripe_bytes).max(1);
    for stripe in stripes.iter_mut().take(turns) {
        work(stripe);
    }
    let begun = now_exact();
    for turn in 0..turns {
        let count = stripes.len();
        work(&mut stripes[turn % count]);
    }
    let nanos = std::time::Duration::from_nanos(now_exact() - begun).as_secs_f64() * 1e9;
    std::time::Duration::from_nanos(u64_of(turns * stripe_bytes)).as_secs_f64() * 1e9 / nanos
}

fn encode(level: Level, data: usize, stripe: &mut Stripe) {
    let (data, parity) = stripe.split_at_mut(data);
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    encode_at(level, black_box(&data), &mut parity);
}

fn rebuild(level: Level, case: &Case, stripe: &mut Stripe) {
    let lost: Vec<usize> = (0..case.data.min(case.parity)).collect();
    let mut units: Vec<&mut [u8]> = stripe.iter_mut().map(Vec::as_mut_slice).collect();
    reconstruct_at(level, black_box(&mut units), case.data, &lost);
}

fn copy(case: &Case, stripe: &Stripe, to: &mut [u8]) {
    for (unit, to) in stripe[..case.data].iter().zip(to.chunks_exact_mut(case.unit)) {
        to.copy_from_slice(black_box(unit));
    }
    black_box(to);
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn line(case: &Case, bytes: usize, rounds: usize) {
    let mut stripes = stripes(case, bytes);
    let mut to = vec![0; case.data * case.unit];
    let levels: Vec<Level> = Level::ALL.into_iter().filter(|l| l.is_available()).collect();
    let mut copies = Vec::new();
    let mut figures = vec![(Vec::new(), Vec::new()); levels.len()];
    for _ in 0..rounds {
        copies.push(rate(case, &mut stripes, |stripe| copy(case, stripe, &mut to)));
        for (level, figures) in levels.iter().zip(&mut figures) {
            figures.0.push(rate(case, &mut stripes, |stripe| encode(*level, case.data, stripe)));
            figures.1.push(rate(case, &mut stripes, |stripe| rebuild(*level, case, stripe)));
        }
    }
    let copied = median(copies);
    let place = if stripes.len() == 1 { "cached" } else { "memory" };
    print!(
        "{:>2}+{} {:>4} KiB {place}: copy {copied:>5.1} GB/s;",
        case.data,
        case.parity,
        case.unit >> 10
    );
    for (level, (encoded, rebuilt)) in levels.iter().zip(figures) {
        let (encoded, rebuilt) = (median(encoded), median(rebuilt));
        print!(
            " {level:?}: parity {encoded:>5.1} ({:.2} of a copy), {} lost {rebuilt:>5.1} ({:.2});",
            encoded / copied,
            case.data.min(case.parity),
            rebuilt / copied
        );
    }
    println!();
}

/// Prints user data a second for computing parity and for getting lost units back, and their ratios
/// to copying the data.
pub fn run(rounds: usize) {
    println!("chosen on this machine: {:?}", Level::best());
    for case in &CASES {
        line(case, 0, rounds);
        line(case, COLD, rounds);
    }
}
