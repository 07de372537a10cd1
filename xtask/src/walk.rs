//! `ARCHITECTURE.md` is true: every function that its tables name exists in the file they name.

use crate::Finding;
use std::path::Path;

/// Checks table rows that hold a file and a function: ``| … | `crates/a/src/b.rs` | `Type::name` |``.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md"))
        .map_err(|e| format!("ARCHITECTURE.md: {e}"))?;
    let mut findings = Vec::new();
    let mut rows = 0;
    for (number, line) in text.lines().enumerate() {
        let Some((file, function)) = row(line) else { continue };
        rows += 1;
        let source = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let name = function.rsplit("::").next().unwrap_or(function);
        if !source.contains(&format!("fn {name}")) {
            findings.push(format!("ARCHITECTURE.md:{}: {file} has no fn {name}", number + 1));
        }
    }
    if rows == 0 {
        findings.push("ARCHITECTURE.md: the walk names no file and function".into());
    }
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

#[cfg(test)]
mod tests {
    use super::row;

    #[test]
    fn rows_are_read() {
        let line = "| 1 | read | `crates/a/src/b.rs` | `Type::name` |";
        assert_eq!(row(line), Some(("crates/a/src/b.rs", "Type::name")));
        assert_eq!(row("| 1 | read | `crates/a/src/b.rs` | no function |"), None);
        assert_eq!(row("text `crates/a/src/b.rs` `f`"), None);
    }
}
