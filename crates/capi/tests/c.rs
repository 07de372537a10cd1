//! The library in the hands of C and C++ compilers, against a target in this process; and the header held together
//! with what the library is.

#![allow(clippy::unwrap_used, reason = "a test says what it met by failing there")]

use std::collections::BTreeMap;
use std::fs;
use std::mem::offset_of;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use flashloom::{FlCommand, FlCompletion, FlDiscoveryEntry, FlError, FlInfo, FlRange};
use target::testing::Peer;
use tempfile::TempDir;

const SUBNQN: &str = "nqn.2026-11.io.flashloom:c";
const BLOCK: u32 = 512;
const BLOCKS: u64 = 65536;

fn peer() -> Peer {
    Peer::start(SUBNQN, BLOCKS * u64::from(BLOCK), BLOCK)
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where cargo has put the libraries: beside this test.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join(name)
}

/// A folder with the shared object by its names.
fn installed() -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in ["libflashloom.so", "libflashloom.so.0"] {
        symlink(built("libflashloom.so"), folder.path().join(name)).unwrap();
    }
    folder
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}{complained}", output.status);
    said.into_owned()
}

const C: &[&str] = &["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L"];
const CPP: &[&str] = &["c++", "-std=c++17"];

/// Compiles `source` with all warnings as errors; `libraries` are what it is linked with.
fn compile(compiler: &[&str], source: &str, into: &Path, libraries: &[&str]) -> PathBuf {
    let program = into.join(Path::new(source).file_stem().unwrap());
    run(Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-I"])
        .arg(here("include"))
        .arg(here(source))
        .arg("-o")
        .arg(&program)
        .args(libraries)
        .arg("-pthread"));
    program
}

/// Compiles `source` with the shared object and runs it.
fn run_shared(compiler: &[&str], source: &str, arguments: &[&str]) -> String {
    let folder = installed();
    let at = folder.path().display().to_string();
    let program = compile(compiler, source, folder.path(), &["-L", &at, "-lflashloom"]);
    run(Command::new(program).args(arguments).env("LD_LIBRARY_PATH", folder.path()))
}

#[test]
fn a_c_program_uses_everything() {
    let peer = peer();
    let said = run_shared(C, "tests/c/all.c", &[&peer.port.to_string(), SUBNQN]);
    assert_eq!(said, "all is well\n");
}

#[test]
fn a_cpp_program_uses_the_header() {
    let peer = peer();
    run_shared(CPP, "tests/c/wrapped.cpp", &[&peer.port.to_string(), SUBNQN]);
}

/// The static library as it is installed, in `folder`.
fn statically(folder: &Path) -> String {
    let library = folder.join("libflashloom.a");
    run(Command::new(here("../../packaging/own-symbols.sh"))
        .args(["libflashloom.so", "libflashloom.a"].map(built))
        .arg(&library));
    library.display().to_string()
}

/// All of Rust's library and of the dependencies was there to be linked with, and met another library's.
#[test]
fn the_static_library_exports_its_own_functions_only() {
    let folder = TempDir::new().unwrap();
    let symbols =
        run(Command::new("nm").arg("-g").arg("--defined-only").arg(statically(folder.path())));
    let exported = symbols.lines().filter_map(|line| line.split_whitespace().nth(2));
    assert_eq!(exported.collect::<Vec<_>>(), declared().keys().collect::<Vec<_>>());
}

#[test]
fn the_example_works_and_links_statically() {
    let peer = peer();
    let folder = TempDir::new().unwrap();
    let library = statically(folder.path());
    let libraries = [library.as_str(), "-lm", "-ldl"];
    let program = compile(C, "examples/write_and_read.c", folder.path(), &libraries);
    let said = run(Command::new(program).args(["127.0.0.1", &peer.port.to_string(), SUBNQN]));
    assert!(said.ends_with("Hello, block 0!\n"), "{said}");
}

