//! How much of their quotas volumes and groups hold, and when that is worth telling.

use std::collections::BTreeMap;

use engine::{QuotaStatus, VolumeStatus};
use uuid::Uuid;

use super::{SLACK, Thresholds};

/// How much of a quota is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    Enough,
    Low,
    Critical,
}

/// The levels that were told of, by what identifies a volume or a group; of the others, enough is left.
#[derive(Clone, Debug, Default)]
pub struct Quotas(BTreeMap<[u8; 16], Level>);

/// A volume or a group with a quota.
#[derive(Clone, Debug)]
pub struct Bounded {
    pub is_group: bool,
    /// Its name in the pool, and what identifies it for ever.
    pub name: String,
    id: [u8; 16],
    pub quota: QuotaStatus,
}

impl Bounded {
    /// A volume, if it has one.
    pub fn volume(of: &VolumeStatus) -> Option<Self> {
        Some(Self { is_group: false, name: of.name.clone(), id: of.id, quota: of.quota? })
    }

    pub const fn group(name: String, id: Uuid, quota: QuotaStatus) -> Self {
        Self { is_group: true, name, id: id.into_bytes(), quota }
    }
}

fn percent(quota: QuotaStatus) -> Option<u64> {
    let used = u128::from(quota.used?) * 100 / u128::from(quota.bytes.max(1));
    Some(u64::try_from(used).unwrap_or(u64::MAX))
}

/// A level is left where a little more is free than where it was reached.
fn level(percent: u64, told: Level, at: Thresholds) -> Level {
    let reaches = |from: u8, level: Level| {
        let slack = if told >= level { SLACK } else { 0 };
        percent + slack >= u64::from(from)
    };
    match () {
        () if reaches(at.critical, Level::Critical) => Level::Critical,
        () if reaches(at.low, Level::Low) => Level::Low,
        () => Level::Enough,
    }
}

impl Quotas {
    /// Takes how all are that have one; gives those whose level is another than was told, with it and how many percent they hold.
    pub fn look<'a>(
        &mut self,
        all: &'a [Bounded],
        at: Thresholds,
    ) -> Vec<(&'a Bounded, Level, u64)> {
        let mut told = BTreeMap::new();
        let mut new = Vec::new();
        for of in all {
            let before = self.0.get(&of.id).copied().unwrap_or_default();
            let Some(percent) = percent(of.quota) else {
                // Not counted since the pool was opened.
                told.insert(of.id, before);
                continue;
            };
            let now = level(percent, before, at);
            if now != before {
                new.push((of, now, percent));
            }
            told.insert(of.id, now);
        }
        self.0 = told;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Thresholds = Thresholds { low: 80, critical: 95 };

    fn group(used: Option<u64>) -> Bounded {
        let quota = QuotaStatus { bytes: 1000, used };
        Bounded::group("app".into(), Uuid::from_bytes([1; 16]), quota)
    }

    #[test]
    fn each_level_is_told_once_and_left_where_a_little_more_is_free() {
        let mut quotas = Quotas::default();
        let mut look = |used| {
            let all = [group(used)];
            let told = quotas.look(&all, AT);
            told.first().map(|(_, level, percent)| (*level, *percent))
        };
        let steps = [
            (Some(799), None),
            (Some(800), Some((Level::Low, 80))),
            (Some(949), None),
            (Some(990), Some((Level::Critical, 99))),
            (None, None),
            (Some(945), None),
            (Some(939), Some((Level::Low, 93))),
            (Some(795), None),
            (Some(789), Some((Level::Enough, 78))),
            (Some(2000), Some((Level::Critical, 200))),
            (Some(0), Some((Level::Enough, 0))),
        ];
        for (used, told) in steps {
            assert_eq!(look(used), told, "{used:?}");
        }
    }

    #[test]
    fn what_has_no_quota_any_more_is_forgotten() {
        let mut quotas = Quotas::default();
        assert_eq!(quotas.look(&[group(Some(900))], AT).len(), 1);
        assert!(quotas.look(&[], AT).is_empty());
        assert_eq!(quotas.look(&[group(Some(900))], AT).len(), 1);
    }
}
