//! Rules over time, without any.

use super::*;
use stdx::prng::Prng;

const HOUR: u64 = 3600;
/// A midnight.
const DAY: u64 = 20_000 * 24 * HOUR;

fn every(text: &str) -> Period {
    text.parse().unwrap()
}

fn run(rule: &Rule, period: &str, now: u64) -> Option<Run> {
    match rule.due(every(period), now) {
        Due::Run(run) => Some(run),
        Due::No | Due::From(_) => None,
    }
}

#[test]
fn a_rule_runs_at_the_multiples_of_its_period_once_each() {
    let mut rule = Rule::new(every("1h"), 3, DAY + 10);
    assert_eq!(rule.next(every("1h"), DAY + 10), DAY + HOUR);
    assert_eq!(run(&rule, "1h", DAY + HOUR - 1), None);
    assert_eq!(run(&rule, "1h", DAY + HOUR + 2), Some(Run { due: DAY + HOUR, at: DAY + HOUR }));
    rule.settled = DAY + HOUR;
    assert_eq!(run(&rule, "1h", DAY + 2 * HOUR - 1), None);
    assert_eq!(rule.next(every("1h"), DAY + HOUR + 2), DAY + 2 * HOUR);
    // One that begins on the hour has the hour behind it.
    assert_eq!(run(&Rule::new(every("1h"), 3, DAY), "1h", DAY + 5), None);
}

#[test]
fn however_many_were_missed_one_run_makes_up_for_them() {
    let rule = Rule::new(every("1h"), 3, DAY);
    let late = DAY + 7 * HOUR + 600;
    // Called by when it is taken, not by when it was due.
    assert_eq!(run(&rule, "1h", late), Some(Run { due: DAY + 7 * HOUR, at: late }));
    assert_eq!(rule.next(every("1h"), late), DAY + 7 * HOUR);
    // With the next one six minutes away there is none.
    let near = DAY + 8 * HOUR - 360;
    assert_eq!((run(&rule, "1h", near), rule.next(every("1h"), near)), (None, DAY + 8 * HOUR));
    assert!(run(&rule, "1h", near - 1).is_some());
    let daily = Rule::new(every("1d"), 3, DAY);
    assert!(
        run(&daily, "1d", DAY + 24 * HOUR + 20 * HOUR).is_some(),
        "20 h late, 4 h before the next"
    );
    assert!(run(&daily, "1d", DAY + 24 * HOUR + 22 * HOUR).is_none(), "2 h before the next");
}

#[test]
fn a_clock_that_steps_back_repeats_nothing_and_stops_nothing() {
    let mut rule = Rule::new(every("1h"), 3, DAY);
    rule.settled = DAY + 5 * HOUR;
    // By less than a period: what was done is done.
    for now in [DAY + 4 * HOUR, DAY + 4 * HOUR + 1800, DAY + 5 * HOUR] {
        assert_eq!(rule.due(every("1h"), now), Due::No);
        assert_eq!(rule.next(every("1h"), now), DAY + 6 * HOUR);
    }
    // From years ahead: it goes on with the next hour.
    rule.settled = DAY + 100_000 * HOUR;
    let now = DAY + 2 * HOUR + 7;
    assert_eq!(rule.due(every("1h"), now), Due::From(DAY + 2 * HOUR));
    assert_eq!(rule.next(every("1h"), now), DAY + 3 * HOUR);
}

