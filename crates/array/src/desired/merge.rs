//! Joining what the configuration asks for with what the management API changed since.

use std::collections::{BTreeMap, BTreeSet};

use super::{Desired, SubsystemDef};

/// Three-way merge: where the configuration changed between `old` and `new`, the configuration
/// wins; everything else stays as it is in `current`.
///
/// So a namespace that the API added or removed stays so over restarts and reloads, until the
/// configuration itself says something new about it.
pub fn merge(old: &Desired, new: &Desired, current: &Desired) -> Desired {
    Desired {
        listeners: merge_map(&old.listeners, &new.listeners, &current.listeners),
        subsystems: merge_with(
            &old.subsystems,
            &new.subsystems,
            &current.subsystems,
            merge_subsystem,
        ),
        referrals: merge_set(&old.referrals, &new.referrals, &current.referrals),
    }
}

fn merge_subsystem(old: &SubsystemDef, new: &SubsystemDef, now: &SubsystemDef) -> SubsystemDef {
    SubsystemDef {
        serial: pick(&old.serial, &new.serial, &now.serial),
        model: pick(&old.model, &new.model, &now.model),
        allow_any_host: pick(&old.allow_any_host, &new.allow_any_host, &now.allow_any_host),
        hosts: merge_set(&old.hosts, &new.hosts, &now.hosts),
        namespaces: merge_map(&old.namespaces, &new.namespaces, &now.namespaces),
    }
}

/// `new` where it differs from `old`, else `now`.
fn pick<T: PartialEq + Clone>(old: &T, new: &T, now: &T) -> T {
    if old == new { now.clone() } else { new.clone() }
}

fn merge_set<T: Ord + Clone>(
    old: &BTreeSet<T>,
    new: &BTreeSet<T>,
    now: &BTreeSet<T>,
) -> BTreeSet<T> {
    let all: BTreeSet<&T> = old.iter().chain(new).chain(now).collect();
    all.into_iter()
        .filter(|&item| pick(&old.contains(item), &new.contains(item), &now.contains(item)))
        .cloned()
        .collect()
}

fn merge_map<K: Ord + Clone, V: PartialEq + Clone>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
) -> BTreeMap<K, V> {
    merge_with(old, new, now, pick)
}

/// Merges by key; `both` merges a value that all three have.
fn merge_with<K: Ord + Clone, V: PartialEq + Clone>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
    both: impl Fn(&V, &V, &V) -> V,
) -> BTreeMap<K, V> {
    let keys: BTreeSet<&K> = old.keys().chain(new.keys()).chain(now.keys()).collect();
    let merged = keys.into_iter().filter_map(|key| {
        let value = match (old.get(key), new.get(key), now.get(key)) {
            (Some(old), Some(new), Some(now)) => Some(both(old, new, now)),
            (old, new, now) => pick(&old, &new, &now).cloned(),
        };
        value.map(|value| (key.clone(), value))
    });
    merged.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{ListenerDef, NamespaceDef};
    use super::*;

    fn served(namespaces: &[(u32, &str)]) -> Desired {
        let namespaces = namespaces.iter().map(|&(nsid, backend)| {
            let backend = backend.parse().unwrap();
            (nsid, NamespaceDef { backend, block_size: 4096, uuid: None })
        });
        let subsystem = SubsystemDef { namespaces: namespaces.collect(), ..Default::default() };
        let nqn = "nqn.2026-11.io.flashloom:a".parse().unwrap();
        let address = "127.0.0.1".parse().unwrap();
        Desired {
            listeners: BTreeMap::from([(address, ListenerDef::default())]),
            subsystems: BTreeMap::from([(nqn, subsystem)]),
            ..Desired::default()
        }
    }

    #[test]
    fn what_the_api_changed_stays_when_the_configuration_did_not_change() {
        let base = served(&[(1, "memory:1GiB"), (2, "memory:1GiB")]);
        let now = served(&[(1, "memory:4GiB"), (3, "memory:1GiB")]);
        assert_eq!(merge(&base, &base, &now), now);
    }

    #[test]
    fn what_the_configuration_changed_wins() {
        let old = served(&[(1, "memory:1GiB"), (2, "memory:1GiB")]);
        let new = served(&[(1, "memory:2GiB"), (4, "memory:1GiB")]);
        let now = served(&[(1, "memory:4GiB"), (2, "memory:1GiB"), (3, "memory:1GiB")]);
        let merged = served(&[(1, "memory:2GiB"), (3, "memory:1GiB"), (4, "memory:1GiB")]);
        assert_eq!(merge(&old, &new, &now), merged);
    }

    #[test]
    fn a_subsystem_taken_from_the_configuration_goes_with_all_it_has() {
        let old = served(&[(1, "memory:1GiB")]);
        let now = served(&[(1, "memory:1GiB"), (2, "memory:1GiB")]);
        let new = Desired::default();
        assert_eq!(merge(&old, &new, &now), new);
    }
}
