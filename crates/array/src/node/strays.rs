//! Files that are served, or a part of a pool, and are not at their paths any more: somebody moved or removed them.
//! Until the daemon ends they are as they were; what was removed is gone then, and what was moved is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use api::v1::{Health, HealthReport, Severity};

use super::Node;
use super::owner::View;
use crate::Result;

const HELP: &str = "nothing is lost until the daemon ends: before that put it back at its path, or what it holds \
                    elsewhere (`flashloom drive replace`, `flashloom pool log move`, another namespace)";

impl Node {
    /// Looks whether the files that are in use are still at their paths, and tells of those that are not.
    pub(super) fn look_for_strays(&self) -> Result<()> {
        let held = self.owner.ask_unseen(|owned| Ok(owned.serving()?.locks()))?;
        // A place that hangs holds up nothing but this.
        let is_stray = |(_, lock): &&(String, Arc<crate::lock::Lock>)| lock.is_elsewhere();
        let strays = held.iter().filter(is_stray);
        let strays: BTreeMap<_, _> =
            strays.map(|(of, lock)| (lock.path().to_owned(), of.clone())).collect();
        let before = Arc::clone(&self.view().strays);
        if *before == strays {
            return Ok(());
        }
        for (path, of) in strays.iter().filter(|(path, _)| !before.contains_key(*path)) {
            self.events.record(Severity::Error, format!("{}: {HELP}", strayed(path, of)));
        }
        let held: BTreeSet<&Path> = held.iter().map(|(_, lock)| lock.path()).collect();
        let is_back = |path: &Path| !strays.contains_key(path) && held.contains(path);
        for (path, of) in before.iter().filter(|(path, _)| is_back(path)) {
            self.events
                .record(Severity::Info, format!("{} of {of} is at its path again", path.display()));
        }
        self.owner.ask(move |owned| {
            owned.strays = Arc::new(strays);
            Ok(())
        })
    }
}

impl View {
    /// What is to be said of each.
    pub(super) fn strayed(&self) -> impl Iterator<Item = String> {
        self.strays.iter().map(|(path, of)| strayed(path, of))
    }

    /// The same, with what to do.
    pub(super) fn stray_reports(&self) -> impl Iterator<Item = HealthReport> {
        self.strayed().map(|why| HealthReport {
            health: Health::Degraded,
            why: Some(why),
            help: Some(HELP.to_owned()),
        })
    }
}

fn strayed(path: &Path, of: &str) -> String {
    format!("{} of {of} is in use, and was moved or removed", path.display())
}
