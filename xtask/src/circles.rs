//! Modules of a crate do not import each other in circles, but for those that did when this rule came: they are listed
//! in `circles.txt`, exactly as they are, so that one that is cut is never closed again. That list may only get
//! shorter.
//!
//! A module is a file. What it imports is read off its `use`s and the paths in its code, tests left out. A module and
//! its own submodules are one room: imports between them do not count. Names that a crate's root hands on
//! (`crate::Error`) count for the module that they come from; methods of one type in several files are not seen.

use crate::Finding;
use crate::tidy;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The circles there are: a line for each, crate and modules.
const LISTED: &str = "xtask/circles.txt";

/// Modules by their path from the crate's root, which is empty.
type Module = Vec<String>;
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// Checks every crate.
pub fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let text = std::fs::read_to_string(root.join(LISTED)).map_err(|e| format!("{LISTED}: {e}"))?;
    Ok(compare(&text, &all(root)?))
}

/// Circles that are not listed, and lines that say more than there is.
fn compare(listed: &str, circles: &[String]) -> Vec<Finding> {
    let listed: BTreeSet<&str> = listed.lines().filter(|line| !line.starts_with('#')).collect();
    let circles: BTreeSet<&str> = circles.iter().map(String::as_str).collect();
    let new = circles.difference(&listed).map(|circle| {
        let mend = "move what they share to a module of its own; a listed one that got smaller";
        format!(
            "modules import each other in a circle: {circle}; {mend} stands in {LISTED} as it is"
        )
    });
    let gone = listed.difference(&circles);
    let gone =
        gone.map(|line| format!("{LISTED}: this circle is cut, take it off the list: {line}"));
    new.chain(gone).collect()
}

/// Every circle of every crate, as its line in the list.
fn all(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("crates");
    let crates = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut lines = Vec::new();
    for house in crates {
        let house = house.map_err(|e| e.to_string())?;
        let source = house.path().join("src");
        let name = house.file_name().to_string_lossy().into_owned();
        for circle in circles(&imports(&modules(&source)?)) {
            let modules: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            lines.push(format!("{name} {}", modules.join(" ")));
        }
    }
    lines.sort();
    Ok(lines)
}

/// The production code of each module of a crate.
fn modules(source: &Path) -> Result<BTreeMap<Module, String>, String> {
    let mut files = Vec::new();
    tidy::gather(source, &mut files).map_err(|e| format!("{}: {e}", source.display()))?;
    let mut modules = BTreeMap::new();
    for file in files {
        let inner = file.strip_prefix(source).unwrap_or(&file).with_extension("");
        let mut module: Module =
            inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
            module.pop();
        }
        if !module.iter().any(|part| tidy::TEST_ROOMS.contains(&part.as_str())) {
            let text =
                std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            modules.insert(module, tidy::production(&text));
        }
    }
    Ok(modules)
}

/// Which modules each module imports from; of the root and of its own kin nothing is told.
fn imports(modules: &BTreeMap<Module, String>) -> Imports {
    let handed_on = handed_on(modules);
    let mut imports = Imports::new();
    for (module, code) in modules.iter().filter(|(module, _)| !module.is_empty()) {
        for path in paths(code) {
            let Some(path) = absolute(module, path, modules) else { continue };
            let other = resolve(path, modules, &handed_on);
            let is_kin = module.starts_with(&other) || other.starts_with(module);
            if !is_kin {
                imports.entry(module.clone()).or_default().insert(other);
            }
        }
    }
    imports
}

/// The root's own names that come from a module.
fn handed_on(modules: &BTreeMap<Module, String>) -> BTreeMap<String, Module> {
    let Some(root) = modules.get(&Module::new()) else { return BTreeMap::new() };
    let names = paths(root).into_iter().filter_map(|path| {
        let mut path = absolute(&Module::new(), path, modules)?;
        Some((path.pop()?, path))
    });
    names.collect()
}

