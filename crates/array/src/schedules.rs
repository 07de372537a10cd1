//! Schedules of snapshots: when their rules are due, and what they keep. Decisions only; times are seconds since 1970 UTC.

use std::collections::{BTreeMap, BTreeSet};

use api::limits::{SCHEDULE_RULES_MAX, SCHEDULE_VOLUMES_MAX, SCHEDULES_MAX};
use api::v1::{NewScheduleRule, ScheduleChange};
use api::value::{Name, NameTemplate, Period, Refused, VolumePath};
use serde::{Deserialize, Serialize};
use stdx::num::u64_of;
use uuid::Uuid;

use crate::limits::SCHEDULED_SNAPSHOTS;

/// A run that is late by no more is on time: it is named by when it was due. And by a tenth of its period, if that is less.
const ON_TIME: u64 = 60;

/// A part of the period: what was missed is not made up for while the next run is as near.
const NEAR: u64 = 10;

/// All schedules of a node, by their identities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schedules(pub BTreeMap<Uuid, Schedule>);

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Its volumes, and what they were called when they were seen last; all of one pool, and one at least where they were
    /// named. Of a group's, those that it had when it was looked at last.
    pub volumes: BTreeMap<Uuid, VolumePath>,
    /// The group that it is of, if it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<OfGroup>,
    /// What identifies their pool for ever: another one may have its name. Of one that was written down without, it is
    /// learned when it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_id: Option<Uuid>,
    pub template: NameTemplate,
    pub rules: BTreeMap<Period, Rule>,
}

/// A rule of a schedule, and what it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub keep: u32,
    /// What was due by then is done, or was tried.
    pub settled: u64,
    /// When it took snapshots last.
    pub last: Option<u64>,
    /// How often it did not.
    pub failed: u64,
    /// Why it did not the last time.
    pub error: Option<String>,
    /// What it made and is still there, as far as that was looked at, the oldest first: nothing else is deleted.
    pub made: Vec<Made>,
}

/// What a run made. It is written down before: what is there is known as the rule's, whatever comes between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// When it was due.
    pub due: u64,
    /// The snapshots, one of each volume.
    pub snapshots: Vec<Uuid>,
}

/// Runs that failed, and may have made snapshots nevertheless, of which a rule remembers that.
const FAILED_KEPT: usize = 64;

/// Whether a rule is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    No,
    /// The clock was set back by more than a period, or was wrong before: it is to go on from this time.
    From(u64),
    Run(Run),
}

/// A run that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub due: u64,
    /// The time that its snapshots are called by.
    pub at: u64,
}

impl Rule {
    /// A rule that runs for the first time when it is due next.
    pub fn new(every: Period, keep: u32, now: u64) -> Self {
        Self { keep, settled: before(every, now), ..Self::default() }
    }

    /// Whether it is to run. However many runs were missed, it is one that makes up for them; none where the next is near.
    pub fn due(&self, every: Period, now: u64) -> Due {
        let (due, period) = (before(every, now), every.seconds());
        if self.settled > now.saturating_add(period) {
            return Due::From(due);
        }
        if due <= self.settled {
            return Due::No;
        }
        let (late, left) = (now - due, (due + period).saturating_sub(now));
        if late <= ON_TIME.min(period / NEAR) {
            return Due::Run(Run { due, at: due });
        }
        if left <= period / NEAR { Due::No } else { Due::Run(Run { due, at: now }) }
    }

    /// When it runs next; before `now` where it waits to make up for a run.
    pub fn next(&self, every: Period, now: u64) -> u64 {
        match self.due(every, now) {
            Due::Run(run) => run.due,
            Due::From(settled) => settled + every.seconds(),
            Due::No => before(every, now.max(self.settled)) + every.seconds(),
        }
    }

    /// What was made for this run is there already: the daemon ended before that was written down.
    pub fn was_made(&self, due: u64, is_there: impl Fn(&Uuid) -> bool) -> bool {
        // One that is asked for in the second of another is not the same.
        let last = self.made.last().filter(|made| made.due == due && due > self.settled);
        last.is_some_and(|made| made.snapshots.iter().any(is_there))
    }

    /// Forgets what is not there any more.
    pub fn forget(&mut self, is_there: impl Fn(&Uuid) -> bool) {
        for made in &mut self.made {
            made.snapshots.retain(&is_there);
        }
        self.made.retain(|made| !made.snapshots.is_empty());
    }

    /// After a run that failed: an opening may find its snapshots, which some drives have, until another one has succeeded.
    /// So nothing is forgotten but what is long gone.
    pub fn forget_oldest(&mut self, is_there: impl Fn(&Uuid) -> bool) {
        let is_gone = |made: &Made| !made.snapshots.iter().any(&is_there);
        let mut more = self.made.iter().filter(|made| is_gone(made)).count();
        self.made.retain(|made| {
            let stays = !is_gone(made) || more <= FAILED_KEPT;
            more -= usize::from(!stays);
            stays
        });
    }

    /// The runs that it has beyond what it keeps, of what is there, the oldest first.
    pub fn beyond(&self, is_there: impl Fn(&Uuid) -> bool) -> Vec<Made> {
        let mut left = self.clone();
        left.forget(is_there);
        let beyond = left.made.len().saturating_sub(stdx::num::usize32(self.keep));
        left.made.drain(..beyond).collect()
    }
}

/// The last time by `now` that a rule is due at.
fn before(every: Period, now: u64) -> u64 {
    now - now % every.seconds()
}

impl Schedule {
    /// The pool of its volumes, as it was called when it was open last.
    pub fn pool(&self) -> Option<&Name> {
        let of_group = self.group.as_ref().map(|group| &group.path.pool);
        of_group.or_else(|| self.volumes.values().next().map(|path| &path.pool))
    }

