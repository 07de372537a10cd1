//! A set put together from its members.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use reactor::join_all;
use reactor::sync::{Semaphore, Signal};
use stdx::num::{u64_of, usize32};

use crate::Error;
use crate::bitmap::{Bitmap, Bits, PAGES};
use crate::book::Book;
use crate::claim::Claim;
use crate::fence::Held;
use crate::format::{Health, PAGE_BYTES, Seat, Superblock};
use crate::inner::Inner;
use crate::inspect::{Found, inspect, suits};
use crate::journal::Journal;
use crate::layout::{Layout, Level};
use crate::limits::{ASSEMBLY_RAISE, BITMAP_AT, PAGE};
use crate::locks::StripeLocks;
use crate::member::{Member, is_fenced, is_medium};
use crate::recover;
use crate::set::Set;
use crate::watch;
use crate::work::Work;

/// How a set may be put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assemble {
    /// Without members that were in it when it was last used.
    pub degraded: bool,
    /// Kept for whom; `None` when nobody else can come by.
    pub claim: Option<Claim>,
    /// What is planted.
    #[cfg(test)]
    pub canary: Option<crate::canary::Canary>,
}

impl Assemble {
    fn flushes(self) -> bool {
        #[cfg(test)]
        if self.canary == Some(crate::canary::Canary::TrustCaches) {
            return false;
        }
        true
    }
}

/// All it takes to use a set.
pub struct Parts {
    pub id: [u8; 16],
    pub name: String,
    pub layout: Layout,
    pub members: Vec<Option<Rc<Member>>>,
    /// Stale ones, which may join again.
    pub away: Vec<Option<Rc<Member>>>,
    /// Which of a member's two pages has its newer superblock, by slot.
    pub newer: Vec<u64>,
    pub seats: Vec<Seat>,
    pub events: u64,
    pub durable: u64,
    pub generation: u64,
    pub tail: u64,
    pub bits: Bits,
}

impl Parts {
    pub fn into_set(self) -> Result<Set, Error> {
        let partial = |seat: &Seat| matches!(seat.health, Health::Rebuilding { partial: true, .. });
        let todo = self.seats.iter().map(|seat| partial(seat).then(|| self.bits.clone())).collect();
        let inner = Inner {
            id: self.id,
            name: self.name,
            layout: self.layout,
            away: RefCell::new(self.away),
            members: RefCell::new(self.members),
            book: RefCell::new(Book {
                seats: self.seats,
                events: self.events,
                durable: self.durable,
                generation: self.generation,
                newer: self.newer,
                tail: self.tail,
                todo,
                broken: None,
            }),
            held: OnceCell::new(),
            meta: Semaphore::new(1),
            locks: StripeLocks::default(),
            input: Work::new()?,
            work: Work::new()?,
            pages: Work::new()?,
            bitmap: Bitmap::new(self.bits),
            journal: Journal::new(self.tail),
            changed: Signal::new(),
            turn: Cell::new(0),
            sweep: Semaphore::new(1),
            #[cfg(test)]
            canary: Cell::new(None),
        };
        Ok(Set { inner: Rc::new(inner) })
    }
}

/// A member that was given, and what it says.
struct Given {
    member: Rc<Member>,
    says: Superblock,
    /// In which page that is.
    page: u64,
}

impl Set {
    /// Puts a set together and repairs what a crash left. Members that are stale are left out; they can
    /// [`join`](Self::join) again.
    ///
    /// # Errors
    /// When members are blank, foreign or of several sets, when too few are there, or fewer than last time and
    /// that was not allowed.
    pub async fn assemble(members: Vec<Member>, how: Assemble) -> Result<Self, Error> {
        let members: Vec<_> = members.into_iter().map(Rc::new).collect();
        let given = look(&members, how).await?;
        let newest = newest(&given)?;
        let Some(claim) = how.claim else { return Self::build(given, &newest, how).await };
        let held = Held::take(claim, newest.set, &members).await?;
        // Who had it until now may have changed it since.
        let built = match look(&members, how).await {
            Ok(given) => Self::build_newest(given, how).await,
            Err(error) => Err(error),
        };
        match built {
            Ok(set) => {
                let _ = set.inner.held.set(held);
                drop(reactor::spawn(watch::keep(Rc::downgrade(&set.inner))));
                Ok(set)
            }
            Err(error) => {
                held.release(&members).await;
                Err(error)
            }
        }
    }