/// Whatever the clock does, no two runs are of the same instant, the clock's way forward brings runs, and they come no more
/// often than their period and the steps of the clock allow.
#[test]
fn runs_are_neither_repeated_nor_lost_whatever_the_clock_does() {
    for seed in 0..200 {
        let mut random = Prng::new(seed);
        let period = every(["1m", "15m", "1h", "1d", "1w"][stdx::num::usize64(random.below(5))]);
        let step = period.seconds() / 7;
        let (mut now, mut rule) = (DAY, Rule::new(period, 1, DAY));
        let (mut since_reset, mut highest) = (BTreeSet::new(), now);
        for _ in 0..500 {
            match random.below(20) {
                0 => now -= random.below(3 * period.seconds()),
                1 => now += random.below(30 * period.seconds()),
                _ => now += random.below(step).max(1),
            }
            let next = rule.next(period, now);
            assert!(
                next <= now + 3 * period.seconds(),
                "seed {seed}: it waits for {next} at {now}"
            );
            match rule.due(period, now) {
                Due::No => assert!(next > rule.settled, "seed {seed}"),
                Due::From(settled) => {
                    assert!(settled <= now && settled < rule.settled, "seed {seed}");
                    rule.settled = settled;
                    since_reset.clear();
                }
                Due::Run(run) => {
                    assert!(since_reset.insert(run.due), "seed {seed}: {run:?} twice");
                    assert!(run.due <= run.at && run.at <= now, "seed {seed}: {run:?} at {now}");
                    assert!(run.due.is_multiple_of(period.seconds()), "seed {seed}: {run:?}");
                    rule.settled = run.due;
                }
            }
            highest = highest.max(now);
        }
        assert!(rule.settled + 3 * period.seconds() > DAY && highest >= DAY, "seed {seed}");
    }
}

fn beyond(rule: &Rule, is_there: &dyn Fn(&Uuid) -> bool) -> Vec<Uuid> {
    rule.beyond(is_there).into_iter().flat_map(|made| made.snapshots).collect()
}

#[test]
fn what_is_kept_counts_what_is_there_and_nothing_else_goes() {
    let ids: Vec<Uuid> = (0..12).map(Uuid::from_u128).collect();
    let made = |due: u64| {
        let at = stdx::num::usize64(due) * 2;
        Made { due, snapshots: vec![ids[at], ids[at + 1]] }
    };
    let mut rule = Rule { keep: 3, made: (0..6).map(made).collect(), ..Rule::default() };
    assert_eq!(beyond(&rule, &|_| true), ids[..6]);
    // Both of one run and one of another were deleted by hand.
    let is_there = |id: &Uuid| ![ids[4], ids[8], ids[9]].contains(id);
    assert_eq!(beyond(&rule, &is_there), [ids[0], ids[1], ids[2], ids[3]]);
    rule.forget(is_there);
    assert_eq!(rule.made.len(), 5);
    assert_eq!(rule.made[2].snapshots, [ids[5]]);
    assert!(
        rule.was_made(5, is_there) && !rule.was_made(4, is_there),
        "only the last was begun last"
    );
    assert!(!rule.was_made(5, |_| false));
    rule.keep = 9;
    assert!(rule.beyond(|_| true).is_empty());
}

fn asked(rules: &[(&str, u32)]) -> Vec<NewScheduleRule> {
    rules.iter().map(|(text, keep)| NewScheduleRule { every: every(text), keep: *keep }).collect()
}

/// A snapshot that some drives had came to life with the next opening, and no rule knew it: it was never deleted.
#[test]
fn what_failed_runs_may_have_made_is_remembered_until_one_succeeds() {
    let made = |due| Made { due, snapshots: vec![Uuid::from_u128(u128::from(due) + 1)] };
    let all = (0..100).map(made).collect();
    let mut rule = Rule { keep: 3, made: all, ..Rule::default() };
    let is_there = |id: &Uuid| id.as_u128() <= 4;
    rule.forget_oldest(is_there);
    let due: Vec<u64> = rule.made.iter().map(|made| made.due).collect();
    assert_eq!(due, (0..4).chain(36..100).collect::<Vec<_>>());
    rule.forget(is_there);
    assert_eq!(rule.made.len(), 4);
}

