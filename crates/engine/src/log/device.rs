//! What the log's bytes lie on. Records are always in memory, where reads find them; on drives that
//! memory is an image of the ring, and commits write it out.

mod image;
mod reading;

pub(super) use reading::read_slot;

use super::control::{Control, Holder, SLOT};
use super::limits::{
    CONTROL_BYTES, FAR_PATIENCE, PAGE, PASSING_ATTEMPTS, PASSING_PAUSE, TELL_ATTEMPTS,
};
use super::members::{MemberId, Owner, Tenant};
use super::place::{Area, Device, Joining, Place, Site, Zone};
use crate::canary::{self, Canary, Step};
use crate::drives::Company;
use crate::error::{Error, Kind, Result};
use crate::limits::LOG_MEMBERS_MAX;
use image::Image;
use media::Pmem;
use media::drive::{PASSING_PATIENCE, TRANSFER_MAX};
use reactor::buffer::Buffer;
use reactor::{join_all, now};
use std::cell::{Cell, Ref, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::num::{u64_of, usize64};

/// A place as one of the log's devices.
pub(super) struct Member {
    tenant: Tenant,
    /// The drive of a zone.
    drive: Option<u16>,
    id: MemberId,
    place: Place,
}

impl Member {
    /// On another target's namespace.
    const fn is_remote(&self) -> bool {
        matches!(self.place, Place::Zone(_)) && self.drive.is_none()
    }
}

/// What became of a write to a member.
enum Written {
    Done,
    Failed(Option<media::Error>),
}

/// What is written to members, at the same place of each.
enum Bytes<'a> {
    /// Of the ring, from there on, as the image has them.
    Ring { at: u64, len: usize },
    /// A control slot, which names each.
    Control(&'a Control),
}

impl Bytes<'_> {
    /// Where they go.
    const fn offset(&self) -> u64 {
        match self {
            Self::Ring { at, .. } => CONTROL_BYTES + *at,
            Self::Control(control) => control.offset(),
        }
    }
}

pub(super) struct Store {
    owner: Owner,
    /// By slot.
    pub(super) members: RefCell<[Option<Rc<Member>>; LOG_MEMBERS_MAX]>,
    /// Where records gather that group commit writes; none where they go straight to memory.
    image: RefCell<Option<Rc<Image>>>,
    /// Records go straight to devices of memory: one is durable as soon as it is stored and fenced.
    pub(super) direct: Cell<bool>,
    /// Bytes that recovery puts right on memory, kept aside until the log is opened: looking changes
    /// nothing.
    amended: RefCell<Vec<(u64, Vec<u8>)>>,
    /// A device of memory did not take what was stored, or does not give it: to be told before anything is
    /// acknowledged.
    troubled: Cell<bool>,
    /// How often something was added that takes what is stored from then on.
    pub(super) changes: Cell<u64>,
    /// Members that did not answer when they were read for recovery, a bit each: what they have is not known.
    silent: Cell<u32>,
    /// Of the control block that was written last; 0 when none was.
    generation: Cell<u64>,
}

fn invalid<T>(what: &str) -> Result<T> {
    Err(Error::new(Kind::Invalid, format!("commit log: {what}")))
}

/// Whether a log of so many bytes fits there.
fn check_place(place: &Place, bytes: u64) -> Result<()> {
    let fits = |offset: u64, capacity: u64| {
        offset.is_multiple_of(PAGE) && offset.checked_add(bytes).is_some_and(|e| e <= capacity)
    };
    match place {
        Place::Memory(area) if !fits(area.offset, area.pmem.capacity()) => {
            invalid("the device is shorter than the log")
        }
        Place::Zone(zone) if !fits(zone.offset, zone.drive.capacity()) => {
            invalid("the drive is shorter than the log's zone")
        }
        _ => Ok(()),
    }
}

