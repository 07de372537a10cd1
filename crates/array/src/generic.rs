//! NVMe namespaces by their generic character devices: where they are, and what is said of what is none.

use std::io;
use std::path::{Path, PathBuf};

use api::v1::Kind;
use api::value::Backend;
use hardware::{Generic, Machine};

use crate::{Error, Result};

/// The block device that has the bytes of a backend, if it is a drive: whoever uses that uses the same bytes. Of a
/// character device it is the sibling, if there is any.
pub fn block_device(backend: &Backend) -> Option<PathBuf> {
    match backend {
        Backend::Drive { path, .. } => Some(path.clone()),
        Backend::Passthrough { path } => {
            Machine::new().generic(path).ok().map(|found| found.block_node)
        }
        Backend::Memory { .. } | Backend::Volume(_) | Backend::Snapshot(_) => None,
    }
}

/// Bytes of a logical block of a backend that has them of its own, and is there: of an NVMe namespace by its character
/// device.
pub fn own_block_size(backend: &Backend) -> Option<u32> {
    match backend {
        Backend::Passthrough { path } => {
            Machine::new().generic(path).ok().map(|found| found.block_size)
        }
        Backend::Memory { .. }
        | Backend::Drive { .. }
        | Backend::Volume(_)
        | Backend::Snapshot(_) => None,
    }
}

/// The namespace at `path`, or, where `known` is what identified it, wherever that is now.
///
/// # Errors
/// `Invalid` for what is no such namespace, or is another.
pub fn find(path: &Path, known: Option<&str>) -> Result<(PathBuf, Generic)> {
    let machine = Machine::new();
    let at = machine.generic(path);
    let Some(known) = known else {
        return at.map(|found| (path.to_owned(), found)).map_err(|error| none_at(path, error));
    };
    if let Ok(found) = &at
        && found.wwid.as_deref() == Some(known)
    {
        return Ok((path.to_owned(), found.clone()));
    }
    if let Some(elsewhere) = machine.generic_with(known) {
        return Ok(elsewhere);
    }
    let found = at.map_err(|error| none_at(path, error))?;
    Err(is_another(path, found.wwid.as_deref(), known)
        .help("put the drive back, or remove the namespace and add it anew to serve the other one"))
}

/// The refusal of another drive than `known` identifies.
pub fn is_another(path: &Path, found: Option<&str>, known: &str) -> Error {
    let other = found.unwrap_or("one that has no identifier");
    let what = format!("{} is another drive ({other}) than before ({known})", path.display());
    Error::new(Kind::Invalid, what)
}

/// Why there is no namespace to be had at `path`.
fn none_at(path: &Path, error: hardware::Error) -> Error {
    match error {
        hardware::Error::NotGeneric { ref instead, .. } => {
            let instead = instead.clone();
            Error::new(Kind::Invalid, error.to_string()).help(instead)
        }
        hardware::Error::Path { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            let right =
                "name a namespace's generic character device: `ls /dev/ng*` shows those there are";
            let what = format!("{} is not there", path.display());
            let source: Box<dyn std::error::Error + Send + Sync> = Box::new(source);
            Error { source: Some(source), ..Error::new(Kind::Invalid, what).help(right) }
        }
        other => Error::failed(format!("cannot look at {}", path.display()), other),
    }
}

/// What rights it takes.
const RIGHTS: &str = "this user needs to read and write the device, and to read the namespace's block device (a udev rule gives \
                      the one to group disk: docs/security.md); before Linux 6.2 commands are root's";

/// Whether there is nothing where a namespace was looked for.
pub fn is_absence(error: &Error) -> bool {
    let source = error.source.as_ref().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::NotFound)
}

/// Why the block device of the namespace at `path` cannot be held.
pub fn cannot_hold(path: &Path, error: Error) -> Error {
    let source = error.source.as_ref().and_then(|source| source.downcast_ref::<io::Error>());
    if source.is_some_and(|source| source.kind() == io::ErrorKind::PermissionDenied) {
        let what = format!("cannot have {} alone: {error}", path.display());
        return Error::new(Kind::Failed, what).help(RIGHTS);
    }
    error
}

/// Why a namespace cannot be opened.
pub fn cannot_open(path: &Path, error: media::Error) -> Error {
    let source = error.source.as_ref().map(io::Error::kind);
    let (kind, help) = match (error.kind, source) {
        (_, Some(io::ErrorKind::PermissionDenied)) => (Kind::Failed, RIGHTS),
        (media::Kind::Unsupported, _) => (
            Kind::Invalid,
            "blocks of 512 or 4096 bytes without metadata are served: `nvme id-ns -H` shows the formats that the drive \
             has, `nvme format` changes it and takes all data",
        ),
        _ => (Kind::Failed, "see the kernel's log for the drive"),
    };
    let failed = Error::failed(format!("cannot open {}", path.display()), error);
    Error { kind, ..failed.help(help) }
}