    async fn build_newest(given: Vec<Given>, how: Assemble) -> Result<Self, Error> {
        let newest = newest(&given)?;
        Self::build(given, &newest, how).await
    }

    async fn build(given: Vec<Given>, newest: &Superblock, how: Assemble) -> Result<Self, Error> {
        let parts = choose(given, newest, how)?;
        let set = parts.into_set()?;
        #[cfg(test)]
        set.inner.canary.set(how.canary);
        set.inner.read_bitmap().await?;
        // Who is not there must be known not to be before anything is changed without it.
        set.inner.settle().await?;
        if set.inner.layout.records > 0 {
            recover::replay(&set.inner).await?;
            set.inner.forget_if_in_sync().await?;
        }
        if set.inner.layout.level == Level::Mirror {
            recover::resync(&set.inner).await?;
        }
        Ok(set)
    }
}

/// Looks at what members say of their set.
async fn look(members: &[Rc<Member>], how: Assemble) -> Result<Vec<Given>, Error> {
    let mut given = Vec::new();
    for (index, member) in members.iter().enumerate() {
        // A write that was under way when a host died may be there to be read and yet be lost with power:
        // nothing may be concluded from what can still change.
        if how.flushes() {
            match member.flush().await {
                // Another host holds it, which is said when it is claimed.
                Err(error) if is_fenced(&error) && how.claim.is_some() => {}
                flushed => flushed.map_err(Error::member(index))?,
            }
        }
        let (says, page) = own_superblock(index, inspect(index, member).await?)?;
        suits(index, member, &says.layout)?;
        given.push(Given { member: Rc::clone(member), says, page });
    }
    Ok(given)
}

/// A blank one must never be taken for a member that is missing.
fn own_superblock(index: usize, found: Found) -> Result<(Superblock, u64), Error> {
    match found {
        Found::Member { says, page } => Ok((*says, page)),
        Found::Blank => Err(Error::refused(
            format!("member {index} is blank: it holds nothing of a set"),
            "leave it out, and give it to the set with `flashloom raid rebuild --add`",
        )),
        Found::Foreign(why) => Err(Error::refused(
            format!("member {index} holds something that is no set: {why}"),
            "check its address and namespace",
        )),
    }
}

/// What the newest superblock says, once all agree on what set it is.
fn newest(given: &[Given]) -> Result<Superblock, Error> {
    let key = |one: &&Given| (one.says.events, one.says.generation);
    let newest = given.iter().max_by_key(key).map(|one| one.says.clone());
    let newest = newest.ok_or_else(|| Error::refused("no members were given", "give --member"))?;
    for (index, one) in given.iter().enumerate() {
        let says = &one.says;
        if says.set != newest.set {
            return Err(Error::refused(
                format!("member {index} belongs to another set, {}", says.name),
                "give members of one set",
            ));
        }
        if given[..index].iter().any(|other| other.says.slot == says.slot) {
            return Err(Error::refused(
                format!("member {index} is in place {}, as one given before", says.slot),
                "give each member once",
            ));
        }
        let out = |seat: &Seat| seat.health == Health::Missing;
        let differ = says.seats.iter().zip(&newest.seats);
        let differ = differ.clone().any(|(a, b)| out(a) != out(b) || a.member != b.member);
        if says.events == newest.events && differ {
            return Err(Error::refused(
                format!("member {index} and others were used without each other"),
                "decide which of them holds what you want, and give only those",
            ));
        }
    }
    Ok(newest)
}

