//! What lies on the drives of a pool, damaged in ways that its checksums do not tell.

use engine::address::BLOCK;
use engine::format::VERSION;
use engine::format::catalog::{Loader, PAGE, Page};
use engine::format::label::Label;
use engine::format::manifest::{Page as ManifestPage, Read};
use engine::format::member::MemberHeader;
use engine::format::root::Root;
use engine::segment::StripeHeader;
use raid::{Geometry, Shape};
use stdx::crc32c;

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// Every target by the name of its file in `fuzz_targets` and its folder in `corpus`.
pub const TARGETS: &[(&str, Target)] = &[("pool_media", pool_media)];

const POOL: [u8; 16] = [7; 16];
const SHARD: u16 = 1;

fn geometry() -> Option<Geometry> {
    Geometry::for_au(Shape { data: 4, parity: 2 }, 256).ok()
}

/// `piece`, filled up with zeroes to whole blocks, with the head that every piece on media has: no
/// fuzzer guesses a checksum.
fn sealed(magic: [u8; 8], piece: &[u8]) -> Vec<u8> {
    sealed_as(VERSION, magic, piece)
}

/// As [`sealed`], of another version.
fn sealed_as(version: u16, magic: [u8; 8], piece: &[u8]) -> Vec<u8> {
    let mut bytes = piece.to_vec();
    bytes.resize(bytes.len().max(1).next_multiple_of(BLOCK), 0);
    bytes[..8].copy_from_slice(&magic);
    bytes[8..12].fill(0);
    bytes[12..14].copy_from_slice(&version.to_le_bytes());
    bytes[16..32].copy_from_slice(&POOL);
    let crc = crc32c(&bytes).to_le_bytes();
    bytes[8..12].copy_from_slice(&crc);
    bytes
}

/// As [`sealed`], of the shard, of one block or as long as it is.
fn sealed_of_shard(version: u16, magic: [u8; 8], piece: &[u8]) -> Vec<u8> {
    let mut piece = piece.to_vec();
    piece[14..16].copy_from_slice(&SHARD.to_le_bytes());
    sealed_as(version, magic, &piece)
}

/// The first byte says which structure the others are: two that lie between version and pool, and
/// what comes after the pool. The head is always right. What is understood is the same once it was
/// written again and read.
pub fn pool_media(input: &[u8]) {
    let Some(([which, small @ ..], rest)) = input.split_first_chunk::<3>() else { return };
    let rest = &rest[..rest.len().min(16 * BLOCK)];
    let piece = [&[0; 14][..], &small[..], &[0; 16][..], rest].concat();
    match which % 7 {
        0 => label(&piece),
        1 => root(&piece),
        2 => catalog(&piece),
        3 => manifest(&piece),
        4 => member(&piece),
        6 => manifest_page(&piece),
        _ => stripe(&piece),
    }
}

fn label(piece: &[u8]) {
    if let Ok(label) = Label::from_block(&sealed(*b"FLASHLBL", piece)[..BLOCK]) {
        let again = Label::from_block(&label.to_block()[..]);
        assert_eq!(again.as_ref(), Ok(&label));
    }
}

fn root(piece: &[u8]) {
    let piece = &piece[..piece.len().min(BLOCK)];
    let block = sealed_of_shard(VERSION, *b"FLASHROO", piece);
    if let Ok(root) = Root::from_block(&block, POOL, SHARD) {
        let again = Root::from_block(&root.to_block()[..], POOL, SHARD);
        assert_eq!(again.as_ref(), Ok(&root));
    }
}

/// Each block is a page of its own.
fn catalog(piece: &[u8]) {
    let mut loader = Loader::default();
    for block in piece.chunks(PAGE) {
        let block = sealed(*b"FLASHCAT", block);
        let Ok(page) = Page::read(&block, POOL) else { return };
        if loader.take(page, &block).is_err() {
            return;
        }
    }
    let catalog = loader.catalog();
    let mut again = Loader::default();
    for block in catalog.to_base(POOL).chunks_exact(PAGE) {
        let page = Page::read(block, POOL);
        assert_eq!(page.and_then(|page| again.take(page, block)), Ok(()));
    }
    assert_eq!(again.catalog(), catalog);
}

fn manifest(piece: &[u8]) {
    let Some(geometry) = geometry() else { return };
    // As format 3 has it, and as it is since.
    for version in [VERSION, VERSION + 1] {
        let bytes = sealed_of_shard(version, *b"FLASHMAN", piece);
        if let Ok(Read::Paged(manifest)) = Read::from_bytes(&bytes, POOL, SHARD, geometry) {
            let bytes = manifest.to_bytes(POOL, geometry.width());
            let again = Read::from_bytes(&bytes, POOL, SHARD, geometry);
            assert_eq!(again.as_ref(), Ok(&Read::Paged(manifest)));
        }
    }
}

fn manifest_page(piece: &[u8]) {
    let Some(geometry) = geometry() else { return };
    let piece = &piece[..piece.len().min(BLOCK)];
    let block = sealed_of_shard(VERSION + 1, *b"FLASHMPG", piece);
    let _ = ManifestPage::from_block(&block, POOL, SHARD, geometry);
}

fn member(piece: &[u8]) {
    if let Ok(header) = MemberHeader::read(&sealed(*b"FLASHAUH", piece)[..BLOCK], POOL) {
        let mut block = [0; BLOCK];
        MemberHeader::write(&header.segment, header.column, POOL, &mut block);
        assert_eq!(MemberHeader::read(&block, POOL).as_ref(), Ok(&header));
    }
}

fn stripe(piece: &[u8]) {
    let Some(geometry) = geometry() else { return };
    let bytes = sealed(*b"FLASHSTR", piece);
    if let Ok(header) = StripeHeader::read(&bytes[..BLOCK], POOL, geometry) {
        // Walking through its records finds what each speaks of.
        let _ = header.placed().map(|record| record.crcs.len()).sum::<usize>();
    }
}