impl Store {
    /// # Errors
    /// `Invalid` for no device, too many, or one that is too short.
    pub fn new(site: Site, bytes: u64) -> Result<Self> {
        let Site { device, seats, owner } = site;
        if !(1..=LOG_MEMBERS_MAX).contains(&seats.len()) {
            return invalid("one device, or up to four that mirror each other");
        }
        let (places, gathers): (Vec<Place>, bool) = match device {
            Device::Memory(areas) => (areas.into_iter().map(Place::Memory).collect(), false),
            Device::Drives(zones) => (zones.into_iter().map(Place::Zone).collect(), true),
            Device::Both(places) => (places, true),
        };
        let image = if gathers { Some(Image::new(bytes - CONTROL_BYTES)?) } else { None };
        let mut members: [Option<Rc<Member>>; LOG_MEMBERS_MAX] = Default::default();
        for (seat, place) in seats.into_iter().zip(places) {
            check_place(&place, bytes)?;
            let (tenant, id) = (owner.members().tenant(seat.slot), owner.members().id(seat.slot));
            let member = Member { tenant, drive: seat.drive, id, place };
            members[seat.slot] = Some(Rc::new(member));
        }
        let members = RefCell::new(members);
        let (amended, troubled) = (RefCell::default(), Cell::new(false));
        let direct = Cell::new(image.is_none());
        let (image, changes) = (RefCell::new(image), Cell::new(0));
        let (silent, generation) = (Cell::new(0), Cell::new(0));
        Ok(Self { owner, members, image, direct, amended, troubled, changes, silent, generation })
    }

    /// Whether an append is durable as soon as it is stored and fenced.
    #[inline]
    pub const fn is_memory(&self) -> bool {
        self.direct.get()
    }

    pub(super) const fn owner(&self) -> &Owner {
        &self.owner
    }

    fn image(&self) -> Option<Rc<Image>> {
        self.image.borrow().clone()
    }

