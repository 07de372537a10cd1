//! The order of a walk: each row's function is called by a function of a row above it, behind what that one called for
//! the row before. Tables that claim it stand below a line of [`MARK`].
//!
//! Calls are found by name in a function's own text, with the functions of its own file that it calls put in their
//! places. What is called by another name, as it was handed over, is in [`HANDED`].

use super::{body, name_of, row};
use crate::{Finding, tidy};
use std::collections::HashMap;
use std::path::Path;

/// Claims that a table's rows are in the order in which their functions are called.
const MARK: &str = "<!-- each called by one above it, in this order -->";

/// Functions that are called by another name: the caller's file, how it calls, the function, and the file that hands it
/// over.
const HANDED: [(&str, &str, &str, &str); 3] = [
    (
        "crates/fabric/src/tcp/controller/receive.rs",
        "sink(Capsule",
        "Dispatcher::take",
        "crates/target/src/connection.rs",
    ),
    (
        "crates/fabric/src/tcp/controller/receive.rs",
        "turn_ends()",
        "Dispatcher::end_turn",
        "crates/target/src/connection.rs",
    ),
    (
        "crates/target/src/queue/dispatch.rs",
        "(self.begin)(",
        "begin_io",
        "crates/target/src/connection.rs",
    ),
];

/// How many functions of one file are put into each other at most.
const DEPTH: usize = 5;

/// A function of the walk that has not returned yet.
struct Frame {
    file: String,
    /// The type that it is a method of.
    owner: Option<String>,
    text: String,
    /// Behind the call that the walk went on by.
    at: usize,
}

/// Checks all tables that claim an order.
pub fn check(root: &Path, page: &str, text: &str) -> Result<Vec<Finding>, String> {
    let mut sources = HashMap::new();
    let mut findings = Vec::new();
    let mut frames: Option<Vec<Frame>> = None;
    for (number, line) in (1..).zip(text.lines()) {
        if line == MARK {
            frames = Some(Vec::new());
        } else if let Some(frames) = &mut frames
            && let Some((file, function)) = row(line)
        {
            if !sources.contains_key(file) {
                let read = std::fs::read_to_string(root.join(file)).unwrap_or_default();
                sources.insert(file.to_owned(), tidy::production(&read));
            }
            let source = &sources[file];
            let Some(own) = body(source, function) else { continue };
            if !goes_on(frames, file, function) {
                findings.push(format!(
                    "{page}:{number}: no function of the rows above calls {function} there, behind what the row before \
                     is called by"
                ));
            }
            frames.push(Frame {
                file: file.to_owned(),
                owner: function.rsplit_once("::").map(|(owner, _)| owner.to_owned()),
                text: flat(source, own, &mut vec![name_of(function)]),
                at: 0,
            });
        } else if !line.starts_with('|') && !line.is_empty() {
            frames = None;
        }
    }
    if !text.contains(MARK) {
        findings.push(format!("{page}: no walk claims an order"));
    }
    for (_, _, function, giver) in HANDED {
        let given = std::fs::read_to_string(root.join(giver)).unwrap_or_default();
        if !given.contains(&format!("{}(", name_of(function))) {
            findings.push(format!("xtask/src/walk/order.rs: {giver} hands over no {function}"));
        }
    }
    Ok(findings)
}

/// Returns to the innermost function that calls this one, and says whether there is one.
fn goes_on(frames: &mut Vec<Frame>, file: &str, function: &str) -> bool {
    if frames.is_empty() {
        return true;
    }
    let found = frames.iter().enumerate().rev().find_map(|(n, frame)| {
        let at = call(frame, file, function)?;
        Some((n, at))
    });
    let Some((n, at)) = found else { return false };
    frames.truncate(n + 1);
    frames[n].at = at + 1;
    true
}

