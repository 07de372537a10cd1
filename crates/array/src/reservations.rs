//! Reservations that hosts asked to persist through a loss of power (PTPL): a file for each namespace,
//! `reservations/UUID.json` in the state directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::v1::Kind;
use serde::{Deserialize, Serialize};
use target::reservation::{Held, HostId, Keeper, Keeping, Registration, Saved, Type};
use uuid::Uuid;

use crate::limits::RESERVATIONS_BYTES;
use crate::state::{create_own_folder, read_file, remove_file, replace_file};
use crate::{Error, Result};

/// Version of the files that this program writes.
const VERSION: u32 = 1;

/// What a file holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    generation: u32,
    registrations: Vec<Registered>,
    held: Option<HeldBy>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Registered {
    host: Uuid,
    key: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeldBy {
    /// Reservation Type (RTYPE), 1 to 6.
    rtype: u8,
    /// `None` where every registrant is a holder.
    holder: Option<Uuid>,
}

impl Document {
    fn of(saved: &Saved) -> Self {
        let registered =
            |r: &Registration| Registered { host: Uuid::from_bytes(r.host.0), key: r.key };
        let held_by = |held: Held| HeldBy {
            rtype: held.kind().raw(),
            holder: match held {
                Held::By { holder, .. } => Some(Uuid::from_bytes(holder.0)),
                Held::ByAll { .. } => None,
            },
        };
        Self {
            version: VERSION,
            generation: saved.generation,
            registrations: saved.registrations.iter().map(registered).collect(),
            held: saved.held.map(held_by),
        }
    }

    /// `None` for a type there is not.
    fn saved(&self) -> Option<Saved> {
        let registration =
            |r: &Registered| Registration { host: HostId(r.host.into_bytes()), key: r.key };
        let held = match &self.held {
            None => None,
            Some(HeldBy { rtype, holder }) => {
                let kind = Type::from_raw(*rtype)?;
                Some(match holder {
                    Some(holder) => Held::By { kind, holder: HostId(holder.into_bytes()) },
                    None => Held::ByAll { kind },
                })
            }
        };
        Some(Saved {
            generation: self.generation,
            registrations: self.registrations.iter().map(registration).collect(),
            held,
        })
    }
}

/// The files of one node.
#[derive(Debug)]
pub struct Reservations {
    dir: PathBuf,
}

/// The file of one namespace.
#[derive(Debug)]
struct Place {
    dir: PathBuf,
    name: String,
}

impl Keeper for Place {
    fn keep(&self, saved: Option<&Saved>) -> io::Result<()> {
        let kept = match saved {
            Some(saved) => {
                let text = serde_json::to_vec_pretty(&Document::of(saved))?;
                replace_file(&self.dir, &self.name, &text)
            }
            None => remove_file(&self.dir, &self.name),
        };
        kept.inspect_err(|error| {
            let path = self.dir.join(&self.name);
            tracing::error!("reservations cannot be kept in {}: {error}", path.display());
        })
    }
}

impl Reservations {
    /// Those of the node with this state directory.
    ///
    /// # Errors
    /// `Failed` when the folder for them cannot be had.
    pub fn open(state_dir: &Path) -> Result<Self> {
        let dir = state_dir.join("reservations");
        match create_own_folder(&dir) {
            Err(error) => Err(Error::failed(format!("cannot create {}", dir.display()), error)),
            Ok(()) => Ok(Self { dir }),
        }
    }

    /// What was kept of a namespace's reservations, and where further ones go.
    ///
    /// # Errors
    /// `Failed` when what was kept cannot be read or makes no sense: hosts that were shut out must not
    /// get in for that.
    pub fn of(&self, namespace: Uuid) -> Result<Keeping> {
        let place = Place { dir: self.dir.clone(), name: format!("{namespace}.json") };
        let path = place.dir.join(&place.name);
        let help =
            "restore it from a backup; or delete it: the namespace's reservations are forgotten";
        let saved = match read_file(&path, RESERVATIONS_BYTES) {
            Ok(text) => {
                let damaged = |why: String| {
                    Error::new(Kind::Failed, format!("{}: {why}", path.display())).help(help)
                };
                let document: Document =
                    serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
                if document.version != VERSION {
                    return Err(damaged(format!("version {} is not {VERSION}", document.version)));
                }
                let saved = document.saved().filter(Saved::holds_together);
                Some(saved.ok_or_else(|| damaged("what it says contradicts itself".to_owned()))?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let failed = Error::failed(format!("cannot read {}", path.display()), error);
                return Err(failed.help(help));
            }
        };
        Ok(Keeping { saved, keeper: Arc::new(place) })
    }

    /// Forgets a namespace's reservations: it is served no more.
    pub fn forget(&self, namespace: Uuid) {
        let place = Place { dir: self.dir.clone(), name: format!("{namespace}.json") };
        // What cannot be removed was said; it is in nobody's way until the namespace comes back.
        let _ = place.keep(None);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HOST: HostId = HostId([7; 16]);

    fn saved() -> Saved {
        Saved {
            generation: 9,
            registrations: vec![Registration { host: HOST, key: u64::MAX }],
            held: Some(Held::By { kind: Type::ExclusiveAccess, holder: HOST }),
        }
    }

    #[test]
    fn what_was_kept_is_there_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Uuid::from_u128(5);
        let all = Held::ByAll { kind: Type::WriteExclusiveAllRegistrants };
        for held in [saved().held, Some(all), None] {
            let saved = Saved { held, ..saved() };
            let keeping = Reservations::open(dir.path()).unwrap().of(namespace).unwrap();
            keeping.keeper.keep(Some(&saved)).unwrap();
            let again = Reservations::open(dir.path()).unwrap();
            assert_eq!(again.of(namespace).unwrap().saved, Some(saved));
            assert_eq!(again.of(Uuid::from_u128(6)).unwrap().saved, None);
        }
        let reservations = Reservations::open(dir.path()).unwrap();
        reservations.forget(namespace);
        assert_eq!(reservations.of(namespace).unwrap().saved, None);
        reservations.forget(namespace);
    }

    #[test]
    fn a_file_that_makes_no_sense_lets_nobody_in() {
        let dir = tempfile::tempdir().unwrap();
        let reservations = Reservations::open(dir.path()).unwrap();
        let namespace = Uuid::from_u128(5);
        let mut document = Document::of(&saved());
        document.registrations.clear();
        let without_holder = serde_json::to_vec(&document).unwrap();
        document.version = 2;
        let newer = serde_json::to_vec(&document).unwrap();
        for text in [&b"{"[..], &without_holder, &newer] {
            replace_file(&dir.path().join("reservations"), &format!("{namespace}.json"), text)
                .unwrap();
            let refused = reservations.of(namespace).unwrap_err();
            assert!(refused.context.contains(&namespace.to_string()), "{refused}");
        }
    }

    #[test]
    fn as_many_as_there_can_be_are_read_and_a_file_too_long_lets_nobody_in() {
        let dir = tempfile::tempdir().unwrap();
        let reservations = Reservations::open(dir.path()).unwrap();
        let namespace = Uuid::from_u128(5);
        let registrant = |n| Registration { host: HostId([n; 16]), key: u64::MAX };
        let most = u8::try_from(target::limits::MAX_REGISTRANTS).unwrap();
        let registrations = (1..=most).map(registrant).collect();
        let full = Saved { generation: u32::MAX, registrations, ..saved() };
        reservations.of(namespace).unwrap().keeper.keep(Some(&full)).unwrap();
        assert_eq!(reservations.of(namespace).unwrap().saved, Some(full));
        let path = dir.path().join("reservations").join(format!("{namespace}.json"));
        let mut text = fs::read(&path).unwrap();
        text.resize(stdx::num::usize64(RESERVATIONS_BYTES) + 1, b' ');
        fs::write(&path, text).unwrap();
        let refused = reservations.of(namespace).unwrap_err();
        assert!(refused.context.contains("longer than"), "{refused}");
        assert!(refused.help.unwrap().contains("delete it"));
    }
}
