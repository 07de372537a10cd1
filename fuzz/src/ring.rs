//! Direct write windows: what a host is answered, and what a target finds in a ring that its host writes as it likes.

use stdx::crc32c;
use window::dial::{Ask, Give};
use window::page::IDENTITY;
use window::record::{HEADER, Header};
use window::{ALIGN, DATA_BYTES_MAX, Grant, Identity, Look, Phase, Reader, Record};
use window::{RING_BYTES_MIN, RING_STEP};

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// Every target by the name of its file in `fuzz_targets` and its folder in `corpus`.
pub const TARGETS: &[(&str, Target)] =
    &[("window_grant", window_grant), ("window_ring", window_ring)];

const EPOCH: u64 = 0x0123_4567_89ab_cdef;

/// A grant, a state page, and the private data of a ring's connection: what is read is read again from what it is
/// written as.
pub fn window_grant(input: &[u8]) {
    if let Some(grant) = Grant::decode(input) {
        assert_eq!(Grant::decode(&grant.encode()), Some(grant.clone()));
        let block = grant.block_bytes;
        for offset in [0, grant.chunk_bytes, grant.volume_bytes.saturating_sub(block.into())] {
            let ring = grant.ring_of(offset, usize::try_from(block).expect("a block"));
            assert!(ring.is_none_or(|ring| ring < grant.rings), "{grant:?}");
        }
    }
    if let Some(ask) = Ask::decode(input) {
        assert_eq!(Ask::decode(&ask.encode()), Some(ask));
    }
    if let Some(give) = Give::decode(input) {
        assert_eq!(Give::decode(&give.encode()), Some(give));
    }
    let Some((page, rest)) = input.split_first_chunk::<IDENTITY>() else { return };
    let mut page = *page;
    // No fuzzer guesses it.
    let crc = crc32c(&page[12..]);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
    if let Some(identity) = Identity::decode(&page) {
        assert_eq!(Identity::decode(&identity.encode()), Some(identity));
        assert!(identity.ring_bytes.is_multiple_of(RING_STEP));
    }
    if let Some(word) = rest.first_chunk() {
        let phase = Phase::of(u64::from_le_bytes(*word));
        assert_eq!(Phase::of(phase.word()), phase);
    }
}

/// Headers, one after the other, each at the place where a target looks next. Before them 8 bytes: what is put right in each
/// (bit 0 the epoch, 1 the position, 2 the checksum) and the ring's length, where the target is, and how much credit there is.
pub fn window_ring(input: &[u8]) {
    let Some((&[flags, at @ .., c0, c1, c2, c3], rest)) = input.split_first_chunk::<8>() else {
        return;
    };
    let ring_bytes = RING_BYTES_MIN + RING_STEP * u64::from(flags >> 3);
    let [a, b, c] = at;
    let position = ALIGN * u64::from(u32::from_le_bytes([a, b, c, 0]));
    let credit = position + u64::from(u32::from_le_bytes([c0, c1, c2, c3])) % (ring_bytes + 1);
    let mut reader = Reader::new(EPOCH, ring_bytes, position);
    for header in rest.as_chunks::<HEADER>().0 {
        let header = put_right(*header, flags, reader.position());
        let found = Header::decode(&header);
        if let Some((Header { epoch, position, .. }, kind)) = found.and_then(|f| Some((f, f.kind?)))
        {
            assert_eq!(Record { epoch, position, kind }.encode(), header, "{kind:?}");
        }
        for line in [0, reader.at()] {
            let _ = reader.shows_damage(&header, line);
        }
        let (was, look) = (reader.position(), reader.look(&header, credit));
        match look {
            Look::Nothing => continue,
            Look::Bad(_) => return,
            Look::Pad => {}
            Look::Write { at, length, .. } => {
                assert!((1..=DATA_BYTES_MAX).contains(&length), "{look:?}");
                assert!(at + length as u64 <= ring_bytes, "{look:?}");
            }
        }
        reader.advance(&look);
        let now = reader.position();
        assert!(was < now && now <= credit && now.is_multiple_of(ALIGN), "{look:?}: {was}, {now}");
    }
}

fn put_right(mut header: [u8; HEADER], flags: u8, position: u64) -> [u8; HEADER] {
    if flags & 1 != 0 {
        header[8..16].copy_from_slice(&EPOCH.to_le_bytes());
    }
    if flags & 2 != 0 {
        header[16..24].copy_from_slice(&position.to_le_bytes());
    }
    if flags & 4 != 0 {
        header[..4].copy_from_slice(b"FLDW");
        let crc = crc32c(&header[8..]);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    header
}