#[test]
fn rules_that_cannot_be_are_refused() {
    let template = NameTemplate::default();
    let refused = |of: &[(&str, u32)], volumes, template: &NameTemplate| {
        rules(&asked(of), volumes, template, DAY).unwrap_err().wrong
    };
    assert!(refused(&[], 1, &template).contains("not 0"));
    assert!(refused(&[("1h", 1)], 0, &template).contains("volumes, not 0"));
    assert!(refused(&[("1h", 0)], 1, &template).contains("0 snapshots"));
    assert!(refused(&[("1h", 1), ("60m", 2)], 1, &template).contains("two rules run every 1h"));
    let alike = "auto-{time}".parse().unwrap();
    assert!(refused(&[("1h", 1), ("1d", 2)], 1, &alike).contains("alike"));
    assert_eq!(rules(&asked(&[("1h", 1)]), 1, &alike, DAY).unwrap().len(), 1);
    assert_eq!(rules(&asked(&[("1h", 1), ("1d", 2)]), 2, &template, DAY).unwrap().len(), 2);
}

#[test]
fn all_schedules_together_keep_a_bounded_number() {
    let of = |keep| {
        let volumes =
            BTreeMap::from([1, 2].map(|n| (Uuid::from_u128(n), "fast/db".parse().unwrap())));
        let template = NameTemplate::default();
        let rules = rules(&asked(&[("1h", keep)]), 2, &template, DAY).unwrap();
        Schedules(BTreeMap::from([(
            Uuid::nil(),
            Schedule { volumes, group: None, pool_id: None, template, rules },
        )]))
    };
    assert_eq!(of(32 << 10).check(), Ok(()));
    assert!(of((32 << 10) + 1).check().unwrap_err().wrong.contains("65538 snapshots"));
    let mut all = of(1);
    assert_eq!(all.forget(&Uuid::from_u128(1)), None, "another volume is left");
    assert_eq!(all.forget(&Uuid::from_u128(2)).as_deref(), Some("fast/db"));
    assert!(all.is_empty());
}

#[test]
fn a_changed_rule_goes_on_with_what_it_made() {
    let volumes = BTreeMap::from([(Uuid::nil(), "fast/db".parse().unwrap())]);
    let template = NameTemplate::default();
    let rules = rules(&asked(&[("1h", 5), ("1d", 5)]), 1, &template, DAY).unwrap();
    let mut of = Schedule { volumes, group: None, pool_id: None, template, rules };
    let made = vec![Made { due: DAY, snapshots: vec![Uuid::from_u128(7)] }];
    of.rules.get_mut(&every("1h")).unwrap().made = made.clone();
    let change =
        |rules: &[(&str, u32)]| ScheduleChange { rules: Some(asked(rules)), name_template: None };
    let changed = of.changed(&change(&[("1h", 2), ("1w", 1)]), DAY + 90 * HOUR).unwrap();
    let hourly = &changed.rules[&every("1h")];
    assert_eq!((hourly.keep, hourly.settled, &hourly.made), (2, DAY, &made));
    assert_eq!(changed.rules.len(), 2);
    assert!(changed.rules[&every("1w")].settled > DAY - 7 * 24 * HOUR);
    assert_eq!(of.changed(&ScheduleChange::default(), DAY).unwrap(), of);
    let alike = ScheduleChange { rules: None, name_template: Some("a-{time}".parse().unwrap()) };
    assert!(of.changed(&alike, DAY).unwrap_err().wrong.contains("alike"));
}

#[test]
fn times_are_written_as_names_may_have_them() {
    assert_eq!(written(1_795_903_200), "20261128T220000Z");
    assert_eq!(written(0), "19700101T000000Z");
}

#[test]
fn a_schedule_is_of_its_pool_and_not_of_one_that_is_called_alike() {
    let [volume, pool, other] = [1, 2, 3].map(Uuid::from_u128);
    let volumes = BTreeMap::from([(volume, "fast/db".parse().unwrap())]);
    let template = NameTemplate::default();
    let mut of =
        Schedule { volumes, group: None, pool_id: Some(pool), template, rules: BTreeMap::new() };
    let (has, nothing) = (BTreeSet::from([volume]), BTreeSet::new());
    assert!(of.is_in(pool, &nothing) && !of.is_in(other, &has));
    // Of one that was written down without, only its volumes tell.
    of.pool_id = None;
    assert!(of.is_in(pool, &has) && !of.is_in(pool, &nothing));
}
