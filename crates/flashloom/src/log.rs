//! Structured logs, on standard error; under systemd with what the journal has to know of each line.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

mod queue;

use queue::Queue;
pub use queue::settle;

/// How to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For the journal under systemd, text on a terminal, else JSON.
    Auto,
    /// Lines for people.
    Human,
    /// One JSON object a line.
    Json,
    /// Lines with their level, as the systemd journal takes them from standard error.
    Journald,
}

/// The variable that says what to log.
const VARIABLE: &str = "FLASHLOOM_LOG";

/// What is logged: `asked`, or `usual` where nothing is, and why not what was asked for.
fn filter(asked: Option<&str>, usual: &str) -> (EnvFilter, Option<String>) {
    let Some(asked) = asked.filter(|text| !text.trim().is_empty()) else {
        return (EnvFilter::new(usual), None);
    };
    // A word alone would be the name of a target, of which nobody hears: a level that was mistyped.
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let is_alone = |part: &&str| !part.contains(['=', '[', ':']);
    let alone = asked.split(',').map(str::trim).filter(is_alone).find(|word| !is_level(word));
    let wrong = match alone {
        Some(word) => Some(format!("`{word}` is no level")),
        None => EnvFilter::try_new(asked).err().map(|error| error.to_string()),
    };
    match wrong {
        None => (EnvFilter::new(asked), None),
        Some(wrong) => {
            let right = "write error, warn, info, debug, trace, off or target=level";
            let told = format!("{VARIABLE}={asked}: {wrong}; {right}. Logging {usual}");
            (EnvFilter::new(usual), Some(told))
        }
    }
}

/// Starts logging. What to log is taken from `FLASHLOOM_LOG`, `usual` without it.
pub fn start(format: Format, usual: &str) {
    let (filter, wrong) = filter(std::env::var(VARIABLE).ok().as_deref(), usual);
    if let Some(wrong) = wrong {
        eprintln!("flashloom: {wrong}");
    }
    let layer = match Queue::of_process() {
        Some(queue) => layer(format, queue),
        None => layer(format, std::io::stderr),
    };
    // A second start in one process keeps the first: there is one log.
    let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
}

/// Lines of such a format, to `out`.
fn layer<S, W>(format: Format, out: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let is_terminal = std::io::stderr().is_terminal();
    let lines = fmt::layer().with_writer(out);
    let format = match format {
        // systemd says that standard error leads to the journal.
        Format::Auto if std::env::var_os("JOURNAL_STREAM").is_some() => Format::Journald,
        Format::Auto if is_terminal => Format::Human,
        Format::Auto => Format::Json,
        asked => asked,
    };
    match format {
        Format::Json => lines.json().flatten_event(true).boxed(),
        Format::Journald => lines.with_ansi(false).event_format(Levelled).boxed(),
        Format::Auto | Format::Human => lines.with_target(false).with_ansi(is_terminal).boxed(),
    }
}

/// Each line with its level as sd-daemon(3) has it, which the journal takes from there. It has the time itself.
struct Levelled;

impl<S, N> FormatEvent<S, N> for Levelled
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(to, "<{level}>{}: ", event.metadata().target())?;
        context.format_fields(to.by_ref(), event)?;
        writeln!(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `FLASHLOOM_LOG=inof` silenced everything, errors too.
    #[test]
    fn a_level_that_is_none_is_told_of_and_not_taken() {
        for right in ["info", "WARN", "off", "array=debug", "info,reactor=trace", "a::b=info", ""] {
            assert_eq!(filter(Some(right), "info").1, None, "{right}");
        }
        assert_eq!(filter(None, "warn").0.to_string(), "warn");
        for wrong in ["inof", "info,debgu", "array=lots"] {
            let (taken, told) = filter(Some(wrong), "info");
            assert_eq!(taken.to_string(), "info", "{wrong}");
            assert!(told.unwrap().starts_with(&format!("FLASHLOOM_LOG={wrong}: ")));
        }
    }
}
