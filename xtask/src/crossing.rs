//! The way of a command to another core and back takes no lock and no atomic read-modify-write: the files that it goes
//! through name none. A line below a comment that begins with `Rare:` may, and says when.

use crate::Finding;
use std::path::Path;

/// The files of that way.
const FILES: [&str; 8] = [
    "crates/reactor/src/spsc.rs",
    "crates/reactor/src/duplex.rs",
    "crates/reactor/src/peers.rs",
    "crates/engine/src/remote.rs",
    "crates/engine/src/remote/link.rs",
    "crates/engine/src/remote/queue.rs",
    "crates/engine/src/remote/server.rs",
    "crates/engine/src/remote/workers.rs",
];

/// Locks, atomic read-modify-writes, and what counts references by them.
const WORDS: [&str; 10] = [
    "Mutex",
    "RwLock",
    " Lock<",
    ".lock()",
    "Arc::clone",
    ".cloned()",
    "fetch_",
    "compare_exchange",
    ".swap(",
    "Watch",
];

pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for file in FILES {
        let text = std::fs::read_to_string(root.join(file)).map_err(|e| format!("{file}: {e}"))?;
        findings.extend(read(file, &text));
    }
    Ok(findings)
}

fn read(file: &str, text: &str) -> Vec<Finding> {
    let (mut findings, mut is_rare) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        // What is below is of tests.
        if line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(loom)]") {
            break;
        }
        if line.starts_with("//") {
            is_rare |= line.starts_with("// Rare:");
            continue;
        }
        if let Some(word) = WORDS.iter().find(|word| line.contains(**word) && !is_rare) {
            findings.push(format!(
                "{file}:{number}: `{word}` on the way of a command to another core: do without, or say above it \
                 in a comment that begins with `Rare:` when it happens"
            ));
        }
        is_rare = false;
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_lock_is_found_where_nothing_says_that_it_is_rare() {
        assert_eq!(read("a.rs", "let x = state.lock();\n").len(), 1);
        assert_eq!(
            read("a.rs", "// Rare: at its end.\nlet x = state.lock();\nArc::clone(x);").len(),
            1
        );
        assert_eq!(read("a.rs", "//! Of a Mutex.\n#[cfg(test)]\nMutex").len(), 0);
    }
}
