//! How much of their quotas volumes hold, and when that is worth telling.

use std::collections::BTreeMap;

use engine::{QuotaStatus, VolumeStatus};

use super::{SLACK, Thresholds};

/// How much of a quota is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    Enough,
    Low,
    Critical,
}

/// The levels that were told of, by volume; of the others, enough is left.
#[derive(Clone, Debug, Default)]
pub struct Quotas(BTreeMap<[u8; 16], Level>);

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
    /// Takes how volumes are; gives those whose level is another than was told, with it and how many percent they hold.
    pub fn look<'a>(
        &mut self,
        volumes: &'a [VolumeStatus],
        at: Thresholds,
    ) -> Vec<(&'a VolumeStatus, QuotaStatus, Level, u64)> {
        let mut told = BTreeMap::new();
        let mut new = Vec::new();
        for volume in volumes {
            let Some(quota) = volume.quota else { continue };
            let before = self.0.get(&volume.id).copied().unwrap_or_default();
            let Some(percent) = percent(quota) else {
                // Not counted since the pool was opened.
                told.insert(volume.id, before);
                continue;
            };
            let now = level(percent, before, at);
            if now != before {
                new.push((volume, quota, now, percent));
            }
            told.insert(volume.id, now);
        }
        self.0 = told;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Thresholds = Thresholds { low: 80, critical: 95 };

    fn volume(used: Option<u64>) -> VolumeStatus {
        VolumeStatus {
            name: "db".into(),
            id: [1; 16],
            bytes: 1 << 30,
            block_size: 4096,
            used,
            detaching: None,
            quota: Some(QuotaStatus { bytes: 1000, used }),
        }
    }

    #[test]
    fn each_level_is_told_once_and_left_where_a_little_more_is_free() {
        let mut quotas = Quotas::default();
        let mut look = |used| {
            let all = [volume(used)];
            let told = quotas.look(&all, AT);
            told.first().map(|(_, _, level, percent)| (*level, *percent))
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
    fn a_volume_without_a_quota_is_forgotten() {
        let mut quotas = Quotas::default();
        assert_eq!(quotas.look(&[volume(Some(900))], AT).len(), 1);
        let without = VolumeStatus { quota: None, ..volume(Some(900)) };
        assert!(quotas.look(&[without], AT).is_empty());
        assert_eq!(quotas.look(&[volume(Some(900))], AT).len(), 1);
    }
}