    /// How often something was added that takes what is stored: what had been before, it lacks.
    #[inline]
    pub const fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Those that are not known as lost.
    fn members(&self) -> Ref<'_, [Option<Rc<Member>>; LOG_MEMBERS_MAX]> {
        self.members.borrow()
    }

    /// The areas that take what is stored.
    fn areas<'a>(
        &'a self,
        members: &'a [Option<Rc<Member>>],
    ) -> impl Iterator<Item = (&'a Member, &'a Area)> {
        let taking = members.iter().flatten().filter(|m| self.takes(m));
        taking.filter_map(|member| match &member.place {
            Place::Memory(area) => Some((&**member, area)),
            Place::Zone(_) => None,
        })
    }

    /// The areas that have everything.
    fn current_areas<'a>(
        &'a self,
        members: &'a [Option<Rc<Member>>],
    ) -> impl Iterator<Item = (&'a Member, &'a Area)> {
        self.areas(members).filter(|(m, _)| self.owner.members().is_current(m.tenant))
    }

    /// The devices of memory that have everything, if records go straight to them.
    pub fn memory(&self) -> Vec<Arc<Pmem>> {
        if !self.is_memory() {
            return Vec::new();
        }
        self.current_areas(&*self.members()).map(|(_, area)| Arc::clone(&area.pmem)).collect()
    }

    pub(super) fn takes(&self, member: &Member) -> bool {
        self.owner.members().takes(member.tenant)
    }

    /// A device did not take what was stored, or does not give it.
    fn report(&self, member: &Member) {
        if canary::has(Canary::KeepsUnreachable) {
            return;
        }
        self.owner.members().report(member.tenant);
        self.troubled.set(true);
    }

    /// Stores bytes at `at` of the ring, on every device that is memory.
    #[inline]
    pub fn put(&self, at: u64, data: &[u8]) -> Result<()> {
        if let Some(image) = &*self.image.borrow() {
            image.ring.write(at, data)?;
            if !self.direct.get() {
                return Ok(());
            }
        }
        let (mut taken, mut failure) = (false, None);
        for (member, area) in self.areas(&*self.members()) {
            match area.pmem.write(area.offset + CONTROL_BYTES + at, data) {
                Ok(()) => taken = true,
                Err(error) => {
                    self.report(member);
                    failure = Some(error);
                }
            }
        }
        // After that: one that took it was not lost by then.
        self.note_lost();
        match failure {
            Some(error) if !taken => Err(error.into()),
            None if !taken => invalid("no device is left"),
            _ => Ok(()),
        }
    }

    /// A device that another shard reported does not take what this one stores either, and the labels may not say so
    /// yet.
    #[inline]
    fn note_lost(&self) {
        let is_lost = |member: &Rc<Member>| {
            !self.takes(member) && self.owner.members().is_lost(member.tenant.slot)
        };
        if self.members().iter().flatten().any(is_lost) {
            self.troubled.set(true);
        }
    }

    /// Puts right what recovery found better elsewhere. On memory that waits for
    /// [`apply`](Self::apply); until then it is looked at as if it were there.
    pub fn amend(&self, at: u64, data: &[u8]) -> Result<()> {
        match &*self.image.borrow() {
            Some(image) => Ok(image.ring.write(at, data)?),
            None => {
                self.amended.borrow_mut().push((at, data.to_vec()));
                Ok(())
            }
        }
    }

    /// Forgets what recovery put right.
    pub fn forget_amended(&self) {
        self.amended.borrow_mut().clear();
    }

    /// Stores what recovery put right.
    pub fn apply(&self) -> Result<()> {
        for (at, data) in self.amended.take() {
            self.put(at, &data)?;
        }
        Ok(())
    }

    /// Makes what was put durable, on devices that are memory.
    #[inline]
    pub fn fence(&self) {
        for (_, area) in self.areas(&*self.members()) {
            area.pmem.fence();
        }
    }

    /// Calls `look` with bytes of the ring where they lie. A device that does not give them is the log's no more:
    /// the next opening would need them of it.
    #[inline]
    pub fn with<R>(&self, at: u64, len: usize, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        if !self.direct.get() {
            let image = self.image.borrow();
            let Some(image) = &*image else { return invalid("there is no image") };
            return Ok(image.ring.with(at, len, look)?);
        }
        if !self.amended.borrow().is_empty() {
            return self.with_amended(at, len, look);
        }
        self.with_first(at, len, look)
    }

    /// Calls `look` with bytes of the ring as the first device of memory has them that gives them.
    #[inline]
    fn with_first<R>(&self, at: u64, len: usize, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let (mut look, mut failure) = (Some(look), None);
        for (member, area) in self.current_areas(&*self.members()) {
            let seen = area.pmem.with(area.offset + CONTROL_BYTES + at, len, |bytes| {
                look.take().map(|look| look(bytes))
            });
            match seen {
                Ok(Some(result)) => return Ok(result),
                Ok(None) => break,
                Err(error) => {
                    self.report(member);
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) => Err(error.into()),
            None => invalid("no device is left"),
        }
    }

    /// Whether more than one device of memory has the log.
    pub fn is_mirrored(&self) -> bool {
        self.direct.get() && self.current_areas(&*self.members()).count() > 1
    }

    /// What the first device gives that has these bytes of the ring as they were stored, which `look` tells. The others get
    /// them from it: no other copy may be left when they are wanted again.
    pub fn find<R>(
        &self,
        at: u64,
        len: usize,
        look: impl Fn(&[u8]) -> Option<R>,
    ) -> Result<Option<R>> {
        if let Some(found) = self.with(at, len, &look)? {
            return Ok(Some(found));
        }
        if !self.direct.get() || !self.amended.borrow().is_empty() {
            return Ok(None);
        }
        let mut good = None;
        for (member, area) in self.current_areas(&*self.members()).skip(1) {
            let seen = area.pmem.with(area.offset + CONTROL_BYTES + at, len, |bytes| {
                look(bytes).map(|found| (found, bytes.to_vec()))
            });
            match seen {
                Ok(None) => {}
                Ok(seen) => {
                    good = seen;
                    break;
                }
                Err(_) => self.report(member),
            }
        }
        let Some((found, bytes)) = good else { return Ok(None) };
        self.put(at, &bytes)?;
        if !canary::skips(Step::RepairFence) {
            self.fence();
        }
        Ok(Some(found))
    }

    fn with_amended<R>(&self, at: u64, len: usize, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let mut bytes = self.with_first(at, len, <[u8]>::to_vec)?;
        for (from, data) in &*self.amended.borrow() {
            let (begin, end) = ((*from).max(at), (from + u64_of(data.len())).min(at + u64_of(len)));
            if begin < end {
                let there = usize64(begin - from)..usize64(end - from);
                bytes[usize64(begin - at)..usize64(end - at)].copy_from_slice(&data[there]);
            }
        }
        Ok(look(&bytes))
    }

    /// How many devices there are.
    pub fn devices(&self) -> usize {
        self.members().iter().flatten().count()
    }

    /// How many of them failed.
    pub fn failed(&self) -> usize {
        self.members().iter().flatten().filter(|member| !self.takes(member)).count()
    }

    /// The files of memory of those that failed.
    pub fn failed_files(&self) -> Vec<PathBuf> {
        let path = |member: &Rc<Member>| match &member.place {
            Place::Memory(area) => area.pmem.path().map(Path::to_owned),
            Place::Zone(_) => None,
        };
        self.members().iter().flatten().filter(|m| !self.takes(m)).filter_map(path).collect()
    }

    fn member(&self, n: usize) -> Result<Rc<Member>> {
        let member = self.members().iter().flatten().nth(n).cloned();
        member.ok_or_else(|| Error::new(Kind::Invalid, "commit log: there is no such device"))
    }

    /// What an operator must know of how safe the contents are.
    pub fn protection(&self) -> &'static str {
        let members = self.members();
        let first = members.iter().flatten().find(|m| self.takes(m));
        match first.map(|member| (&member.place, member.drive)) {
            Some((Place::Memory(area), _)) => area.pmem.protection(),
            Some((Place::Zone(_), None)) => {
                "another target's namespace: contents survive what they survive there"
            }
            _ => "drives: contents survive power loss",
        }
    }

    /// Has a device take what is stored from now on.
    pub fn attach(&self, joining: Joining, bytes: u64) -> Result<()> {
        let Joining { tenant, drive, place } = joining;
        check_place(&place, bytes)?;
        if self.is_memory() && matches!(place, Place::Zone(_)) {
            return invalid("what is stored straight to memory is not written to drives");
        }
        let id = self.owner.members().id(tenant.slot);
        let member = Member { tenant, drive, id, place };
        self.members.borrow_mut()[tenant.slot] = Some(Rc::new(member));
        self.changes.set(self.changes.get() + 1);
        Ok(())
    }

    /// Copies bytes of the ring, at most a transfer, to the device in a slot. On memory durable after the next fence of
    /// that device.
    pub async fn copy_to(&self, slot: usize, at: u64, len: usize) -> Result<()> {
        let member = self.members()[slot].clone();
        let Some(member) = member.filter(|member| self.takes(member)) else {
            return Err(Error::new(Kind::Failed, "the device does not take the log any more"));
        };
        match (&member.place, self.image()) {
            (Place::Memory(area), _) => {
                let to = area.offset + CONTROL_BYTES + at;
                self.with(at, len, |bytes| area.pmem.write(to, bytes))??;
            }
            (Place::Zone(zone), Some(image)) => {
                let mut buffer = image.pool.alloc(len).await;
                image.ring.read(at, &mut buffer)?;
                let write = zone.write(CONTROL_BYTES + at, buffer);
                // Nothing is trimmed, and no control block written, meanwhile.
                let hangs =
                    |_| Error::new(Kind::Failed, "a device does not take a copy of the log");
                reactor::timeout(patience_with(member.drive), write).await.map_err(hangs)??;
            }
            (Place::Zone(_), None) => {}
        }
        Ok(())
    }

    /// Before anything is acknowledged that a device of memory did not take: makes it durable that it is
    /// not current.
    pub async fn settle_trouble(&self) -> Result<()> {
        if self.troubled.get() {
            // On the heap: rare, and too large for all that may come to it.
            Box::pin(self.tell()).await?;
            self.troubled.set(false);
        }
        Ok(())
    }

    pub const fn is_troubled(&self) -> bool {
        self.troubled.get()
    }

    async fn tell(&self) -> Result<()> {
        if canary::skips(Step::LogTells) {
            return Ok(());
        }
        for _ in 0..TELL_ATTEMPTS {
            match self.owner.tell().await {
                Err(error) if error.may_pass() => {
                    reactor::sleep(PASSING_PAUSE).await;
                }
                done => return done,
            }
        }
        Err(Error::new(Kind::Failed, "the labels cannot tell which devices have the commit log"))
    }

    /// Stores bytes of the ring again, as the image has them, on every device. Durable after the next
    /// fence.
    pub async fn rewrite(&self, at: u64, len: usize) -> Result<()> {
        if !self.is_memory() {
            return self.commit(at, len).await;
        }
        let bytes = self.with(at, len, <[u8]>::to_vec)?;
        self.put(at, &bytes)
    }

    /// What a device says of itself.
    fn holder(&self, member: &Member) -> Holder {
        let term = self.owner.members().term();
        Holder { pool: self.owner.pool(), member: member.id, term }
    }

    /// All devices have this control slot, or a later one.
    pub fn found(&self, control: &Control) {
        self.generation.set(control.generation);
    }

    /// Writes a control slot to every device; durable when this returns.
    ///
    /// # Errors
    /// `Failed` when no device took it.
    pub async fn write_control(&self, control: &Control) -> Result<()> {
        self.write_controls(control).await?;
        let before = self.generation.replace(control.generation);
        assert!(before <= control.generation, "control blocks are numbered upwards");
        Ok(())
    }

    async fn write_controls(&self, control: &Control) -> Result<()> {
        let offset = control.offset();
        let Some(image) = self.image().filter(|_| !self.is_memory()) else {
            for (member, area) in self.areas(&*self.members()) {
                let slot = control.encode(&self.holder(member));
                match area.pmem.write(area.offset + offset, &slot) {
                    Ok(()) if canary::skips(Step::ControlFence) => {}
                    Ok(()) => area.pmem.fence(),
                    Err(_) => self.report(member),
                }
            }
            self.note_lost();
            return self.settle_trouble().await;
        };
        self.write_members(&image, &Bytes::Control(control)).await
    }

    /// Writes bytes of the ring from the image to the devices, at most a transfer and not past the
    /// ring's end; durable when this returns. Nothing to do where records go straight to memory.
    ///
    /// # Errors
    /// `Failed` when no device took them.
    pub async fn commit(&self, at: u64, len: usize) -> Result<()> {
        assert!(len <= TRANSFER_MAX, "a commit is a transfer");
        let Some(image) = self.image().filter(|_| !self.is_memory()) else { return Ok(()) };
        let is_of_pages = at.is_multiple_of(PAGE) && u64_of(len).is_multiple_of(PAGE);
        assert!(is_of_pages, "commits are of whole pages");
        assert!(at + u64_of(len) <= image.ring.capacity(), "a commit is of the ring");
        self.write_members(&image, &Bytes::Ring { at, len }).await
    }

    /// Writes the same range of every device that takes it, at once. One that does not is current no more before
    /// this returns.
    async fn write_members(&self, image: &Image, bytes: &Bytes<'_>) -> Result<()> {
        let members: [Option<Rc<Member>>; LOG_MEMBERS_MAX] = self.members().clone();
        // One that is current has it: no drive is waited for until its deadline then.
        let company = Company::new(1);
        let of = |in_memory: bool| {
            let members = members.iter().enumerate();
            let members = members.filter_map(|(slot, member)| Some((slot, member.as_ref()?)));
            members.filter(move |(_, member)| {
                matches!(member.place, Place::Memory(_)) == in_memory && self.takes(member)
            })
        };
        let write = async |(slot, member): (usize, &Rc<Member>)| {
            (slot, self.write_member(member, image, bytes, &company).await)
        };
        // Drives and other machines first: they are at it while memory is copied to. On the heap: all of them side by
        // side are too long for a stack that holds many such calls.
        let all = join_all(of(false).chain(of(true)).map(write)).await;
        let mut source = None;
        let mut done = [false; LOG_MEMBERS_MAX];
        for (slot, written) in all {
            match written {
                Written::Done => done[slot] = true,
                Written::Failed(error) => {
                    let stays = |m: &&Rc<Member>| canary::has(Canary::KeepsSilent) && m.is_remote();
                    if let Some(member) = members[slot].as_ref().filter(|m| !stays(m)) {
                        self.owner.members().report(member.tenant);
                    }
                    source = error.or(source);
                }
            }
        }
        if self.owner.has_news() {
            self.tell().await?;
        }
        let written = members.iter().zip(done).filter(|(_, done)| *done);
        let mut written = written.filter_map(|(member, _)| member.as_ref());
        if written.any(|member| self.owner.members().is_current(member.tenant)) {
            return Ok(());
        }
        let context = "no drive takes the commit log's writes";
        Err(match source {
            Some(source) => Error::caused(Kind::Failed, context, source),
            None => Error::new(Kind::Failed, context),
        })
    }

    /// A copy of them, to be sent.
    async fn copy(&self, image: &Image, bytes: &Bytes<'_>, member: &Member) -> Buffer {
        match *bytes {
            Bytes::Ring { at, len } => {
                let mut buffer = image.pool.alloc(len).await;
                // In range: the ring is as long as the image.
                let _ = image.ring.read(at, &mut buffer);
                buffer
            }
            Bytes::Control(control) => {
                let mut page = image.pool.alloc(usize64(PAGE)).await;
                page.fill(0);
                page[..SLOT].copy_from_slice(&control.encode(&self.holder(member)));
                page
            }
        }
    }

    /// Durable when this returns.
    async fn write_memory(
        &self,
        (member, area): (&Member, &Area),
        image: &Image,
        bytes: &Bytes<'_>,
    ) -> std::result::Result<(), media::Error> {
        let to = area.offset + bytes.offset();
        let written = match *bytes {
            Bytes::Ring { at, len } => {
                image.ring.with(at, len, |bytes| area.pmem.write(to, bytes)).flatten()
            }
            Bytes::Control(_) => area.pmem.write(to, &self.copy(image, bytes, member).await),
        };
        if !canary::skips(Step::CommitFence) {
            area.pmem.fence();
        }
        written
    }

    async fn write_member(
        &self,
        member: &Member,
        image: &Image,
        bytes: &Bytes<'_>,
        company: &Company,
    ) -> Written {
        let zone = match &member.place {
            Place::Zone(zone) => zone,
            Place::Memory(area) => {
                let written = self.write_memory((member, area), image, bytes).await;
                return written.map_or_else(|e| Written::Failed(Some(e)), |()| Written::Done);
            }
        };
        let (mut last, begun) = (None, now());
        for attempt in 0..PASSING_ATTEMPTS {
            // A drive that was taken out, for whatever reason, is taken out of the log too.
            if !self.owner.has_drive(member.drive) {
                break;
            }
            if attempt > 0 {
                // All attempts together: one that is told to try again without end is waited for no longer than one that
                // hangs. Its drive stays in use, the log does without.
                if Duration::from_nanos(now() - begun) >= PASSING_PATIENCE {
                    break;
                }
                reactor::sleep(PASSING_PAUSE).await;
            }
            let buffer = self.copy(image, bytes, member).await;
            let write = zone.write(bytes.offset(), buffer);
            let write = self.owner.in_company((member.tenant, member.drive), company, write);
            let written = reactor::timeout(patience_with(member.drive), write).await;
            let error = match written.unwrap_or(None) {
                Some(Ok(())) => return Written::Done,
                Some(Err(error)) => error,
                None => break,
            };
            let again = match zone.is_another() {
                // Another copy is there, or it is looked at again.
                true => self.is_the_last(member) && self.has_what_it_had(member, zone).await,
                false => is_passing(&error),
            };
            last = Some(error);
            if !again {
                break;
            }
        }
        Written::Failed(last)
    }
}

