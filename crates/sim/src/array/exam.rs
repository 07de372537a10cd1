//! An examination of scrubs at the end of a life: damage is planted while nobody looks, on as many drives as the
//! redundancy bears, a scrub has to mend all of it, and then as many others are pulled: what is left has to do.

use super::operator::{Truth, newest_label};
use super::scrubs::{check, limit};
use super::{Array, Media, Seen, returning};
use crate::contents::BLOCK;
use crate::rough::moment;
use crate::store::Refusal;
use engine::drives::DriveSet;
use engine::format::label::Label;
use engine::format::member::MemberHeader;
use engine::segment::{SegmentInfo, Stream, StripeHeader};
use engine::{DriveState, Pool, Scrub, ScrubPosition};
use media::Simulated;
use media::drive::SimulatedFaults;
use reactor::sleep;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use stdx::Prng;
use stdx::num::{low32, u64_of, usize32, usize64};

/// The most places that are damaged on one drive: one that has many more errors than that at a time is taken out.
const PLACES: u64 = 48;

/// How often a scrub that is examined is ended and gone on with.
const ENDS: u32 = 16;

const BLOCK_BYTES: u64 = BLOCK as u64;

/// Once hosts have gone, reclaim has done what it was at after that.
const CALMS: Duration = Duration::from_secs(1);

/// What an examiner needs.
pub(super) struct Examiner {
    drives: Vec<Arc<Simulated>>,
    bears: usize,
    /// Nothing was ever wrong with the drives that an opening does not know of, as far as the plan goes.
    is_sound: bool,
    /// Something may be wrong with some drives, as many as the redundancy bears.
    is_borne: bool,
    /// Contents rotted in this life, past all redundancy.
    rots: bool,
    /// An operator has drives come and go.
    is_rough: bool,
    truth: Rc<RefCell<Truth>>,
    stage: Rc<Cell<returning::Stage>>,
    prng: RefCell<Prng>,
    said: Rc<RefCell<Vec<String>>>,
    seen: Rc<Cell<Seen>>,
}

/// How a scrub was examined.
#[derive(Debug)]
pub struct Examined {
    /// Drives that are away from now on, until the examination [ends](Array::end_exam).
    pulled: BTreeSet<usize>,
    /// All that hosts can ask for is there, it says.
    pub says_all_there: bool,
}

impl Media {
    /// Who examines scrubs at the end of this life, if anybody does.
    pub(super) fn examiner(&self, life: usize) -> Option<Box<Examiner>> {
        let mut prng = Prng::new(self.plan.seed ^ 0x5eed_05c2_0b00_0003 ^ u64_of(life) << 48);
        if !self.plan.scrubs || self.scarce.get() || prng.below(3) == 0 {
            return None;
        }
        let faults = &self.plan.shape.faults;
        let is_borne = faults.rot.is_none() && faults.disaster.is_none();
        let rots = faults.rot.is_some_and(|rot| rot.life == life && !rot.log);
        Some(Box::new(Examiner {
            drives: self.drives.clone(),
            bears: self.plan.shape.redundancy(),
            is_sound: self.plan.rough.is_some() || self.plan.is_sound(),
            is_borne: is_borne && faults.log_losses.is_empty(),
            rots,
            is_rough: self.plan.rough.is_some(),
            truth: Rc::clone(&self.truth),
            stage: Rc::clone(&self.stage),
            prng: RefCell::new(prng),
            said: Rc::clone(&self.said),
            seen: Rc::clone(&self.seen),
        }))
    }
}

impl Array {
    /// Has a scrub examined, if that is to be. `None` where it is not, or nothing can be said.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn examine(&self) -> Result<Option<Examined>, Refusal> {
        self.scrubs.end().await;
        let Some(examiner) = &self.examiner else { return Ok(None) };
        self.scrubs.is_marred.set(true);
        examiner.examine(&self.pool).await
    }

    /// What was pulled is there again, as it was.
    pub fn end_exam(&self, exam: &Examined) {
        let Some(examiner) = &self.examiner else { return };
        exam.pulled.iter().for_each(|n| examiner.drives[*n].revive());
    }
}

