//! What `cargo metadata` says of the workspace, reduced to what the rules ask.

use std::path::Path;
use std::process::Command;

/// One package of the build: ours or a dependency.
pub struct Package {
    pub name: String,
    pub version: String,
    pub licence: Option<String>,
    /// Floor from `[package.metadata.flashloom]`; `None` for packages that are not ours.
    pub floor: Option<u64>,
    /// Where from; `None` for packages of this workspace.
    pub source: Option<String>,
    /// In this workspace, as opposed to from a registry.
    pub ours: bool,
    /// Names of normal and build dependencies; tests may look anywhere.
    pub dependencies: Vec<String>,
}

/// Reads the workspace's packages, dependencies included, with the lock file as it is.
pub fn load(root: &Path) -> Result<Vec<Package>, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot run cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("cargo metadata gave no JSON: {e}"))?;
    let packages = document["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    Ok(packages.iter().map(package).collect())
}

fn package(value: &serde_json::Value) -> Package {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let dependencies = value["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    Package {
        name: text("name"),
        version: text("version"),
        licence: value["license"].as_str().map(str::to_owned),
        floor: value["metadata"]["flashloom"]["floor"].as_u64(),
        source: value["source"].as_str().map(str::to_owned),
        ours: value["source"].is_null(),
        dependencies: dependencies
            .iter()
            .filter(|d| d["kind"].as_str() != Some("dev"))
            .filter_map(|d| d["name"].as_str().map(str::to_owned))
            .collect(),
    }
}
