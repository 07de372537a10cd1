//! The manifest: which tables there are. Drawn in `docs/format.md`.

use super::flat::{END, Flat, flat, unflat};
use super::limits::{LEVELS, MapLimits};
use super::state::State;
use super::table::{Level, Table};
use super::{Map, Pages};
use crate::address::{BLOCK_BITS, Encoding, Entry, Location, SegmentId, View};
use crate::error::{Error, Kind, Result};
use crate::format::{self, Bad};
use std::rc::Rc;
use stdx::num::{u16_of, u32_of, u64_of, usize32};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"FLmapset";

/// Groups from here on are levels, those below flushed runs from the oldest on.
const GROUP_LEVELS: u16 = 0x8000;

/// A location that is none.
const NONE: u64 = u64::MAX;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    reserved: U16,
    length: U32,
    tables: U32,
    orphans: U32,
    /// Tables from this number on say whether they have references; 0 where none does. Programs of before pass this by.
    told_from: U32,
    next_table: U64,
}

const _: () = assert!(size_of::<Head>() == 40);
const _: () = assert!(std::mem::offset_of!(Head, length) == 16);
const _: () = assert!(std::mem::offset_of!(Head, next_table) == 32);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Record {
    id: U64,
    first_block: U64,
    last_block: U64,
    first_view: U32,
    last_view: U32,
    blocks: U64,
    index: U64,
    filters: U64,
    holes: U64,
    index_crc: U32,
    filters_crc: U32,
    holes_crc: U32,
    leaves: U32,
    pages: U32,
    filter_pages: U32,
    group: U16,
    segments: U16,
    /// [`VERSIONS`], [`STACKS`] and [`REFERENCES`]. Bit 0 is set aside: where the lowest and the highest version of its items follow the
    /// segments.
    flags: U32,
}

/// Some item has another version than the first.
const VERSIONS: u32 = 1 << 1;

/// Some blocks have several versions.
const STACKS: u32 = 1 << 2;

/// Some item is a reference. Tables before `told_from` do not say so, whatever they have.
const REFERENCES: u32 = 1 << 3;

const _: () = assert!(size_of::<Record>() == 96);
const _: () = assert!(std::mem::offset_of!(Record, index) == 40);
const _: () = assert!(std::mem::offset_of!(Record, index_crc) == 64);
const _: () = assert!(std::mem::offset_of!(Record, group) == 88);

fn record(table: &Table, group: u16, told_from: u64) -> Record {
    let refers = table.may_refer && table.id >= told_from;
    let (first, last) = (unflat(table.low), unflat(table.high - 1));
    let location = |e: Option<Entry>| U64::new(e.map_or(NONE, |e| e.location.to_bits()));
    let crc = |e: Option<Entry>| U32::new(e.map_or(0, |e| e.crc));
    let filters = table.filters.map(|(entry, _)| entry);
    Record {
        id: U64::new(table.id),
        first_block: U64::new(first.block),
        last_block: U64::new(last.block),
        first_view: U32::new(first.view.get()),
        last_view: U32::new(last.view.get()),
        blocks: U64::new(table.blocks),
        index: location(Some(table.index)),
        filters: location(filters),
        holes: location(table.holes),
        index_crc: crc(Some(table.index)),
        filters_crc: crc(filters),
        holes_crc: crc(table.holes),
        leaves: U32::new(table.leaves),
        pages: U32::new(table.pages),
        filter_pages: U32::new(table.filters.map_or(0, |(_, n)| n)),
        group: U16::new(group),
        segments: U16::new(u16_of(table.segments.len())),
        flags: U32::new(
            if table.has_versions { VERSIONS } else { 0 }
                | if table.has_stacks { STACKS } else { 0 }
                | if refers { REFERENCES } else { 0 },
        ),
    }
}

fn entry(location: U64, crc: U32) -> std::result::Result<Option<Entry>, Bad> {
    if location.get() == NONE {
        return Ok(None);
    }
    let location = Location::from_bits(location.get()).ok_or(Bad::Field("location"))?;
    Ok(Some(Entry { location, crc: crc.get() }))
}

fn position(view: U32, block: U64) -> std::result::Result<Flat, Bad> {
    if block.get() >> BLOCK_BITS != 0 {
        return Err(Bad::Field("key"));
    }
    Ok(flat(View::new(view.get()), block.get()))
}

