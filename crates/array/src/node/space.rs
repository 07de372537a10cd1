//! Watching how pools are doing: what is told in events, and to hosts.

use std::collections::BTreeMap;

use api::v1::{PoolSpace, Severity};
use api::value::{Name, Nqn, Size};
use engine::WritesRefused;
use target::subsystem::Health;

use super::Node;
use super::owner::Owned;
use crate::Result;
use crate::pools::{condition, health_of, problem};
use crate::space::quotas::{Bounded, Level};
use crate::space::reserved::Told;
use crate::space::{Faults, Thresholds, Usage, Watch};
use crate::windows;

impl Node {
    /// Looks at all pools, once: records events for those that have less room than was told, or more,
    /// or lack what they are made of, and tells the hosts of their volumes.
    ///
    /// # Errors
    /// `Stopping`.
    pub async fn look_at_space(&self) -> Result<()> {
        let at = self.settings.space;
        let ends = |owned: &mut Owned| Ok(owned.serving_mut()?.pools_mut().window_ends());
        for (name, ends) in self.owner.ask_unseen(ends)? {
            // None of a pool that was closed meanwhile.
            let ends = ends.await.unwrap_or_default();
            ends.iter().for_each(|end| self.tell_window_end(&name, end));
        }
        let looks = self.owner.ask_unseen(|owned| Ok(owned.serving_mut()?.pools_mut().looks()))?;
        for (name, look) in looks {
            // A pool that was closed meanwhile.
            let Ok(Some(status)) = look.await else { continue };
            self.tell_lost(&name, status.lost_blocks)?;
            self.note_term(&name, status.log.durable_term);
            let is_beyond = status.beyond.is_some();
            let of = |problem: String| condition(&name, &problem, health_of(&status));
            let unreadable = status.unreadable_reads;
            let fails = self.watch(&name, move |watch| watch.reads_fail(unreadable))?;
            let words = problem(&status).map(of);
            let words = if fails { Some(unread(&name, words)) } else { words };
            self.tell_problem(&name, words, is_beyond)?;
            self.tell_faults(&name, &status)?;
            self.tell_labels_anew(&name, &status)?;
            self.tell_quotas(&name, &status)?;
            self.tell_reserved(&name, &status)?;
            let (of, usage) = (name.clone(), Usage::of(&status));
            let settle = self.owner.ask(move |owned| {
                let pools = owned.serving_mut()?.pools_mut();
                let asks = pools.watch_mut(&of).look(usage, at);
                // Closed meanwhile: nothing to ask.
                Ok(if asks { pools.pool(&of).ok().map(|pool| pool.look(true)) } else { None })
            })?;
            let known = match settle {
                Some(settle) => settle.await.ok().flatten(),
                None => None,
            };
            let told = self.watch(&name, move |watch| {
                let worse = known.is_some_and(|status| watch.know(Usage::of(&status), at));
                (worse || watch.recovers(at)).then(|| (watch.told(), watch.usage()))
            })?;
            if let Some((space, usage)) = told {
                let (severity, words) = notice(&name, space, usage, at);
                self.events.record(severity, words);
            }
        }
        self.owner.ask_unseen(move |owned| owned.tell_hosts(at))
    }

