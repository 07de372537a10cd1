//! Opening the media of a pool to look at them: for reading only, and only while nobody else has
//! them open.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::v1::Kind;
use api::value::{LogPlace, Name};
use engine::LogSpec;
use engine::dump::{Given, Spec};
use media::drive::OpenDrive;
use media::{Drive, Pmem};

use crate::lock::{Lock, lock};
use crate::{Error, Result, state};

/// Media to look at, held against programs that would write to them.
#[derive(Debug, Default)]
pub struct Held {
    pub spec: Spec,
    locks: Vec<Arc<Lock>>,
}

/// What is to be looked at.
#[derive(Debug)]
pub enum Asked {
    /// A pool that the node with this state directory knows.
    Known { state_dir: PathBuf, name: Name },
    /// These drives.
    Drives(Vec<PathBuf>),
}

/// Opens drives and log. `log` takes the place of what the node knows of the log.
///
/// # Errors
/// `NotFound` for a pool that the node does not know, `Conflict` while another program has a drive,
/// `Invalid` for drives that are not there, `Failed`.
pub fn open(asked: Asked, log: &[LogPlace]) -> Result<Held> {
    let (drives, places, named) = match asked {
        Asked::Drives(drives) => (drives, Vec::new(), true),
        Asked::Known { state_dir, name } => {
            let known = state::peek(&state_dir)?.and_then(|mut state| state.pools.remove(&name));
            let def = known.ok_or_else(|| {
                let what = format!("the state in {} knows no pool {name}", state_dir.display());
                Error::new(Kind::NotFound, what)
                    .help("name its drives with --drive, or the state directory with --state-dir")
            })?;
            (def.drives, def.log, false)
        }
    };
    let mut held = Held::default();
    let mut seen = BTreeSet::new();
    for path in drives {
        if named && !path.exists() {
            let what = format!("there is no drive {}", path.display());
            return Err(Error::new(Kind::Invalid, what)
                .help("leave out a drive that is lost: the rest is looked at without it"));
        }
        if !seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
            let what = format!("{} is given twice", path.display());
            return Err(Error::new(Kind::Invalid, what).help("name each drive once"));
        }
        held.add_drive(&path)?;
    }
    held.open_log(if log.is_empty() { &places } else { log })?;
    Ok(held)
}

/// Takes a path for this process.
fn hold(path: &Path) -> Result<Arc<Lock>> {
    lock(path, None).map_err(|error| match error.kind {
        Kind::Conflict => {
            let what =
                format!("{} is in use: a pool is looked at while it is closed", path.display());
            Error::new(Kind::Conflict, what)
                .help("stop the daemon that has the pool open, or export the pool first")
        }
        _ => error,
    })
}

impl Held {
    fn add_drive(&mut self, path: &Path) -> Result<()> {
        let block_size = stdx::num::u32_of(engine::address::BLOCK);
        let options = OpenDrive { read_only: true, block_size, ..OpenDrive::default() };
        let drive = match Drive::open(path, options) {
            Ok(drive) => {
                self.locks.push(hold(path)?);
                Ok(Arc::new(drive))
            }
            Err(error) => Err(error.to_string()),
        };
        self.spec.drives.push(Given { name: path.display().to_string(), drive });
        Ok(())
    }

    fn open_log(&mut self, places: &[LogPlace]) -> Result<()> {
        let (mut pmem, mut bbu) = (Vec::new(), Vec::new());
        for place in places {
            let (path, devices) = match place {
                // Of what another target has, the memory beside it has as much.
                LogPlace::Drives | LogPlace::Remote(_) => continue,
                LogPlace::Pmem(path) => (path, &mut pmem),
                LogPlace::Bbu(path) => (path, &mut bbu),
            };
            let device = match Pmem::snapshot(path) {
                Ok(device) => device,
                // A log that is lost is what the report is about.
                Err(error) => {
                    tracing::error!("cannot open the commit log {place}: {error}");
                    continue;
                }
            };
            self.locks.push(hold(path)?);
            devices.push(Arc::new(device));
            self.spec.log_names.push(place.to_string());
        }
        self.spec.log = match (pmem.is_empty(), bbu.is_empty()) {
            (true, true) => None,
            (false, true) => Some(LogSpec::Pmem(pmem)),
            (true, false) => Some(LogSpec::Bbu(bbu)),
            (false, false) => {
                let what = "a commit log is kept in one kind of memory";
                return Err(Error::new(Kind::Invalid, what).help("name places of one kind"));
            }
        };
        Ok(())
    }
}