fn table(
    record: &Record,
    segments: Vec<SegmentId>,
    told_from: u64,
) -> std::result::Result<Table, Bad> {
    let low = position(record.first_view, record.first_block)?;
    let high = position(record.last_view, record.last_block)? + 1;
    let index = entry(record.index, record.index_crc)?.ok_or(Bad::Field("index page"))?;
    let filters = entry(record.filters, record.filters_crc)?;
    if low >= high || high > END {
        return Err(Bad::Field("range of keys"));
    }
    let flags = record.flags.get();
    if flags & !(VERSIONS | STACKS | REFERENCES) != 0 {
        return Err(Bad::Field("flags of a table, of a later version,"));
    }
    if flags & (VERSIONS | STACKS) == STACKS {
        return Err(Bad::Field("flags of a table"));
    }
    Ok(Table {
        id: record.id.get(),
        low,
        high,
        blocks: record.blocks.get(),
        leaves: record.leaves.get(),
        left: record.leaves.get(),
        pages: record.pages.get(),
        index,
        filters: filters.map(|e| (e, record.filter_pages.get())),
        holes: entry(record.holes, record.holes_crc)?,
        segments,
        has_versions: flags & VERSIONS != 0,
        has_stacks: flags & STACKS != 0,
        may_refer: flags & REFERENCES != 0 || record.id.get() < told_from,
        filter: None,
    })
}

/// What is left of the bytes to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take<T: FromBytes>(&mut self) -> std::result::Result<T, Bad> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Bad::Field("length"))?;
        self.0 = rest;
        Ok(value)
    }
}

fn put_group(
    tables: &mut [Vec<Rc<Table>>],
    runs: &mut Vec<Vec<Rc<Table>>>,
    group: u16,
    t: Table,
) -> std::result::Result<(), Bad> {
    let group = usize::from(group);
    let list = if let Some(level) = group.checked_sub(usize::from(GROUP_LEVELS)) {
        tables.get_mut(level).ok_or(Bad::Field("level"))?
    } else {
        if group == runs.len() {
            runs.push(Vec::new());
        }
        runs.get_mut(group).ok_or(Bad::Field("run"))?
    };
    if list.last().is_some_and(|before| before.high > t.low) {
        return Err(Bad::Field("order of tables"));
    }
    list.push(Rc::new(t));
    Ok(())
}

/// Reads a manifest into a state, and the pages that belong to no table.
fn decode(bytes: &[u8], limits: MapLimits) -> std::result::Result<(State, Vec<Location>), Bad> {
    format::check(bytes, MAGIC)?;
    let mut rest = Rest(bytes);
    let head: Head = rest.take()?;
    if usize32(head.length.get()) != bytes.len() {
        return Err(Bad::Field("length"));
    }
    let told_from = match head.told_from.get() {
        0 => head.next_table.get(),
        from => u64::from(from),
    };
    let (mut levels, mut runs) = (vec![Vec::new(); LEVELS], Vec::new());
    for _ in 0..head.tables.get() {
        let record: Record = rest.take()?;
        let mut segments = Vec::new();
        for _ in 0..record.segments.get() {
            segments.push(SegmentId::new(rest.take::<U32>()?.get()));
        }
        if record.id.get() >= head.next_table.get() {
            return Err(Bad::Field("table id"));
        }
        let table = table(&record, segments, told_from)?;
        put_group(&mut levels, &mut runs, record.group.get(), table)?;
    }
    let mut orphans = Vec::new();
    for _ in 0..head.orphans.get() {
        let bits = rest.take::<U64>()?.get();
        orphans.push(Location::from_bits(bits).ok_or(Bad::Field("location"))?);
    }
    if !rest.0.is_empty() {
        return Err(Bad::Field("length"));
    }
    let mut state = State::new(limits);
    (state.next_table, state.told_from) = (head.next_table.get(), told_from);
    state.runs = runs.into_iter().map(Level::from_tables).collect();
    for (level, tables) in state.levels.iter_mut().zip(levels) {
        *level = Level::from_tables(tables);
    }
    state.filters_missing = true;
    Ok((state, orphans))
}

/// The records of tables in `bytes`, each with the number of its table.
///
/// # Errors
/// When they do not make up the bytes.
pub fn records(bytes: &[u8]) -> std::result::Result<Vec<(u64, &[u8])>, Bad> {
    let (mut rest, mut all) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (head, _) = Record::ref_from_prefix(rest).map_err(|_| Bad::Field("table"))?;
        let len = size_of::<Record>() + usize::from(head.segments.get()) * size_of::<U32>();
        let (record, after) = rest.split_at_checked(len).ok_or(Bad::Field("table"))?;
        all.push((head.id.get(), record));
        rest = after;
    }
    Ok(all)
}

