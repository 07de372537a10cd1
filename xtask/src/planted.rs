//! Planted bugs (`canary` features) are for the simulator and for tests: what users build has none.

use super::Finding;
use std::path::Path;
use std::process::Command;

/// Crates that can be built with planted bugs.
const PLANTED: [&str; 3] = ["engine", "target", "array"];

/// Asks cargo which features each of them has in a plain `cargo build`.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for name in PLANTED {
        let tree = features_of(root, name)?;
        if !tree.contains(name) {
            return Err(format!("cargo tree does not know {name}"));
        }
        if has_canary(&tree) {
            findings.push(format!(
                "{name}: a plain `cargo build` has its planted bugs; keep whoever asks for the feature `canary` \
                 out of the workspace's default members, or among dev-dependencies"
            ));
        }
    }
    Ok(findings)
}

fn features_of(root: &Path, name: &str) -> Result<String, String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--edges", "normal,build,features", "--invert", name])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot run cargo tree: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn has_canary(tree: &str) -> bool {
    tree.contains("feature \"canary\"")
}

#[cfg(test)]
mod tests {
    use super::has_canary;

    #[test]
    fn a_feature_is_seen_where_cargo_names_it() {
        assert!(has_canary("engine v0.1.0\n├── engine feature \"canary\"\n│   └── sim v0.1.0"));
        assert!(!has_canary("engine v0.1.0\n├── engine feature \"default\""));
    }
}
