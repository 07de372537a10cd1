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
        log: (1 << 40) - 77,
        first_slot: 2 * 128 + 1,
        records: vec![
            OwnerRecord::unversioned(Owner::Write { key: key(1) }, 2),
            OwnerRecord::unversioned(Owner::Hole { key: key(0), blocks: 1 << 40 }, 0),
            OwnerRecord::unversioned(
                Owner::Refer { key: key(50), name: SharedBlockId::of(old) },
                3,
            ),
            OwnerRecord::unversioned(
                Owner::Share { key: key(60), name: SharedBlockId::of(old) },
                3,
            ),
            OwnerRecord::unversioned(Owner::Move { key: key(99), old }, 1),
            OwnerRecord::unversioned(Owner::Lost { key: key(80), old: Some(old) }, 9),
            OwnerRecord::unversioned(
                Owner::Refer { key: key(70), name: SharedBlockId::of(old) },
                1,
            ),
            OwnerRecord::unversioned(Owner::Lost { key: key(90), old: None }, 0xffff),
        ],
        crcs: vec![1, 2, 0xffff_ffff],
        references: vec![4, 5, 6, 7],
    }
}

#[test]
fn a_header_comes_back_as_written() {
    let mut bytes = vec![0xaa; BLOCK];
    header().write([4; 16], &mut bytes);
    let back = StripeHeader::read(&bytes, [4; 16], geometry()).unwrap();
    assert_eq!(back, header());
    let slots: Vec<_> = back.placed().map(|p| (p.location.slot(), p.crcs)).collect();
    let wanted: [(u32, &[u32]); 8] = [
        (257, &[1, 2]),
        (259, &[]),
        (259, &[4, 5, 6]),
        (259, &[4, 5, 6]),
        (259, &[0xffff_ffff]),
        (260, &[]),
        (260, &[7]),
        (260, &[]),
    ];
    assert_eq!(slots, wanted);
    assert_eq!(StripeHeader::read(&bytes, [5; 16], geometry()), Err(Bad::Field("pool")));
}

/// Those without versions are as they were before there were any.
#[test]
fn versions_come_back_where_there_are_any() {
    let mut plain = vec![0xaa; BLOCK];
    header().write([4; 16], &mut plain);
    assert_eq!(plain[58], Stream::Reclaim.to_byte());
    let mut versioned = header();
    for (n, record) in (0..).zip(&mut versioned.records) {
        record.version = Version::new(Version::LAST.get() - n).unwrap();
    }
    let mut bytes = vec![0xaa; BLOCK];
    versioned.write([4; 16], &mut bytes);
    let back = StripeHeader::read(&bytes, [4; 16], geometry()).unwrap();
    assert_eq!(back, versioned);
    let versions = back.placed().map(|placed| placed.version);
    assert!(versions.eq(versioned.records.iter().map(|record| record.version)));
    // Right behind records and checksums, and nothing behind them.
    let at = HEAD + 8 * RECORD + 7 * CRC;
    assert_eq!(bytes[64..at], plain[64..at]);
    assert_eq!(bytes[at..at + 4], Version::LAST.get().to_le_bytes());
    assert!(plain[at..].iter().chain(&bytes[at + 8 * 4..]).all(|byte| *byte == 0));
    // A version that cannot be.
    bytes[at + 2] |= 0x80;
    seal(&mut bytes, MAGIC);
    let read = StripeHeader::read(&bytes, [4; 16], geometry());
    assert_eq!(read, Err(Bad::Field("version of a record")));
}

#[test]
fn what_shares_blocks_without_references_to_them_is_refused() {
    let mut bytes = vec![0; BLOCK];
    let records = header().records;
    for lacking in [2, 3] {
        let mut records = records.clone();
        records[lacking].count = 2;
        let references = vec![4; if lacking == 2 { 3 } else { 4 }];
        StripeHeader { records, references, ..header() }.write([4; 16], &mut bytes);
        let read = StripeHeader::read(&bytes, [4; 16], geometry());
        assert_eq!(read, Err(Bad::Field("record pair")));
    }
}

#[test]
fn what_a_later_version_may_add_is_refused_by_name() {
    // Of the first record: the reserved byte, and the first of the key's.
    for (at, what) in [
        (58, "encodings of a stripe, of a later version,"),
        (64 + 1, "reserved byte of a record"),
        (64 + 13, "key of a record, of a later version,"),
    ] {
        let mut bytes = vec![0; BLOCK];
        header().write([4; 16], &mut bytes);
        bytes[at] |= 0x80;
        seal(&mut bytes, MAGIC);
        assert_eq!(StripeHeader::read(&bytes, [4; 16], geometry()), Err(Bad::Field(what)));
    }
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
        let all = usize32(geometry.stripe_blocks());
        assert!(fits(blocks, all, all, false));
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
            let contents = header.placed().filter(|p| p.owner.has_contents());
            prop_assert_eq!(contents.map(|p| p.crcs.len()).sum::<usize>(), header.crcs.len());
        }
    }
}
