//! Labels, the drives they make, and roots: what every drive carries alike.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use media::Drive;
use stdx::num::u64_of;

use super::report::{DriveSeen, Fate, Finding, PoolSeen, Report, Structure};
use super::{Look, Progress, Spec, advice};
use crate::address::BLOCK;
use crate::area::{self, Slots};
use crate::drives::{DriveSet, DriveSlot};
use crate::format::label::{DriveMark, DriveRecord, Label};
use crate::format::root::Root;
use crate::format::{Bad, area as at};
use crate::pool::geometry_of;
use crate::segment::Segments;

/// A label, and the drive it is on.
struct Labelled<'a> {
    label: Label,
    name: &'a str,
    drive: Arc<Drive>,
}

/// The drives of the pool, by index.
pub(super) struct Found {
    label: Label,
    drives: Vec<Option<Arc<Drive>>>,
    names: Vec<String>,
}

/// The newest of two slots, told what is wrong with the other.
fn newest<T>(
    slots: Slots<T>,
    age: impl Fn(&T) -> u64,
    mut tell: impl FnMut(u64, &Bad),
) -> Option<T> {
    let mut best: Option<T> = None;
    let blank = slots.iter().all(|slot| matches!(slot, Err(Bad::Blank)));
    for (n, slot) in (0..).zip(slots) {
        match slot {
            Ok(found) if best.as_ref().is_none_or(|best| age(best) < age(&found)) => {
                best = Some(found);
            }
            Ok(_) => {}
            Err(Bad::Blank) if !blank => {}
            Err(bad) => tell(n, &bad),
        }
    }
    best
}

/// Reads the labels and sorts the drives into their places. `None` when there is no pool.
pub(super) async fn find(spec: &Spec, report: &mut Report) -> Option<Found> {
    let mut labels = Vec::new();
    for given in &spec.drives {
        if let Some(label) = label_of(given, report).await {
            labels.push(label);
        }
    }
    let pool = choose(&labels)?;
    let mut newest: Option<&Label> = None;
    for one in labels.iter().filter(|one| one.label.pool == pool) {
        if newest.is_none_or(|newest| newest.epoch < one.label.epoch) {
            newest = Some(&one.label);
        }
    }
    let label = newest?.clone();
    report.pool = Some(PoolSeen {
        name: label.name.clone(),
        id: label.pool,
        state: label.state,
        epoch: label.epoch,
        layout: label.layout,
        shards: label.shards,
        log: label.log,
        created: label.created,
    });
    let mut drives: Vec<Option<Labelled<'_>>> = Vec::new();
    drives.resize_with(label.drives.len(), || None);
    for one in labels {
        place(one, &label, &mut drives, report);
    }
    Some(Found::settle(label, drives, report))
}

/// The newest label of a drive.
async fn label_of<'a>(given: &'a super::Given, report: &mut Report) -> Option<Labelled<'a>> {
    let mut lost = |fate: Fate, finding: Finding| {
        report.add(finding.on(&given.name));
        let device = Some(given.name.clone());
        let seen =
            DriveSeen { device, index: None, id: None, epoch: None, fate, units: 0, taken: 0 };
        report.drives.push(seen);
    };
    let cannot = "replace the drive, or find out why it cannot be read; without it the pool opens \
                  degraded, as long as its redundancy bears that";
    let slots = match &given.drive {
        Ok(drive) => area::label_slots(drive).await.map(|slots| (drive, slots)),
        Err(why) => {
            let what = format!("it cannot be opened: {why}");
            lost(Fate::Damaged, Finding::warning(Structure::Drive, what).advise(cannot));
            return None;
        }
    };
    let (drive, slots) = match slots {
        Ok(found) => found,
        Err(error) => {
            let what = format!("it cannot be read: {error}");
            lost(Fate::Damaged, Finding::warning(Structure::Drive, what).advise(cannot));
            return None;
        }
    };
    let blank = slots.iter().all(|slot| matches!(slot, Err(Bad::Blank)));
    let mut wrong = Vec::new();
    let found = newest(slots, |label| label.epoch, |n, bad| wrong.push((n, *bad)));
    match found {
        Some(label) => {
            for (n, bad) in wrong {
                let what = format!("one of the drive's two labels is not whole: {bad}");
                let finding = Finding::warning(Structure::Label, what);
                let offset = at::LABEL + n * u64_of(BLOCK);
                report.add(finding.on(&given.name).at(offset).advise(advice::OUTVOTED));
            }
            Some(Labelled { label, name: &given.name, drive: Arc::clone(drive) })
        }
        None if blank => {
            let finding = Finding::warning(Structure::Label, "no pool's label was ever written")
                .advise("a blank drive is never taken for a missing one: leave it out");
            lost(Fate::Blank, finding);
            None
        }
        None => {
            let why = wrong.first().map_or(String::new(), |(_, bad)| format!(": {bad}"));
            let finding =
                Finding::warning(Structure::Label, format!("neither label is whole{why}"))
                    .at(at::LABEL)
                    .advise(
                        "the pool opens without this drive (`flashloom pool import --degraded`), \
                         as long as its redundancy bears that; what the drive holds is old then",
                    );
            lost(Fate::Damaged, finding);
            None
        }
    }
}

