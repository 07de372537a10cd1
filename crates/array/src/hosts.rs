//! Which hosts are connected, and by how many paths: what changes is told, and so is who has fewer than before.

use std::collections::BTreeMap;

use api::v1::{Controller, Severity};
use stdx::num::counted;

use crate::limits::HOST_EVENTS;

/// The paths of hosts, as of the last look.
#[derive(Debug, Default)]
pub struct Hosts(BTreeMap<Association, Paths>);

/// A host, and a subsystem that it is connected to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Association {
    pub host: String,
    pub subsystem: String,
}

/// Controllers of one host in one subsystem: each is a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    pub now: usize,
    /// As many as it had at once since it came.
    pub most: usize,
}

impl Hosts {
    /// Takes who is connected; gives what changed.
    pub fn look(&mut self, controllers: &[Controller]) -> Vec<(Severity, String)> {
        let mut now: BTreeMap<Association, usize> = BTreeMap::new();
        // Those of the discovery service have no namespaces.
        for one in controllers.iter().filter(|one| one.ana.is_some()) {
            let of = Association { host: one.host.clone(), subsystem: one.subsystem.clone() };
            *now.entry(of).or_default() += 1;
        }
        let mut told = Vec::new();
        self.0.retain(|of, paths| {
            let stays = now.contains_key(of);
            if !stays {
                let had = counted(paths.now, "path");
                told.push((
                    Severity::Warning,
                    format!("{of} is no longer connected: it had {had}"),
                ));
            }
            stays
        });
        for (of, now) in now {
            let paths = self.0.entry(of.clone()).or_insert(Paths { now: 0, most: 0 });
            let before = std::mem::replace(&mut paths.now, now);
            paths.most = paths.most.max(now);
            let (has, most) = (counted(now, "path"), paths.most);
            if now < before {
                told.push((Severity::Warning, format!("{of} has {has}, of {most} before")));
            } else if before == 0 {
                told.push((Severity::Info, format!("{of} is connected by {has}")));
            } else if now > before {
                told.push((Severity::Info, format!("{of} has {has} now")));
            }
        }
        let more = told.len().saturating_sub(HOST_EVENTS);
        told.truncate(HOST_EVENTS);
        if more > 0 {
            let words = format!("{} of paths of hosts besides", counted(more, "change"));
            told.push((Severity::Warning, words));
        }
        told
    }

    /// Those that have fewer paths than they had.
    pub fn with_fewer(&self) -> impl Iterator<Item = (&Association, &Paths)> {
        self.0.iter().filter(|(_, paths)| paths.now < paths.most)
    }
}

impl std::fmt::Display for Association {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "host {} of {}", self.host, self.subsystem)
    }
}

#[cfg(test)]
mod tests {
    use api::value::AnaState;

    use super::*;

    fn connected(paths: &[(&str, usize)]) -> Vec<Controller> {
        let of = |(host, count): &(&str, usize)| {
            let one = Controller {
                subsystem: "nqn.2026-11.io.flashloom:a".to_owned(),
                cntlid: 1,
                host: (*host).to_owned(),
                peer: None,
                io_queues: 1,
                kato_ms: 0,
                ana: Some(AnaState::Optimized),
            };
            vec![one; *count]
        };
        paths.iter().flat_map(of).collect()
    }

    /// What a look at `paths` tells.
    fn told(hosts: &mut Hosts, paths: &[(&str, usize)]) -> Vec<String> {
        hosts.look(&connected(paths)).into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn hosts_are_told_of_as_they_come_lose_paths_and_leave() {
        let mut hosts = Hosts::default();
        let name = "host h of nqn.2026-11.io.flashloom:a";
        assert_eq!(told(&mut hosts, &[("h", 1)]), [format!("{name} is connected by 1 path")]);
        assert_eq!(told(&mut hosts, &[("h", 2)]), [format!("{name} has 2 paths now")]);
        assert_eq!(told(&mut hosts, &[("h", 2)]), [""; 0], "once");
        assert_eq!(hosts.with_fewer().count(), 0);
        assert_eq!(told(&mut hosts, &[("h", 1)]), [format!("{name} has 1 path, of 2 before")]);
        let (of, paths) = hosts.with_fewer().next().unwrap();
        assert_eq!((of.host.as_str(), *paths), ("h", Paths { now: 1, most: 2 }));
        told(&mut hosts, &[("h", 2)]);
        assert_eq!(hosts.with_fewer().count(), 0);
        let left = format!("{name} is no longer connected: it had 2 paths");
        assert_eq!(told(&mut hosts, &[]), [left]);
        // It counts anew.
        told(&mut hosts, &[("h", 1)]);
        assert_eq!(hosts.with_fewer().count(), 0);
    }

    #[test]
    fn a_flood_of_hosts_is_told_of_in_few_words() {
        let names: Vec<_> = (0..1000).map(|number| format!("h{number}")).collect();
        let paths: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let all = told(&mut Hosts::default(), &paths);
        assert_eq!(all.len(), HOST_EVENTS + 1);
        let rest = format!("{} changes of paths of hosts besides", 1000 - HOST_EVENTS);
        assert_eq!(all[HOST_EVENTS], rest);
    }

    #[test]
    fn who_looks_for_subsystems_only_has_no_paths() {
        let mut discovering = connected(&[("h", 1)]);
        discovering[0].ana = None;
        assert!(Hosts::default().look(&discovering).is_empty());
    }
}
