use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use stdx::Prng;

const LEN: u64 = 1 << 20;

/// More than a share of any machine's memory.
const THIN: u64 = 4 << 40;

fn region(shared: bool) -> Region {
    Region::new(LEN, RegionOptions { block_size: 512, shared, committed: false }).unwrap()
}

fn all(r: &Region) -> Vec<u8> {
    let mut out = vec![1; usize64(r.len())];
    r.copy_out(0, &mut out).unwrap();
    out
}

#[test]
fn fresh_memory_is_zero_and_takes_none() {
    let len = THIN;
    let r = Region::new(len, RegionOptions::default()).unwrap();
    assert_eq!(r.resident().unwrap(), 0);
    r.copy_in(len - 4096, &[7; 4096]).unwrap();
    assert_eq!(r.resident().unwrap(), 4096);
    let mut out = [1; 4096];
    r.copy_out(0, &mut out).unwrap();
    assert_eq!(out, [0; 4096]);
}

#[test]
fn committed_memory_is_there_at_once() {
    let r =
        Region::new(LEN, RegionOptions { committed: true, ..RegionOptions::default() }).unwrap();
    assert!(r.resident().unwrap() >= LEN);
    assert!(all(&r).iter().all(|&byte| byte == 0));
}

#[test]
fn ranges_are_checked() {
    let r = region(false);
    for (offset, len) in [(LEN, 1), (LEN - 1, 2), (u64::MAX, 1), (u64::MAX - 511, 512)] {
        let mut out = vec![0; len];
        for e in [
            r.copy_in(offset, &out).unwrap_err(),
            r.mismatch(offset, &out).unwrap_err(),
            r.bytes(offset, len).unwrap_err(),
            r.deallocate(offset, u64_of(len)).unwrap_err(),
            r.copy_within(offset, 0, u64_of(len)).unwrap_err(),
            r.copy_within(0, offset, u64_of(len)).unwrap_err(),
            r.copy_out(offset, &mut out).unwrap_err(),
        ] {
            assert_eq!(e.kind, Kind::OutOfRange);
        }
    }
    assert!(r.copy_in(LEN, &[]).is_ok());
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    for (len, block_size) in [(4096, 1000), (4096, 8192), (4096, 256), (1000, 512), (0, 512)] {
        let e = Region::new(len, RegionOptions { block_size, ..Default::default() }).unwrap_err();
        assert_eq!(e.kind, Kind::Unsupported, "{len} {block_size}");
    }
    let e = Region::new(REGION_MAX + 4096, RegionOptions::default()).unwrap_err();
    assert_eq!(e.kind, Kind::TooLarge);
}

#[test]
fn deallocation_frees_whole_pages() {
    let r = region(true);
    r.copy_in(0, &vec![9; usize64(LEN)]).unwrap();
    assert_eq!(r.resident().unwrap(), LEN);
    r.deallocate(512, 3 * 4096).unwrap();
    assert_eq!(r.resident().unwrap(), LEN - 2 * 4096);
    let bytes = all(&r);
    assert!(bytes[..512].iter().all(|&b| b == 9));
    assert!(bytes[512..512 + 3 * 4096].iter().all(|&b| b == 0));
    assert!(bytes[512 + 3 * 4096..].iter().all(|&b| b == 9));
}

/// In a region of one core a block spans two pages: both go when all in them has gone.
#[test]
fn blocks_given_back_one_by_one_free_their_pages() {
    let r = region(false);
    r.copy_in(0, &vec![9; usize64(LEN)]).unwrap();
    let full = r.resident().unwrap();
    for block in [2, 4, 3] {
        r.deallocate(block * 4096, 4096).unwrap();
    }
    assert_eq!(r.resident().unwrap(), full - 2 * 4096, "what lies between the outer blocks' edges");
    r.deallocate(0, LEN).unwrap();
    assert_eq!(r.resident().unwrap(), 0);
    assert!(all(&r).iter().all(|&b| b == 0));
}

#[test]
fn a_region_grows_with_zeroes_and_shrinks_for_good() {
    let r = region(true);
    r.copy_in(0, &vec![9; usize64(LEN)]).unwrap();
    r.resize(LEN / 2 + 512).unwrap();
    assert_eq!(r.copy_in(LEN / 2 + 512, &[1]).unwrap_err().kind, Kind::OutOfRange);
    r.resize(2 * LEN).unwrap();
    let bytes = all(&r);
    assert_eq!(bytes.iter().filter(|&&b| b == 9).count(), usize64(LEN / 2 + 512));
    assert_eq!(r.resize(513).unwrap_err().kind, Kind::Unsupported);
    assert_eq!(r.resize(REGION_RESERVE + 512).unwrap_err().kind, Kind::TooLarge);
}

#[test]
fn slices_show_what_is_stored() {
    let r = region(false);
    r.copy_in(1000, b"hello").unwrap();
    assert_eq!(r.bytes(1000, 5).unwrap(), b"hello");
}

/// Two cores write and read the same blocks: no reader ever sees a block half written.
#[test]
fn blocks_are_whole_across_cores() {
    let r = Arc::new(region(true));
    let writers: Vec<_> = (0..2u64)
        .map(|n| {
            let r = Arc::clone(&r);
            std::thread::spawn(move || {
                let mut p = Prng::new(n);
                for _ in 0..20_000 {
                    let value = stdx::num::low8(p.next_u64());
                    r.copy_in(p.below(4) * 512, &[value; 1024]).unwrap();
                }
            })
        })
        .collect();
    let mut out = [0; 2560];
    while writers.iter().any(|w| !w.is_finished()) {
        r.copy_out(0, &mut out).unwrap();
        for block in out.chunks(512) {
            assert!(block.iter().all(|b| *b == block[0]), "half written");
        }
    }
    for w in writers {
        w.join().unwrap();
    }
}

#[derive(Clone, Debug)]
enum Op {
    Write(u64, Vec<u8>),
    Deallocate(u64, u64),
    Copy(u64, u64, u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let at = 0..LEN - 20_000;
    let op = prop_oneof![
        (at.clone(), proptest::collection::vec(any::<u8>(), 0..9000))
            .prop_map(|(o, d)| Op::Write(o, d)),
        (at, 0u64..20_000).prop_map(|(o, l)| Op::Deallocate(o, l)),
        (0u64..1000, 1000u64..2000, 0u64..16).prop_map(|(a, b, n)| Op::Copy(
            a * 512,
            b * 512,
            n * 512
        )),
    ];
    proptest::collection::vec(op, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn behaves_as_an_array_of_bytes(ops in ops(), shared: bool) {
        let r = region(shared);
        let mut model = vec![0u8; usize64(LEN)];
        for op in ops {
            match op {
                Op::Write(o, d) => {
                    r.copy_in(o, &d).unwrap();
                    model[usize64(o)..][..d.len()].copy_from_slice(&d);
                }
                Op::Deallocate(o, l) => {
                    r.deallocate(o, l).unwrap();
                    model[usize64(o)..][..usize64(l)].fill(0);
                }
                Op::Copy(a, b, n) => {
                    r.copy_within(a, b, n).unwrap();
                    model.copy_within(usize64(a)..usize64(a + n), usize64(b));
                }
            }
        }
        prop_assert!(all(&r) == model);
        prop_assert_eq!(r.mismatch(0, &model).unwrap(), None);
        model[77_777] ^= 1;
        prop_assert_eq!(r.mismatch(0, &model).unwrap(), Some(77_777));
    }
}
