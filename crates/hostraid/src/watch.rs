//! A set that is in use is looked at: whether its members are still this program's.

use std::rc::Weak;

use reactor::{join_all, sleep};

use crate::claim::Kept;
use crate::inner::Inner;
use crate::limits::CLAIM_LOOK;
use crate::member::is_fenced;

/// Looks again and again whether the members are this program's, as long as the set is of use.
pub async fn keep(set: Weak<Inner>) {
    loop {
        sleep(CLAIM_LOOK).await;
        let Some(inner) = set.upgrade() else { return };
        let Some(held) = inner.held.get() else { return };
        let members = inner.members.borrow().clone();
        let is_usable = || inner.usable().is_ok();
        if !is_usable() {
            return;
        }
        let looks = members.iter().flatten().map(|member| member.keep(held.claim, is_usable));
        for kept in join_all(looks).await {
            match kept {
                Ok(Kept::Ours) => {}
                Ok(Kept::AnotherPrograms) => {
                    inner.end("another program with this Host Identifier took a member");
                }
                Err(error) if is_fenced(&error) => inner.end("another host has reserved a member"),
                // Who writes to it notices.
                Err(_) => {}
            }
        }
    }
}
