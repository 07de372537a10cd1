//! What is on a member, before it is one.

use initiator::Buffer;
use stdx::num::usize32;

use crate::Error;
use crate::format::{Bad, PAGE_BYTES, Superblock};
use crate::layout::Layout;
use crate::limits::{JOURNAL_AT, PAGE};
use crate::member::{Member, is_medium};

/// What was found where a superblock should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A member of a set.
    Member {
        /// Its newer superblock.
        says: Box<Superblock>,
        /// In which of the two pages that is.
        page: u64,
    },
    /// Zeroes, as far as a set's own areas would reach.
    Blank,
    /// Something else.
    Foreign(Bad),
}

/// Looks at what a namespace holds.
///
/// # Errors
/// When it cannot be read.
pub async fn inspect(index: usize, member: &Member) -> Result<Found, Error> {
    let mut buffer = Buffer::new(PAGE_BYTES).await;
    let mut newest: Option<(Superblock, u64)> = None;
    let mut bad = Bad::Blank;
    for page in 0..2_u64 {
        match member.read(page * u64::from(PAGE), PAGE, &mut buffer).await {
            Ok(()) => match Superblock::from_page(&buffer) {
                Ok(one) if newest.as_ref().is_none_or(|(n, _)| one.generation > n.generation) => {
                    newest = Some((one, page));
                }
                Ok(_) => {}
                Err(why) if bad == Bad::Blank => bad = why,
                Err(_) => {}
            },
            Err(error) if is_medium(&error) => bad = Bad::Checksum,
            Err(source) => return Err(Error::Member { index, source }),
        }
    }
    if let Some((says, page)) = newest {
        return Ok(Found::Member { says: Box::new(says), page });
    }
    let blank = bad == Bad::Blank && is_zero(index, member).await?;
    Ok(if blank { Found::Blank } else { Found::Foreign(bad) })
}

/// Whether nothing was ever written where a set's own areas begin, which is where others have theirs, too.
async fn is_zero(index: usize, member: &Member) -> Result<bool, Error> {
    const STEP: u32 = 64 << 10;
    let mut buffer = Buffer::new(usize32(STEP)).await;
    let mut at = 0;
    let end = JOURNAL_AT.min(member.traits().capacity / u64::from(STEP) * u64::from(STEP));
    while at < end {
        match member.read(at, STEP, &mut buffer).await {
            Ok(()) if buffer.iter().any(|byte| *byte != 0) => return Ok(false),
            Ok(()) => {}
            Err(error) if is_medium(&error) => return Ok(false),
            Err(source) => return Err(Error::Member { index, source }),
        }
        at += u64::from(STEP);
    }
    Ok(true)
}

/// Whether a namespace can be a member of such a set.
///
/// # Errors
/// Why not.
pub fn suits(index: usize, member: &Member, layout: &Layout) -> Result<(), Error> {
    let traits = member.traits();
    let refused = |what: String, help| Err(Error::refused(format!("member {index} {what}"), help));
    if traits.read_only {
        return refused("is write protected".to_owned(), "members are written to");
    }
    if traits.block > layout.block || !layout.block.is_multiple_of(traits.block) {
        let what = format!("has blocks of {} bytes, the set {}", traits.block, layout.block);
        return refused(what, "take a namespace with the same logical block size");
    }
    if traits.capacity < layout.member_bytes() {
        let what = format!("has {} bytes, {} are needed", traits.capacity, layout.member_bytes());
        return refused(what, "take a larger namespace");
    }
    if traits.transfer_max < layout.chunk + PAGE {
        let what = format!(
            "takes {} bytes at once, a chunk of {} needs {PAGE} more than that",
            traits.transfer_max, layout.chunk
        );
        return refused(what, "choose a smaller --chunk");
    }
    Ok(())
}
