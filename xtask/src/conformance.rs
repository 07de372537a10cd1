//! `docs/conformance.md` names tests: each of them exists. A row that claims nothing needs none.
//!
//! A test is named in the last column, in backticks: `` `crate::name` `` is a test function of a
//! crate, `` `hosts/name` `` a scenario that Linux hosts run.

use crate::Finding;
use std::collections::BTreeMap;
use std::path::Path;

const PAGE: &str = "docs/conformance.md";
/// What the third column of a row may say.
const STATES: &[&str] = &["yes", "part", "no"];

/// Checks every row of every table.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let text = std::fs::read_to_string(root.join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let mut sources = BTreeMap::new();
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(Row { state, tests }) = row(line) else { continue };
        let mut say = |what: String| findings.push(format!("{PAGE}:{}: {what}", number + 1));
        if !STATES.contains(&state) {
            say(format!("`{state}` is none of {STATES:?}"));
        }
        if state == "yes" && tests.is_empty() {
            say("claims something and names no test".to_owned());
        }
        for test in tests {
            if !exists(root, test, &mut sources)? {
                say(format!("there is no test {test}"));
            }
        }
    }
    Ok(findings)
}

struct Row<'a> {
    state: &'a str,
    tests: Vec<&'a str>,
}

/// A row of four columns that is not a heading or the line below one.
fn row(line: &str) -> Option<Row<'_>> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').collect();
    let &[_, _, state, tests] = cells.as_slice() else { return None };
    let state = state.trim();
    if state == "state" || state.starts_with('-') {
        return None;
    }
    let tests = tests.split('`').skip(1).step_by(2);
    Some(Row { state, tests: tests.filter(|t| t.contains("::") || t.contains('/')).collect() })
}

fn exists(root: &Path, test: &str, sources: &mut BTreeMap<String, String>) -> Result<bool, String> {
    if let Some(scenario) = test.strip_prefix("hosts/") {
        return Ok(root.join(format!("tests/hosts/scenarios/{scenario}.sh")).exists());
    }
    let Some((room, name)) = test.split_once("::") else { return Ok(false) };
    if !sources.contains_key(room) {
        let mut files = Vec::new();
        let folder = root.join("crates").join(room);
        crate::tidy::gather(&folder, &mut files).map_err(|e| format!("{room}: {e}"))?;
        let mut all = String::new();
        for file in files {
            all +=
                &std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        sources.insert(room.to_owned(), all);
    }
    let name = name.rsplit("::").next().unwrap_or(name);
    Ok(sources[room].contains(&format!("fn {name}(")))
}

#[cfg(test)]
mod tests {
    use super::row;

    #[test]
    fn rows_are_read() {
        let line = "| 3.5 | enable `CC.EN` | yes | `target::a`, `hosts/b`, `word` |";
        let row_of = |line| row(line).map(|row| (row.state.to_owned(), row.tests.len()));
        assert_eq!(row_of(line), Some(("yes".to_owned(), 2)));
        assert_eq!(row_of("| section | what | state | shown by |"), None);
        assert_eq!(row_of("|---|---|---|---|"), None);
        assert_eq!(row_of("| two | columns |"), None);
    }
}