/// Where a function calls this one next.
fn call(frame: &Frame, file: &str, function: &str) -> Option<usize> {
    let handed = HANDED.iter().find(|(from, _, to, _)| *from == frame.file && *to == function);
    if let Some((_, how, ..)) = handed {
        return frame.text[frame.at..].find(how).map(|at| frame.at + at);
    }
    let (owner, name) = match function.rsplit_once("::") {
        Some((owner, name)) => (Some(owner), name),
        None => (None, function),
    };
    let stem = Path::new(file).with_extension("");
    let stem = if stem.ends_with("mod") { stem.parent().map(Path::to_owned) } else { Some(stem) };
    let stem = stem.and_then(|stem| Some(stem.file_name()?.to_str()?.to_owned()));
    calls(&frame.text, name).find(|at| {
        let before = &frame.text[..*at];
        let is_it = match (before.strip_suffix("::"), before.ends_with('.')) {
            (Some(path), _) => {
                let qualifier = path.rsplit(|c: char| !is_word(c)).next();
                qualifier == owner || qualifier == stem.as_deref()
            }
            (None, true) if before.ends_with("self.") => owner == frame.owner.as_deref(),
            (None, true) => owner.is_some(),
            (None, false) => owner.is_none(),
        };
        *at >= frame.at && is_it
    })
}

/// A function's text with the functions of its own file in their places, but for those that it is within.
fn flat<'a>(source: &'a str, own: &'a str, within: &mut Vec<&'a str>) -> String {
    let mut text = String::new();
    let mut rest = own;
    while let Some(open) = rest.find('(') {
        let name = rest[..open].rsplit(|c| !is_word(c)).next().unwrap_or_default();
        let before = &rest[..open - name.len()];
        let is_own = before.ends_with("self.")
            || before.ends_with("Self::")
            || !(before.ends_with(['.', ':']) || before.ends_with("fn ") || name.is_empty());
        text.push_str(&rest[..=open]);
        rest = &rest[open + 1..];
        let is_new = is_own && within.len() < DEPTH && !within.contains(&name);
        if let Some(inner) = body(source, name).filter(|_| is_new) {
            within.push(name);
            text.push_str(&flat(source, inner, within));
            within.pop();
        }
    }
    text + rest
}

/// Where a text calls a name.
fn calls<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(name).map(|(at, _)| at).filter(move |at| {
        let (before, behind) = (&text[..*at], &text[at + name.len()..]);
        let is_call = behind.starts_with('(') || behind.starts_with("::<");
        is_call && !before.ends_with(is_word) && !before.ends_with("fn ")
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOOR: &str = "crates/a/src/door.rs";

    fn frame(source: &str, function: &str) -> Frame {
        let own = body(source, function).unwrap();
        let text = flat(source, own, &mut vec![name_of(function)]);
        Frame { file: DOOR.to_owned(), owner: Some("Door".to_owned()), text, at: 0 }
    }

    #[test]
    fn a_row_is_called_by_one_above_it_behind_the_one_before() {
        let source = "impl Door {\n    fn open(&self) {\n        self.turn(1);\n        other::look(2);\n    }\n\n    \
                      fn turn(&self, n: u8) {\n        key.fit(n);\n        look(n);\n    }\n}\n";
        let walk = |rows: &[(&str, &str)]| {
            let mut frames = vec![frame(source, "Door::open")];
            rows.iter().all(|(file, function)| {
                let is_right = goes_on(&mut frames, file, function);
                let (file, text) = ((*file).to_owned(), String::new());
                frames.push(Frame { file, owner: None, text, at: 0 });
                is_right
            })
        };
        let (key, eye, other) =
            ("crates/a/src/key.rs", "crates/a/src/eye.rs", "crates/a/src/other.rs");
        assert!(walk(&[(key, "Key::fit"), (eye, "look"), (other, "look")]));
        assert!(!walk(&[(eye, "look"), (key, "Key::fit")]), "the other way round");
        assert!(!walk(&[(key, "fit")]), "a method is of a type");
        assert!(!walk(&[(key, "Key::lock")]), "nobody calls it");
        assert!(!walk(&[(key, "Key::turn")]), "it is the door's that is called");
    }
}
