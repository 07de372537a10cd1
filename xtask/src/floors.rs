//! A crate imports only crates on lower floors: never its own floor, never up.

use crate::Finding;
use crate::metadata::Package;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

/// Has the drawing.
const PAGE: &str = "ARCHITECTURE.md";

/// Crates outside the house: tools and black-box tests that stand on no floor.
pub(crate) const OUTSIDE: &[&str] = &["xtask", "hosts-tests", "models"];

/// Checks every arrow between our crates, and that they are drawn.
pub fn check(root: &Path, packages: &[Package]) -> Result<Vec<Finding>, String> {
    let page = std::fs::read_to_string(root.join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let mut findings = check_floors(packages);
    findings.extend(check_drawing(&page, packages));
    Ok(findings)
}

fn check_floors(packages: &[Package]) -> Vec<Finding> {
    let ours = || packages.iter().filter(|p| p.ours && !OUTSIDE.contains(&p.name.as_str()));
    let floors: HashMap<&str, Option<u64>> = ours().map(|p| (p.name.as_str(), p.floor)).collect();
    let mut findings = Vec::new();
    for package in ours() {
        let Some(floor) = package.floor else {
            findings.push(format!(
                "crates/{}/Cargo.toml: no floor; add `floor = N` under [package.metadata.flashloom]",
                package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            if let Some(Some(below)) = floors.get(dependency.as_str())
                && *below >= floor
            {
                findings.push(format!(
                    "crates/{}: floor {floor} imports {dependency} on floor {below}; \
                     only lower floors may be imported",
                    package.name
                ));
            }
        }
    }
    findings
}

/// Checks the drawing of the crates: it has an arrow from a crate to each of those that it stands on,
/// unless it stands on one that stands on it in turn; and no other.
fn check_drawing(page: &str, packages: &[Package]) -> Vec<Finding> {
    let is_ours = |p: &&Package| p.ours && !OUTSIDE.contains(&p.name.as_str());
    let ours: HashSet<&str> = packages.iter().filter(is_ours).map(|p| p.name.as_str()).collect();
    let below = |name: &str| {
        let package = packages.iter().find(|p| p.name == name);
        let all = package.into_iter().flat_map(|p| &p.dependencies).map(String::as_str);
        all.filter(|name| ours.contains(name)).collect::<BTreeSet<_>>()
    };
    let mut arrows = BTreeSet::new();
    for name in &ours {
        let direct = below(name);
        let through = |on: &str| {
            let mut seen = BTreeSet::new();
            let mut next: Vec<_> = direct.iter().filter(|other| **other != on).copied().collect();
            while let Some(other) = next.pop() {
                if seen.insert(other) {
                    next.extend(below(other));
                }
            }
            seen.contains(on)
        };
        arrows.extend(direct.iter().filter(|on| !through(on)).map(|on| format!("{name} --> {on}")));
    }
    let drawing = page.split_once("```mermaid\nflowchart").map_or("", |(_, rest)| rest);
    let drawing = drawing.split("```").next().unwrap_or_default();
    let drawn: BTreeSet<String> =
        drawing.lines().map(|l| l.trim().to_owned()).filter(|l| l.contains("-->")).collect();
    let missing = arrows.difference(&drawn).map(|arrow| format!("does not have {arrow}"));
    let wrong = drawn.difference(&arrows).map(|arrow| format!("has {arrow}, which is not so"));
    missing.chain(wrong).map(|what| format!("{PAGE}: the drawing of crates {what}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_has_the_arrows_that_do_not_go_without_saying() {
        let house = [
            package("top", Some(2), &["high", "low", "serde"]),
            package("high", Some(1), &["low"]),
            package("low", Some(0), &[]),
        ];
        let drawn = |arrows: &str| {
            check_drawing(&format!("```mermaid\nflowchart TD\n{arrows}```\n"), &house).len()
        };
        assert_eq!(drawn("    top --> high\n    high --> low\n"), 0);
        assert_eq!(drawn("    top --> high\n"), 1);
        assert_eq!(drawn("    top --> high\n    high --> low\n    top --> low\n"), 1);
    }

    fn package(name: &str, floor: Option<u64>, dependencies: &[&str]) -> Package {
        Package {
            name: name.into(),
            version: "0.1.0".into(),
            licence: None,
            floor,
            source: None,
            ours: true,
            dependencies: dependencies.iter().map(|d| (*d).to_owned()).collect(),
        }
    }

    #[test]
    fn an_import_of_the_same_or_a_higher_floor_is_found() {
        let house = [
            package("low", Some(0), &["high"]),
            package("beside", Some(0), &["low"]),
            package("high", Some(1), &["low"]),
            package("lost", None, &[]),
        ];
        let findings = check_floors(&house);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings[0].contains("crates/low"));
        assert!(findings[1].contains("crates/beside"));
        assert!(findings[2].contains("no floor"));
    }
}
