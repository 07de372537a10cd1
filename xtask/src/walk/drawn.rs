//! Drawings name only what exists: each `Type::function` or `module::function` of a drawing in text is one of some crate.

use super::{body, implemented};
use crate::Finding;
use std::path::Path;

/// Checks all drawings of a page, in blocks that begin with "```text", against all files by name and code.
pub fn check(page: &str, text: &str, sources: &[(String, String)]) -> Vec<Finding> {
    let (mut findings, mut within) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with("```") {
            within = line == "```text";
        } else if within {
            let missing = named(line).filter(|(owner, name)| !exists(sources, owner, name));
            findings.extend(missing.map(|(owner, name)| {
                format!("{page}:{number}: nothing is called {owner}::{name}")
            }));
        }
    }
    findings
}

/// Pairs of names that `::` joins.
fn named(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    words.filter_map(|word| word.trim_end_matches(':').rsplit_once("::"))
}

fn exists(sources: &[(String, String)], owner: &str, name: &str) -> bool {
    let is_type = owner.starts_with(char::is_uppercase);
    let function = if is_type { format!("{owner}::{name}") } else { name.to_owned() };
    sources.iter().any(|(file, source)| match is_type {
        // A variant of an enum is drawn as what a function gives.
        true => body(source, &function).is_some() || has_variant(source, owner, name),
        false => is_module(file, owner) && body(source, &function).is_some(),
    })
}

fn has_variant(source: &str, owner: &str, name: &str) -> bool {
    let begins = |line: &str| {
        let rest = line.split_once("enum ").and_then(|(_, rest)| rest.strip_prefix(owner));
        rest.is_some_and(|rest| rest.starts_with([' ', '<'])) && implemented(line).is_none()
    };
    let mut lines = source.lines().skip_while(|line| !begins(line));
    let variants = lines.by_ref().take_while(|line| *line != "}").map(str::trim_start);
    variants
        .filter_map(|line| line.strip_prefix(name))
        .any(|rest| rest.is_empty() || rest.starts_with(['(', ',', ' ']))
}

/// Whether a file is this module.
fn is_module(file: &str, module: &str) -> bool {
    let path = Path::new(file).with_extension("");
    let path = if path.ends_with("mod") { path.parent().unwrap_or(&path) } else { &path };
    path.ends_with(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_exists() {
        let source = "pub enum Outcome<T> {\n    Done,\n    Wait(T),\n}\n\nimpl Door {\n    fn open(&self) {\n    }\n}\n\nfn look() {\n}\n";
        let sources = [("crates/a/src/door/mod.rs".to_owned(), source.to_owned())];
        let found = |line: &str| check("PAGE", &format!("```text\n{line}\n```\n"), &sources).len();
        assert_eq!(found(" Door::open --> door::look, Outcome::Wait: Outcome::Done"), 0);
        for wrong in ["Door::look", "eye::look", "Outcome::Later", "door::open_all"] {
            assert_eq!(found(wrong), 1, "{wrong}");
        }
        assert_eq!(check("PAGE", "```mermaid\nDoor::look\n```\n", &sources).len(), 0);
    }
}
