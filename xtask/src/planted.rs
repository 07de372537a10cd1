//! What is for the simulator and for tests (planted bugs, counters, other ends made for tests) is a feature of the crate
//! that has it: what users build has none. Nor does anything but tests and the simulator plant a bug, so that a program
//! that was built with them, as those of `cargo test --workspace` are, is without them until it is asked.

use crate::{Finding, tidy};
use std::path::Path;
use std::process::Command;

/// Features that no program of users has.
const FOR_TESTS: [&str; 3] = ["canary", "counted", "testing"];

/// What users build: all that `cargo build` does, and each alone, as packages are made.
const BUILDS: [&[&str]; 3] = [&[], &["--package", "flashloom"], &["--package", "capi"]];

/// A crate that each of them has.
const SEEN: &str = "initiator feature \"default\"";

/// Whose code may plant bugs, beside tests: the simulator, and where planting is defined.
const SIMULATOR: &str = "crates/sim/";
const DEFINITION: &str = "canary.rs";

/// Asks cargo which features all crates have in what users build, and looks who plants bugs.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for build in BUILDS {
        let tree = features_of(root, build)?;
        let command = ["cargo build", &build.join(" ")].join(" ");
        if !tree.contains(SEEN) {
            return Err(format!("cargo tree does not know the crates of `{}`", command.trim()));
        }
        findings.extend(for_tests(&tree).into_iter().map(|feature| {
            format!(
                "`{}` has {feature}, which is for tests; keep whoever asks for it out of the workspace's default \
                 members, or among dev-dependencies",
                command.trim()
            )
        }));
    }
    let mut files = Vec::new();
    tidy::gather(&root.join("crates"), &mut files).map_err(|e| format!("crates: {e}"))?;
    for file in files {
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{name}: {e}"))?;
        let may =
            name.starts_with(SIMULATOR) || file.ends_with(DEFINITION) || tidy::is_of_tests(&name);
        if !may && plants(&text) {
            findings.push(format!("{name}: plants a bug; only tests and the simulator do"));
        }
    }
    Ok(findings)
}

fn features_of(root: &Path, build: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--edges", "normal,build,features", "--prefix", "none"])
        .args(build)
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot run cargo tree: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Lines `CRATE feature "NAME"` of features for tests, each once.
fn for_tests(tree: &str) -> Vec<&str> {
    let is_named =
        |line: &str| FOR_TESTS.iter().any(|name| line.ends_with(&format!(" feature \"{name}\"")));
    let mut found: Vec<&str> =
        tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|l| is_named(l)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether a file's own code calls `canary::plant`.
fn plants(text: &str) -> bool {
    let code = tidy::production(text);
    code.contains("canary::plant(")
        || code.contains("canary::{plant")
        || code.contains("plant(Some(")
}

#[cfg(test)]
mod tests {
    use super::{for_tests, plants};

    #[test]
    fn a_feature_is_seen_where_cargo_names_it() {
        let tree = "engine v0.1.0\nengine feature \"canary\"\nreactor feature \"counted\" (*)\nengine feature \"canary\" (*)";
        let found = ["engine feature \"canary\"", "reactor feature \"counted\""];
        assert_eq!(for_tests(tree), found);
        assert_eq!(for_tests("engine feature \"default\"\nring feature \"canary-like\""), [""; 0]);
    }

    #[test]
    fn only_calls_in_a_files_own_code_plant() {
        let call = concat!("canary::pl", "ant(Some(bug));\n");
        assert!(plants(call));
        assert!(!plants(&format!("// {call}#[cfg(test)]\nmod tests {{\n{call}}}\n")));
        assert!(!plants("pub fn plant(canary: Option<Canary>) {\n"));
    }
}
