//! No dependency has a known vulnerability, as far as the list in the repository knows.
//!
//! The list is made from a checkout of RustSec's advisory database (CC0), one line an advisory: nothing is asked of a
//! network, so that a change of ours never fails for what somebody else published meanwhile. A list that was made long
//! ago knows little: it is told of, and refused in the end.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use semver::{Version, VersionReq};

use crate::Finding;

/// Lines of `ID CRATE KIND PATCHED | UNAFFECTED`, requirements separated by `;`.
const LIST: &str = "advisories.txt";
const LOCK: &str = "Cargo.lock";

/// What is not said of a version of a crate but of the crate: nobody is in danger for it.
const ABOUT_THE_CRATE: [&str; 2] = ["unmaintained", "notice"];

/// Begins the line that says when the list was made.
const MADE: &str = "# Made on ";

/// Days after which a list is told of, and after which it is refused.
const OLD_DAYS: i64 = 60;
const TOO_OLD_DAYS: i64 = 180;

/// Checks every package of the lock file, and how old the list is.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let read = |name| fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}"));
    let list = read(LIST)?;
    let mut findings = findings(&list, &read(LOCK)?)?;
    match made(&list).map(|day| today() - day) {
        None => findings.push(format!("{LIST}: no line `{MADE}YYYY-MM-DD.`")),
        Some(age) if age > TOO_OLD_DAYS => findings.push(old(age)),
        Some(age) if age > OLD_DAYS => eprintln!("{}", old(age)),
        Some(_) => {}
    }
    Ok(findings)
}

fn old(age: i64) -> Finding {
    format!("{LIST}: made {age} days ago; make it anew: `cargo xtask advisories DATABASE`")
}

/// Days since 1970.
fn today() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs() / 86_400).unwrap_or(i64::MAX)
}

/// The day on which a list was made.
fn made(list: &str) -> Option<i64> {
    let date = list.lines().find_map(|line| line.strip_prefix(MADE))?.strip_suffix('.')?;
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    day_of(parts.next()??, parts.next()??, parts.next()??)
}

/// The day of a date, counted from 1970-01-01, in years that begin in March: a leap day is the last of one.
fn day_of(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let years = if month > 2 { year } else { year - 1 };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(365 * years + years / 4 - years / 100 + years / 400 + of_year - 719_468)
}

/// The date of a day, as it is written.
fn date_of(today: i64) -> String {
    // The last year, then month, that does not begin later.
    let last =
        |from: i64, is_later: &dyn Fn(i64) -> bool| (0..).map(|n| from - n).find(|n| !is_later(*n));
    let later = |year, month| day_of(year, month, 1).is_some_and(|day| day > today);
    let year = last(1970 + today / 365, &|year| later(year, 1)).unwrap_or_default();
    let month = last(12, &|month| later(year, month)).unwrap_or_default();
    let day = today - day_of(year, month, 1).unwrap_or_default() + 1;
    format!("{year}-{month:02}-{day:02}")
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
    let made = date_of(today());
    fs::write(root.join(LIST), format!("{head}{MADE}{made}.\n{}\n", lines.join("\n")))
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
    use super::{date_of, day_of, findings, line, made};

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
    fn a_lists_age_is_known() {
        assert_eq!(day_of(1970, 1, 1), Some(0));
        assert_eq!(day_of(2000, 3, 1), Some(11_017));
        assert_eq!(made("# From.\n# Made on 2026-11-26.\n"), day_of(2026, 11, 26));
        assert_eq!(made("# From.\nRUSTSEC-2026-0001 a vulnerability | \n"), None);
        assert_eq!(made("# Made on 2026-13-26.\n"), None);
        for day in [0, 58, 59, 60, 11_015, 11_016, 11_017, 20_783, 24_106] {
            assert_eq!(made(&format!("# Made on {}.\n", date_of(day))), Some(day));
        }
        let dates = [11_016, 11_017, 20_787].map(date_of);
        assert_eq!(dates, ["2000-02-29", "2000-03-01", "2026-11-30"]);
    }

    #[test]
    fn what_was_withdrawn_is_left_out() {
        let withdrawn = ADVISORY.replace("\n\n", "\nwithdrawn = \"2020-01-01\"\n\n");
        assert_eq!(line(&withdrawn).unwrap(), None);
        assert!(line("no front").is_err());
    }
}
