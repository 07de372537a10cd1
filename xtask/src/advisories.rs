//! No dependency has a known vulnerability, as far as the list in the repository knows.
//!
//! The list is made from a checkout of RustSec's advisory database (CC0), one line an advisory: nothing is asked of a
//! network, so that a change of ours never fails for what somebody else published meanwhile.

use std::fs;
use std::path::Path;

use semver::{Version, VersionReq};

use crate::Finding;

/// Lines of `ID CRATE KIND PATCHED | UNAFFECTED`, requirements separated by `;`.
const LIST: &str = "advisories.txt";
const LOCK: &str = "Cargo.lock";

/// What is not said of a version of a crate but of the crate: nobody is in danger for it.
const ABOUT_THE_CRATE: [&str; 2] = ["unmaintained", "notice"];

/// Checks every package of the lock file.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let read = |name| fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}"));
    findings(&read(LIST)?, &read(LOCK)?)
}

fn findings(list: &str, lock: &str) -> Result<Vec<Finding>, String> {
    let table: toml::Table = lock.parse().map_err(|e| format!("{LOCK}: {e}"))?;
    let packages = table.get("package").and_then(toml::Value::as_array).map(Vec::as_slice);
    let mut findings = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let wrong = |what: &str| format!("{LIST}: {what} in `{line}`");
        let (head, ranges) = line.split_once(' ').ok_or_else(|| wrong("no crate"))?;
        let (name, ranges) = ranges.split_once(' ').ok_or_else(|| wrong("no versions"))?;
        let (kind, ranges) = ranges.split_once(' ').ok_or_else(|| wrong("no versions"))?;
        let safe = ranges
            .split(['|', ';'])
            .map(str::trim)
            .filter(|range| !range.is_empty())
            .map(|range| VersionReq::parse(range).map_err(|e| wrong(&e.to_string())))
            .collect::<Result<Vec<_>, _>>()?;
        for package in packages.unwrap_or_default() {
            let text = |key| package.get(key).and_then(toml::Value::as_str).unwrap_or_default();
            if text("name") != name || ABOUT_THE_CRATE.contains(&kind) {
                continue;
            }
            let version = Version::parse(text("version")).map_err(|e| format!("{LOCK}: {e}"))?;
            if !safe.iter().any(|range| range.matches(&version)) {
                findings.push(format!(
                    "{name} {version}: {head} ({kind}): take a version that is `{ranges}`"
                ));
            }
        }
    }
    Ok(findings)
}

/// Writes the list anew from the advisory database that is checked out at `database`.
pub fn update(root: &Path, database: &Path) -> Result<(), String> {
    let mut lines = Vec::new();
    let entries = |path: &Path| -> Result<Vec<_>, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        fs::read_dir(path).map_err(failed)?.map(|e| Ok(e.map_err(failed)?.path())).collect()
    };
    for folder in entries(&database.join("crates"))? {
        for file in entries(&folder)? {
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let wrong = |what: String| format!("{}: {what}", file.display());
            lines.extend(line(&text).map_err(wrong)?);
        }
    }
    lines.sort();
    let head = "# From RustSec's advisory database (CC0), by `cargo xtask advisories DATABASE`: ID, crate, kind, and the\n\
                # versions that are patched or were never affected.\n";
    fs::write(root.join(LIST), format!("{head}{}\n", lines.join("\n")))
        .map_err(|e| format!("{LIST}: {e}"))
}

/// The line of an advisory; `None` for one that was withdrawn.
fn line(text: &str) -> Result<Option<String>, String> {
    let front = text.strip_prefix("```toml").and_then(|text| text.split("```").next());
    let table: toml::Table =
        front.ok_or("no TOML in front")?.parse().map_err(|e| format!("{e}"))?;
    let advisory = table.get("advisory").ok_or("no [advisory]")?;
    if advisory.get("withdrawn").is_some() {
        return Ok(None);
    }
    let text = |key: &str| advisory.get(key).and_then(toml::Value::as_str);
    let ranges = |key: &str| {
        let ranges = table.get("versions").and_then(|v| v.get(key)?.as_array());
        let ranges = ranges.into_iter().flatten().filter_map(toml::Value::as_str);
        ranges.collect::<Vec<_>>().join("; ")
    };
    Ok(Some(format!(
        "{} {} {} {} | {}",
        text("id").ok_or("no id")?,
        text("package").ok_or("no package")?,
        text("informational").unwrap_or("vulnerability"),
        ranges("patched"),
        ranges("unaffected"),
    )))
}

#[cfg(test)]
mod tests {
    use super::{findings, line};

    const ADVISORY: &str = "```toml\n[advisory]\nid = \"RUSTSEC-2018-0010\"\npackage = \"openssl\"\n\n\
                            [versions]\npatched = [\">= 0.10.9\"]\nunaffected = [\"< 0.10.8\"]\n```\n# Words\n";

    #[test]
    fn only_versions_that_are_affected_are_found() {
        let list = line(ADVISORY).unwrap().unwrap();
        assert_eq!(list, "RUSTSEC-2018-0010 openssl vulnerability >= 0.10.9 | < 0.10.8");
        let found = |list: &str, version: &str| {
            let lock = format!("[[package]]\nname = \"openssl\"\nversion = \"{version}\"\n");
            findings(list, &lock).unwrap().len()
        };
        assert_eq!(["0.10.7", "0.10.8", "0.10.9", "0.11.0"].map(|v| found(&list, v)), [0, 1, 0, 0]);
        assert_eq!(found("RUSTSEC-2018-0010 openssl vulnerability  | ", "0.10.9"), 1);
        assert_eq!(found("RUSTSEC-2018-0010 openssl unmaintained  | ", "0.10.9"), 0);
        assert!(findings("RUSTSEC-2018-0010 openssl", "").is_err());
        assert!(findings("RUSTSEC-2018-0010 openssl unsound nonsense | ", "").is_err());
    }

    #[test]
    fn what_was_withdrawn_is_left_out() {
        let withdrawn = ADVISORY.replace("\n\n", "\nwithdrawn = \"2020-01-01\"\n\n");
        assert_eq!(line(&withdrawn).unwrap(), None);
        assert!(line("no front").is_err());
    }
}
