//! Sizes and habits that can be read off the text: long files, skipped tests, unfinished work.

use crate::Finding;
use std::path::{Path, PathBuf};

/// Hard stop for a file of production code, in lines; aim at 300, review at 500.
const FILE_LINES: usize = 800;

/// Files that are tables of declarations, where splitting would hide the table.
const TABLES: &[&str] = &[];

/// Words that must not be committed in Rust code, each with what to do instead.
/// Written in halves so that this table does not find itself.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("#[ig", "nore"), "a test that does not run proves nothing: run it or delete it"),
    (concat!("TO", "DO"), "finish it, or open an issue"),
    (concat!("FIX", "ME"), "mend it, or open an issue"),
];

/// Checks every Rust file that is not generated.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut files = Vec::new();
    for room in ["crates", "xtask", "tests", "fuzz/fuzz_targets"] {
        let room = root.join(room);
        if room.exists() {
            gather(&room, &mut files).map_err(|e| format!("{}: {e}", room.display()))?;
        }
    }
    let mut findings = Vec::new();
    for file in files {
        let text =
            std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        findings.extend(read(&name, &text));
    }
    Ok(findings)
}

/// Begins the comment above a sleep in a test that waits for no condition, and says why it sleeps.
const SLEEPS: &str = "// Sleeps:";

fn read(name: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let tests_only = name.ends_with("tests.rs") || name.contains("/tests/");
    let lines = if tests_only { 0 } else { production_lines(text) };
    if lines > FILE_LINES && !TABLES.contains(&name) {
        findings.push(format!("{name}: {lines} lines of production code, {FILE_LINES} at most"));
    }
    let tests_from = if is_of_tests(name) { 0 } else { production_lines(text) };
    findings.extend(sleeps(text, tests_from).into_iter().map(|number| {
        format!("{name}:{number}: a test sleeps: wait for a condition, or say why above it in a comment that begins `{SLEEPS}`")
    }));
    for (number, line) in text.lines().enumerate() {
        for (word, advice) in FORBIDDEN {
            if line.contains(word) && !line.trim_start().starts_with("//!") {
                findings.push(format!("{name}:{}: `{word}`: {advice}", number + 1));
            }
        }
    }
    findings
}

/// Lines from `tests_from` on that sleep other than to look again in a loop, with no word on why. In simulation sleeping
/// takes no time, and is as good as a condition.
fn sleeps(text: &str, tests_from: usize) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let is_sleep = |line: &str| {
        let line = line.split("//").next().unwrap_or(line);
        let is_call = |at: usize| !line[..at].ends_with(|c: char| c == '_' || c.is_alphanumeric());
        let mut calls = ["sleep(", "sleep_until("].iter().flat_map(|call| line.match_indices(call));
        calls.any(|(at, _)| is_call(at)) && !line.contains("fn ")
    };
    let sleeps = (tests_from..lines.len()).filter(|at| is_sleep(lines[*at]));
    let is_real = REAL.iter().any(|call| text.contains(call));
    let is_simulated = |at: usize| {
        let code = if is_real { within(&lines, at) } else { &lines };
        !lines[at].contains("thread::sleep") && code.iter().any(|line| simulates(line))
    };
    sleeps
        .filter(|at| !looks_again(&lines[..=*at]) && !says_why(&lines[..*at]) && !is_simulated(*at))
        .map(|at| at + 1)
        .collect()
}

/// What has a test run on a reactor whose time is real: in its file, each function says for itself that it simulates.
const REAL: &[&str] = &["reactor::run(", "Reactor::new(", "Reactor::start(", ".block_on("];

/// Whether a line's code, not its comment or a text of its, is about simulation.
fn simulates(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or(line);
    code.split('"').step_by(2).any(|code| code.to_lowercase().contains("simulat"))
}

/// The function that a line is in, of formatted code.
fn within<'a>(lines: &'a [&'a str], at: usize) -> &'a [&'a str] {
    let is_fn = |line: &str| line.split_whitespace().any(|word| word == "fn");
    let begin = (0..=at).rev().find(|n| is_fn(lines[*n])).unwrap_or(at);
    let indent = lines[begin].len() - lines[begin].trim_start().len();
    let is_end = |line: &str| line.trim() == "}" && line.len() == indent + 1;
    let end = (at..lines.len()).find(|n| is_end(lines[*n])).unwrap_or(lines.len() - 1);
    &lines[begin..=end]
}

/// Whether the last of formatted lines is within a `while` or `loop` of its function.
fn looks_again(lines: &[&str]) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut within = lines.last().map_or(0, |line| indent(line));
    for line in lines.iter().rev().filter(|line| !line.trim().is_empty()) {
        if indent(line) >= within {
            continue;
        }
        within = indent(line);
        let line = line.trim();
        if line == "{" {
            // The condition stands above it, over several lines, and begins where this does.
            within += 1;
        }
        if line.starts_with("while ") || line.split_whitespace().any(|word| word == "loop") {
            return true;
        }
        if line.split_whitespace().any(|word| word == "fn") {
            return false;
        }
    }
    false
}

