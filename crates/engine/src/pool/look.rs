//! Looks at the drives of an open pool, every few seconds: of one that nobody uses, nothing else would tell how they are.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use reactor::{Nanos, buffer, join_all, now};

use super::Pool;
use crate::address::BLOCK;
use crate::drives::{Cause, Company};
use crate::error::{Error, Kind, Result};
use crate::format::area as at;
use crate::format::label::Label;
use crate::limits::{LABEL_ANEW_PAUSE, LATE_LOOKS, LOG_TRY_PAUSE, MUTE_LOOKS};
use crate::shard::Shard;
use std::rc::Rc;
use stdx::num::u64_of;

/// What is known of a pool's drives from looks at them.
#[derive(Default)]
pub(super) struct Looks {
    /// When the drives that have the log were last made to take a write.
    tried: Nanos,
    drives: BTreeMap<u16, Known>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    /// How often its labels were written anew, and when last.
    rebuilt: u64,
    last: Nanos,
    /// Looks in a row at which it gave nothing.
    mute: u32,
    /// Looks in a row at which hosts waited for its copy of the log.
    late: u32,
}

impl Looks {
    /// Whether hosts wait for a drive's copy of the log, and will go on to.
    pub fn is_late_to_append(&self, drive: u16) -> bool {
        self.drives.get(&drive).is_some_and(|known| known.late >= LATE_LOOKS)
    }
}

/// What one look at a drive gave.
#[derive(Clone, Copy, Default)]
struct Sight {
    /// It does not give a label of the pool.
    is_bare: bool,
    /// It does not give the last of what the pool has there.
    lacks_end: bool,
    /// It did not answer in time when it was asked for that.
    is_late: bool,
    /// It does not give the beginning of its part of the log.
    lacks_log: bool,
    /// It gave nothing at all.
    is_mute: bool,
}

fn is_due(last: Nanos, pause: Duration) -> bool {
    last == 0 || Duration::from_nanos(now().saturating_sub(last)) >= pause
}

/// Of an error that passes nothing is learnt.
fn fails<T>(read: &Result<T>) -> bool {
    read.as_ref().is_err_and(|error: &Error| error.kind != Kind::Busy)
}

impl Pool {
    /// Looks whether the pool's drives are there, as long as they were, and carry its label, and whether those that have
    /// the log take writes. What is wrong is put right, or taken out of use where it can be spared. Cheap, to be done
    /// every few seconds.
    ///
    /// # Errors
    /// When the labels cannot say of a drive that it is gone.
    pub async fn look_at_drives(&self) -> Result<()> {
        if self.0.closed.get() || self.0.looking.replace(true) {
            return Ok(());
        }
        let done = self.look_at_all().await;
        self.0.looking.set(false);
        done
    }

    /// How often a drive's labels were written anew, for they were not there any more.
    #[must_use]
    pub fn labels_rewritten(&self, drive: u16) -> u64 {
        self.0.looks.borrow().drives.get(&drive).map_or(0, |known| known.rebuilt)
    }

    async fn look_at_all(&self) -> Result<()> {
        let superblock = &self.0.common.superblock;
        let (drives, label) = (&superblock.drives, superblock.label());
        let online: Vec<u16> = drives.indices().filter(|&n| drives.is_online(n)).collect();
        // Nobody may read what would go around them.
        online.iter().for_each(|&index| drives.probe_avoided(index));
        self.0.common.follow_slow();
        let company = Company::new(label.needed().max(1));
        let looks = online.iter().map(|&index| {
            let (label, company) = (&label, &company);
            async move {
                let look = async { Ok::<_, Infallible>(self.see(index, label).await) };
                let Ok(sight) = drives.in_company(index, company, look).await?;
                Some((index, sight))
            }
        });
        let seen: Vec<(u16, Sight)> = join_all(looks).await.into_iter().flatten().collect();
        let bare = self.judge(&label, &seen);
        self.note_late_copies(&label);
        self.look_at_remotes();
        // Nothing is written once the pool is closed: then the drives may be another's.
        let _turn = self.0.look_writes.hold(1).await;
        if self.0.closed.get() {
            return Ok(());
        }
        self.rewrite_label(&bare).await?;
        let well = seen.iter().filter(|(_, sight)| !sight.is_bare).map(|(index, _)| *index);
        self.try_log_drives(&label, &well.collect::<Vec<_>>()).await?;
        // Where it cannot be ended yet the next look tries again.
        let _ = self.end_half_move().await;
        let idle = |shard: Rc<Shard>| async move { shard.base.log.look_for_loss().await };
        let noted = self.each(idle).await.map(drop);
        // At leisure, for those who read labels: whatever relies on what failed tells before by itself.
        superblock.tell_failures().await.and(noted)
    }

