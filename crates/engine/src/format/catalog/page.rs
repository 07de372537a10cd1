//! Pages of the catalog: what its bases and edits are made of.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use stdx::num::{u32_of, usize32, usize64};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Catalog, Edit, Kind, Object, Record, Reservation};
use crate::address::{BLOCK, View};
use crate::format::{Bad, VERSION, check, name_from_bytes, name_to_bytes, seal};
use crate::limits::{NAME_MAX, QUOTA_UNIT};

const MAGIC: [u8; 8] = *b"FLASHCAT";

/// Bytes of a page: one block, which drives write whole or not at all.
pub const PAGE: usize = BLOCK;

/// Records of a page at most.
pub const RECORDS: usize = 25;

/// Pages of a base with so many objects; an empty one has one as well.
#[must_use]
pub fn base_pages(objects: usize) -> u32 {
    u32_of(objects.div_ceil(RECORDS)).max(1)
}

/// What a page is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All objects that there were.
    Base,
    /// What changed.
    Edit,
}

/// What a page says before its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub part: Part,
    /// What the catalog is of with this base, or once this edit is applied.
    pub generation: u64,
    /// Which page of its base or edit it is, and of how many.
    pub index: u32,
    pub pages: u32,
    /// The view the next object gets, and how many objects there are by then.
    pub next_view: u32,
    pub objects: u32,
    records: usize,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    crc: U32,
    version: U16,
    part: u8,
    records: u8,
    pool: [u8; 16],
    generation: U64,
    index: U32,
    pages: U32,
    next_view: U32,
    objects: U32,
    reserved: [u8; 40],
}
const _: () = assert!(size_of::<Head>() == 96);
const _: () = assert!(std::mem::offset_of!(Head, generation) == 32);
const _: () = assert!(size_of::<Head>() + RECORDS * size_of::<Raw>() == PAGE);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    view: U32,
    kind: u8,
    block_shift: u8,
    flags: U16,
    id: [u8; 16],
    bytes: U64,
    shrunk_from: U64,
    parent: U32,
    group: U32,
    parent_epoch: U64,
    epoch: U32,
    reservation: U32,
    created: U64,
    placement: U32,
    first_view: U32,
    detached: U64,
    quota: U32,
    window: U32,
    name: [u8; NAME_MAX],
}
const _: () = assert!(size_of::<Raw>() == 160);
const _: () = assert!(std::mem::offset_of!(Raw, parent) == 40);
const _: () = assert!(std::mem::offset_of!(Raw, name) == 96);

/// What stands in the place of a kind where an object is removed.
const REMOVED: u8 = 0;

/// The flags there are. Whoever gives reserved bytes a meaning sets another one, which this program refuses.
const DELETED: u16 = 1;
/// Its volume was rolled back: it had another view first, which is named.
const ROLLED_BACK: u16 = 2;
/// It is being given what it inherits as its own.
const DETACHING: u16 = 4;
/// It has that since an epoch, which is named.
const DETACHED: u16 = 8;
/// It has a quota.
const QUOTA: u16 = 16;
/// A host has a direct write window of it.
const WINDOW: u16 = 32;
/// Space is kept for it.
const RESERVATION: u16 = 64;

/// What stands in the place of so many units where all of a volume is reserved.
const ALL: u32 = u32::MAX;

impl Kind {
    const fn to_byte(self) -> u8 {
        match self {
            Self::Volume => 1,
            Self::Snapshot => 2,
            Self::Clone => 3,
            Self::Group => 4,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Volume),
            2 => Some(Self::Snapshot),
            3 => Some(Self::Clone),
            4 => Some(Self::Group),
            _ => None,
        }
    }
}

fn number(view: Option<View>) -> U32 {
    view.map_or(0, View::get).into()
}

const fn flags(object: &Object) -> u16 {
    let deleted = if object.deleted { DELETED } else { 0 };
    let rolled_back = if object.first_view.get() == object.view.get() { 0 } else { ROLLED_BACK };
    let detaching = if object.detaching { DETACHING } else { 0 };
    let detached = if object.detached.is_some() { DETACHED } else { 0 };
    let quota = if object.quota == 0 { 0 } else { QUOTA };
    let window = if object.window == 0 { 0 } else { WINDOW };
    let reservation = if object.reservation.is_none() { 0 } else { RESERVATION };
    deleted | rolled_back | detaching | detached | quota | window | reservation
}

