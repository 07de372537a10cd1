//! What the program is made of, in CycloneDX's form: every crate that is linked into it, with licence and checksum.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

const LOCK: &str = "Cargo.lock";

/// The document, for the program of this workspace. The same lock file makes the same document.
pub fn document(root: &Path) -> Result<Value, String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--package", "flashloom", "--edges", "normal"])
        .args(["--prefix", "none", "--no-dedupe", "--format", "{p}\t{l}"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot run cargo tree: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let lock = std::fs::read_to_string(root.join(LOCK)).map_err(|e| format!("{LOCK}: {e}"))?;
    describe(&String::from_utf8_lossy(&output.stdout), &checksums(&lock)?)
}

/// Name and version of each crate from a registry, with the SHA-256 of its source.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>, String> {
    let table: toml::Table = lock.parse().map_err(|e| format!("{LOCK}: {e}"))?;
    let packages = table.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let text = |of: &toml::Value, key: &str| Some(of.get(key)?.as_str()?.to_owned());
    Ok(packages
        .filter_map(|p| Some(((text(p, "name")?, text(p, "version")?), text(p, "checksum")?)))
        .collect())
}

/// The document of `tree`, the lines of which are `NAME vVERSION[ (...)]`, a tabulator, and a licence.
fn describe(tree: &str, checksums: &BTreeMap<(String, String), String>) -> Result<Value, String> {
    let mut found = BTreeMap::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let (package, licence) = line.split_once('\t').ok_or("cargo tree: no licence")?;
        let mut words = package.split_whitespace();
        let name = words.next().ok_or("cargo tree: no name")?;
        let version =
            words.next().and_then(|v| v.strip_prefix('v')).ok_or("cargo tree: no version")?;
        found.insert((name.to_owned(), version.to_owned()), licence.to_owned());
    }
    let mut components = Vec::new();
    let mut program = Value::Null;
    for ((name, version), licence) in found {
        let mut component = json!({
            "type": "library", "name": name, "version": version,
            "licenses": [{ "expression": licence.replace('/', " OR ") }],
        });
        if let Some(checksum) = checksums.get(&(name.clone(), version.clone())) {
            let purl = format!("pkg:cargo/{name}@{version}");
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
            component["bom-ref"] = json!(purl);
            component["purl"] = json!(purl);
        } else {
            component["bom-ref"] = json!(format!("{name}@{version}"));
        }
        if name == "flashloom" {
            component["type"] = json!("application");
            program = component;
        } else {
            components.push(component);
        }
    }
    if program.is_null() {
        return Err("cargo tree does not name the program".to_owned());
    }
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": program }, "components": components,
    }))
}

#[cfg(test)]
mod tests {
    use super::{checksums, describe};

    #[test]
    fn crates_have_licence_and_checksum_and_ours_no_origin() {
        let lock = "[[package]]\nname = \"libc\"\nversion = \"0.2.1\"\nchecksum = \"ab\"\n\
                    [[package]]\nname = \"stdx\"\nversion = \"0.1.0\"\n";
        let tree = "flashloom v0.1.0 (/x)\tApache-2.0\nlibc v0.2.1\tMIT/Apache-2.0\n\
                    stdx v0.1.0 (/y)\tApache-2.0\nlibc v0.2.1\tMIT/Apache-2.0\n";
        let document = describe(tree, &checksums(lock).unwrap()).unwrap();
        assert_eq!(document["metadata"]["component"]["name"], "flashloom");
        let components = document["components"].as_array().unwrap();
        assert_eq!(components.len(), 2);
        assert_eq!(components[0]["purl"], "pkg:cargo/libc@0.2.1");
        assert_eq!(components[0]["hashes"][0]["content"], "ab");
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(components[1].get("purl").is_none());
        assert!(describe("libc v0.2.1\tMIT\n", &checksums(lock).unwrap()).is_err());
    }
}
