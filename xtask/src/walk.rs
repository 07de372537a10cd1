//! `ARCHITECTURE.md` is true: every function that its tables name exists where they say, and something calls it.
//!
//! A row that names `Type::name` needs `fn name` in an `impl` of that type in that file. Of the tables that claim it, the
//! rows are in the order in which their functions call each other (`order`); others tell of what a task does once
//! another has woken it, which nothing in the text shows.

mod drawn;
mod order;

use crate::{Finding, tidy};
use std::path::Path;

const PAGE: &str = "ARCHITECTURE.md";

/// Checks table rows that hold a file and a function: ``| … | `crates/a/src/b.rs` | `Type::name` |``.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let read =
        |path: &Path| std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let text = read(&root.join(PAGE))?;
    let mut files = Vec::new();
    tidy::gather(&root.join("crates"), &mut files).map_err(|e| format!("crates: {e}"))?;
    let mut sources = Vec::new();
    for file in &files {
        let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
        if !tidy::is_of_tests(&name) {
            sources.push((name, tidy::production(&read(file)?)));
        }
    }
    let production: String = sources.iter().map(|(_, source)| source.as_str()).collect();
    let mut findings = Vec::new();
    let mut rows = 0;
    for (number, line) in text.lines().enumerate() {
        let Some((file, function)) = row(line) else { continue };
        rows += 1;
        let source = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        if !defines(&source, function) {
            findings.push(format!("{PAGE}:{}: {file} has no fn {function}", number + 1));
        } else if !is_called(&production, name_of(function)) {
            findings.push(format!("{PAGE}:{}: nothing calls {function}", number + 1));
        }
    }
    if rows == 0 {
        findings.push(format!("{PAGE}: the walk names no file and function"));
    }
    findings.extend(order::check(root, PAGE, &text)?);
    findings.extend(drawn::check(PAGE, &text, &sources));
    Ok(findings)
}

/// The file and function of a table row, if it names both in backticks.
fn row(line: &str) -> Option<(&str, &str)> {
    if !line.starts_with('|') {
        return None;
    }
    let mut code = line.split('`').skip(1).step_by(2);
    let file = code.find(|c| c.starts_with("crates/") && c.ends_with(".rs"))?;
    Some((file, code.next()?))
}

fn name_of(function: &str) -> &str {
    function.rsplit("::").next().unwrap_or(function)
}

/// Whether formatted code has `name`, or `Type::name` in an `impl` of the type.
fn defines(source: &str, function: &str) -> bool {
    body(source, function).is_some()
}

/// The text of such a function, from its parameters to its end.
fn body<'a>(source: &'a str, function: &str) -> Option<&'a str> {
    let name = name_of(function);
    let owner = function.rsplit_once("::").map(|(owner, _)| owner);
    let (mut within, mut at) = (None, 0);
    for line in source.split_inclusive('\n') {
        let text = line.trim_end();
        if text.starts_with("impl") {
            within = implemented(text);
        } else if text == "}" {
            within = None;
        }
        let named = text.split_once("fn ").and_then(|(_, rest)| rest.strip_prefix(name));
        let is_it = named.is_some_and(|rest| rest.starts_with(['(', '<']));
        if is_it && (owner.is_none() || owner == within) {
            let own = &source[at + text.find(name)? + name.len()..];
            let end = format!("\n{}}}", &text[..text.len() - text.trim_start().len()]);
            return Some(own.split_once(&end).map_or(own, |(own, _)| own));
        }
        at += line.len();
    }
    None
}

/// The type of `impl<T> Trait for Type<T> {`.
fn implemented(line: &str) -> Option<&str> {
    let line = line.split(" where").next()?;
    let named = match line.split_once(" for ") {
        Some((_, named)) => named,
        None if line.starts_with("impl<") => line.split_once("> ")?.1,
        None => line.strip_prefix("impl ")?,
    };
    let end = named.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    named[..end.unwrap_or(named.len())].rsplit("::").next()
}

/// Whether code names a function other than to define it.
fn is_called(code: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let before = &code[..at];
        !before.ends_with(is_word)
            && !code[at + name.len()..].starts_with(is_word)
            && !before.ends_with("fn ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let line = "| 1 | read | `crates/a/src/b.rs` | `Type::name` |";
        assert_eq!(row(line), Some(("crates/a/src/b.rs", "Type::name")));
        assert_eq!(row("| 1 | read | `crates/a/src/b.rs` | no function |"), None);
        assert_eq!(row("text `crates/a/src/b.rs` `f`"), None);
    }

    #[test]
    fn a_function_is_looked_for_in_its_type() {
        let code = "impl<T: Into<u8>> Door<T> {\n    pub async fn write<F>(&self) {\n    }\n}\n\nfn free() {}\n\
                    impl fmt::Debug for Shard {\n    fn fmt(&self) {}\n}\n";
        for there in ["Door::write", "write", "free", "Shard::fmt"] {
            assert!(defines(code, there), "{there}");
        }
        for missing in ["Door::free", "Shard::write", "Door::writ", "fre", "Debug::fmt"] {
            assert!(!defines(code, missing), "{missing}");
        }
    }

    #[test]
    fn a_definition_is_no_call() {
        assert!(!is_called("fn store() {}\nfn restore() {}\nlet stored = 1;", "store"));
        assert!(is_called("fn store() {}\nself.store(1)", "store"));
        assert!(is_called("map(Self::store)", "store"));
    }
}