fn units(reservation: Option<Reservation>) -> u32 {
    match reservation {
        None => 0,
        Some(Reservation::Bytes(bytes)) => u32_of(usize64(bytes / QUOTA_UNIT)),
        Some(Reservation::All) => ALL,
    }
}

fn reservation(units: u32) -> Reservation {
    match units {
        ALL => Reservation::All,
        units => Reservation::Bytes(u64::from(units) * QUOTA_UNIT),
    }
}

fn view(number: U32) -> Option<View> {
    Some(View::new(number.get())).filter(|view| view.get() != 0)
}

impl Raw {
    fn removed(view: View) -> Self {
        let mut raw = Self::new_zeroed();
        raw.view = view.get().into();
        raw
    }

    fn new(record: &Record) -> Self {
        match record {
            Record::Put(object) => Self::put(object),
            Record::Remove(view) => Self::removed(*view),
        }
    }

    fn put(object: &Object) -> Self {
        Self {
            view: object.view.get().into(),
            kind: object.kind.to_byte(),
            block_shift: stdx::num::low8(u64::from(object.block_size.trailing_zeros())),
            flags: flags(object).into(),
            id: object.id,
            bytes: object.bytes.into(),
            shrunk_from: object.shrunk_from.into(),
            parent: number(object.parent),
            group: number(object.group),
            parent_epoch: object.parent_epoch.into(),
            epoch: u32_of(usize64(object.epoch)).into(),
            reservation: units(object.reservation).into(),
            created: object.created.into(),
            placement: object.placement.into(),
            first_view: number(Some(object.first_view).filter(|first| *first != object.view)),
            detached: object.detached.unwrap_or(0).into(),
            quota: u32_of(usize64(object.quota / QUOTA_UNIT)).into(),
            window: object.window.into(),
            name: name_to_bytes(&object.name),
        }
    }

    fn read(&self) -> Result<Record, Bad> {
        let number = view(self.view).ok_or(Bad::Field("view"))?;
        if self.kind == REMOVED {
            return Ok(Record::Remove(number));
        }
        let flags = self.flags.get();
        if flags & !(DELETED | ROLLED_BACK | DETACHING | DETACHED | QUOTA | WINDOW | RESERVATION)
            != 0
        {
            return Err(Bad::Field("flags of an object"));
        }
        if flags & RESERVATION == 0 && self.reservation.get() != 0 {
            return Err(Bad::Field("reservation of an object"));
        }
        let first_view =
            if flags & ROLLED_BACK == 0 { Some(number) } else { view(self.first_view) };
        let block = 1_u32.checked_shl(self.block_shift.into());
        let object = Object {
            view: number,
            kind: Kind::from_byte(self.kind).ok_or(Bad::Field("kind of an object"))?,
            name: Arc::from(name_from_bytes(&self.name)?),
            id: self.id,
            bytes: self.bytes.get(),
            shrunk_from: self.shrunk_from.get(),
            block_size: block.ok_or(Bad::Field("block of an object"))?,
            deleted: flags & DELETED != 0,
            parent: view(self.parent),
            parent_epoch: self.parent_epoch.get(),
            group: view(self.group),
            placement: self.placement.get(),
            first_view: first_view.ok_or(Bad::Field("first view"))?,
            epoch: self.epoch.get().into(),
            detaching: flags & DETACHING != 0,
            detached: (flags & DETACHED != 0).then(|| self.detached.get()),
            quota: if flags & QUOTA == 0 { 0 } else { u64::from(self.quota.get()) * QUOTA_UNIT },
            reservation: (flags & RESERVATION != 0).then(|| reservation(self.reservation.get())),
            window: if flags & WINDOW == 0 { 0 } else { self.window.get() },
            created: self.created.get(),
        };
        object.check()?;
        Ok(Record::Put(object))
    }
}

