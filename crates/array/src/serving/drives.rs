//! Drives of namespaces, from what is known of them to what was opened, with nothing of the node held.

use std::fmt::Display;

use api::v1::Kind;
use api::value::Backend;
use hardware::Machine;
use uuid::Uuid;

use super::media::{Before, Media};
use super::{Place, Serving};
use crate::change::Step;
use crate::desired::NamespaceDef;
use crate::pools::{Opener, Pools};
use crate::seen::Seen;
use crate::{Error, Result};

/// A drive of a namespace that is not there, or not open yet, or asked for.
#[derive(Clone, Debug)]
pub struct LateDrive {
    pub place: Place,
    pub def: NamespaceDef,
    /// What it was when it was.
    before: Before,
    /// What its place is served from.
    in_use: Option<Media>,
    /// Somebody asks for it just now, whichever drive it is.
    is_asked: bool,
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
        Self { place, def, before, in_use: None, is_asked: false }
    }

    /// Whether somebody asks for it just now, whichever drive it is.
    pub const fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// One that somebody asks for, where its place is served from what is `in_use`.
    fn asked(place: Place, def: NamespaceDef, seen: &Seen, in_use: Option<Media>) -> Self {
        let mut drive = Self::new(place, def, seen);
        (drive.before.wwid, drive.in_use, drive.is_asked) = (None, in_use, true);
        drive
    }
}

/// A drive that was opened for a namespace.
#[derive(Debug)]
pub struct OpenedDrive {
    media: Media,
    /// What it was opened for.
    def: NamespaceDef,
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
        let known = (&drive.before, drive.in_use.as_ref());
        let (media, doubt) = Media::open_drive_of(&drive.def, known, machine, answers)?;
        let of = match (&drive.def.backend, media.drive()) {
            // Whoever asks for it was told before, and may mean it.
            _ if drive.is_asked => None,
            (Backend::Drive { path, .. }, Some(drive)) => opener.pool_of(path, drive)?,
            _ => None,
        };
        Ok(Self { media, def: drive.def.clone(), doubt, of })
    }

    /// Whether it was opened for this.
    pub fn is_of(&self, def: &NamespaceDef) -> bool {
        self.def == *def
    }

    /// Its media, unless it says to be of a pool of this node: it has the name that another had.
    ///
    /// # Errors
    /// `Conflict`; `Failed` where it was opened for another definition.
    pub fn not_of(self, pools: &Pools, def: &NamespaceDef) -> Result<Media> {
        if !self.is_of(def) {
            return Err(not_open_yet(def));
        }
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

impl Serving {
    /// The drives that `steps` ask for, to be opened before they are taken, with nothing held.
    ///
    /// # Errors
    /// `Conflict` for those that are in use.
    pub fn asked_drives(&mut self, steps: &[Step]) -> Result<Vec<LateDrive>> {
        self.let_go();
        let mut asked = Vec::new();
        for step in steps {
            let Step::AddNamespace { nqn, nsid, def } = step else { continue };
            let place = (nqn.clone(), *nsid);
            if !is_drive(&def.backend) || self.goes_on_waiting(&place, def).is_some() {
                continue;
            }
            self.check_free(def)?;
            let in_use = self.media.get(&place).cloned();
            asked.push(LateDrive::asked(place, def.clone(), &self.seen, in_use));
        }
        Ok(asked)
    }

    /// Whether what `def` is kept in is served now, and removed there by `steps`.
    pub fn is_replaced(&self, steps: &[Step], def: &NamespaceDef) -> bool {
        steps.iter().any(|step| match step {
            Step::RemoveNamespace { nqn, nsid, def: was } => {
                was.backend.is_same_medium(&def.backend) && self.is_there(&(nqn.clone(), *nsid))
            }
            _ => false,
        })
    }
}

/// Why a change is refused that asks for a drive that hangs.
pub fn does_not_answer(drive: &dyn Display) -> Error {
    let what = format!("{drive} does not answer: it is being opened still");
    Error::new(Kind::Failed, what).help(
        "nothing was changed; see the kernel's log for the drive, and try again when it answers",
    )
}

/// Whether it is a drive, which is looked for while it is not there.
pub(super) const fn is_drive(backend: &Backend) -> bool {
    matches!(backend, Backend::Drive { .. } | Backend::Passthrough { .. })
}
