//! Places that are served or part of a pool are held against everybody else.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use api::v1::Kind;

use crate::{Error, Result};

/// Holds what is at `path` against other programs, and against the kernel: what is mounted is not served.
///
/// # Errors
/// `Conflict` when it is in use, unless that is by the holder of `own`, which it is then.
pub fn lock(path: &Path, own: Option<&Arc<File>>) -> Result<Arc<File>> {
    match reactor::file::hold(path) {
        Ok(file) => Ok(Arc::new(file)),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => match own {
            Some(own) if is_at(own, path) => Ok(Arc::clone(own)),
            _ => Err(busy(path)),
        },
        Err(error) => Err(Error::failed(format!("cannot lock {}", path.display()), error)),
    }
}

fn busy(path: &Path) -> Error {
    let is_device = fs::metadata(path).is_ok_and(|of| of.file_type().is_block_device());
    let help = if is_device {
        "it is mounted or swapped to, a part of another device (LVM, md, multipath), or served already, here or \
         by another program: a second user would destroy its data"
    } else {
        "it is served or part of a pool already, here or by another program: a second user would destroy its data"
    };
    Error::new(Kind::Conflict, format!("{} is in use", path.display())).help(help)
}

/// Whether `file` is what is at `path`.
pub fn is_at(file: &File, path: &Path) -> bool {
    let id = |of: fs::Metadata| (of.dev(), of.ino());
    let held = file.metadata().map(id).ok();
    held.is_some() && held == fs::metadata(path).map(id).ok()
}
