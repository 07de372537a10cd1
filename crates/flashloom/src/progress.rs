//! Progress of long work.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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
