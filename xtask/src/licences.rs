//! Every dependency has a licence that an Apache-2.0 program may be linked with, and comes from where it should.

use crate::Finding;
use crate::metadata::Package;
use std::path::Path;

/// The list, which `cargo deny` reads, too.
const LIST: &str = "deny.toml";

/// What may be built on.
struct Accepted {
    /// Licences, by SPDX identifier.
    licences: Vec<String>,
    /// Registries, by the address of their index.
    registries: Vec<String>,
}

impl Accepted {
    fn load(root: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(root.join(LIST)).map_err(|e| format!("{LIST}: {e}"))?;
        let table: toml::Table = text.parse().map_err(|e| format!("{LIST}: {e}"))?;
        let words = |section: &str, key: &str| {
            let list = table.get(section).and_then(|section| section.get(key)?.as_array());
            let words = list.map(|list| list.iter().filter_map(|word| word.as_str()));
            let words = words.ok_or_else(|| format!("{LIST}: no list `{key}` in [{section}]"))?;
            Ok::<_, String>(words.map(str::to_owned).collect())
        };
        Ok(Self {
            licences: words("licenses", "allow")?,
            registries: words("sources", "allow-registry")?,
        })
    }

    fn has(&self, licence: &str) -> bool {
        self.licences.iter().any(|accepted| accepted == licence)
    }
}

/// Checks the licence expression and the origin of every package in the lock file.
pub fn check(root: &Path, packages: &[Package]) -> Result<Vec<Finding>, String> {
    let accepted = Accepted::load(root)?;
    let mut findings = Vec::new();
    for package in packages {
        let (name, version) = (&package.name, &package.version);
        let licence = package.licence.as_deref().unwrap_or("none");
        if !is_met(licence, &accepted) {
            findings
                .push(format!("{name} {version}: licence {licence} is not on the list of {LIST}"));
        }
        let registry = package.source.as_deref().map(|s| s.strip_prefix("registry+").unwrap_or(s));
        if let Some(source) = registry.filter(|r| !accepted.registries.iter().any(|a| a == r)) {
            findings.push(format!(
                "{name} {version}: comes from {source}, which {LIST} does not allow"
            ));
        }
    }
    Ok(findings)
}

/// Whether an SPDX expression can be met with accepted licences. `OR` needs one side, `AND` both;
/// `/` is the old spelling of `OR`. Parentheses bind first.
fn is_met(expression: &str, accepted: &Accepted) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any(&tokens, &mut at, accepted);
    met && at == tokens.len()
}

fn any(tokens: &[&str], at: &mut usize, accepted: &Accepted) -> bool {
    let mut met = all(tokens, at, accepted);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(tokens, at, accepted);
    }
    met
}

fn all(tokens: &[&str], at: &mut usize, accepted: &Accepted) -> bool {
    let mut met = one(tokens, at, accepted);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(tokens, at, accepted);
    }
    met
}

fn one(tokens: &[&str], at: &mut usize, accepted: &Accepted) -> bool {
    let Some(token) = tokens.get(*at) else { return false };
    *at += 1;
    if *token == "(" {
        let met = any(tokens, at, accepted);
        *at += usize::from(tokens.get(*at) == Some(&")"));
        return met;
    }
    if tokens.get(*at) == Some(&"WITH") {
        let whole = format!("{token} WITH {}", tokens.get(*at + 1).copied().unwrap_or_default());
        *at += 2;
        return accepted.has(&whole) || accepted.has(token);
    }
    accepted.has(token)
}

#[cfg(test)]
mod tests {
    use super::{Accepted, is_met};

    #[test]
    fn expressions_are_read_with_their_precedence() {
        let licences = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
        let licences = licences.map(str::to_owned).into();
        let accepted = Accepted { licences, registries: Vec::new() };
        let met = |expression| is_met(expression, &accepted);
        assert!(met("MIT OR GPL-3.0"));
        assert!(met("MIT/Apache-2.0"));
        assert!(met("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(met("Apache-2.0 WITH LLVM-exception"));
        assert!(!met("GPL-3.0"));
        assert!(!met("MIT AND GPL-3.0"));
        assert!(!met("(GPL-2.0 OR GPL-3.0) AND MIT"));
        assert!(!met(""));
    }
}
