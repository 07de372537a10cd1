//! A crate imports only crates on lower floors: never its own floor, never up.

use crate::Finding;
use crate::metadata::Package;
use std::collections::HashMap;

/// Crates outside the house: tools and black-box tests that stand on no floor.
pub(crate) const OUTSIDE: &[&str] = &["xtask", "hosts-tests"];

/// Checks every arrow between our crates.
pub fn check(packages: &[Package]) -> Result<Vec<Finding>, String> {
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
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let findings = check(&house).unwrap();
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings[0].contains("crates/low"));
        assert!(findings[1].contains("crates/beside"));
        assert!(findings[2].contains("no floor"));
    }
}