    /// Has `take` take what is new of a pool.
    fn watch<T: Send + 'static>(
        &self,
        name: &Name,
        take: impl FnOnce(&mut Watch) -> T + Send + 'static,
    ) -> Result<T> {
        let name = name.clone();
        self.owner.ask(move |owned| Ok(take(owned.serving_mut()?.pools_mut().watch_mut(&name))))
    }

    /// Records it when a pool lost blocks.
    fn tell_lost(&self, name: &Name, lost: u64) -> Result<()> {
        let new = self.watch(name, move |watch| watch.loses(lost))?;
        if new > 0 {
            self.events.record(Severity::Error, loss(name, new));
        }
        Ok(())
    }

    /// Records it when a direct write window ended for what its host did, or was found damaged.
    pub(super) fn tell_window_end(&self, pool: &Name, end: &engine::WindowEnd) {
        for (severity, words) in windows::told(pool, end) {
            self.events.record(severity, words);
        }
    }

    /// Remembers the newest labels of a pool, beside what its drives say.
    fn note_term(&self, name: &Name, term: u64) {
        let name = name.clone();
        let noted = self.owner.ask(move |owned| {
            let is_newer = owned.serving_mut().is_ok_and(|s| s.pools_mut().note_term(&name, term));
            if is_newer { owned.keep() } else { Ok(()) }
        });
        if let Err(error) = noted {
            self.events.record(Severity::Error, error.context);
        }
    }

    /// Records it when a drive of a pool has more faults than was told.
    fn tell_faults(&self, name: &Name, status: &engine::PoolStatus) -> Result<()> {
        let faults = status.drives.iter().map(|drive| Faults::of(&drive.counters));
        let faults = faults.collect();
        let worse = self.watch(name, move |watch| watch.faults(faults))?;
        for (index, Faults { read_errors, corrupt, repaired }) in worse {
            let words = format!(
                "drive {index} of pool {name} has faults: {read_errors} of its reads failed, {corrupt} of its \
                 blocks were not what was written, {repaired} were written anew from the others; \
                 `flashloom drive show {name}/{index}` tells more"
            );
            self.events.record(Severity::Warning, words);
        }
        Ok(())
    }

    /// Records it when a volume or a group comes near its quota, or has room again.
    fn tell_quotas(&self, name: &Name, status: &engine::PoolStatus) -> Result<()> {
        // Of thousands of volumes, few have one. With none, what was told of those that had is forgotten.
        let mut all: Vec<Bounded> = status.volumes.iter().filter_map(Bounded::volume).collect();
        // A pool that was closed meanwhile has none.
        let groups = self.open_pool_named(name).map(|open| open.groups()).unwrap_or_default();
        all.extend(groups.into_iter().filter_map(|(name, group, _)| {
            let quota = group.quota?.status();
            Some(Bounded::group(name.to_string(), group.id, quota))
        }));
        let at = self.settings.space;
        let told = self.watch(name, move |watch| {
            let told = watch.quotas.look(&all, at).into_iter();
            told.map(|(of, level, percent)| (of.clone(), level, percent)).collect::<Vec<_>>()
        })?;
        for (of, level, percent) in told {
            let (severity, words) = near_quota(name, &of, level, percent, at);
            self.events.record(severity, words);
        }
        Ok(())
    }

    /// Records it when a pool lacks what volumes have reserved, or has nothing left but that.
    fn tell_reserved(&self, name: &Name, status: &engine::PoolStatus) -> Result<()> {
        let (used, capacity, of) = (status.used, status.capacity, status.reservations);
        let told = self.watch(name, move |watch| watch.reserved.look(used, capacity, of))?;
        for told in told {
            let (severity, words) = reserved(name, told);
            self.events.record(severity, words);
        }
        Ok(())
    }

    /// Records it when drives of a pool had lost their labels.
    fn tell_labels_anew(&self, name: &Name, status: &engine::PoolStatus) -> Result<()> {
        let anew = status.drives.iter().map(|drive| drive.labels_rewritten).collect();
        let new = self.watch(name, move |watch| watch.labels_rewritten(anew))?;
        for index in new {
            let words = format!(
                "drive {index} of pool {name} had lost its labels, or somebody had written over them: they were \
                 written anew; look what else uses that drive"
            );
            self.events.record(Severity::Warning, words);
        }
        Ok(())
    }

    /// Records it when a pool lacks something that it had, or has it again.
    fn tell_problem(&self, name: &Name, words: Option<String>, is_beyond: bool) -> Result<()> {
        let lacks = words.clone();
        if self.watch(name, move |watch| watch.lacks(lacks.as_deref(), is_beyond))? {
            match words {
                Some(words) => self.events.record(Severity::Error, words),
                None => self.events.record(Severity::Info, format!("pool {name} is whole again")),
            }
        }
        Ok(())
    }
}

/// What an operator should know of a pool that hosts cannot read all of.
/// What is said of a quota of which so many percent are held.
fn near_quota(
    pool: &Name,
    of: &Bounded,
    level: Level,
    percent: u64,
    at: Thresholds,
) -> (Severity, String) {
    let (kind, path) =
        (if of.is_group { "group" } else { "volume" }, format!("{pool}/{}", of.name));
    let whose = match of.is_group {
        true => format!("the volumes of group {path} and their snapshots"),
        false => format!("volume {path} and its snapshots"),
    };
    let bytes = Size::new(of.quota.bytes);
    let holds = format!("{whose} hold {percent} % of its quota of {bytes}");
    match level {
        Level::Enough => (Severity::Info, format!("{holds}: enough is left again")),
        Level::Low => (Severity::Warning, format!("{holds} (warned of from {} %)", at.low)),
        Level::Critical => {
            let words = format!(
                "{holds} (critical from {} %): writes of new contents beyond it fail with Capacity Exceeded; delete \
                 snapshots, have hosts discard, or give it more: `flashloom {kind} quota {path} SIZE`",
                at.critical
            );
            (Severity::Error, words)
        }
    }
}

