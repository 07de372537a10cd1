//! Reading sysfs: text that may be padded, absent, or not text.

use crate::limits::ATTRIBUTE_BYTES;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The bytes of an attribute; `None` when it is not there or cannot be read, which for an attribute is the same.
pub(crate) fn bytes(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(ATTRIBUTE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The text of an attribute; `None` also when it is empty.
pub(crate) fn text(file: &Path) -> Option<String> {
    clean(&bytes(file)?)
}

/// Text without padding on either side; `None` for padding only. What a drive says of itself goes to terminals,
/// so control characters do not come through.
pub(crate) fn clean(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    (!text.is_empty()).then(|| text.chars().map(shown).collect())
}

/// The number in an attribute.
pub(crate) fn number(file: &Path) -> Option<i64> {
    text(file)?.parse().ok()
}

/// The last part of a path, as text.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What is in a folder, by name; nothing when it is not there.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Where a link, or a path with links in it, leads; `None` when that is nowhere.
pub(crate) fn place(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// The bus or class that a device belongs to.
pub(crate) fn subsystem(device: &Path) -> Option<String> {
    fs::read_link(device.join("subsystem")).ok().map(|link| name(&link))
}

/// The number behind `prefix`, as in `nvme12`; `None` when anything else follows.
pub(crate) fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    if all { digits.parse().ok() } else { None }
}

/// Whether `name` is the address of a PCI function: domain, bus, device, function, as in `0000:04:00.0`.
pub(crate) fn is_pci_function(name: &str) -> bool {
    let hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some((device, function)) = name.split_once('.') else { return false };
    device.split(':').count() == 3 && device.split(':').all(hex) && hex(function)
}
