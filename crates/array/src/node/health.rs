//! How the node is, and its pools: in one word, why, and what to do about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use api::v1::{Finding, Health, HealthReport, Job, JobKind, JobState, NodeHealth, Spare};
use api::value::{Name, PoolDrive};

use super::Node;
use super::owner::View;
use crate::Result;
use crate::events::now_ms;
use crate::hosts::{Association, Paths};
use crate::jobs::has_place;
use crate::limits::JOB_TOLD_MS;
use crate::pools::{PausedRebuild, Pools, SlowOutlook};
use crate::schedules::Schedule;
use crate::serving::controllers;

impl View {
    /// How the node is, and each of its pools.
    ///
    /// # Errors
    /// `Stopping`.
    pub(super) fn health(&self) -> Result<(HealthReport, BTreeMap<String, HealthReport>)> {
        let serving = self.serving()?;
        let pools = serving.pools.health();
        // Of what is as bad, pools first: what waits for them is not there for that.
        let all = pools.values().cloned().chain(self.stray_reports()).chain(self.waits()?);
        let worst = all.reduce(|worst, next| if next.health > worst.health { next } else { worst });
        Ok((worst.unwrap_or_default(), pools))
    }

    /// What is not there that is asked for, but for pools.
    fn waits(&self) -> Result<impl Iterator<Item = HealthReport> + use<>> {
        let absent = self.serving()?.absences(&self.state.current);
        Ok(absent.into_iter().map(|why| HealthReport {
            health: Health::Degraded,
            why: Some(why),
            help: Some("it is served when it is there: put it back, or remove it".to_owned()),
        }))
    }
}

impl Node {
    /// How everything is that needs to be looked at, the worst first. Waits for nobody.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn health(&self) -> Result<NodeHealth> {
        let view = self.view();
        let mut findings = Vec::new();
        for (name, report) in view.health()?.1 {
            findings.extend(finding(format!("pool {name}"), report));
        }
        let of_node = view.stray_reports().chain(view.waits()?);
        findings.extend(of_node.filter_map(|report| finding("node".to_owned(), report)));
        findings.extend(self.physical.findings());
        findings.extend(view.serving()?.pools.paused_rebuilds().map(paused));
        findings.extend(view.serving()?.pools.stopped_rebuilds().map(stopped));
        findings.extend(view.serving()?.pools.slow_drives().map(slow));
        findings.extend(view.serving()?.pools.paused_rejoins().map(paused_rejoin));
        findings.extend(self.all_spares()?.into_iter().filter_map(unusable));
        findings.extend(view.serving()?.pools.without_spares().map(no_spare_left));
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        findings.extend(hosts.with_fewer().map(|(of, paths)| fewer_paths(of, *paths)));
        drop(hosts);
        let pools = &view.serving()?.pools;
        findings.extend(of_jobs(&self.jobs(), |job| is_there(job, pools)));
        findings.extend(view.state.schedules.0.values().filter_map(failing));
        let refused = self.refused_reload.lock().unwrap_or_else(PoisonError::into_inner).clone();
        findings.extend(refused.map(|why| Finding {
            health: Health::Degraded,
            subject: "node".to_owned(),
            why,
            help: Some("put it right and reload: until then the next start may fail".to_owned()),
        }));
        if view.are_jobs_unsaved {
            findings.push(Finding {
                health: Health::Degraded,
                subject: "node".to_owned(),
                why: "jobs cannot be written down in the state directory".to_owned(),
                help: Some("make room there: `flashloom events` tells why".to_owned()),
            });
        }
        findings.extend(view.state.current.open_to_any_host().into_iter().map(|nqn| Finding {
            health: Health::Ok,
            subject: format!("subsystem {nqn}"),
            why: "it is open to any host that reaches this machine".to_owned(),
            help: Some(format!(
                "`flashloom host add NQN -n {nqn}` for each that may, then `flashloom subsystem set {nqn} \
                 --allow-any-host false`"
            )),
        }));
        // Stable: of what is as bad, pools stay first.
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.health));
        let health = findings.first().map_or(Health::Ok, |worst| worst.health);
        Ok(NodeHealth { health, findings })
    }

    /// Records what changed of who is connected.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn look_at_hosts(&self) -> Result<()> {
        self.view().serving()?;
        let connected = controllers(&self.target);
        let told = self.hosts.lock().unwrap_or_else(PoisonError::into_inner).look(&connected);
        told.into_iter().for_each(|(severity, words)| self.events.record(severity, words));
        Ok(())
    }
}

