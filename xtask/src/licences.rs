//! Every dependency has a licence that an Apache-2.0 program may be linked with.

use crate::Finding;
use crate::metadata::Package;

/// Licences accepted as they are, by SPDX identifier.
const ACCEPTED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Checks the licence expression of every package in the lock file.
pub fn check(packages: &[Package]) -> Result<Vec<Finding>, String> {
    Ok(packages
        .iter()
        .filter(|p| !p.licence.as_deref().is_some_and(accepted))
        .map(|p| {
            let licence = p.licence.as_deref().unwrap_or("none");
            format!("{} {}: licence {licence} is not on the accepted list", p.name, p.version)
        })
        .collect())
}

/// Whether an SPDX expression can be met with accepted licences. `OR` needs one side, `AND` both;
/// `/` is the old spelling of `OR`. Parentheses bind first.
fn accepted(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any(&tokens, &mut at);
    met && at == tokens.len()
}

fn any(tokens: &[&str], at: &mut usize) -> bool {
    let mut met = all(tokens, at);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(tokens, at);
    }
    met
}

fn all(tokens: &[&str], at: &mut usize) -> bool {
    let mut met = one(tokens, at);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(tokens, at);
    }
    met
}

fn one(tokens: &[&str], at: &mut usize) -> bool {
    let Some(token) = tokens.get(*at) else { return false };
    *at += 1;
    if *token == "(" {
        let met = any(tokens, at);
        *at += usize::from(tokens.get(*at) == Some(&")"));
        return met;
    }
    if tokens.get(*at) == Some(&"WITH") {
        let whole = format!("{token} WITH {}", tokens.get(*at + 1).copied().unwrap_or_default());
        *at += 2;
        return ACCEPTED.contains(&whole.as_str()) || ACCEPTED.contains(token);
    }
    ACCEPTED.contains(token)
}

#[cfg(test)]
mod tests {
    use super::accepted;

    #[test]
    fn expressions_are_read_with_their_precedence() {
        assert!(accepted("MIT OR GPL-3.0"));
        assert!(accepted("MIT/Apache-2.0"));
        assert!(accepted("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(accepted("Apache-2.0 WITH LLVM-exception"));
        assert!(!accepted("GPL-3.0"));
        assert!(!accepted("MIT AND GPL-3.0"));
        assert!(!accepted("(GPL-2.0 OR GPL-3.0) AND MIT"));
        assert!(!accepted(""));
    }
}