/// The pool that most of the drives are of.
fn choose(labels: &[Labelled<'_>]) -> Option<[u8; 16]> {
    let mut votes: BTreeMap<[u8; 16], (usize, u64)> = BTreeMap::new();
    for one in labels {
        let vote = votes.entry(one.label.pool).or_default();
        *vote = (vote.0 + 1, vote.1.max(one.label.epoch));
    }
    votes.into_iter().max_by_key(|(_, vote)| *vote).map(|(pool, _)| pool)
}

fn place<'a>(
    one: Labelled<'a>,
    label: &Label,
    drives: &mut [Option<Labelled<'a>>],
    report: &mut Report,
) {
    let mut foreign = |one: &Labelled<'_>, what: String| {
        let advice = "leave this drive out";
        report.add(Finding::warning(Structure::Label, what).on(one.name).advise(advice));
        report.drives.push(DriveSeen {
            device: Some(one.name.to_owned()),
            index: None,
            id: None,
            epoch: Some(one.label.epoch),
            fate: Fate::Foreign,
            units: 0,
            taken: 0,
        });
    };
    if one.label.pool != label.pool {
        return foreign(&one, format!("it is of pool {}, not of {}", one.label.name, label.name));
    }
    match drives.get_mut(usize::from(one.label.drive)) {
        None => foreign(&one, format!("the pool has no drive {}", one.label.drive)),
        Some(Some(other)) => {
            let what = format!("it says it is drive {}, as {} does", one.label.drive, other.name);
            foreign(&one, what);
        }
        Some(place) => *place = Some(one),
    }
}

/// Whether what the label says of a drive can be, and fits `capacity` bytes.
fn fits(record: &DriveRecord, label: &Label, capacity: u64) -> bool {
    let begins = u128::from(label.catalog.end()) + u128::from(record.log_bytes);
    let table = u128::from(record.au_count) * u128::from(u64_of(BLOCK)) + (64 << 10);
    begins + table + u128::from(record.au_count) * u128::from(label.layout.au_bytes)
        <= u128::from(capacity) + (64 << 10)
}

impl Found {
    fn settle(label: Label, drives: Vec<Option<Labelled<'_>>>, report: &mut Report) -> Self {
        let mut found = Self { drives: Vec::new(), names: Vec::new(), label };
        let mut lost = 0;
        for (n, one) in drives.into_iter().enumerate() {
            let record = found.label.drives[n];
            let index = stdx::num::u16_of(n);
            let mut seen = DriveSeen {
                device: None,
                index: Some(index),
                id: Some(record.id),
                epoch: None,
                fate: Fate::Missing,
                units: record.au_count,
                taken: 0,
            };
            found.names.push(one.as_ref().map_or(format!("drive {n}"), |one| one.name.to_owned()));
            if let Some(one) = &one {
                seen.device = Some(one.name.to_owned());
                seen.epoch = Some(one.label.epoch);
                seen.fate = if record.is_out() { Fate::Failed } else { Fate::Member };
            }
            let is_used = record.mark != DriveMark::Vacant;
            lost += usize::from(is_used && (record.is_out() || one.is_none()));
            found.tell_drive(index, one.as_ref(), report);
            found.drives.push(one.map(|one| one.drive));
            report.drives.push(seen);
        }
        let bears = usize::from(found.label.layout.parity);
        if lost > bears {
            let what = format!("{lost} drives are lost, and the pool bears the loss of {bears}");
            report.add(Finding::error(Structure::Drive, what).advise(
                "find the drives that are missing: without them the pool cannot be opened",
            ));
        }
        found
    }