/// What is said of what a pool keeps for volumes.
fn reserved(pool: &Name, told: Told) -> (Severity, String) {
    match told {
        Told::Missing(bytes) => {
            let bytes = Size::new(bytes);
            let words = format!(
                "pool {pool} lacks {bytes} of the space that volumes have reserved: their hosts may be refused as others are; \
                 add drives, delete snapshots or volumes, or reserve less"
            );
            (Severity::Error, words)
        }
        Told::Whole => {
            (Severity::Info, format!("pool {pool} has all the space that volumes have reserved"))
        }
        Told::All(bytes) => {
            let bytes = Size::new(bytes);
            let words = format!(
                "all that pool {pool} has free is reserved, {bytes}: writes of new contents to other volumes fail with Capacity \
                 Exceeded"
            );
            (Severity::Warning, words)
        }
        Told::More => (Severity::Info, format!("pool {pool} has space again that is not reserved")),
    }
}

fn unread(name: &Name, problem: Option<String>) -> String {
    let beside = problem.map(|problem| format!("; {problem}")).unwrap_or_default();
    format!("reads of pool {name} fail: nothing gives back some of its blocks{beside}")
}

/// What an operator should know of blocks that a pool lost, and do.
fn loss(name: &Name, lost: u64) -> String {
    format!(
        "pool {name} found {lost} blocks damaged beyond what its redundancy gives back: reads of them \
         fail with Unrecovered Read Error until they are written; `flashloom pool dump --data` names them"
    )
}

/// What an operator should know of a pool that takes no writes, and do.
fn full(holds: &str, usage: Usage) -> String {
    match usage.refuses {
        Some(WritesRefused::NoDriveSpace) => format!(
            "{holds}, but there is no space behind its drives: writes fail with Capacity Exceeded \
             until there is; make room on the file system that has them"
        ),
        Some(WritesRefused::Unreadable) => format!(
            "{holds}, but no space can be won, for what has it cannot be read without the drives that \
             are missing: writes fail with Capacity Exceeded until those are back (`flashloom drive \
             rejoin`), or others have taken their places (`flashloom drive replace`)"
        ),
        None => {
            format!("{holds}: writes fail with Capacity Exceeded; reads and deallocation go on")
        }
    }
}

/// What an operator should know of a pool's space, and do.
fn notice(name: &Name, space: PoolSpace, usage: Usage, at: Thresholds) -> (Severity, String) {
    let percent = usage.percent();
    let holds = format!(
        "pool {name} is {percent} % full, {} of {} left",
        Size::new(usage.capacity.saturating_sub(usage.used)),
        Size::new(usage.capacity)
    );
    match space {
        PoolSpace::Enough => (Severity::Info, format!("{holds}: enough again")),
        PoolSpace::Low => (
            Severity::Warning,
            format!(
                "{holds} (warned of from {} %): delete snapshots or volumes, or have hosts discard",
                at.low
            ),
        ),
        PoolSpace::Critical => (
            Severity::Error,
            format!(
                "{holds} (critical from {} %): when it is full, writes fail with Capacity Exceeded",
                at.critical
            ),
        ),
        PoolSpace::Full => (Severity::Error, full(&holds, usage)),
    }
}

impl Owned {
    /// Tells the hosts of each subsystem how its media are: of volumes, how much room is left in the
    /// fullest of their pools, and whether one of those lacks something.
    fn tell_hosts(&self, at: Thresholds) -> Result<()> {
        let serving = self.serving()?;
        let subsystems = self.state.current.subsystems.keys();
        let mut told: BTreeMap<&Nqn, Health> =
            subsystems.map(|nqn| (nqn, Health::default())).collect();
        let mut spares: BTreeMap<&Nqn, (u8, u8)> = BTreeMap::new();
        let mappings: Vec<_> = self.state.mappings().collect();
        for (backend, mapping) in &mappings {
            let Some(watch) = backend.pool().and_then(|pool| serving.pools().watch(pool)) else {
                continue;
            };
            let spare = at.spare(watch.told(), watch.usage());
            let of = spares.entry(&mapping.subsystem).or_insert(spare);
            *of = spare.min(*of);
            if let Some(health) = told.get_mut(&mapping.subsystem) {
                (health.available_spare, health.spare_threshold) = *of;
                health.reliability_degraded |= watch.is_degraded() || watch.is_worn();
            }
        }
        told.into_iter().try_for_each(|(nqn, health)| serving.set_health(nqn, health))
    }
}

#[cfg(test)]
mod tests;
