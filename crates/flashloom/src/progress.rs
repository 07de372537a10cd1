//! Progress of long work.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What stands in the bar of a load: what is going on, how much of it is done, and what came of it so far.
pub const SHARE: &str = "{prefix:>10} [{bar:40}] {percent:>3} % {msg}";

/// A bar of `length` steps on standard error, when that is a terminal. `template` says what stands in it, in
/// `indicatif`'s words.
pub fn bar(length: u64, template: &str) -> ProgressBar {
    let shown = std::io::stderr().is_terminal();
    let draw = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(length), draw);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
