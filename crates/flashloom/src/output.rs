//! Results as tables for people and JSON for programs.

use std::io::{self, IsTerminal, Write};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use crate::cli::{Global, Output};
use crate::exit::{Exit, Failure, Outcome};

/// Prints `document` as JSON, or the table made from it.
pub fn print<T: Serialize>(
    format: Output,
    document: &T,
    table: impl FnOnce(&T) -> Table,
) -> Outcome {
    match format {
        Output::Json => json(document),
        Output::Table | Output::Csv => emit(&format!("{}\n", table(document))),
    }
}

/// Prints one `document` as JSON, or a table of one row.
pub fn print_one<T: Serialize>(
    format: Output,
    document: &T,
    table: impl FnOnce(&[T]) -> Table,
) -> Outcome {
    print(format, document, |one| table(std::slice::from_ref(one)))
}

/// Prints `document` as JSON.
pub fn json(document: &impl Serialize) -> Outcome {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    emit(&format!("{text}\n"))
}

/// Writes to standard output. A reader that has gone, as `head` does, is no error.
pub fn emit(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failed, error))
        }
        _ => Ok(()),
    }
}

/// A table that is no wider than the terminal it is printed to, if it is.
fn empty() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table
}

/// An empty table; columns in `right` hold numbers.
pub fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = empty();
    table.set_header(header.iter().copied());
    for &index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table of names and values.
pub fn facts(rows: impl IntoIterator<Item = (String, String)>) -> Table {
    let mut table = empty();
    for (name, value) in rows {
        table.add_row([name, value]);
    }
    table
}

/// `yes` or `no`.
pub fn yes_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// `value`, or a dash.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// What became of something that is not there any more, for programs.
pub fn gone(global: &Global, kind: &str, name: &impl ToString, how: &str) -> Outcome {
    match global.output {
        Output::Json => json(&serde_json::json!({ kind: name.to_string(), how: true })),
        Output::Table | Output::Csv => Ok(()),
    }
}
