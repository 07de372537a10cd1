//! Things that take minutes to make and are made once: kernels and the guest's root file system.
//!
//! They lie in `tests/hosts/.cache/`, each in a folder named by the recipe it was made by, so a
//! changed recipe makes a new one. Deleting the folder is always safe and brings newer packages.
use crate::Result;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// The folder of what `recipe` describes, made by `build` if it is not there yet.
///
/// `build` fills an empty folder that gets its final name only when it is whole. A lock keeps
/// two test processes from making the same thing.
pub fn entry(
    name: &str,
    recipe: impl Hash,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    recipe.hash(&mut hasher);
    let root = root()?;
    let place = root.join(format!("{name}-{:016x}", hasher.finish()));
    let lock = File::create(root.join("lock"))?;
    lock.lock()?;
    if place.is_dir() {
        return Ok(place);
    }
    let work = tempfile::Builder::new().prefix("making-").tempdir_in(&root)?;
    let whole = work.path().join("whole");
    fs::create_dir(&whole)?;
    build(&whole).map_err(|error| format!("making {name}: {error}"))?;
    fs::rename(&whole, &place)?;
    Ok(place)
}

/// The folder `tests/hosts/.cache/`, made if it is not there yet.
pub fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache");
    fs::create_dir_all(&root)?;
    Ok(root)
}
