//! What a namespace keeps its bytes on, written `memory:SIZE`, `drive:PATH`, `passthrough:PATH`, `volume:POOL/NAME` or
//! `snapshot:POOL/VOLUME@NAME`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Name, Refused, Size, SnapshotPath, VolumePath};
use crate::limits::{NAMESPACE_BYTES_MAX, NAMESPACE_BYTES_MIN};

/// What a namespace keeps its bytes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// Memory of the daemon: gone when the daemon ends.
    Memory {
        /// Size in bytes.
        size: Size,
    },
    /// A regular file or a block device, with direct I/O.
    Drive {
        /// Where it is; absolute once it is served.
        path: PathBuf,
        /// Create or extend a regular file to this size; `None` takes it as it is.
        size: Option<Size>,
    },
    /// A namespace of an NVMe drive, by its generic character device: the drive gets hosts' commands as they are.
    Passthrough {
        /// Where the device is, as in `/dev/ng0n1`; absolute once it is served.
        path: PathBuf,
    },
    /// A volume of a pool of this node.
    Volume(VolumePath),
    /// A snapshot of a volume of a pool of this node, which hosts read and cannot change.
    Snapshot(SnapshotPath),
}

const RIGHT: &str = "write memory:SIZE, drive:PATH, drive:PATH,size=SIZE, passthrough:PATH, volume:POOL/NAME or \
                     snapshot:POOL/VOLUME@NAME, such as memory:1GiB, drive:/dev/nvme0n1, passthrough:/dev/ng0n1, \
                     volume:fast/db or snapshot:fast/db@monday";

impl Backend {
    /// `memory`, `drive`, `passthrough`, `volume` or `snapshot`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Memory { .. } => "memory",
            Self::Drive { .. } => "drive",
            Self::Passthrough { .. } => "passthrough",
            Self::Volume(_) => "volume",
            Self::Snapshot(_) => "snapshot",
        }
    }

    /// The pool that it is of.
    pub const fn pool(&self) -> Option<&Name> {
        match self {
            Self::Volume(volume) | Self::Snapshot(SnapshotPath { volume, .. }) => {
                Some(&volume.pool)
            }
            Self::Memory { .. } | Self::Drive { .. } | Self::Passthrough { .. } => None,
        }
    }

    /// Whether both keep the same bytes. Memory is made anew for each namespace.
    pub fn is_same_medium(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Drive { path: one, .. }, Self::Drive { path: other, .. })
            | (Self::Passthrough { path: one }, Self::Passthrough { path: other }) => one == other,
            (Self::Volume(one), Self::Volume(other)) => one == other,
            (Self::Snapshot(one), Self::Snapshot(other)) => one == other,
            _ => false,
        }
    }

    /// The same with another size.
    ///
    /// # Errors
    /// When no namespace can have that size, or the size is a volume's own.
    pub fn with_size(self, size: Size) -> Result<Self, Refused> {
        let size = bounded(size)?;
        Ok(match self {
            Self::Memory { .. } => Self::Memory { size },
            Self::Drive { path, .. } => Self::Drive { path, size: Some(size) },
            Self::Passthrough { path } => {
                return Err(Refused::new(
                    format!(
                        "the namespace is {} as it is, with the drive's own size",
                        path.display()
                    ),
                    "serve it by drive:PATH,size=SIZE to show hosts less of it",
                ));
            }
            Self::Volume(volume) => {
                return Err(Refused::new(
                    format!("the namespace is volume {volume}, which has its own size"),
                    format!("resize it: `flashloom volume resize {volume} {}`", size.exact()),
                ));
            }
            Self::Snapshot(snapshot) => {
                return Err(Refused::new(
                    format!("the namespace is snapshot {snapshot}, which never changes"),
                    "resize the volume that it is of, and take another snapshot",
                ));
            }
        })
    }
}

impl FromStr for Backend {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(Refused::new(format!("\"{text}\" is not a back end"), RIGHT));
        };
        match kind {
            "memory" => Ok(Self::Memory { size: bounded(rest.parse()?)? }),
            "drive" => drive(rest),
            "passthrough" => passthrough(rest),
            "volume" => Ok(Self::Volume(rest.parse()?)),
            "snapshot" => Ok(Self::Snapshot(rest.parse()?)),
            _ => Err(Refused::new(
                format!("\"{kind}\" is no kind of back end that is served"),
                RIGHT,
            )),
        }
    }
}

/// `PATH` or `PATH,size=SIZE`.
fn drive(rest: &str) -> Result<Backend, Refused> {
    let (path, size) = path_and_size(rest)?;
    if path.is_empty() {
        return Err(Refused::new("no path follows \"drive:\"", RIGHT));
    }
    Ok(Backend::Drive { path: PathBuf::from(path), size })
}

/// `PATH`.
fn passthrough(rest: &str) -> Result<Backend, Refused> {
    if rest.is_empty() {
        return Err(Refused::new("no path follows \"passthrough:\"", RIGHT));
    }
    if rest.contains(",size=") {
        return Err(Refused::new(
            "a drive that gets commands as they are has its own size",
            "write passthrough:PATH, or drive:PATH,size=SIZE to show hosts less of it",
        ));
    }
    Ok(Backend::Passthrough { path: PathBuf::from(rest) })
}

/// `PATH` and `SIZE` of `PATH,size=SIZE`, or `PATH` alone.
pub(super) fn path_and_size(text: &str) -> Result<(&str, Option<Size>), Refused> {
    let Some((path, size)) = text.rsplit_once(",size=") else { return Ok((text, None)) };
    if let Some((_, option)) = size.split_once(',') {
        return Err(Refused::new(
            format!("`{option}` is no option of a drive"),
            "its size is the only one: write PATH, or PATH,size=SIZE",
        ));
    }
    Ok((path, Some(bounded(size.parse()?)?)))
}

/// `size` when it is within what a namespace may have.
pub(super) fn bounded(size: Size) -> Result<Size, Refused> {
    if (NAMESPACE_BYTES_MIN..=NAMESPACE_BYTES_MAX).contains(&size.bytes()) {
        return Ok(size);
    }
    let (least, most) = (Size::new(NAMESPACE_BYTES_MIN), Size::new(NAMESPACE_BYTES_MAX));
    Err(Refused::new(
        format!("{size} is no size for a namespace"),
        format!("it holds at least {least} and at most {most}"),
    ))
}

impl fmt::Display for Backend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { size } => out.pad(&format!("memory:{}", size.exact())),
            Self::Volume(volume) => out.pad(&format!("volume:{volume}")),
            Self::Snapshot(snapshot) => out.pad(&format!("snapshot:{snapshot}")),
            Self::Passthrough { path } => out.pad(&format!("passthrough:{}", path.display())),
            Self::Drive { path, size: None } => out.pad(&format!("drive:{}", path.display())),
            Self::Drive { path, size: Some(size) } => {
                out.pad(&format!("drive:{},size={}", path.display(), size.exact()))
            }
        }
    }
}

super::text_value!(
    Backend,
    "memory:1GiB",
    "What the namespace keeps its bytes on: memory:SIZE, drive:PATH, drive:PATH,size=SIZE, \
     passthrough:PATH, volume:POOL/NAME or snapshot:POOL/VOLUME@NAME."
);