impl Examiner {
    async fn examine(&self, pool: &Pool) -> Result<Option<Examined>, Refusal> {
        let Some(whole) = self.whole(pool).await else { return Ok(None) };
        if self.rots {
            let scrub = self.scrub(pool).await?;
            let says_all_there = scrub.position.lost == 0 && self.none_lost(pool).await;
            return Ok(Some(Examined { pulled: BTreeSet::new(), says_all_there }));
        }
        if !self.is_borne {
            return Ok(None);
        }
        // A scrub looks at what the map has learnt, and only that is damaged.
        for _ in 0..2 {
            super::told(pool.audit_space().await)?;
            sleep(CALMS).await;
        }
        // Those that misbehave by themselves are through with that.
        self.drives.iter().for_each(|drive| drive.set_faults(SimulatedFaults::default()));
        let planted = match self.is_sound {
            true => self.plant(&whole),
            false => BTreeSet::new(),
        };
        let found = self.scrub(pool).await?.position;
        if (found.repaired, found.lost, found.unchecked) != (found.damaged, 0, 0) {
            let text = format!("a scrub left damage that the redundancy gives back: {found:?}");
            return Err(Refusal::Other(text));
        }
        let again = self.scrub(pool).await?.position;
        if again.damaged > 0 {
            let text = format!("a scrub found what the one before it had left: {again:?}");
            return Err(Refusal::Other(text));
        }
        self.count(|seen| {
            seen.exams += 1;
            seen.mended += found.repaired;
        });
        let pulled = if self.is_sound { self.pull(&whole, &planted) } else { BTreeSet::new() };
        Ok(Some(Examined { pulled, says_all_there: true }))
    }

    fn count(&self, count: impl FnOnce(&mut Seen)) {
        let mut seen = self.seen.get();
        count(&mut seen);
        self.seen.set(seen);
    }

    fn note(&self, what: String) {
        self.said.borrow_mut().push(what);
    }

    /// The drives in use, where those are all that anything lies on, and nothing is wrong with them.
    async fn whole(&self, pool: &Pool) -> Option<BTreeSet<usize>> {
        let status = pool.status().await.ok()?;
        let is_moving = status.rebuild.as_ref().is_some_and(|rebuild| rebuild.is_under_way);
        let places = status.drives.iter().enumerate();
        let is_lost = |state: DriveState, vacant: bool| state != DriveState::Online && !vacant;
        let is_whole = places.clone().all(|(_, drive)| !is_lost(drive.state, drive.vacant));
        let comes = places.clone().any(|(_, drive)| drive.state == DriveState::Rejoining);
        let truth = self.truth.borrow();
        let is_sure = !self.is_rough
            || truth.lost().is_empty() && truth.sick.is_empty() && truth.rotten.is_empty();
        let lacks_log = status.log.failed_devices > 0;
        let online = places.filter(|(_, drive)| drive.state == DriveState::Online);
        let online: BTreeSet<usize> = online.map(|(n, _)| n).collect();
        let is_well = is_whole && is_sure && !comes && !is_moving && !lacks_log;
        (is_well && status.beyond.is_none()).then_some(online)
    }

    /// Whether the pool met nothing, so far, that nothing gives.
    async fn none_lost(&self, pool: &Pool) -> bool {
        pool.status().await.is_ok_and(|status| status.lost_blocks == 0)
    }

    /// Has a whole scrub, in one piece or several.
    async fn scrub(&self, pool: &Pool) -> Result<Scrub, Refusal> {
        let mut from = ScrubPosition::default();
        // A segment is begun anew where a scrub goes on: one that takes longer than it is let go on for never ends.
        let mut ends = ENDS;
        loop {
            let limit = limit(&mut self.prng.borrow_mut());
            super::told(pool.scrub(&from, limit).await)?;
            let mut was_ended = false;
            let scrub = loop {
                let pause = moment(&mut self.prng.borrow_mut(), 12);
                sleep(pause).await;
                let scrub = super::told(pool.status().await)?.scrub;
                let scrub = scrub.ok_or_else(|| Refusal::Other("no scrub is told of".into()))?;
                check(&scrub, false);
                if !scrub.is_under_way {
                    break scrub;
                }
                if self.prng.borrow_mut().below(32) == 0 && ends > 0 {
                    ends -= 1;
                    was_ended = true;
                    pool.end_scrub().await;
                }
            };
            self.note(format!("a scrub that is examined: {scrub:?}"));
            if scrub.is_complete {
                return Ok(scrub);
            }
            if !was_ended {
                return Err(Refusal::Other(format!("a scrub ends by itself: {scrub:?}")));
            }
            from = scrub.position;
        }
    }

    /// Damages some places on some of these drives, as many as the redundancy bears: whatever is settled there, headers
    /// and parity as well. Not metadata, which is not looked at as long as its segment is being filled.
    fn plant(&self, whole: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut prng = self.prng.borrow_mut();
        let some = some(whole, self.bears, &mut prng);
        for &n in &some {
            let places = settled_on(&self.drives, n);
            if places.is_empty() {
                continue;
            }
            let count = 1 + prng.below(PLACES);
            for _ in 0..count {
                let at = places[usize64(prng.below(u64_of(places.len())))];
                spoil(&self.drives[n], at, &places, &mut prng);
            }
            self.note(format!("{count} places are damaged on drive {n}"));
        }
        some
    }

