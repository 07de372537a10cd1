//! Drives of namespaces, from what is known of them to what was opened, with nothing of the node held.

use api::v1::Kind;
use api::value::Backend;
use hardware::Machine;
use uuid::Uuid;

use super::Place;
use super::media::{Before, Media};
use crate::change::Step;
use crate::desired::NamespaceDef;
use crate::pools::{Opener, Pools};
use crate::seen::Seen;
use crate::{Error, Result};

/// A drive of a namespace that is not there, or not open yet.
#[derive(Clone, Debug)]
pub struct LateDrive {
    pub place: Place,
    pub def: NamespaceDef,
    /// What it was when it was.
    before: Before,
}

impl LateDrive {
    /// The drive that a step asks for, if it asks for one, with what is known of it.
    pub fn of(step: &Step, seen: &Seen) -> Option<Self> {
        match step {
            Step::AddNamespace { nqn, nsid, def } if is_drive(&def.backend) => {
                Some(Self::new((nqn.clone(), *nsid), def.clone(), seen))
            }
            _ => None,
        }
    }

    pub(super) fn new(place: Place, def: NamespaceDef, seen: &Seen) -> Self {
        let seen = seen.get(&place.0, place.1, &def.backend);
        let before =
            Before { wwid: seen.and_then(|s| s.wwid.clone()), bytes: seen.map(|s| s.bytes) };
        Self { place, def, before }
    }
}

/// A drive that was opened for a namespace.
#[derive(Debug)]
pub struct OpenedDrive {
    pub media: Media,
    /// What is to be said of it, where it is served all the same.
    pub doubt: Option<String>,
    /// The pool that it says to be of.
    of: Option<Uuid>,
}

impl OpenedDrive {
    /// Blocks as long as the drive takes. Says `answers` once it has answered: what is waited for then are others.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open(
        drive: &LateDrive,
        machine: &Machine,
        opener: &Opener,
        answers: &dyn Fn(),
    ) -> Result<Self> {
        let (media, doubt) = Media::open_late(&drive.def, &drive.before, machine, answers)?;
        let of = match (&drive.def.backend, media.drive()) {
            (Backend::Drive { path, .. }, Some(drive)) => opener.pool_of(path, drive)?,
            _ => None,
        };
        Ok(Self { media, doubt, of })
    }

    /// Its media, unless it says to be of a pool of this node: it has the name that another had.
    ///
    /// # Errors
    /// `Conflict`.
    pub fn not_of(self, pools: &Pools, def: &NamespaceDef) -> Result<Media> {
        if let Backend::Drive { path, .. } = &def.backend {
            pools.check_none_of_ours(path, self.of)?;
        }
        Ok(self.media)
    }
}

/// Why a drive is not served that is being opened.
pub fn not_open_yet(def: &NamespaceDef) -> Error {
    let what = format!("{} is not open yet", def.backend);
    Error::new(Kind::Failed, what).help(
        "it is served when it is; if it stays so it does not answer: see the kernel's log for the drive",
    )
}

/// Whether it is a drive, which is looked for while it is not there.
pub(super) const fn is_drive(backend: &Backend) -> bool {
    matches!(backend, Backend::Drive { .. } | Backend::Passthrough { .. })
}
