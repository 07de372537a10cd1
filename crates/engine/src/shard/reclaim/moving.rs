//! Moving the live blocks of a segment elsewhere.

use std::collections::BTreeSet;
use std::rc::Rc;

use stdx::num::u32_of;

use super::Reclaim;
use super::live::{Live, batches, blocks};
use crate::address::{BLOCK, Key, SegmentId};
use crate::error::Result;
use crate::segment::{Owner, Recovered, SegmentInfo, Stream};

/// What became of a segment that was to be emptied, the better before the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Emptied {
    /// Everything live in it was moved.
    Whole,
    /// Some of it cannot be read for now.
    Unreadable,
    /// There is no segment to move the rest to.
    NoRoom,
}

impl Reclaim {
    /// Moves everything live in a segment to the reclaim stream, as far as there is room.
    pub async fn empty(&self, victim: SegmentId) -> Result<Emptied> {
        let is_first = self.emptying.borrow_mut().insert(victim);
        assert!(is_first, "a segment is emptied by one at a time");
        let emptied = self.move_out(victim).await;
        let was_ours = self.emptying.borrow_mut().remove(&victim);
        assert!(was_ours, "a segment is emptied by one at a time");
        emptied
    }

    async fn move_out(&self, victim: SegmentId) -> Result<Emptied> {
        let Some((info, counted)) =
            self.base.table().get(victim).map(|s| (Rc::clone(&s.info), s.live))
        else {
            return Ok(Emptied::Whole);
        };
        // It may die meanwhile, and whoever finds that would give its space to others: what is read there would be
        // theirs, and what is said of its places as well.
        let Some(_held) = self.checkpoints.hold_segment(&info).await else {
            return Ok(Emptied::Whole);
        };
        if self.looks_first() && !self.is_readable(&info).await? {
            return Ok(Emptied::Unreadable);
        }
        let (mut all, mut found, mut bare) = (Emptied::Whole, 0, BTreeSet::new());
        for stripes in batches(&info) {
            let mut seen = self.live_of(&info, stripes).await?;
            bare.append(&mut seen.bare);
            if seen.unknown {
                all = Emptied::Unreadable;
            }
            found += blocks(&seen.live);
            all = all.max(self.relocate(&info, seen.live).await?);
            if all == Emptied::NoRoom {
                return Ok(all);
            }
        }
        // Only then may there be blocks whose header is lost.
        if found < counted && !bare.is_empty() {
            let live = self.live_by_map(&info, &bare).await?;
            all = all.max(self.relocate(&info, live).await?);
        }
        self.doubts.set(self.doubts.get() || all == Emptied::Unreadable);
        Ok(all)
    }

    /// Whether a segment is moved only if all of it can be. What was moved of others has taken space for nothing: where
    /// that is the last there is, nothing can be won any more when the rest can be read again.
    fn looks_first(&self) -> bool {
        if self.base.writer.has_spare() {
            self.doubts.set(false);
            return false;
        }
        let drives = &self.base.common.superblock.drives;
        let is_away = |drive: u16| !drives.is_online(drive) && !drives.is_vacant(drive);
        self.doubts.get() || drives.indices().any(is_away)
    }

    /// Whether everything live in a segment can be read now, or is lost for good.
    async fn is_readable(&self, info: &Rc<SegmentInfo>) -> Result<bool> {
        let segments = self.base.writer.segments();
        for stripes in batches(info) {
            let seen = self.live_of(info, stripes).await?;
            if seen.unknown {
                return Ok(false);
            }
            for live in seen.live {
                let mut data = vec![0; live.crcs.len() * BLOCK];
                if segments.read(info, live.at.slot(), &live.crcs, &mut data).await.is_ok() {
                    continue;
                }
                for (n, (crc, block)) in
                    (0..).zip(live.crcs.iter().zip(data.chunks_exact_mut(BLOCK)))
                {
                    let slot = live.at.slot() + n;
                    if self.base.has_ended()
                        || segments.recover_block(info, slot, *crc, block).await
                            == Recovered::Unknown
                    {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Moves blocks of a segment, as far as there is room.
    async fn relocate(&self, info: &Rc<SegmentInfo>, live: Vec<Live>) -> Result<Emptied> {
        let mut all = Emptied::Whole;
        for live in live {
            all = all.max(self.relocate_some(info, live).await?);
            if all == Emptied::NoRoom {
                break;
            }
        }
        Ok(all)
    }

    /// Moves blocks; of those that are lost the map learns that. Those that can neither be read now nor be
    /// given up stay.
    async fn relocate_some(&self, info: &Rc<SegmentInfo>, live: Live) -> Result<Emptied> {
        assert_eq!(live.at.segment(), info.id, "what is moved is of the segment to be emptied");
        let mut data = vec![0; live.crcs.len() * BLOCK];
        let read =
            self.base.writer.segments().read(info, live.at.slot(), &live.crcs, &mut data).await;
        let mut all = Emptied::Whole;
        for (n, (crc, block)) in live.crcs.iter().zip(data.chunks_exact_mut(BLOCK)).enumerate() {
            let n = u32_of(n);
            let mut is_lost = false;
            if read.is_err() {
                // As with headers: each takes long.
                if self.base.has_ended() {
                    return Ok(all.max(Emptied::Unreadable));
                }
                let slot = live.at.slot() + n;
                match self.base.writer.segments().recover_block(info, slot, *crc, block).await {
                    Recovered::Whole => {}
                    Recovered::Lost => is_lost = true,
                    Recovered::Unknown => {
                        all = Emptied::Unreadable;
                        continue;
                    }
                }
            }
            let key = Key::new(live.key.view, live.key.block + u64::from(n));
            let old = (!live.is_new).then(|| live.at.offset(n));
            let owner = old.map_or(Owner::Write { key }, |old| Owner::Move { key, old });
            let (writer, stream, version) = (&self.base.writer, Stream::Reclaim, live.version);
            let append = || match is_lost {
                true => writer.try_lose(stream, key, version, old),
                false => writer.try_append(stream, owner, version, &[*crc], block),
            };
            while append().is_none() {
                if !self.base.writer.try_make_room(Stream::Reclaim).await? {
                    return Ok(Emptied::NoRoom);
                }
            }
            if is_lost {
                self.note_lost(1);
            }
        }
        Ok(all)
    }
}
