//! What belongs in which room: files, threads, locks, system calls and unsafe code are named by the crates that have
//! them for a reason, which is said here, and by no other. Tests may do anything.

use crate::{Finding, tidy};
use std::path::Path;

/// Something that few crates have.
struct Rule {
    what: &'static str,
    /// Names that code has it by, as whole words.
    words: &'static [&'static str],
    /// Crates that have it, or single files of others, from `crates/` on; each with what for.
    rooms: &'static [(&'static str, &'static str)],
}

/// Crates that measure, simulate or run commands: they are on top of everything, and on no path of a host's.
const TOPS: [&str; 3] = ["flashloom", "bench", "sim"];

const RULES: [Rule; 5] = [
    Rule {
        what: "files by the standard library, which block",
        words: &["std::fs", "fs::", "std::io::stdin"],
        rooms: &[
            ("reactor", "what its rings cannot do, when things are opened"),
            (
                "media",
                "mappings of persistent memory, and how long a drive is, when they are opened",
            ),
            ("hardware", "sysfs, on threads of its own"),
            ("array", "state, locks and drives, on the node's threads"),
            ("control", "the management socket"),
            ("load", "the journal of what was acknowledged"),
            ("initiator/src/host.rs", "the machine's NQN and identifier, at the start"),
        ],
    },
    Rule {
        what: "threads",
        words: &[
            "thread::spawn",
            "thread::Builder",
            "thread::scope",
            "thread::park",
            "thread::park_timeout",
        ],
        rooms: &[
            ("reactor", "one a core, and those for calls that block"),
            ("array", "the node's, its jobs' and its drives'"),
            ("engine/src/canary.rs", "for tests"),
            ("target/src/registry/draining.rs", "a thread of the node's waits for commands to end"),
            ("initiator/src/windows/ring.rs", "the host's own thread waits for its window"),
            ("fabric/src/rdma/ring/host.rs", "the host's own thread waits for its card"),
        ],
    },
    Rule {
        what: "locks",
        words: &["Mutex", "RwLock", "Condvar"],
        rooms: &[
            ("reactor", "its directory, and what is rare"),
            ("array", "the node's threads"),
            ("client", "who takes which queue, and what its thread says"),
            ("load", "the journal, and workers that begin together"),
            ("hardware", "drives that a test plays"),
            ("stdx/src/port.rs", "ports of tests"),
            ("media/src/power.rs", "simulated"),
            ("media/src/drive/simulated.rs", "simulated"),
            ("media/src/drive/faulty.rs", "simulated"),
            ("media/src/pmem/simulated.rs", "simulated"),
            ("media/src/passthrough/admin.rs", "what a drive said last of how it is"),
            ("engine/src/drives.rs", "whether a drive is bad, once"),
            ("fabric/src/tcp/groups.rs", "connections of all reactors, when they are made"),
            ("target/src/registry.rs", "control state, which I/O never takes"),
            ("target/src/controller.rs", "control state"),
            ("target/src/refusals.rs", "who was refused"),
            ("target/src/queue/remote.rs", "ends and aborts of queues from elsewhere"),
            ("target/src/command/fence.rs", "fused and fenced commands of several cores"),
            ("target/src/windows/stub.rs", "for tests"),
            ("target/src/concurrent.rs", "for those below"),
            ("target/src/reservation/published.rs", "reservation commands"),
            (
                "initiator/src/windows/shared.rs",
                "tried, never waited for: who finds it taken sends a command",
            ),
        ],
    },
    Rule {
        what: "system calls",
        words: &["libc::", "io_uring::"],
        rooms: &[
            ("reactor", "where they live"),
            ("media", "mappings, and what a fault in one says"),
            ("hardware", "commands that ask a drive how it is"),
            ("verbs", "rdma-core's descriptors"),
        ],
    },
    Rule {
        what: "unsafe code",
        words: &["unsafe_code"],
        rooms: &[
            ("reactor", "what the kernel and other threads may touch"),
            ("media", "mapped memory"),
            ("verbs", "rdma-core, and memory that a card may touch"),
            ("hardware", "structures of ioctls"),
            ("client", "buffers that are lent to another thread"),
            ("capi", "callers in C"),
            ("raid/src/parity/kernel/x86.rs", "instructions of the processor"),
            ("stdx/src/crc32c.rs", "instructions of the processor"),
        ],
    },
];

/// Looks through the production code of every crate.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut files = Vec::new();
    tidy::gather(&root.join("crates"), &mut files).map_err(|e| format!("crates: {e}"))?;
    let mut findings = Vec::new();
    let mut used = [const { Vec::new() }; RULES.len()];
    for file in files {
        let name = file.strip_prefix(root.join("crates")).unwrap_or(&file).display().to_string();
        let crate_name = name.split('/').next().unwrap_or_default();
        if TOPS.contains(&crate_name) || tidy::is_of_tests(&name) || !name.contains("/src/") {
            continue;
        }
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{name}: {e}"))?;
        let code = tidy::production(&text);
        for (rule, used) in RULES.iter().zip(&mut used) {
            let Some((number, word)) = first(&code, rule.words) else { continue };
            match rule.rooms.iter().find(|(room, _)| *room == crate_name || *room == name) {
                Some((room, _)) => used.push(*room),
                None => findings.push(format!(
                    "crates/{name}:{number}: `{word}`: {} belong elsewhere: have them where they live, or give \
                     this room its reason in xtask/src/rooms.rs",
                    rule.what
                )),
            }
        }
    }
    for (rule, used) in RULES.iter().zip(&used) {
        let idle = rule.rooms.iter().filter(|(room, _)| !used.contains(room));
        findings.extend(idle.map(|(room, _)| {
            format!("xtask/src/rooms.rs: {room} has no {} any more: strike it", rule.what)
        }));
    }
    Ok(findings)
}

/// The first line that has one of these words whole, counted from 1.
fn first<'a>(code: &str, words: &[&'a str]) -> Option<(usize, &'a str)> {
    let mut lines = (1..).zip(code.lines());
    lines.find_map(|(number, line)| {
        words.iter().find(|word| has(line, word)).map(|word| (number, *word))
    })
}

fn has(line: &str, word: &str) -> bool {
    let part = |c: char| c == '_' || c.is_alphanumeric();
    line.match_indices(word).any(|(at, _)| {
        let ends = word.ends_with(':') || !line[at + word.len()..].starts_with(part);
        ends && !line[..at].ends_with(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_whole_and_in_a_files_own_code_only() {
        let code = tidy::production(
            "// Mutex\nuse std::sync::{Arc, Mutex};\n#[cfg(test)]\nmod tests {\nuse std::fs;\n}\n",
        );
        assert_eq!(first(&code, RULES[2].words), Some((2, "Mutex")));
        assert_eq!(first(&code, RULES[0].words), None);
        assert!(!has("static X: MutexLike = sysfs::read();", "Mutex"));
        assert!(!has("sysfs::read()", "fs::"));
        assert!(has("std::os::unix::fs::FileExt", "fs::"));
        assert!(has("std::thread::park_timeout(LOOK)", "thread::park_timeout"));
    }
}
