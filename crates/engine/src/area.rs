//! Reading and writing what lies before the allocation units: labels, roots, catalogs. Every piece
//! is in two slots that are written in turn, so that a torn write leaves the other.

pub mod catalog;

use media::Drive;
use reactor::buffer;
use stdx::num::u64_of;

use crate::address::BLOCK;
use crate::canary::{self, Step};
use crate::error::Result;
use crate::format::catalog::CatalogArea;
use crate::format::label::Label;
use crate::format::root::Root;
use crate::format::{Bad, area};

/// What the two slots of a piece hold.
pub type Slots<T> = [std::result::Result<T, Bad>; 2];

/// The newest valid one of two slots; otherwise why there is none: damage before blankness, since
/// damage is worth telling.
fn newest<T>(slots: Slots<T>, age: impl Fn(&T) -> u64) -> std::result::Result<T, Bad> {
    match slots {
        [Ok(a), Ok(b)] => Ok(if age(&a) >= age(&b) { a } else { b }),
        [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
        [Err(Bad::Blank), Err(bad)] | [Err(bad), Err(_)] => Err(bad),
    }
}

async fn write(drive: &Drive, offset: u64, bytes: &[u8]) -> Result<()> {
    assert!(bytes.len().is_multiple_of(BLOCK), "whole blocks are written");
    let mut at = offset;
    for piece in bytes.chunks(media::drive::TRANSFER_MAX) {
        let mut data = buffer::alloc(piece.len()).await;
        data.copy_from_slice(piece);
        drive.write(at, data, !canary::skips(Step::SuperblockFua)).await?;
        at += u64_of(piece.len());
    }
    Ok(())
}

/// The label a drive carries.
///
/// # Errors
/// The outer one when the drive cannot be read, the inner one when there is no valid label.
pub async fn read_label(drive: &Drive) -> Result<std::result::Result<Label, Bad>> {
    Ok(newest(label_slots(drive).await?, |label| label.epoch))
}

/// Both label slots of a drive.
///
/// # Errors
/// When the drive cannot be read.
pub async fn label_slots(drive: &Drive) -> Result<Slots<Label>> {
    if drive.capacity() < CatalogArea::LEAST.end() {
        return Ok([Err(Bad::Blank), Err(Bad::Blank)]);
    }
    let both = drive.read(area::LABEL, 2 * BLOCK).await?;
    Ok([Label::from_block(&both[..BLOCK]), Label::from_block(&both[BLOCK..])])
}

/// Writes a label; durable when this returns.
///
/// # Errors
/// When the drive fails.
pub async fn write_label(drive: &Drive, label: &Label) -> Result<()> {
    let slot = area::LABEL + (label.epoch % 2) * u64_of(BLOCK);
    write(drive, slot, &label.to_block()[..]).await
}

/// Writes the older one of a drive's label slots again, as it is: nothing changes, but whether the drive takes writes
/// is known.
///
/// # Errors
/// When the drive fails.
pub async fn rewrite_older_label(drive: &Drive) -> Result<()> {
    let epoch = |label: &std::result::Result<Label, Bad>| label.as_ref().ok().map(|l| l.epoch);
    let [a, b] = label_slots(drive).await?;
    let older = area::LABEL + if epoch(&a) < epoch(&b) { 0 } else { u64_of(BLOCK) };
    let held = drive.read(older, BLOCK).await?;
    write(drive, older, &held).await
}

/// Where a shard's root slot is on every drive, in bytes from its beginning.
pub fn root_at(shard: u16, slot: u64) -> u64 {
    area::ROOTS + (u64::from(shard) * 2 + slot) * u64_of(BLOCK)
}

/// The newest root of a shard that a drive carries.
///
/// # Errors
/// As [`read_label`].
pub async fn read_root(
    drive: &Drive,
    pool: [u8; 16],
    shard: u16,
) -> Result<std::result::Result<Root, Bad>> {
    Ok(newest(root_slots(drive, pool, shard).await?, |root| root.generation))
}

/// Both root slots that a drive has for a shard.
///
/// # Errors
/// When the drive cannot be read.
pub async fn root_slots(drive: &Drive, pool: [u8; 16], shard: u16) -> Result<Slots<Root>> {
    let both = drive.read(root_at(shard, 0), 2 * BLOCK).await?;
    Ok([&both[..BLOCK], &both[BLOCK..]].map(|block| Root::from_block(block, pool, shard)))
}

/// Writes a root; durable when this returns.
///
/// # Errors
/// When the drive fails.
pub async fn write_root(drive: &Drive, root: &Root) -> Result<()> {
    write(drive, root_at(root.shard, root.generation % 2), &root.to_block()[..]).await
}

/// As [`write_root`], and the drive has no other root of the shard any more.
///
/// # Errors
/// When the drive fails.
pub async fn write_only_root(drive: &Drive, root: &Root) -> Result<()> {
    write_root(drive, root).await?;
    write(drive, root_at(root.shard, 1 - root.generation % 2), &[0; BLOCK]).await
}

/// Writes what is there already where a root of this generation goes: nothing changes, but whether the drive takes it is
/// known. Of what cannot be read that is not.
///
/// # Errors
/// When the drive fails.
pub async fn rewrite_root(drive: &Drive, shard: u16, generation: u64) -> Result<()> {
    let at = root_at(shard, generation % 2);
    let Ok(held) = drive.read(at, BLOCK).await else { return Ok(()) };
    write(drive, at, &held).await
}

/// Takes roots and catalogs away, of which a drive that was away may have newer ones than those that count.
///
/// # Errors
/// When the drive fails.
pub async fn wipe_copies(drive: &Drive, catalog: CatalogArea) -> Result<()> {
    drive.write_zeroes(area::ROOTS, catalog.end() - area::ROOTS, true).await?;
    Ok(drive.flush().await?)
}

/// Makes so much of a drive's beginning blank: its labels, its log and the headers of its units are nobody's any more.
///
/// # Errors
/// When the drive fails.
pub async fn wipe_front(drive: &Drive, bytes: u64) -> Result<()> {
    drive.write_zeroes(0, bytes, true).await?;
    Ok(drive.flush().await?)
}

/// Makes a drive blank: no label, root or catalog of an earlier pool is found on it again.
///
/// # Errors
/// When the drive fails.
pub async fn wipe(drive: &Drive, catalog: CatalogArea) -> Result<()> {
    drive.write_zeroes(0, catalog.end(), true).await?;
    Ok(drive.flush().await?)
}
