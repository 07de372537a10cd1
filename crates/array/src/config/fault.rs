//! Faults of a configuration file, printed the way compilers do: place, line, what is wrong, what
//! would be right.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use api::value::Refused;

use crate::limits::CONFIG_FAULTS;

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line, from 1; 0 when the file could not be read.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Characters that are wrong, at least 1.
    pub width: usize,
    /// The text of the line.
    pub text: String,
    /// What is wrong and what would be right.
    pub refused: Refused,
}

/// The faults of one file, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The file.
    pub file: PathBuf,
    /// At least one.
    pub faults: Vec<Fault>,
}

impl Fault {
    /// A fault of the bytes `span` of `source`.
    #[must_use]
    pub fn at(source: &str, span: Range<usize>, refused: Refused) -> Self {
        let start = floor(source, span.start);
        let end = floor(source, span.end).max(start);
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = source[start..].find('\n').map_or(source.len(), |at| start + at);
        let width = source[start..end.min(line_end).max(start)].chars().count();
        Self {
            line: source[..start].matches('\n').count() + 1,
            column: source[line_start..start].chars().count() + 1,
            width: width.max(1),
            text: source[line_start..line_end].trim_end().to_owned(),
            refused,
        }
    }
}

/// `at`, or the start of the character that it falls into.
fn floor(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl Faults {
    /// The fault of a file that cannot be read at all.
    #[must_use]
    pub fn unreadable(file: &Path, wrong: String, right: &str) -> Self {
        let refused = Refused::new(wrong, right);
        let fault = Fault { line: 0, column: 0, width: 1, text: String::new(), refused };
        Self { file: file.to_owned(), faults: vec![fault] }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        for (index, fault) in self.faults.iter().take(CONFIG_FAULTS).enumerate() {
            if index > 0 {
                out.write_str("\n\n")?;
            }
            let Refused { wrong, right } = &fault.refused;
            if fault.line == 0 {
                write!(out, "{file}: {wrong}\n  {right}")?;
                continue;
            }
            let number = fault.line.to_string();
            let margin = " ".repeat(number.len());
            let indent = " ".repeat(fault.column - 1);
            let mark = "^".repeat(fault.width);
            writeln!(out, "{file}:{}:{}: {wrong}", fault.line, fault.column)?;
            writeln!(out, " {number} | {}", fault.text)?;
            writeln!(out, " {margin} | {indent}{mark}")?;
            write!(out, " {margin} = {right}")?;
        }
        match self.faults.len().checked_sub(CONFIG_FAULTS) {
            Some(more) if more > 0 => write!(out, "\n\n... and {more} more"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Faults {}
