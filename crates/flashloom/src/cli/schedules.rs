//! What is asked of the running daemon about schedules of snapshots.

use api::value::{Name, NameTemplate, Period, VolumePath};
use clap::{Args, Subcommand};

use super::{SureArgs, value};

/// A volume or group that has a schedule.
#[derive(Args, Clone, Debug)]
pub struct OfScheduled {
    /// The volume, or the group; of several volumes' schedule, any of them.
    #[arg(value_name = "POOL/VOLUME", value_parser = value::<VolumePath>)]
    pub volume: VolumePath,
}

/// Rules of a schedule.
#[derive(Args, Clone, Debug)]
pub struct RuleArgs {
    /// Run at the multiples of this, in UTC: 1 minute to 366 days, such as 15m, 1h, 1d or 1w. Once for each rule.
    #[arg(long, value_name = "PERIOD", required = true, value_parser = value::<Period>)]
    pub every: Vec<Period>,
    /// Keep the snapshots of so many runs of that rule.
    #[arg(long, value_name = "COUNT", required = true)]
    pub keep: Vec<u32>,
}

/// What to do with schedules.
#[derive(Debug, Subcommand)]
pub enum ScheduleVerb {
    /// Have snapshots of a volume, or of several or a group at one instant, taken by themselves, and deleted once there are
    /// enough.
    #[command(after_long_help = "\
Examples:
  flashloom schedule create fast/db --every 1h --keep 24 --every 1d --keep 30
  flashloom schedule create fast/db fast/log --every 15m --keep 96
  flashloom schedule create fast/app --every 1h --keep 24
  flashloom schedule create fast/db --every 1d --keep 7 --name-template nightly-{time}

Every 1h is on the hour, every 1d at midnight, every 1w on Thursday at midnight, in UTC: the multiples of the period since
1970. Where fast/app is a group, each run is of the volumes that it has by then, and what a run made is deleted in one step.
Of runs that were missed, one is made up for as soon as it can be. Only what a rule itself made is ever deleted,
and not while hosts have it mapped.")]
    Create {
        /// The volumes, all of one pool; or a group.
        #[arg(value_name = "POOL/VOLUME", required = true, value_parser = value::<VolumePath>)]
        volumes: Vec<VolumePath>,
        #[command(flatten)]
        rules: RuleArgs,
        /// What the snapshots are called: {time} is when, {every} the rule's period. [default: {every}-{time}]
        #[arg(long, value_name = "TEMPLATE", value_parser = value::<NameTemplate>)]
        name_template: Option<NameTemplate>,
    },
    /// Give a schedule other rules, or have its snapshots called otherwise.
    #[command(after_long_help = "\
Examples:
  flashloom schedule change fast/db --every 1h --keep 48 --every 1d --keep 30
  flashloom schedule change fast/db --name-template auto-{every}-{time}

The rules are those that it has then, in place of all it had. One with a period that it had before goes on with what it
made: what is beyond a lower --keep goes with its next run. What the others made stays.")]
    Change {
        #[command(flatten)]
        of: OfScheduled,
        /// Run at the multiples of this, in UTC. Once for each rule.
        #[arg(long, value_name = "PERIOD", value_parser = value::<Period>)]
        every: Vec<Period>,
        /// Keep the snapshots of so many runs of that rule.
        #[arg(long, value_name = "COUNT")]
        keep: Vec<u32>,
        /// What the snapshots are called: {time} is when, {every} the rule's period.
        #[arg(long, value_name = "TEMPLATE", value_parser = value::<NameTemplate>)]
        name_template: Option<NameTemplate>,
    },
    /// Print the schedules, and how they fare.
    #[command(after_long_help = "\
Examples:
  flashloom schedule list
  flashloom schedule list fast
  flashloom schedule list -o json")]
    #[command(alias = "ls")]
    List {
        /// The pool. [default: all]
        #[arg(value_name = "POOL", value_parser = value::<Name>)]
        pool: Option<Name>,
    },
    /// Print the schedule of a volume or a group, and how it fares.
    #[command(after_long_help = "\
Examples:
  flashloom schedule show fast/db")]
    Show {
        #[command(flatten)]
        of: OfScheduled,
    },
    /// Run a schedule now: all its rules, or one.
    #[command(after_long_help = "\
Examples:
  flashloom schedule run fast/db
  flashloom schedule run fast/db --every 1d

What is taken counts as any other run: it is kept and deleted by the rule. What was due before is made up for by it.")]
    Run {
        #[command(flatten)]
        of: OfScheduled,
        /// The rule with this period. [default: all]
        #[arg(long, value_name = "PERIOD", value_parser = value::<Period>)]
        every: Option<Period>,
    },
    /// Delete the schedule of a volume or a group; the snapshots that it made stay.
    #[command(after_long_help = "\
Examples:
  flashloom schedule delete fast/db")]
    #[command(alias = "rm")]
    Delete {
        #[command(flatten)]
        of: OfScheduled,
        #[command(flatten)]
        sure: SureArgs,
    },
}