    fn tell_drive(&self, index: u16, one: Option<&Labelled<'_>>, report: &mut Report) {
        let record = &self.label.drives[usize::from(index)];
        let what = match one {
            _ if record.mark == DriveMark::Vacant => return,
            _ if record.is_out() => {
                let what = format!("drive {index} failed while the pool was open");
                let finding = Finding::warning(Structure::Drive, what)
                    .advise("what it holds is old: the rest of the pool lives without it");
                report.add(one.into_iter().fold(finding, |finding, one| finding.on(one.name)));
                return;
            }
            None => format!("drive {index} is missing"),
            Some(one) => {
                if one.label.epoch < self.label.epoch {
                    let what = format!(
                        "its label is of epoch {}, the newest of epoch {}: writing labels was cut \
                         short",
                        one.label.epoch, self.label.epoch
                    );
                    report.add(Finding::note(Structure::Label, what).on(one.name));
                }
                if !fits(record, &self.label, one.drive.capacity()) {
                    let what = format!(
                        "it has {} bytes, fewer than its label counts on",
                        one.drive.capacity()
                    );
                    let advice = "give the drive its size back: what lay beyond its end is lost";
                    let finding = Finding::warning(Structure::Drive, what);
                    report.add(finding.on(one.name).advise(advice));
                }
                return;
            }
        };
        report.add(Finding::warning(Structure::Drive, what).advise(
            "name all drives of the pool; if it is lost, `flashloom pool import --degraded` opens \
             the pool without it",
        ));
    }

    /// All that is needed to look further.
    pub fn look<'a>(
        self,
        spec: &'a Spec,
        mut report: Report,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Look<'a>, Box<Report>> {
        let slots = self.label.drives.iter().zip(self.drives).map(|(record, drive)| {
            // What no drive can have is a drive that has nothing.
            let can_be = fits(record, &self.label, u64::MAX >> 2);
            DriveSlot {
                vacant: record.mark == DriveMark::Vacant,
                drive: drive.filter(|_| can_be),
                failed: record.is_out(),
                begins: self.label.catalog.end() + if can_be { record.log_bytes } else { 0 },
                au_count: if can_be { record.au_count } else { 0 },
            }
        });
        let set =
            Arc::new(DriveSet::new(slots.collect(), self.label.layout.au_bytes, 0).read_only());
        let geometry = geometry_of(&self.label.layout);
        let made = geometry.and_then(|geometry| {
            Ok((geometry, Segments::new(Arc::clone(&set), self.label.pool, geometry)?))
        });
        match made {
            Ok((geometry, segments)) => Ok(Look {
                label: self.label,
                geometry,
                set,
                segments,
                names: self.names,
                catalog: OnceCell::new(),
                snapshots: OnceCell::new(),
                spec,
                report: RefCell::new(report),
                progress: RefCell::new(progress),
                stage: Cell::new(Progress { stage: "", done: 0, of: 0 }),
            }),
            Err(error) => {
                let what = format!("the label describes a pool that cannot be: {error}");
                report.add(Finding::error(Structure::Label, what).advise(advice::REPORT));
                Err(Box::new(report))
            }
        }
    }
}

/// Reads both slots of a piece on every drive and tells what is wrong with them. Gives the newest.
async fn newest_of<T>(
    look: &Look<'_>,
    (structure, shard): (Structure, Option<u16>),
    read: impl AsyncFn(&Drive) -> crate::Result<Slots<T>>,
    slot_at: impl Fn(u64) -> u64,
    age: impl Fn(&T) -> u64,
) -> Option<T> {
    let mut best: Option<T> = None;
    let mut ages = Vec::new();
    for index in look.set.indices() {
        let Some(drive) = look.set.drive(index).cloned() else { continue };
        let name = look.name(index);
        let tell = |what: String, offset: u64| {
            let finding = Finding::warning(structure, what).on(&name).at(offset);
            look.add(finding.of(shard).advise(advice::OUTVOTED));
        };
        look.count_blocks(2);
        let slots = match read(&drive).await {
            Ok(slots) => slots,
            Err(error) => {
                tell(format!("it cannot be read: {error}"), slot_at(0));
                continue;
            }
        };
        let found = newest(slots, &age, |n, bad| {
            tell(format!("one of the drive's two copies is not whole: {bad}"), slot_at(n));
        });
        let Some(found) = found else { continue };
        ages.push((index, age(&found)));
        if best.as_ref().is_none_or(|best| age(best) < age(&found)) {
            best = Some(found);
        }
    }
    let newest = best.as_ref().map_or(0, &age);
    for (index, age) in ages.into_iter().filter(|(_, age)| *age < newest) {
        let what = format!("it is of generation {age}, the newest of {newest}");
        let finding = Finding::note(structure, what).of(shard);
        look.add(finding.on(look.name(index)).at(slot_at(age % 2)));
    }
    best
}

/// The newest root of a shard.
pub(super) async fn root(look: &Look<'_>, shard: u16) -> Option<Root> {
    let pool = look.label.pool;
    let found = newest_of(
        look,
        (Structure::Root, Some(shard)),
        async |drive| area::root_slots(drive, pool, shard).await,
        |slot| area::root_at(shard, slot),
        |root| root.generation,
    )
    .await;
    if found.is_none() {
        let what = "no drive has the root: where the shard's map and segments are is not known";
        look.add(Finding::error(Structure::Root, what).shard(shard).advise(advice::RESTORE));
    }
    found
}
