//! How pools are, as far as it is known without asking them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::v1::{Health, HealthReport};
use api::value::Name;

use super::{Condition, Known, Pools, waits_for};
use crate::space::Watch;

impl Pools {
    /// Whether readers see nothing else in them than in those before: that hosts wrote something is for whoever asks the
    /// pools.
    pub fn are_seen_as(&self, before: &Self) -> bool {
        let alike = |(now, before): (_, _)| Known::is_seen_as(now, before);
        self.known.len() == before.known.len()
            && self.known.keys().eq(before.known.keys())
            && self.known.values().zip(before.known.values()).all(alike)
            && self.known.keys().all(|name| self.space(name) == before.space(name))
            && self.problems() == before.problems()
            && self.health() == before.health()
            && self.slow == before.slow
            && self.known.keys().all(|name| self.spares(name) == before.spares(name))
    }

    /// What is wrong with pools, as far as it is known without asking them.
    pub fn problems(&self) -> Vec<String> {
        let one = |(name, known): (&Name, &Known)| match &known.condition {
            Condition::Open(_) => {
                self.watches.get(name).and_then(Watch::problem).map(str::to_owned)
            }
            Condition::Opening { progress, .. } => Some(match waits_for(progress) {
                Some(words) => format!("pool {name} is being opened: {words}"),
                None => format!("pool {name} is being opened"),
            }),
            Condition::Closed(problem) => Some(format!("pool {name} is not open: {problem}")),
        };
        self.known.iter().filter_map(one).collect()
    }

    /// How each is, as far as it is known without asking it.
    pub fn health(&self) -> BTreeMap<String, HealthReport> {
        let report = |(name, known): (&Name, &Known)| {
            let (health, why, help) = match &known.condition {
                Condition::Open(_) => {
                    let Some(watch) = self.watches.get(name) else {
                        return (name.to_string(), HealthReport::default());
                    };
                    watch.health(name)
                }
                Condition::Opening { progress, before } => {
                    let waits = waits_for(progress).or_else(|| before.clone());
                    let waits = waits.map_or_else(String::new, |words| format!(": {words}"));
                    let help = "wait: hosts do, too; it is opened by itself".to_owned();
                    (Health::Failed, Some(format!("pool {name} is being opened{waits}")), Some(help))
                }
                Condition::Closed(problem) => (
                    Health::Failed,
                    Some(format!("pool {name} is not open: {problem}")),
                    Some(
                        "put back what it lacks: it is opened by itself; what is lost for good, `flashloom pool \
                         import` does without"
                            .to_owned(),
                    ),
                ),
            };
            (name.to_string(), HealthReport { health, why, help })
        };
        self.known.iter().map(report).collect()
    }
}

impl Known {
    fn is_seen_as(&self, before: &Self) -> bool {
        let alike = match (&self.condition, &before.condition) {
            (Condition::Open(now), Condition::Open(before)) => Arc::ptr_eq(now, before),
            (
                Condition::Opening { progress: now, .. },
                Condition::Opening { progress: before, .. },
            ) => Arc::ptr_eq(now, before),
            (Condition::Closed(now), Condition::Closed(before)) => now == before,
            _ => false,
        };
        alike && self.def == before.def && self.outlooks == before.outlooks
    }
}
