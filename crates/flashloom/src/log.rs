//! Structured logs: to the journal under systemd, else to standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

/// How to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The journal under systemd, text on a terminal, else JSON.
    Auto,
    /// Lines for people.
    Human,
    /// One JSON object a line.
    Json,
    /// The systemd journal, with fields.
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
    let stderr = || fmt::layer().with_writer(std::io::stderr);
    let human = || stderr().with_target(false).with_ansi(std::io::stderr().is_terminal()).boxed();
    let layer = match format {
        Format::Auto => match journal() {
            Some(journal) => journal,
            None if std::io::stderr().is_terminal() => human(),
            None => stderr().json().flatten_event(true).boxed(),
        },
        Format::Human => human(),
        Format::Json => stderr().json().flatten_event(true).boxed(),
        Format::Journald => match tracing_journald::layer() {
            Ok(layer) => layer.boxed(),
            Err(error) => {
                eprintln!("flashloom: no journal ({error}); logging to standard error");
                human()
            }
        },
    };
    // A second start in one process keeps the first: there is one log.
    let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
}

/// The journal, when systemd says that standard error leads there.
fn journal<S>() -> Option<Box<dyn Layer<S> + Send + Sync>>
where
    S: tracing::Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span>,
{
    std::env::var_os("JOURNAL_STREAM")?;
    Some(tracing_journald::layer().ok()?.boxed())
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
