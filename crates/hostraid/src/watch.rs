//! A set that is in use is looked at: whether its members are still this program's.

use std::rc::{Rc, Weak};

use reactor::{join_all, sleep, timeout};

use crate::claim::{Claim, Kept};
use crate::inner::Inner;
use crate::inspect::{Found, inspect};
use crate::limits::CLAIM_LOOK;
use crate::member::{Member, is_fenced};

/// Looks again and again whether the members are this program's, as long as the set is of use. One that does not answer
/// in time is not known, and holds up neither the others nor the set's end: who writes to it notices.
pub async fn keep(set: Weak<Inner>) {
    loop {
        sleep(CLAIM_LOOK).await;
        let Some(looks) = begin(&set) else { return };
        let ends: Vec<_> = join_all(looks).await.into_iter().flatten().collect();
        let Some(inner) = set.upgrade() else { return };
        for why in ends {
            inner.end(why);
        }
    }
}

/// A look at each member, unless the set is of no more use.
fn begin(set: &Weak<Inner>) -> Option<Vec<impl Future<Output = Option<&'static str>>>> {
    let inner = set.upgrade()?;
    let claim = inner.held.get()?.claim;
    inner.usable().ok()?;
    let members = inner.members.borrow();
    Some(
        members
            .iter()
            .flatten()
            .map(|member| look(set.clone(), Rc::clone(member), claim))
            .collect(),
    )
}

/// Why the set has to end, if it has to.
async fn look(set: Weak<Inner>, member: Rc<Member>, claim: Claim) -> Option<&'static str> {
    let is_usable = || set.upgrade().is_some_and(|inner| inner.usable().is_ok());
    let looked = async {
        let kept = member.keep(claim, is_usable).await?;
        let used = kept == Kept::Ours && member.forgets(claim) && was_used(&set, &member).await;
        Ok(if used { Kept::Taken } else { kept })
    };
    match timeout(CLAIM_LOOK, looked).await.ok()? {
        Ok(Kept::Ours) => None,
        Ok(Kept::AnotherPrograms) => {
            Some("another program with this Host Identifier took a member")
        }
        Ok(Kept::Taken) => Some("another host took a member"),
        Err(error) if is_fenced(&error) => Some("another host has reserved a member"),
        Err(_) => None,
    }
}

/// Whether a member's superblock is of another set, or ahead of this set's book, as only who used it elsewhere writes it.
async fn was_used(set: &Weak<Inner>, member: &Member) -> bool {
    // One that is being written may be torn.
    let Ok(Found::Member { says, .. }) = inspect(0, member).await else { return false };
    set.upgrade()
        .is_some_and(|inner| says.set != inner.id || says.events > inner.book.borrow().events)
}
