//! A new set.

use std::rc::Rc;

use initiator::{Deallocate, Fua};
use reactor::join_all;

use crate::Error;
use crate::assemble::Parts;
use crate::format::Health;
use crate::inspect::{Found, inspect, suits};
use crate::layout::{Layout, Level};
use crate::limits::NAME_MAX;
use crate::member::Member;
use crate::set::{Set, seats};

/// What a new set is to be.
pub struct Create {
    /// Its identity; no other set has it.
    pub id: [u8; 16],
    /// Those of its members.
    pub member_ids: Vec<[u8; 16]>,
    /// What people call it: up to 32 bytes.
    pub name: String,
    pub level: Level,
    /// Bytes of a stripe's unit.
    pub chunk: u32,
    /// Records of the journal, where the usual number does not suit.
    pub records: Option<u64>,
    /// Bytes of a member that share a bit, where the usual number does not suit.
    pub region: Option<u64>,
    /// Take members that are not blank.
    pub force: bool,
}

impl Set {
    /// Makes a set of `members`, all of them zeroed.
    ///
    /// # Errors
    /// When members do not suit or are not blank, or fail.
    pub async fn create(members: Vec<Member>, create: Create) -> Result<Self, Error> {
        if create.name.is_empty() || create.name.len() > NAME_MAX {
            let what = format!("a set's name has 1 to {NAME_MAX} bytes");
            return Err(Error::refused(what, "give a shorter --name"));
        }
        let all: Vec<_> = members.iter().map(Member::traits).collect();
        let capacity = all.iter().map(|m| m.capacity).min().unwrap_or(0);
        let block = all.iter().map(|m| m.block).max().unwrap_or(0);
        let (level, chunk) = (create.level, create.chunk);
        let sizes = (create.records, create.region);
        let layout = Layout::new(level, members.len(), (block, chunk), capacity, sizes)
            .map_err(|what| Error::refused(what, "see `flashloom raid create --help`"))?;
        for (index, member) in members.iter().enumerate() {
            suits(index, member, &layout)?;
            let found = inspect(index, member).await?;
            if !create.force {
                refuse_used(index, &found)?;
            }
        }
        let zeroed = members.iter().enumerate();
        let zeroed = zeroed.map(|(index, member)| prepare(index, member, layout));
        join_all(zeroed).await.into_iter().collect::<Result<(), _>>()?;
        let set = Parts {
            id: create.id,
            name: create.name,
            layout,
            away: members.iter().map(|_| None).collect(),
            newer: members.iter().map(|_| 0).collect(),
            members: members.into_iter().map(|member| Some(Rc::new(member))).collect(),
            seats: seats(create.member_ids, 0),
            events: 1,
            durable: 0,
            generation: 0,
            tail: 0,
            bits: crate::bitmap::Bits::none(),
        }
        .into_set()?;
        // Twice, so that neither page has what was there before.
        set.inner.settle().await?;
        set.inner.checkpoint(0).await?;
        let out = |seat: &crate::format::Seat| seat.health != Health::InSync;
        if set.inner.book.borrow().seats.iter().any(out) {
            return Err(Error::refused("a member failed", "look at the members, and try again"));
        }
        Ok(set)
    }
}

/// A member that holds something must not become another's.
fn refuse_used(index: usize, found: &Found) -> Result<(), Error> {
    match found {
        Found::Blank => Ok(()),
        Found::Member { says, .. } => Err(Error::refused(
            format!("member {index} belongs to the set {}", says.name),
            "--force takes it all the same, and what that set holds may be lost",
        )),
        Found::Foreign(_) => Err(Error::refused(
            format!("member {index} is not blank"),
            "--force overwrites what is there",
        )),
    }
}

/// Zeroes what the set will take for its own, so that parity is true from the beginning.
pub async fn prepare(index: usize, member: &Member, layout: Layout) -> Result<(), Error> {
    let end = if layout.level == Level::Stripe { layout.data_at } else { layout.member_bytes() };
    zero(member, end).await.map_err(Error::member(index))
}

/// Zeroes what the set has for its own beside data, durably: nothing that is there says anything any more.
pub async fn forget(index: usize, member: &Member, layout: Layout) -> Result<(), Error> {
    zero(member, layout.data_at).await.map_err(Error::member(index))
}

async fn zero(member: &Member, end: u64) -> Result<(), initiator::Error> {
    if member.traits().write_zeroes {
        const STEP: u64 = 64 << 20;
        let mut at = 0;
        while at < end {
            let len = STEP.min(end - at);
            member.zero(at, len, Deallocate::Yes, Fua::No).await?;
            at += len;
        }
    } else {
        const STEP: u32 = 64 << 10;
        let mut zeroes = initiator::Buffer::new(stdx::num::usize32(STEP)).await;
        zeroes.fill(0);
        let mut at = 0;
        while at < end {
            let len = u64::from(STEP).min(end - at);
            member.write(at, stdx::num::low32(len), &mut zeroes, Fua::No).await?;
            at += len;
        }
    }
    member.flush().await
}