/// The manifest of whose tables only the number is in `parts` ([`Map::manifest_without_tables`]), and which has these
/// records of them.
///
/// # Errors
/// When they are not its tables, or it is damaged.
pub fn assemble(parts: &[u8], tables: &[&[u8]]) -> std::result::Result<Vec<u8>, Bad> {
    format::check(parts, MAGIC)?;
    let (head, orphans) = Head::read_from_prefix(parts).map_err(|_| Bad::Field("length"))?;
    if usize32(head.length.get()) != parts.len() || usize32(head.tables.get()) != tables.len() {
        return Err(Bad::Field("length"));
    }
    let mut ordered = Vec::new();
    for table in tables {
        let (record, _) = Record::ref_from_prefix(table).map_err(|_| Bad::Field("table"))?;
        let low = position(record.first_view, record.first_block)?;
        ordered.push((record.group.get(), low, *table));
    }
    ordered.sort_unstable();
    let mut out = head.as_bytes().to_vec();
    ordered.iter().for_each(|(.., table)| out.extend_from_slice(table));
    out.extend_from_slice(orphans);
    let length = u32::try_from(out.len()).map_err(|_| Bad::Field("length"))?;
    out[std::mem::offset_of!(Head, length)..][..size_of::<U32>()]
        .copy_from_slice(&length.to_le_bytes());
    format::seal(&mut out, MAGIC);
    Ok(out)
}

impl<P: Pages> Map<P> {
    /// Has every table's number and record looked at, as the manifest has it. Some 110 bytes a table, of which a volume
    /// of 1 TiB full of random blocks has some 1500.
    pub fn each_table(&self, mut look: impl FnMut(u64, &[u8])) {
        let state = self.state.borrow();
        let mut bytes = Vec::new();
        let levels = (0..).map(|l| GROUP_LEVELS + l).zip(&state.levels);
        for (group, level) in (0..).zip(&state.runs).chain(levels) {
            for table in level.tables() {
                bytes.clear();
                bytes.extend_from_slice(record(table, group, state.told_from).as_bytes());
                for segment in &table.segments {
                    bytes.extend_from_slice(&segment.get().to_le_bytes());
                }
                look(table.id, &bytes);
            }
        }
    }

    /// Names every table: with it and the pages, [`open`](Self::open) gives the map as of the last
    /// flush. What was inserted since is not in it.
    #[must_use]
    pub fn manifest(&self) -> Vec<u8> {
        let mut out = vec![0; size_of::<Head>()];
        self.each_table(|_, record| out.extend_from_slice(record));
        self.sealed(out)
    }

    /// The manifest without the records of its tables, which [`assemble`] puts together again.
    #[must_use]
    pub fn manifest_without_tables(&self) -> Vec<u8> {
        self.sealed(vec![0; size_of::<Head>()])
    }

    /// With the locations of pages that belong to no table yet, and the head.
    fn sealed(&self, mut out: Vec<u8>) -> Vec<u8> {
        let state = self.state.borrow();
        let mut orphans = 0;
        for appended in &self.appended {
            for location in appended.borrow().iter() {
                out.extend_from_slice(&location.to_bits().to_le_bytes());
                orphans += 1;
            }
        }
        let tables: usize = state.runs.iter().chain(&state.levels).map(|l| l.tables().len()).sum();
        let head = Head {
            magic: MAGIC,
            crc: U32::new(0),
            version: U16::new(format::VERSION),
            reserved: U16::new(0),
            length: U32::new(u32_of(out.len())),
            tables: U32::new(u32_of(tables)),
            orphans: U32::new(orphans),
            told_from: U32::new(u32::try_from(state.told_from).unwrap_or(0)),
            next_table: U64::new(state.next_table),
        };
        out[..size_of::<Head>()].copy_from_slice(head.as_bytes());
        format::seal(&mut out, MAGIC);
        out
    }

    /// Opens the map of a manifest. Pages are read when they are needed; filters by
    /// [`maintain`](Self::maintain). Pages that were appended for tables unfinished when the manifest
    /// was taken are reported as superseded.
    ///
    /// # Errors
    /// `Corrupt` when the manifest is damaged or another version's.
    pub fn open(manifest: &[u8], pages: P, limits: MapLimits) -> Result<Self> {
        let (state, orphans) = decode(manifest, limits).map_err(|bad| {
            let bytes = u64_of(manifest.len());
            Error::caused(Kind::Corrupt, format!("map manifest of {bytes} bytes"), bad)
        })?;
        for location in orphans {
            pages.superseded(location, Encoding::PLAIN, 1);
        }
        Ok(Self::with_state(pages, state))
    }
}