    /// Pulls as many of the others as may be.
    fn pull(&self, whole: &BTreeSet<usize>, planted: &BTreeSet<usize>) -> BTreeSet<usize> {
        let pulled = some(&(whole - planted), self.bears, &mut self.prng.borrow_mut());
        for &n in &pulled {
            self.drives[n].fail();
        }
        self.note(format!("drives {pulled:?} are pulled"));
        if !pulled.is_empty() {
            // It closes without them.
            self.stage.set(returning::Stage::ComeAndGo);
            let mut truth = self.truth.borrow_mut();
            truth.out.extend(&pulled);
            truth.sick.extend(&pulled);
        }
        pulled
    }
}

/// So many of these, or all.
fn some(of: &BTreeSet<usize>, count: usize, prng: &mut Prng) -> BTreeSet<usize> {
    let mut all: Vec<usize> = of.iter().copied().collect();
    let count = count.min(all.len());
    (0..count).map(|_| all.swap_remove(usize64(prng.below(u64_of(all.len()))))).collect()
}

/// Where a drive has the headers of its allocation units, and the units.
struct Layout {
    label: Label,
    headers: u64,
    units: u64,
}

impl Layout {
    fn of(drive: &Simulated) -> Option<Self> {
        let label = newest_label(drive)?;
        let record = label.drives.get(usize::from(label.drive))?;
        let headers = label.catalog.end() + record.log_bytes;
        Some(Self { units: DriveSet::units_from(headers, record.au_count), headers, label })
    }

    /// Where a block of an allocation unit lies.
    fn at(&self, au: u32, block: u32) -> u64 {
        self.units + u64::from(au) * self.label.layout.au_bytes + u64::from(block) * BLOCK_BYTES
    }
}

/// Where stripes of data lie on a drive that were written, parity and the headers of allocation units included.
fn settled_on(drives: &[Arc<Simulated>], n: usize) -> Vec<u64> {
    let layouts: Vec<Option<Layout>> = drives.iter().map(|drive| Layout::of(drive)).collect();
    let Some(Some(layout)) = layouts.get(n) else { return Vec::new() };
    let mut found = Vec::new();
    for au in 0..layout.label.drives[n].au_count {
        let (at, mut block) = (layout.headers + u64::from(au) * BLOCK_BYTES, [0; BLOCK]);
        drives[n].peek(at, &mut block);
        let Ok(header) = MemberHeader::read(&block, layout.label.pool) else { continue };
        let info = header.segment;
        if info.stream == Stream::Metadata {
            continue;
        }
        found.push(at);
        let is_written = |stripe: &u32| is_written(drives, &layouts, &info, *stripe);
        for stripe in (0..info.geometry.stripes()).filter(is_written) {
            let blocks = 0..info.geometry.unit_blocks();
            found.extend(blocks.map(|b| layout.at(au, info.geometry.member_block(stripe, b))));
        }
    }
    found
}

/// Whether a stripe has its header: it was written in its segment's present life.
fn is_written(
    drives: &[Arc<Simulated>],
    layouts: &[Option<Layout>],
    info: &SegmentInfo,
    stripe: u32,
) -> bool {
    let member = info.member(stripe, 0);
    let n = usize::from(member.drive);
    let Some(Some(layout)) = layouts.get(n) else { return false };
    let mut bytes = vec![0; usize32(info.header_blocks()) * BLOCK];
    drives[n].peek(layout.at(member.au, info.geometry.member_block(stripe, 0)), &mut bytes);
    let header = StripeHeader::read(&bytes, layout.label.pool, info.geometry);
    header.is_ok_and(|header| info.has_header(&header, stripe))
}

/// Does something to a place that a drive does not tell of, or tells who reads it.
fn spoil(drive: &Simulated, at: u64, places: &[u64], prng: &mut Prng) {
    let mut block = [0; BLOCK];
    match prng.below(4) {
        0 => drive.flip(at + prng.below(BLOCK_BYTES), low32(prng.below(8))),
        1 => drive.damage(at, BLOCK_BYTES),
        // What was to go elsewhere went here.
        2 => {
            drive.peek(places[usize64(prng.below(u64_of(places.len())))], &mut block);
            drive.poke(at, &block);
        }
        // It was never written.
        _ => drive.poke(at, &block),
    }
}