/// The header without its comments and preprocessor lines.
fn header() -> String {
    let text = fs::read_to_string(here("include/flashloom.h")).unwrap();
    let mut code = String::new();
    for (at, part) in text.split("/*").enumerate() {
        let after = if at == 0 { part } else { part.split_once("*/").unwrap().1 };
        code += after;
    }
    code.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// The functions of the header, by name: what they return and take, in C.
fn declared() -> BTreeMap<String, String> {
    let header = header();
    let statements = header.split(';').filter(|text| text.contains("fl_") && text.contains('('));
    let function = |statement: &str| {
        let statement = statement.rsplit(['}', '{']).next().unwrap();
        let words = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        let (head, parameters) = words.strip_suffix(')').unwrap().split_once('(').unwrap();
        let cut = head.rfind("fl_").unwrap();
        let types: Vec<_> = parameters.split(", ").map(without_name).collect();
        (head[cut..].to_owned(), signature(&head[..cut], &types))
    };
    statements.map(function).collect()
}

/// A parameter's type.
fn without_name(parameter: &str) -> String {
    if parameter == "void" {
        return String::new();
    }
    let cut = parameter.rfind([' ', '*']).unwrap() + 1;
    parameter[..cut].trim().to_owned()
}

fn signature(returned: &str, types: &[String]) -> String {
    format!("{}({})", returned.trim().replace(" *", "*"), types.join(", ").replace(" *", "*"))
}

/// The functions that the library's source exports, likewise.
fn defined() -> BTreeMap<String, String> {
    let mut functions = BTreeMap::new();
    for file in fs::read_dir(here("src")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for part in text.split("#[unsafe(no_mangle)]").skip(1) {
            let (_, function) = part.split_once("extern \"C\" fn ").unwrap();
            let (head, _) = function.split_once('{').unwrap();
            let head = head.split_whitespace().collect::<Vec<_>>().join(" ");
            let (name, rest) = head.split_once('(').unwrap();
            let (parameters, returned) = rest.rsplit_once(')').unwrap();
            let returned = returned.strip_prefix(" -> ").map_or("void".to_owned(), in_c);
            let types = parameters
                .split(',')
                .filter_map(|parameter| Some(in_c(parameter.split_once(": ")?.1)));
            let types: Vec<_> = types.collect();
            functions.insert(name.to_owned(), signature(&returned, &types));
        }
    }
    functions
}

/// A type in C.
fn in_c(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(pointed) = rust.strip_prefix("*mut ") {
        return format!("{} *", in_c(pointed));
    }
    if let Some(pointed) = rust.strip_prefix("*const ") {
        return format!("const {} *", in_c(pointed));
    }
    if let Some(own) = rust.strip_prefix("Fl") {
        let snake = own.chars().flat_map(|char| {
            let gap = char.is_uppercase().then_some('_');
            gap.into_iter().chain(char.to_lowercase())
        });
        return format!("fl{}", snake.collect::<String>());
    }
    let known = [
        ("c_int", "int"),
        ("c_char", "char"),
        ("c_void", "void"),
        ("u32", "uint32_t"),
        ("u64", "uint64_t"),
        ("i64", "int64_t"),
        ("usize", "size_t"),
    ];
    let found = known.iter().find(|(name, _)| *name == rust);
    found.unwrap_or_else(|| panic!("`{rust}` is no type of the header")).1.to_owned()
}

#[test]
fn the_header_declares_what_the_library_defines() {
    let (declared, defined) = (declared(), defined());
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(declared, defined);
    let symbols =
        run(Command::new("nm").args(["-D", "--defined-only"]).arg(built("libflashloom.so")));
    let exported: Vec<_> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let names: Vec<_> = declared.keys().map(String::as_str).collect();
    assert_eq!(exported, names);
    let dynamic = run(Command::new("readelf").arg("-d").arg(built("libflashloom.so")));
    assert!(dynamic.contains("soname: [libflashloom.so.0]"), "{dynamic}");
}

macro_rules! layout {
    ($text:ident; $($type:ident as $name:literal { $($field:ident)* })*) => {
        $(
            $text += &format!("{} {}\n", $name, size_of::<$type>());
            $($text += &format!(
                "{}.{} {}\n", $name, stringify!($field), offset_of!($type, $field)
            );)*
        )*
    };
}

#[test]
fn structures_lie_in_memory_as_the_header_says() {
    let folder = TempDir::new().unwrap();
    let said = run(&mut Command::new(compile(C, "tests/c/layout.c", folder.path(), &[])));
    let mut text = String::new();
    layout! { text;
        FlError as "fl_error" { code status message }
        FlDiscoveryEntry as "fl_discovery_entry" {
            trtype treq portid cntlid trsvcid traddr subnqn
        }
        FlInfo as "fl_info" {
            blocks block_bytes transfer_max_bytes atomic_blocks atomic_power_fail_blocks
            optimal_write_blocks flags copy_ranges copy_range_blocks copy_blocks nguid eui64
        }
        FlRange as "fl_range" { lba blocks }
        FlCommand as "fl_command" {
            opcode flags lba blocks range_count buffer ranges user_data
        }
        FlCompletion as "fl_completion" { user_data code status message }
    }
    let version = flashloom::fl_version();
    text += &format!("FL_VERSION_MAJOR {}\nFL_VERSION_MINOR {}\n", version >> 16, version & 0xffff);
    assert_eq!(said, text);
}