impl Store {
    /// Whether no other device has the log.
    fn is_the_last(&self, member: &Member) -> bool {
        let members = self.owner.members();
        members.current() == 1 && members.is_current(member.tenant)
    }

    /// Looks whether a namespace that was reached anew has the control block that was written there last. Who lost that
    /// has lost the records, too; nothing else has them.
    async fn has_what_it_had(&self, member: &Member, zone: &Zone) -> bool {
        let look = reactor::timeout(FAR_PATIENCE, zone.look()).await;
        let Ok(Ok((slots, connection))) = look else { return false };
        let is_it = |page: &Buffer| {
            let slot: [u8; SLOT] = std::array::from_fn(|n| page[n]);
            Control::decode(&slot).is_ok_and(|(control, holder)| {
                let names = (holder.pool, holder.member);
                names == (self.owner.pool(), member.id)
                    && control.generation >= self.generation.get()
            })
        };
        let has_it = slots.iter().any(is_it);
        if has_it {
            zone.adopt(connection);
        }
        has_it
    }

    /// Says on a device that is to be made whole whose it is: what it has then, should that be cut short, is known as what
    /// was left of this. In both slots, and first in one that says nothing: a device that has records of the log always has
    /// a slot that is whole, or it would be taken for one of the log's that lost its control block.
    pub async fn mark(&self, joining: &Joining, control: &Control) -> Result<()> {
        let both = [*control, control.again()];
        let reading = read_slot(&joining.place, both[0].generation % 2);
        let first = reactor::timeout(FAR_PATIENCE, reading).await;
        let is_whole =
            first.is_ok_and(|read| read.is_ok_and(|slot| Control::decode(&slot).is_ok()));
        for slot in if is_whole { [1, 0] } else { [0, 1] } {
            self.mark_slot(joining, &both[slot]).await?;
        }
        Ok(())
    }