/// Whether the comment that lines end with says why what follows sleeps.
fn says_why(lines: &[&str]) -> bool {
    let comment = lines.iter().rev().take_while(|line| line.trim_start().starts_with("//"));
    comment.into_iter().any(|line| line.trim_start().starts_with(SLEEPS))
}

/// Folders and files of tests, peers and targets made for tests included.
pub(crate) const TEST_ROOMS: &[&str] = &["tests", "testing", "scripted"];

/// Whether a file is of tests, by its name from the workspace's root.
pub(crate) fn is_of_tests(name: &str) -> bool {
    name.split('/').any(|part| TEST_ROOMS.contains(&part.strip_suffix(".rs").unwrap_or(part)))
}

/// A file's code without its own tests and its comments.
pub(crate) fn production(text: &str) -> String {
    let lines = text.lines().take(production_lines(text));
    lines.flat_map(|line| [line.split("//").next().unwrap_or(line), "\n"]).collect()
}

/// Lines before the file's own test module. One that is a file of its own ends nothing.
pub(crate) fn production_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &str| line.starts_with("mod ") && line.ends_with('{');
    let tests = lines.windows(2).position(|w| w[0] == "#[cfg(test)]" && begins(w[1]));
    tests.unwrap_or(lines.len())
}

/// Every Rust file below a folder.
pub(crate) fn gather(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            // Cargo marks the folders that it builds in; a crate may well be called `target`.
            if !path.join("CACHEDIR.TAG").exists() && !name.starts_with('.') {
                gather(&path, files)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crate `target` was taken for a folder that Cargo builds in: nothing in it was looked at.
    #[test]
    fn a_folder_is_skipped_for_its_mark_and_not_for_its_name() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let mut files = Vec::new();
        gather(&crates, &mut files).unwrap();
        assert!(files.iter().any(|file| file.ends_with("target/src/lib.rs")));
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        gather(&built, &mut files).unwrap();
        assert!(!files.iter().any(|file| file.components().any(|c| c.as_os_str() == "debug")));
    }

    #[test]
    fn a_long_file_a_sleep_and_a_skipped_test_are_found() {
        let long = "fn f() {}\n".repeat(FILE_LINES + 1);
        assert_eq!(read("crates/a/src/b.rs", &long).len(), 1);
        assert_eq!(read("crates/a/src/b/tests.rs", &long).len(), 0);
        let tested = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert_eq!(read("crates/a/src/b.rs", &tested).len(), 0);
        let declared = format!("#[cfg(test)]\nmod tests;\n{long}");
        assert_eq!(read("crates/a/src/b.rs", &declared).len(), 1);
        let idle = "fn t() {\n    sleep(1);\n}\n";
        assert_eq!(read("crates/a/src/b.rs", idle).len(), 0);
        assert_eq!(read("crates/a/src/tests/b.rs", idle).len(), 1);
        let tested = format!("#[cfg(test)]\nmod tests {{\n{idle}}}\n");
        assert_eq!(read("crates/a/src/b.rs", &tested).len(), 1);
        for good in [
            "fn t() {\n    while !done() {\n        // Soon.\n        sleep(1);\n    }\n}\n",
            "fn t() {\n    while !done()\n        || !other()\n    {\n        sleep(1);\n    }\n}\n",
            "fn t() {\n    spawn(async {\n        loop {\n            sleep(1);\n        }\n    });\n}\n",
            "fn t() {\n    // Sleeps: the timer is what is tested.\n    sleep(1);\n}\n",
            "use reactor::simulate;\nfn t() {\n    sleep(1);\n}\n",
            "fn s() {\n    reactor::run(x);\n}\n\nfn t() {\n    simulate(|| {\n        sleep(1);\n    });\n}\n",
        ] {
            assert_eq!(read("crates/a/src/tests.rs", good), Vec::<String>::new(), "{good}");
        }
        for wrong in [
            "// As simulated.\nfn t() {\n    say(\"simulated\");\n    sleep(1);\n}\n",
            "use reactor::simulate;\nfn t() {\n    std::thread::sleep(1);\n}\n",
            "fn s() {\n    simulate(x);\n}\n\nfn t() {\n    reactor::run(|| {\n        sleep(1);\n    });\n}\n",
        ] {
            assert_eq!(read("crates/a/src/tests.rs", wrong).len(), 1, "{wrong}");
        }
        let behind = "fn t() {\n    while !done() {\n        look();\n    }\n    sleep(1);\n}\n";
        assert_eq!(read("crates/a/src/tests.rs", behind).len(), 1);
        let skipped = concat!("#[test]\n#[ig", "nore]\nfn t() {}\n");
        assert_eq!(read("crates/a/src/b.rs", skipped).len(), 1);
    }
}
