use super::*;
use proptest::prelude::*;
use raid::Shape;

fn geometry() -> Geometry {
    Geometry::for_au(Shape { data: 4, parity: 2 }, 256).unwrap()
}

fn header() -> StripeHeader {
    let key = |block| Key::new(View::new(7), block);
    let old = Location::new(SegmentId::new(3), 77);
    StripeHeader {
        segment: SegmentId::new(5),
        generation: 1 << 40,
        stripe: 2,
        shard: 9,
        stream: Stream::Reclaim,
        sequence: 12345,
        first_slot: 2 * 128 + 1,
        records: vec![
            OwnerRecord { owner: Owner::Write { key: key(1) }, count: 2 },
            OwnerRecord { owner: Owner::Hole { key: key(0), blocks: 1 << 40 }, count: 0 },
            OwnerRecord { owner: Owner::Move { key: key(99), old }, count: 1 },
        ],
        crcs: vec![1, 2, 0xffff_ffff],
    }
}

#[test]
fn a_header_comes_back_as_written() {
    let mut bytes = vec![0xaa; BLOCK];
    header().write([4; 16], &mut bytes);
    let back = StripeHeader::read(&bytes, [4; 16], geometry()).unwrap();
    assert_eq!(back, header());
    let slots: Vec<_> = back.placed().map(|p| (p.location.slot(), p.crcs.len())).collect();
    assert_eq!(slots, [(257, 2), (259, 0), (259, 1)]);
    assert_eq!(StripeHeader::read(&bytes, [5; 16], geometry()), Err(Bad::Field("pool")));
}

#[test]
fn a_header_with_any_flipped_bit_is_refused() {
    let mut bytes = vec![0; BLOCK];
    header().write([4; 16], &mut bytes);
    for bit in 0..BLOCK * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(StripeHeader::read(&bytes, [4; 16], geometry()).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn headers_take_an_eightieth_of_their_stripe_at_most() {
    for data in 1..=22 {
        let geometry = Geometry::for_au(Shape { data, parity: 0 }, 1024).unwrap();
        let blocks = header_blocks(geometry);
        assert!(blocks * 80 <= geometry.stripe_blocks(), "{data}: {blocks}");
        assert!(fits(blocks, usize32(geometry.stripe_blocks()), usize32(geometry.stripe_blocks())));
    }
}

proptest! {
    /// Whatever a header says, with its checksum right: an answer, never a panic.
    #[test]
    fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 12..400), len in 64usize..4096) {
        let mut block = vec![0; BLOCK];
        header().write([4; 16], &mut block);
        let at = len.min(BLOCK - bytes.len());
        block[at..at + bytes.len()].copy_from_slice(&bytes);
        block[56..58].copy_from_slice(&bytes[..2]);
        seal(&mut block, MAGIC);
        if let Ok(header) = StripeHeader::read(&block, [4; 16], geometry()) {
            prop_assert_eq!(header.placed().map(|p| p.crcs.len()).sum::<usize>(), header.crcs.len());
        }
    }
}
