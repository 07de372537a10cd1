//! Schedules of snapshots: a series for each rule and volume, or group.

use api::v1::{Schedule, ScheduleRule};
use api::value::Name;

use super::Text;

/// A metric of a schedule's rule.
type OfRule = (&'static str, &'static str, &'static str, fn(&ScheduleRule) -> Option<u64>);

const OF_RULE: [OfRule; 3] = [
    (
        "last_seconds",
        "gauge",
        "When a schedule's rule took a snapshot of the volume last, in seconds since 1970; left out before.",
        |rule| rule.last_ms.map(|ms| ms / 1000),
    ),
    (
        "next_seconds",
        "gauge",
        "When it is due next, in seconds since 1970; in the past while it waits to make up for a run.",
        |rule| Some(rule.next_ms / 1000),
    ),
    (
        "runs_failed_total",
        "counter",
        "Runs of a schedule's rule that took no snapshot, since the schedule was made.",
        |rule| Some(rule.failed),
    ),
];

pub fn text(text: &mut Text, schedules: &[Schedule], now_ms: u64) {
    for (suffix, kind, help, value) in OF_RULE {
        family(text, suffix, kind, help, schedules, value);
    }
    let help =
        "Seconds since a schedule's rule took a snapshot of the volume last; left out before.";
    family(text, "age_seconds", "gauge", help, schedules, |rule| {
        rule.last_ms.map(|ms| now_ms.saturating_sub(ms) / 1000)
    });
}

fn family(
    text: &mut Text,
    suffix: &str,
    kind: &str,
    help: &str,
    schedules: &[Schedule],
    value: impl Fn(&ScheduleRule) -> Option<u64>,
) {
    let name = format!("flashloom_schedule_{suffix}");
    text.family(&name, kind, help);
    for schedule in schedules {
        for rule in &schedule.rules {
            let Some(value) = value(rule) else { continue };
            let every = rule.every.to_string();
            let mut sample = |pool: &Name, label: &'static str, of: &Name| {
                let labels =
                    vec![("pool", pool.as_str()), (label, of.as_str()), ("every", &*every)];
                text.sample(&name, &labels, value);
            };
            // A volume of a group may have a schedule of its own, too.
            if let Some(group) = &schedule.group {
                sample(&group.pool, "group", &group.group);
                continue;
            }
            schedule.volumes.iter().for_each(|of| sample(&of.pool, "volume", &of.volume));
        }
    }
}