/// Who is in, and what the set is then.
fn choose(given: Vec<Given>, newest: &Superblock, how: Assemble) -> Result<Parts, Error> {
    let layout = newest.layout;
    let mut seats = newest.seats.clone();
    let mut members: Vec<Option<Rc<Member>>> = (0..layout.width()).map(|_| None).collect();
    let mut away = members.clone();
    let mut pages = vec![0; layout.width()];
    let mut tail = newest.tail;
    for Given { member, says, page } in given {
        pages[says.slot] = page;
        let seat = &seats[says.slot];
        let own = says.seats[says.slot].member == seat.member;
        // One that missed only the raise of the count that was under way has all that was acknowledged.
        if own && seat.health != Health::Missing && says.events >= newest.floor {
            tail = tail.max(says.tail);
            members[says.slot] = Some(member);
        } else {
            tracing::warn!("member {} of {} is stale and left out", says.slot, newest.name);
            away[says.slot] = own.then_some(member);
        }
    }
    // Far enough that who goes on without the others counts what they cannot have.
    let events = newest.events + ASSEMBLY_RAISE;
    let mut absent = Vec::new();
    for (slot, seat) in seats.iter_mut().enumerate() {
        if members[slot].is_none() && seat.health != Health::Missing {
            absent.push(slot);
            let anew = matches!(seat.health, Health::Rebuilding { partial: false, .. });
            seat.seen = if anew { newest.events + 1 } else { newest.floor };
            (seat.left, seat.health) = (newest.events + 1, Health::Missing);
        }
    }
    let out = seats.iter().filter(|seat| seat.health != Health::InSync).count();
    if out > layout.parity() {
        let there = layout.width() - out;
        return Err(Error::refused(
            format!("{there} of {} members are there and current: too few", layout.width()),
            "give the others, too",
        ));
    }
    if !absent.is_empty() && !how.degraded {
        return Err(Error::refused(
            format!("members {absent:?} were in the set when it was last used"),
            "give them, too, or go on without them with --degraded",
        ));
    }
    Ok(Parts {
        id: newest.set,
        name: newest.name.clone(),
        layout,
        members,
        away,
        newer: pages,
        seats,
        events,
        durable: newest.floor,
        generation: newest.generation,
        tail,
        bits: Bits::none(),
    })
}

impl Inner {
    /// Learns which regions may differ: what any member says.
    async fn read_bitmap(&self) -> Result<(), Error> {
        let (mut bits, mut everywhere) = (Bits::none(), Bits::none());
        for page in 0..PAGES {
            let at = BITMAP_AT + u64_of(page * usize32(PAGE));
            let reads = self.present().iter().map(|slot| self.read_page(slot, at));
            let pages: Vec<_> = join_all(reads).await;
            let read: Vec<_> = pages.iter().flatten().collect();
            for bytes in &read {
                bits.merge(page, bytes);
            }
            if read.is_empty() {
                bits.merge(page, &[0xff; PAGE_BYTES]);
            } else if read.len() == pages.len() {
                let and = |at: usize| read.iter().fold(0xff, |all, bytes| all & bytes[at]);
                everywhere.merge(page, &(0..PAGE_BYTES).map(and).collect::<Vec<u8>>());
            }
        }
        self.usable()?;
        self.bitmap.learn(&bits, &everywhere);
        for todo in self.book.borrow_mut().todo.iter_mut().flatten() {
            *todo = bits.clone();
        }
        Ok(())
    }

    /// A page of a member, if it can be read. A member that fails is lost.
    pub async fn read_page(&self, slot: usize, at: u64) -> Option<Vec<u8>> {
        let member = self.member(slot)?;
        let permit = self.pages.permit(1, PAGE_BYTES).await;
        let mut buffer = permit.buffer(PAGE_BYTES).await;
        match member.read(at, PAGE, &mut buffer).await {
            Ok(()) => Some(buffer.to_vec()),
            Err(error) => {
                if !is_medium(&error) {
                    self.lose(slot, &error);
                }
                None
            }
        }
    }
}