impl Page {
    /// The first page of a catalog's base.
    fn first_of(catalog: &Catalog) -> Self {
        Self {
            part: Part::Base,
            generation: catalog.generation,
            index: 0,
            pages: base_pages(catalog.len()),
            next_view: catalog.next_view(),
            objects: u32_of(catalog.len()),
            records: 0,
        }
    }

    /// The page of `pool` in a block.
    ///
    /// # Errors
    /// `Blank` where none of this pool was written, and what is wrong with the one there.
    pub fn read(block: &[u8], pool: [u8; 16]) -> Result<Self, Bad> {
        check(block, MAGIC)?;
        let (head, _) = Head::ref_from_prefix(block).map_err(|_| Bad::Blank)?;
        if head.pool != pool {
            return Err(Bad::Blank);
        }
        let part = match head.part {
            1 => Part::Base,
            2 => Part::Edit,
            _ => return Err(Bad::Field("part")),
        };
        let page = Self {
            part,
            generation: head.generation.get(),
            index: head.index.get(),
            pages: head.pages.get(),
            next_view: head.next_view.get(),
            objects: head.objects.get(),
            records: head.records.into(),
        };
        if page.records > RECORDS || page.index >= page.pages {
            return Err(Bad::Field("records"));
        }
        Ok(page)
    }

    /// Whether this is the page of that number of the base or edit that begins with `first`.
    #[must_use]
    pub fn goes_on(&self, first: &Self, index: u32) -> bool {
        let alike = |of: &Self| (of.part, of.generation, of.pages, of.next_view, of.objects);
        self.index == index && alike(self) == alike(first)
    }

    /// The records of the page, which is the one in `block`.
    ///
    /// # Errors
    /// Each has its own: what is wrong with it.
    pub fn records(self, block: &[u8]) -> impl Iterator<Item = Result<Record, Bad>> {
        let raw = block.get(size_of::<Head>()..).unwrap_or_default();
        raw.chunks_exact(size_of::<Raw>()).take(self.records).map(|raw| {
            let raw = Raw::ref_from_bytes(raw).map_err(|_| Bad::Field("records"))?;
            raw.read()
        })
    }

    /// Appends this page with some records.
    fn write(self, records: impl Iterator<Item = Raw>, pool: [u8; 16], to: &mut Vec<u8>) {
        let from = to.len();
        to.resize(from + PAGE, 0);
        let page = &mut to[from..];
        let (front, rest) = page.split_at_mut(size_of::<Head>());
        let mut count = 0;
        for (record, raw) in records.zip(rest.chunks_exact_mut(size_of::<Raw>())) {
            raw.copy_from_slice(record.as_bytes());
            count += 1;
        }
        let head = Head {
            magic: MAGIC,
            crc: 0.into(),
            version: VERSION.into(),
            part: match self.part {
                Part::Base => 1,
                Part::Edit => 2,
            },
            records: count,
            pool,
            generation: self.generation.into(),
            index: self.index.into(),
            pages: self.pages.into(),
            next_view: self.next_view.into(),
            objects: self.objects.into(),
            reserved: [0; 40],
        };
        front.copy_from_slice(head.as_bytes());
        seal(page, MAGIC);
    }
}

/// All pages of a base or an edit.
fn write_pages(first: Page, records: &[Record], pool: [u8; 16], to: &mut Vec<u8>) {
    let pages = base_pages(records.len());
    for index in 0..pages {
        let from = usize32(index) * RECORDS;
        let some = records[from..].iter().take(RECORDS).map(Raw::new);
        Page { index, pages, ..first }.write(some, pool, to);
    }
}

impl Edit {
    /// The edit as pages, which make a catalog of this generation and so many objects of the one before.
    #[must_use]
    pub fn to_pages(&self, pool: [u8; 16], generation: u64, objects: usize) -> Vec<u8> {
        let first = Page {
            part: Part::Edit,
            generation,
            index: 0,
            pages: 1,
            next_view: self.next_view,
            objects: u32_of(objects),
            records: 0,
        };
        let mut bytes = Vec::new();
        write_pages(first, &self.records, pool, &mut bytes);
        bytes
    }
}