    /// What its volumes are called, in order.
    pub fn named(&self) -> BTreeSet<&VolumePath> {
        self.volumes.values().collect()
    }

    /// Its volumes, by identity.
    pub fn ids(&self) -> BTreeSet<Uuid> {
        self.volumes.keys().copied().collect()
    }

    /// In words, after "schedule of".
    pub fn words(&self) -> String {
        if let Some(group) = &self.group {
            return format!("group {}", group.path);
        }
        let names: Vec<_> = self.named().iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    /// As it is with such a change, from `now` on: what a rule made is still its own where its period is there again.
    ///
    /// # Errors
    /// What is wrong with the rules.
    pub fn changed(&self, change: &ScheduleChange, now: u64) -> Result<Self, Refused> {
        let template = change.name_template.as_ref().unwrap_or(&self.template);
        let rule =
            |(every, rule): (&Period, &Rule)| NewScheduleRule { every: *every, keep: rule.keep };
        let asked = change.rules.clone().unwrap_or_else(|| self.rules.iter().map(rule).collect());
        let mut wanted = rules(&asked, self.named_volumes(), template, now)?;
        for (every, rule) in &mut wanted {
            if let Some(before) = self.rules.get(every) {
                *rule = Rule { keep: rule.keep, ..before.clone() };
            }
        }
        Ok(Self { template: template.clone(), rules: wanted, ..self.clone() })
    }

    /// Whether its volumes are of the pool with this identity, which has these volumes as far as that is known.
    pub fn is_in(&self, pool: Uuid, has: &BTreeSet<Uuid>) -> bool {
        self.pool_id.map_or_else(|| self.volumes.keys().any(|id| has.contains(id)), |id| id == pool)
    }

    /// Snapshots that it keeps.
    fn keeps(&self) -> u64 {
        let runs: u64 = self.rules.values().map(|rule| u64::from(rule.keep)).sum();
        runs.saturating_mul(u64_of(self.volumes.len()))
    }
}

impl Schedules {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The schedule of a volume. That of its group is none: who is in that changes.
    pub fn of_volume(&self, volume: &Uuid) -> Option<(Uuid, &Schedule)> {
        let mut all = self.0.iter().filter(|(_, of)| of.group.is_none());
        all.find(|(_, of)| of.volumes.contains_key(volume)).map(|(id, of)| (*id, of))
    }

    /// Checks the bounds that only the whole can exceed.
    ///
    /// # Errors
    /// What is exceeded.
    pub fn check(&self) -> Result<(), Refused> {
        let (count, most) = (self.0.len(), SCHEDULES_MAX);
        if count > most {
            let right = format!("a node has at most {most}");
            return Err(Refused::new(format!("{count} schedules"), right));
        }
        let keep = self.0.values().fold(0_u64, |sum, of| sum.saturating_add(of.keeps()));
        if keep <= SCHEDULED_SNAPSHOTS {
            return Ok(());
        }
        let wrong = format!("the schedules would keep {keep} snapshots together");
        let right = format!("keep fewer: all of a node keep {SCHEDULED_SNAPSHOTS} at most");
        Err(Refused::new(wrong, right))
    }

    /// Forgets a volume that is deleted, and its schedule if it has no others; what was dropped, in words.
    pub fn forget(&mut self, volume: &Uuid) -> Option<String> {
        let (id, of) = self.of_volume(volume)?;
        let words = of.words();
        let of = self.0.get_mut(&id)?;
        of.volumes.remove(volume);
        of.volumes.is_empty().then(|| self.0.remove(&id)).flatten().map(|_| words)
    }
}

/// The rules of a new schedule of so many volumes, from `now` on.
///
/// # Errors
/// What is wrong with them.
pub fn rules(
    asked: &[NewScheduleRule],
    volumes: usize,
    template: &NameTemplate,
    now: u64,
) -> Result<BTreeMap<Period, Rule>, Refused> {
    let refuse = |wrong: String, right: &str| Err(Refused::new(wrong, right));
    if volumes == 0 || volumes > SCHEDULE_VOLUMES_MAX {
        let wrong = format!("a schedule has 1 to {SCHEDULE_VOLUMES_MAX} volumes, not {volumes}");
        return refuse(wrong, "make several schedules of more");
    }
    let count = asked.len();
    if count == 0 || count > SCHEDULE_RULES_MAX {
        let wrong = format!("a schedule has 1 to {SCHEDULE_RULES_MAX} rules, not {count}");
        return refuse(wrong, "say when and how many are kept, such as --every 1h --keep 24");
    }
    if count > 1 && !template.tells_rules_apart() {
        let wrong = format!("by the template {template} several rules call theirs alike");
        return refuse(wrong, "put {every} into it, such as {every}-{time}");
    }
    let mut rules = BTreeMap::new();
    for NewScheduleRule { every, keep } in asked {
        if *keep == 0 {
            let wrong = format!("every {every}, 0 snapshots would be kept");
            return refuse(wrong, "keep 1 at least");
        }
        if rules.insert(*every, Rule::new(*every, *keep, now)).is_some() {
            return refuse(format!("two rules run every {every}"), "give each its own period");
        }
    }
    Ok(rules)
}

/// A time as names have it: in the order of time as in that of letters.
pub fn written(time: u64) -> String {
    let time = i64::try_from(time).ok().and_then(|time| jiff::Timestamp::from_second(time).ok());
    time.unwrap_or_default().strftime("%Y%m%dT%H%M%SZ").to_string()
}

mod groups;
#[cfg(test)]
mod tests;

pub use groups::OfGroup;
