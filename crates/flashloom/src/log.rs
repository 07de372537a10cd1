//! Structured logs: to the journal under systemd, else to standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
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

/// Starts logging. What to log is taken from `FLASHLOOM_LOG`, `usual` without it.
pub fn start(format: Format, usual: &str) {
    let filter = EnvFilter::try_from_env("FLASHLOOM_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
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