/// Objects that one step of a [`Base`] looks at: some 100 us of a core.
const OBJECTS_A_STEP: usize = 4 * RECORDS;

/// The pages of a base in the making, some at a time: all of a large catalog would hold the core for 100 ms. It is to be
/// the same catalog in each step, as it was in the first.
pub struct Base {
    pool: [u8; 16],
    /// What all pages say.
    first: Page,
    bytes: Vec<u8>,
    /// Of the page that is being filled.
    records: Vec<Raw>,
    /// Groups come first: what is put names only what is there.
    groups: bool,
    /// The object that was looked at last, among groups or others.
    last: Option<View>,
}

impl Base {
    #[must_use]
    pub fn new(catalog: &Catalog, pool: [u8; 16]) -> Self {
        let first = Page::first_of(catalog);
        let bytes = Vec::with_capacity(usize32(first.pages) * PAGE);
        let records = Vec::with_capacity(RECORDS);
        Self { pool, first, bytes, records, groups: true, last: None }
    }

    /// Goes on with some objects; tells whether that was all of them.
    ///
    /// # Panics
    /// When the catalog was changed meanwhile: with pages of two states it could not be loaded.
    #[must_use]
    pub fn step(&mut self, catalog: &Catalog) -> bool {
        assert_eq!(self.first, Page::first_of(catalog), "a base is of one state of the catalog");
        let mut left = OBJECTS_A_STEP;
        loop {
            let from = (self.last.map_or(Unbounded, Excluded), Unbounded);
            let before = left;
            for object in catalog.objects.range(from).map(|(_, object)| object).take(before) {
                left -= 1;
                self.last = Some(object.view);
                if object.is_group() == self.groups {
                    self.records.push(Raw::put(object));
                }
                if self.records.len() == RECORDS {
                    self.end_page();
                }
            }
            if left == 0 {
                return false;
            }
            if !self.groups {
                break;
            }
            (self.groups, self.last) = (false, None);
        }
        // An empty catalog has a page as well.
        if self.bytes.len() < usize32(self.first.pages) * PAGE {
            self.end_page();
        }
        true
    }

    fn end_page(&mut self) {
        let page = Page { index: u32_of(self.bytes.len() / PAGE), ..self.first };
        page.write(self.records.drain(..), self.pool, &mut self.bytes);
    }

    /// All pages, once there is nothing more to go on with.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        debug_assert_eq!(self.bytes.len(), usize32(self.first.pages) * PAGE);
        self.bytes
    }
}

impl Catalog {
    /// The catalog as the pages of a base, all at once.
    #[must_use]
    pub fn to_base(&self, pool: [u8; 16]) -> Vec<u8> {
        let mut base = Base::new(self, pool);
        while !base.step(self) {}
        base.into_bytes()
    }
}

/// Makes a catalog of the pages of a base and of the edits that follow it, given in their order.
#[derive(Debug, Default)]
pub struct Loader {
    catalog: Catalog,
    edit: Edit,
}

impl Loader {
    /// Takes the next page, which is the one in `block`: the caller knows that it is next.
    ///
    /// # Errors
    /// What in it makes no sense. The catalog stays as it was before that edit; with a base like that there is none.
    pub fn take(&mut self, page: Page, block: &[u8]) -> Result<(), Bad> {
        if page.index == 0 {
            self.edit = Edit { next_view: page.next_view, records: Vec::new() };
        }
        for record in page.records(block) {
            self.edit.records.push(record?);
        }
        let is_last = page.index + 1 == page.pages;
        if page.part == Part::Edit && !is_last {
            return Ok(());
        }
        let objects = usize32(page.objects);
        let edit = std::mem::take(&mut self.edit);
        if is_last && self.catalog.check(&edit)? != objects {
            return Err(Bad::Field("objects"));
        }
        self.catalog.apply(&edit)?;
        self.edit.next_view = edit.next_view;
        self.catalog.generation = page.generation;
        Ok(())
    }

    #[must_use]
    pub fn catalog(self) -> Catalog {
        self.catalog
    }
}