/// A path from the crate's root; `None` where it leads out of the crate.
fn absolute(from: &Module, path: Module, modules: &BTreeMap<Module, String>) -> Option<Module> {
    let mut base = from.clone();
    let mut rest = path.as_slice();
    match rest.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        first => {
            base.push(first.to_owned());
            let is_child = modules.contains_key(&base);
            base.pop();
            if !is_child {
                return None;
            }
        }
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// The module that a path ends in.
fn resolve(
    mut path: Module,
    modules: &BTreeMap<Module, String>,
    handed_on: &BTreeMap<String, Module>,
) -> Module {
    if let Some(first) = path.first()
        && !modules.contains_key(std::slice::from_ref(first))
        && let Some(origin) = handed_on.get(first)
    {
        path.clone_from(origin);
    }
    while !path.is_empty() && !modules.contains_key(&path) {
        path.pop();
    }
    path
}

/// Every path that code imports or names from `crate` or `super` on.
fn paths(code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let starts = at == 0 || rest[..at].ends_with(|c: char| c.is_whitespace());
        rest = &rest[at + 4..];
        if starts && let Some(end) = rest.find(';') {
            tree(&Module::new(), &rest[..end], &mut found);
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let path = code[at..]
                .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
                .next()
                .unwrap_or_default();
            found.push(path.split("::").filter(|p| !p.is_empty()).map(str::to_owned).collect());
        }
    }
    found
}

/// The paths of a use tree: `a::{b, c::{d, e as f}}`.
fn tree(prefix: &Module, text: &str, found: &mut Vec<Module>) {
    let (path, group) = match text.split_once('{') {
        Some((path, group)) => (path, group.rsplit_once('}').map(|(group, _)| group)),
        None => (text, None),
    };
    let path = path.split(" as ").next().unwrap_or(path);
    let parts = path.split("::").map(str::trim).filter(|part| !part.is_empty());
    let mut whole = prefix.clone();
    whole.extend(parts.map(str::to_owned));
    let Some(group) = group else {
        if !whole.is_empty() {
            found.push(whole);
        }
        return;
    };
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                tree(&whole, &group[start..at], found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !group[start..].trim().is_empty() {
        tree(&whole, &group[start..], found);
    }
}

/// The sets of more than one module that all reach each other.
fn circles(imports: &Imports) -> Vec<BTreeSet<&Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|module| (module, reach(module, imports))).collect();
    let mut circles: Vec<BTreeSet<&Module>> = Vec::new();
    for (module, others) in &reached {
        let is_back = |other: &&&Module| reached.get(*other).is_some_and(|r| r.contains(module));
        let circle: BTreeSet<&Module> = others.iter().filter(is_back).copied().collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// Every module that imports lead to from `module`, which may be itself.
fn reach<'a>(module: &'a Module, imports: &'a Imports) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut ahead = vec![module];
    while let Some(next) = ahead.pop() {
        for other in imports.get(next).into_iter().flatten() {
            if reached.insert(other) {
                ahead.push(other);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let modules = files.iter().map(|(name, code)| {
            (
                name.split("::").filter(|p| !p.is_empty()).map(str::to_owned).collect(),
                (*code).to_owned(),
            )
        });
        let imports = imports(&modules.collect());
        let name = |circle: &BTreeSet<&Module>| {
            circle.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(" ")
        };
        circles(&imports).iter().map(name).collect()
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        let two = [("a", "use crate::b::B;"), ("b", "use crate::{x::Y, a::{A, C as D}};")];
        assert_eq!(found(&two), ["a b"]);
        let through_code = [("a", "use super::b;"), ("b", "fn f() { crate::a::g(); }")];
        assert_eq!(found(&through_code), ["a b"]);
        let through_root =
            [("", "mod a;\nmod b;\npub use a::A;"), ("a", "use crate::b;"), ("b", "use crate::A;")];
        assert_eq!(found(&through_root), ["a b"]);
        let three =
            [("a", "use crate::b;"), ("b::c", "use crate::d;"), ("d", "use crate::a;"), ("b", "")];
        assert_eq!(found(&three), Vec::<String>::new());
        let deep =
            [("a::x", "use crate::b::y;"), ("b::y", "use crate::a::x;"), ("a", ""), ("b", "")];
        assert_eq!(found(&deep), ["a::x b::y"]);
    }

    #[test]
    fn kin_and_one_way_are_none() {
        let kin = [("a", "mod b;\npub use b::B;"), ("a::b", "use super::A;")];
        assert_eq!(found(&kin), Vec::<String>::new());
        let one_way = [("a", "use crate::b;"), ("b", "use std::a;")];
        assert_eq!(found(&one_way), Vec::<String>::new());
    }

    #[test]
    fn the_list_is_what_there_is() {
        let there = ["a b c".to_owned(), "d e f".to_owned()];
        assert!(compare("# said\na b c\nd e f\n", &there).is_empty());
        assert_eq!(compare("a b c\n", &there).len(), 1, "a new one");
        assert_eq!(compare("a b c\nd e f\ng h i\n", &there).len(), 1, "one that was cut");
        assert_eq!(compare("a b c\nd e f g\n", &there).len(), 2, "one that got smaller");
    }
}