/// A schedule of which the last run of a rule failed.
fn failing(of: &Schedule) -> Option<Finding> {
    let (every, why) =
        of.rules.iter().find_map(|(every, rule)| Some((every, rule.error.as_ref()?)))?;
    let named = || of.named().into_iter().next().map(ToString::to_string);
    let path = of.group.as_ref().map(|group| group.path.to_string()).or_else(named)?;
    Some(Finding {
        health: Health::Degraded,
        subject: format!("schedule of {}", of.words()),
        why: format!("its last run every {every} took no snapshot: {why}"),
        help: Some(format!("`flashloom schedule run {path} --every {every}` tries again now")),
    })
}

fn finding(subject: String, report: HealthReport) -> Option<Finding> {
    let HealthReport { health, why, help } = report;
    let why = why.unwrap_or_default();
    (health != Health::Ok).then_some(Finding { health, subject, why, help })
}

/// A rebuild or an evacuation that waits to be resumed: where redundancy is missing it waits for that.
fn paused((name, paused, lacks): (&Name, &PausedRebuild, bool)) -> Finding {
    let what = match paused.drive {
        None => "its rebuild".to_owned(),
        Some(index) => format!("the evacuation of its drive {index}"),
    };
    let (health, why) = match lacks {
        true => {
            (Health::Degraded, format!("{what} is paused, and redundancy is missing meanwhile"))
        }
        false => (Health::Ok, format!("{what} is paused")),
    };
    let help = format!("`flashloom pool rebuild resume {name}` has it go on");
    Finding { health, subject: format!("pool {name}"), why, help: Some(help) }
}

/// Drives that wait to be made whole, though redundancy is missing.
fn paused_rejoin(name: &Name) -> Finding {
    Finding {
        health: Health::Degraded,
        subject: format!("pool {name}"),
        why: "drives that come back wait to be made whole, and redundancy is missing meanwhile"
            .to_owned(),
        help: Some(format!("`flashloom pool rejoin resume {name}` has it go on")),
    }
}

/// A rebuild that does not begin by itself, though redundancy is missing.
fn stopped((name, drives): (&Name, &BTreeSet<u16>)) -> Finding {
    let drives: Vec<_> = drives.iter().map(|index| format!("{name}/{index}")).collect();
    Finding {
        health: Health::Degraded,
        subject: format!("pool {name}"),
        why: format!(
            "the rebuild or evacuation of {} was stopped, and does not begin by itself: redundancy is missing meanwhile",
            drives.join(", ")
        ),
        help: Some(format!("`flashloom pool rebuild start {name}` begins it")),
    }
}

/// A drive that is slow, and what becomes of it.
fn slow((of, outlook): (PoolDrive, &SlowOutlook)) -> Finding {
    Finding {
        health: Health::Degraded,
        subject: format!("pool {}", of.pool),
        why: format!("its drive {} is slower than the others: {}", of.index, outlook.words()),
        help: Some(outlook.help(&of)),
    }
}

/// A spare that could not take the place of a drive now.
fn unusable(spare: Spare) -> Option<Finding> {
    let problem = spare.problem?;
    Some(Finding {
        health: Health::Degraded,
        subject: format!("pool {}", spare.pool),
        why: format!("a spare of it cannot be used: {problem}"),
        help: Some(format!(
            "put it back, or `flashloom pool spare remove {} {}`",
            spare.pool, spare.path
        )),
    })
}

/// A pool that lacks a drive, and whose spares all have places.
fn no_spare_left(name: &Name) -> Finding {
    Finding {
        health: Health::Degraded,
        subject: format!("pool {name}"),
        why: "no spare of it is left, and redundancy is missing".to_owned(),
        help: Some(format!(
            "`flashloom pool spare add {name} DRIVE` gives it one, `flashloom drive replace` puts a drive in the place"
        )),
    }
}

