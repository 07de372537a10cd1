//! Commands about schedules of snapshots, which speak to the running daemon.

use api::v1::{NewSchedule, NewScheduleRule, Schedule, ScheduleChange};
use comfy_table::Table;
use control::Client;

use crate::cli::{Global, RuleArgs, ScheduleVerb};
use crate::daemon::ask;
use crate::exit::{Exit, Failure, Outcome};
use crate::manage::{remove, time};
use crate::output::{or_dash, print, print_one, table};

/// `flashloom schedule ...`
pub fn schedule(global: &Global, verb: ScheduleVerb) -> Outcome {
    match verb {
        ScheduleVerb::Create { volumes, rules, name_template } => {
            let new = NewSchedule { volumes, rules: paired(&rules)?, name_template };
            let made = ask(global, async |client| client.create_schedule(&new).await)?;
            print_one(global.output, &made, schedule_table)
        }
        ScheduleVerb::Change { of, every, keep, name_template } => {
            let rules = paired(&RuleArgs { every, keep })?;
            let change =
                ScheduleChange { rules: (!rules.is_empty()).then_some(rules), name_template };
            if change == ScheduleChange::default() {
                let what = "nothing is to be changed";
                return Err(Failure::new(Exit::Usage, what)
                    .help("give the rules that it is to have, or --name-template"));
            }
            let changed =
                ask(global, async |client| client.change_schedule(&of.volume, &change).await)?;
            print_one(global.output, &changed, schedule_table)
        }
        ScheduleVerb::List { pool } => {
            let all = ask(global, async |client| client.schedules(pool.as_ref()).await)?;
            print(global.output, &all, |all| schedule_table(all))
        }
        ScheduleVerb::Show { of } => {
            let one = ask(global, async |client| client.schedule(&of.volume).await)?;
            print_one(global.output, &one, schedule_table)
        }
        ScheduleVerb::Run { of, every } => {
            let ran = ask(global, async |client| client.run_schedule(&of.volume, every).await)?;
            print_one(global.output, &ran, schedule_table)
        }
        ScheduleVerb::Delete { of, sure } => {
            remove(global, &sure, async |client: Client, consent| {
                client.delete_schedule(&of.volume, consent).await
            })
        }
    }
}

/// Each period with how many are kept, in the order in which they are given.
fn paired(RuleArgs { every, keep }: &RuleArgs) -> Outcome<Vec<NewScheduleRule>> {
    if every.len() != keep.len() {
        let what = format!("--every is given {} times, --keep {} times", every.len(), keep.len());
        return Err(Failure::new(Exit::Usage, what)
            .help("give each rule both, such as --every 1h --keep 24 --every 1d --keep 30"));
    }
    let both = every.iter().zip(keep);
    Ok(both.map(|(every, keep)| NewScheduleRule { every: *every, keep: *keep }).collect())
}

/// A row for each rule.
fn schedule_table(all: &[Schedule]) -> Table {
    let header = ["volumes", "every", "keep", "kept", "last", "next", "failed", "names", "error"];
    let mut table = table(&header, &[2, 3, 6]);
    for schedule in all {
        let volumes: Vec<_> = schedule.volumes.iter().map(ToString::to_string).collect();
        let of_group = schedule.group.as_ref().map(|group| format!("group {group}"));
        let volumes = of_group.unwrap_or_else(|| volumes.join(" "));
        for rule in &schedule.rules {
            let error = schedule.problem.as_ref().or(rule.error.as_ref());
            table.add_row([
                volumes.clone(),
                rule.every.to_string(),
                rule.keep.to_string(),
                rule.kept.to_string(),
                or_dash(rule.last_ms.and_then(time)),
                or_dash(time(rule.next_ms)),
                rule.failed.to_string(),
                schedule.name_template.to_string(),
                or_dash(error),
            ]);
        }
    }
    table
}
