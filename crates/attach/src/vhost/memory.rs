//! The memory of a guest, as its front end shares it.

use std::io;
use std::rc::Rc;

use reactor::shared::Mapping;
use stdx::num::{u64_of, usize64};

use super::message::Region;

/// A region, mapped.
#[derive(Debug)]
struct Mapped {
    guest: u64,
    front_end: u64,
    mapping: Rc<Mapping>,
}

/// All regions of a guest's memory. Every address that comes from the guest or its front end goes through here.
#[derive(Debug, Default)]
pub struct Memory {
    regions: Vec<Mapped>,
}

/// An address that is in no region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:#x} is not in the guest's memory")]
pub struct NotMemory(pub u64);

/// A stretch of one region.
#[derive(Clone, Debug)]
pub struct Area {
    pub mapping: Rc<Mapping>,
    /// Where in the mapping.
    pub at: usize,
}

impl Memory {
    /// Maps regions.
    ///
    /// # Errors
    /// As mmap(2), and when a file is shorter than its region.
    pub fn map(regions: Vec<Region>) -> io::Result<Self> {
        let map = |region: Region| {
            let mapping = Mapping::new(&region.file, region.offset, region.size)?;
            let Region { guest, front_end, .. } = region;
            Ok(Mapped { guest, front_end, mapping: Rc::new(mapping) })
        };
        Ok(Self { regions: regions.into_iter().map(map).collect::<io::Result<_>>()? })
    }

    /// Where `bytes` at an address of the front end are: they have to lie in one region.
    ///
    /// # Errors
    /// [`NotMemory`].
    pub fn of_front_end(&self, address: u64, bytes: usize) -> Result<Area, NotMemory> {
        let find = |region: &Mapped| {
            let at = usize64(address.checked_sub(region.front_end)?);
            let fits = at.checked_add(bytes)? <= region.mapping.len();
            fits.then(|| Area { mapping: Rc::clone(&region.mapping), at })
        };
        self.regions.iter().find_map(find).ok_or(NotMemory(address))
    }

    /// The region with a guest's address, where in it that is, and how many bytes follow there.
    fn of_guest(&self, address: u64) -> Result<(&Mapping, usize, usize), NotMemory> {
        for region in &self.regions {
            let at = usize64(address.wrapping_sub(region.guest));
            if address >= region.guest && at < region.mapping.len() {
                return Ok((&region.mapping, at, region.mapping.len() - at));
            }
        }
        Err(NotMemory(address))
    }

    /// Copies what a guest has at `address`.
    ///
    /// # Errors
    /// [`NotMemory`]: then some of it may have been copied.
    pub fn read(&self, mut address: u64, mut into: &mut [u8]) -> Result<(), NotMemory> {
        while !into.is_empty() {
            let (mapping, at, left) = self.of_guest(address)?;
            let (now, later) = into.split_at_mut(left.min(into.len()));
            mapping.read(at, now);
            // No region ends beyond the last address.
            address = address.wrapping_add(u64_of(now.len()));
            into = later;
        }
        Ok(())
    }

    /// Copies `from` to where a guest has `address`.
    ///
    /// # Errors
    /// As [`Memory::read`].
    pub fn write(&self, mut address: u64, mut from: &[u8]) -> Result<(), NotMemory> {
        while !from.is_empty() {
            let (mapping, at, left) = self.of_guest(address)?;
            let (now, later) = from.split_at(left.min(from.len()));
            mapping.write(at, now);
            address = address.wrapping_add(u64_of(now.len()));
            from = later;
        }
        Ok(())
    }
}