fn fewer_paths(of: &Association, paths: Paths) -> Finding {
    let Paths { now, most } = paths;
    Finding {
        health: Health::Degraded,
        subject: format!("host {}", of.host),
        why: format!("it has {now} of the {most} paths to {} that it had", of.subsystem),
        help: Some(
            "look at its network: `flashloom controller list` shows the paths it has; it counts anew once it has left"
                .to_owned(),
        ),
    }
}

/// Whether what an interrupted job was for is there, though no job went on with it: the pool did before one could.
fn is_there(job: &Job, pools: &Pools) -> bool {
    match job.kind {
        JobKind::VolumeDetach => true,
        JobKind::PoolRebuild => job.target.parse().is_ok_and(|name| pools.lacks_nothing(&name)),
        JobKind::DriveReplace if !has_place(job) => false,
        JobKind::DriveRejoin | JobKind::DriveReplace => {
            job.target.parse().is_ok_and(|of| pools.is_known_to_work(&of))
        }
        _ => false,
    }
}

/// Jobs that are under way, and those that were cut short, not gone on with nor done again since, where what they were for
/// is not there either.
fn of_jobs(jobs: &[Job], is_there: impl Fn(&Job) -> bool) -> impl Iterator<Item = Finding> {
    let is_recent = |job: &Job| {
        let ended = job.ended_ms.unwrap_or(job.created_ms);
        now_ms().saturating_sub(ended) < JOB_TOLD_MS
    };
    let is_done_since = |job: &Job| {
        jobs.iter().any(|later| {
            later.id > job.id
                && (later.kind, &later.target) == (job.kind, &job.target)
                && later.state == JobState::Done
        })
    };
    // That a job failed is no finding: what it went on with is one still.
    let is_continued = |job: &Job| {
        let has_failed = |by| jobs.iter().any(|of| of.id == by && of.state == JobState::Failed);
        job.continued_by.is_some_and(|by| !has_failed(by))
    };
    jobs.iter().filter_map(move |job| {
        let subject = format!("job {}", job.id);
        let what = format!("{} {}", job.kind.name(), job.target);
        let of =
            |health, why, help: String| Some(Finding { health, subject, why, help: Some(help) });
        match job.state {
            JobState::Queued | JobState::Running => {
                let why = format!("{what} is {}: {}", job.state.name(), job.progress.step);
                of(Health::Ok, why, format!("`flashloom job wait {}` waits for its end", job.id))
            }
            // It goes on, or what it was for is there.
            JobState::Interrupted if is_continued(job) || is_there(job) => None,
            JobState::Interrupted if is_recent(job) && !is_done_since(job) => {
                let why = format!("{what} was cut short by the end of the daemon");
                of(
                    Health::Degraded,
                    why,
                    format!("`flashloom job show {}` tells what to look at", job.id),
                )
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64, kind: JobKind, state: JobState) -> Job {
        let kind = serde_json::to_value(kind).unwrap();
        let state = serde_json::to_value(state).unwrap();
        let job = serde_json::json!({
            "id": id, "kind": kind, "target": "fast/1", "state": state, "by": "uid 0", "created_ms": now_ms(),
        });
        serde_json::from_value(job).unwrap()
    }

    /// What a stop of the daemon cut short was degraded for a day, though it went on.
    #[test]
    fn what_goes_on_after_a_restart_is_not_to_be_looked_at() {
        let found = |jobs: &[Job], is_there: bool| {
            let found = of_jobs(jobs, |_| is_there);
            found
                .filter(|of| of.health == Health::Degraded)
                .map(|of| of.subject)
                .collect::<Vec<_>>()
        };
        let cut = job(1, JobKind::DriveReplace, JobState::Interrupted);
        assert_eq!(found(std::slice::from_ref(&cut), false), ["job 1"]);
        assert!(found(std::slice::from_ref(&cut), true).is_empty());
        let again = job(2, JobKind::DriveReplace, JobState::Done);
        assert!(found(&[cut.clone(), again], false).is_empty());
        let continued = Job { continued_by: Some(2), ..cut };
        assert!(found(std::slice::from_ref(&continued), false).is_empty());
        // What it went on as came to nothing.
        let failed = job(2, JobKind::DriveRejoin, JobState::Failed);
        assert_eq!(found(&[continued, failed], false), ["job 1"]);
    }
}