    /// Looks at one drive. What it answers is counted as ever.
    async fn see(&self, index: u16, label: &Label) -> Sight {
        let drives = &self.0.common.superblock.drives;
        let read = |offset, len| drives.read(index, offset, len, buffer::pool());
        let labels = read(at::LABEL, 2 * BLOCK).await;
        let is_its = |block: &[u8]| {
            Label::from_block(block).is_ok_and(|l| l.pool == label.pool && l.drive == index)
        };
        let has_label = labels.as_ref().is_ok_and(|both| both.chunks_exact(BLOCK).any(is_its));
        let unread = fails(&labels);
        drop(labels);
        let end = read(drives.bytes(index) - u64_of(BLOCK), BLOCK).await;
        let lacks_end = fails(&end);
        // Asking the system for the size of what does not answer holds the reactor up.
        let is_late = end.as_ref().is_err_and(Error::is_timeout);
        drop(end);
        let has_log = label.current_members().any(|member| member.drive == Some(index));
        let lacks_log = has_log && fails(&read(label.catalog.end(), BLOCK).await);
        let is_bare = unread || !has_label;
        Sight { is_bare, lacks_end, is_late, lacks_log, is_mute: unread && lacks_end }
    }

    /// Takes out of use what is of no use any more; gives the drives that lack their labels.
    fn judge(&self, label: &Label, seen: &[(u16, Sight)]) -> Vec<u16> {
        let superblock = &self.0.common.superblock;
        let mut looks = self.0.looks.borrow_mut();
        let mut bare = Vec::new();
        for (index, sight) in seen {
            let Some(drive) = superblock.drives.drive(*index).cloned() else { continue };
            let known = looks.drives.entry(*index).or_default();
            known.mute = if sight.is_mute { known.mute + 1 } else { 0 };
            let asks = sight.lacks_end && !sight.is_late;
            let has = if asks { drive.capacity_now() } else { Some(u64::MAX) };
            let is_short = has.is_none_or(|has| has < superblock.drives.bytes(*index));
            let why = || {
                Cause::because(match is_short {
                    true => "it is shorter than it was",
                    false => "neither its beginning nor its end can be read",
                })
            };
            if (is_short || known.mute >= MUTE_LOOKS)
                && superblock.drives.fail_if_spared(*index, &drive, why())
            {
                continue;
            }
            for (slot, member) in label.log_members.iter().enumerate() {
                let is_lost = sight.lacks_log && member.current && member.drive == Some(*index);
                // The last one is relied on, whatever it gives.
                if is_lost && superblock.members.current() > 1 {
                    superblock.members.report_member(slot, member.id);
                }
            }
            if sight.is_bare && is_due(known.last, LABEL_ANEW_PAUSE) {
                known.last = now();
                bare.push(*index);
            }
        }
        bare
    }

    /// Has copies of the log that hosts wait for move to other drives.
    fn note_late_copies(&self, label: &Label) {
        let superblock = &self.0.common.superblock;
        let mut looks = self.0.looks.borrow_mut();
        for drive in label.current_members().filter_map(|member| member.drive) {
            let known = looks.drives.entry(drive).or_default();
            let is_late = superblock.drives.is_late_to_append(drive);
            known.late = if is_late { known.late + 1 } else { 0 };
            if known.late >= LATE_LOOKS {
                superblock.members.wake();
            }
        }
    }

    /// Writes what these drives have lost: were the pool not closed in order, it would not be found on them.
    async fn rewrite_label(&self, bare: &[u16]) -> Result<()> {
        if bare.is_empty() {
            return Ok(());
        }
        let superblock = &self.0.common.superblock;
        // One for each of the two places.
        superblock.write_labels(|_| ()).await?;
        superblock.write_labels(|_| ()).await?;
        // What lies beside the labels may be gone with them. It is on other drives too, and written again anyhow.
        let _ = superblock.spread_catalog().await;
        let _ = self.each(|shard| async move { shard.checkpoints.take().await }).await;
        for index in bare.iter().filter(|&&index| superblock.drives.is_online(index)) {
            self.0.looks.borrow_mut().drives.entry(*index).or_default().rebuilt += 1;
        }
        Ok(())
    }

    /// Has those of these drives that have the log take a write which changes nothing: where nobody writes, one that
    /// takes none would be found out when what it is there for has come.
    async fn try_log_drives(&self, label: &Label, well: &[u16]) -> Result<()> {
        if !is_due(self.0.looks.borrow().tried, LOG_TRY_PAUSE) {
            return Ok(());
        }
        self.0.looks.borrow_mut().tried = now();
        let has_log =
            |index: u16| label.current_members().any(|member| member.drive == Some(index));
        let tried = |index| well.contains(&index) && has_log(index);
        self.0.common.superblock.try_some(tried).await
    }
}