    /// Durable when this returns.
    async fn mark_slot(&self, joining: &Joining, control: &Control) -> Result<()> {
        let members = self.owner.members();
        let (member, term) = (members.id(joining.tenant.slot), members.term());
        let slot = control.encode(&Holder { pool: self.owner.pool(), member, term });
        match &joining.place {
            Place::Memory(area) => {
                area.pmem.write(area.offset + control.offset(), &slot)?;
                if !canary::skips(Step::MarkFence) {
                    area.pmem.fence();
                }
            }
            Place::Zone(zone) => {
                let mut page = reactor::buffer::pool().alloc(usize64(PAGE)).await;
                page.fill(0);
                page[..SLOT].copy_from_slice(&slot);
                let write = zone.write(control.offset(), page);
                let hangs =
                    |_| Error::new(Kind::Failed, "a device does not take a copy of the log");
                reactor::timeout(patience_with(joining.drive), write).await.map_err(hangs)??;
            }
        }
        Ok(())
    }
}

/// How long a device is waited for. A drive of the pool has deadlines of its own, and company that may shorten them.
const fn patience_with(drive: Option<u16>) -> Duration {
    if drive.is_some() { Duration::MAX } else { FAR_PATIENCE }
}

/// Whether an error says nothing of the drive.
fn is_passing(error: &media::Error) -> bool {
    matches!(error.kind, media::Kind::Full | media::Kind::Passing)
}

/// Bytes of the longest commit from `at` on that stays within a transfer and the ring.
pub(super) fn commit_len(at: u64, rest: u64, ring_bytes: u64) -> usize {
    usize64(rest.min(ring_bytes - at).min(u64_of(TRANSFER_MAX)))
}
