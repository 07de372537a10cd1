//! `flashloom events`: what happened, and what happens.

use std::io::{self, Write};
use std::time::Duration;

use api::v1::{Event, Severity};
use comfy_table::Table;

use crate::cli::{EventsArgs, Global, Output};
use crate::daemon::ask;
use crate::exit::{Exit, Failure, Outcome};
use crate::manage::time;
use crate::output::{or_dash, print, table};

/// Seconds that one request waits for an event.
const WAIT: u64 = 60;

/// A daemon that is killed leaves an answer unfinished, and is gone a moment later: how often, and after what pauses, it
/// is asked again.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// `flashloom events`
pub fn run(global: &Global, args: &EventsArgs) -> Outcome {
    if args.follow {
        return follow(global, args.from);
    }
    let events = ask(global, async |client| client.events(args.from).await)?;
    print(global.output, &events, |events| event_table(events))
}

/// Prints events as they come, until the daemon ends, or whoever reads them.
fn follow(global: &Global, mut from: u64) -> Outcome {
    let mut events = ask(global, async |client| client.events(from).await)?;
    loop {
        for event in &events {
            match line(global.output, event) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                printed => printed.map_err(|error| Failure::new(Exit::Failed, error))?,
            }
            from = event.id + 1;
        }
        let mut more = ask(global, async |client| client.wait_for_events(from, WAIT).await);
        for _ in 0..TRIES {
            if more.as_ref().map_or_else(|failure| failure.exit == Exit::NoDaemon, |_| true) {
                break;
            }
            more = ask(global, async |client| {
                tokio::time::sleep(PAUSE).await;
                client.events(from).await
            });
        }
        events = more.map_err(|failure| match failure.exit {
            Exit::NoDaemon => Failure::new(Exit::NoDaemon, "the daemon has ended").help(format!(
                "once it runs again, `flashloom events --follow --from {from}` goes on from here"
            )),
            _ => failure,
        })?;
    }
}

/// Prints one event on a line of its own.
fn line(output: Output, event: &Event) -> io::Result<()> {
    let line = match output {
        Output::Json => serde_json::to_string(event)?,
        Output::Table | Output::Csv => {
            let by = event.by.as_ref().map_or_else(String::new, |by| format!(" ({by})"));
            let level = severity(event);
            format!("{} {} {level:<7} {}{by}", event.id, at(event), event.message)
        }
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn at(event: &Event) -> String {
    or_dash(time(event.time_ms).map(|at| format!("{at:.3}")))
}

const fn severity(event: &Event) -> &'static str {
    match event.severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

fn event_table(events: &[Event]) -> Table {
    let mut table = table(&["id", "time", "level", "event", "by"], &[0]);
    for event in events {
        table.add_row([
            event.id.to_string(),
            at(event),
            severity(event).to_owned(),
            event.message.clone(),
            or_dash(event.by.as_ref()),
        ]);
    }
    table
}
