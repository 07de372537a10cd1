//! Transports are `fabric`'s alone: what is above it knows connections, not sockets or a transport's protocol.

use crate::Finding;
use crate::floors::OUTSIDE;
use crate::metadata::Package;
use crate::tidy;
use std::path::Path;

/// Names that say which transport it is.
const TRANSPORTS: &[&str] = &["fabric::tcp", "nvme::tcp", "reactor::net"];

/// Crates that have connections of their own, and what for.
const OTHERWISE: &[(&str, &str)] = &[
    ("attach", "serves NBD and vhost-user"),
    ("flashloom", "opens its sockets"),
    ("bench", "measures sockets"),
];

/// Files that have, of crates that have none otherwise, and what for.
const FILES: &[(&str, &str)] =
    &[("crates/array/src/windows/socket.rs", "hands out the rings of direct write windows")];

/// Looks through the production code of every crate above `fabric`.
pub fn check(root: &Path, packages: &[Package]) -> Result<Vec<Finding>, String> {
    let floor = |name: &str| packages.iter().find(|p| p.name == name).and_then(|p| p.floor);
    let fabric = floor("fabric").ok_or("there is no crate `fabric`")?;
    let is_above = |p: &&Package| p.ours && p.floor.is_some_and(|floor| floor > fabric);
    let is_bound = |p: &&Package| {
        let name = p.name.as_str();
        !OUTSIDE.contains(&name) && OTHERWISE.iter().all(|(other, _)| *other != name)
    };
    let mut findings = Vec::new();
    for package in packages.iter().filter(is_above).filter(is_bound) {
        let mut files = Vec::new();
        let source = root.join("crates").join(&package.name).join("src");
        tidy::gather(&source, &mut files).map_err(|e| format!("{}: {e}", source.display()))?;
        for file in files {
            let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            let is_bound = FILES.iter().all(|(other, _)| *other != name);
            if is_bound && !tidy::is_of_tests(&name) {
                let text = std::fs::read_to_string(&file).map_err(|e| format!("{name}: {e}"))?;
                findings.extend(read(&name, &text));
            }
        }
    }
    Ok(findings)
}

fn read(name: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().take(tidy::production_lines(text)).enumerate();
    let named = lines.filter_map(|(number, line)| {
        let word = TRANSPORTS.iter().find(|word| names(line, word))?;
        Some(format!("{name}:{}: `{word}`: use what `fabric` has for every transport", number + 1))
    });
    named.collect()
}

/// Whether a line has a whole `word`.
fn names(line: &str, word: &str) -> bool {
    let ends =
        |at: usize| line[at + word.len()..].starts_with(|c: char| c == '_' || c.is_alphanumeric());
    line.match_indices(word).any(|(at, _)| !ends(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_is_found_in_production_code_only() {
        let text = "use fabric::host;\nuse nvme::tcp::host::Event;\n#[cfg(test)]\nmod tests {\nuse reactor::net;\n}\n";
        let found = read("crates/target/src/queue.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/target/src/queue.rs:2: `nvme::tcp`"));
        assert!(!names("use reactor::network::cut;", "reactor::net"));
        assert!(tidy::is_of_tests("crates/target/src/testing/peer.rs"));
        assert!(tidy::is_of_tests("crates/target/src/connection/tests.rs"));
        assert!(!tidy::is_of_tests("crates/target/src/connection.rs"));
    }
}
