//! What is served, as readers see it: a copy, so that nobody who looks waits for whoever changes something.

use std::collections::{BTreeMap, BTreeSet};

use api::value::{Address, Nqn};
use uuid::Uuid;

use super::media::Media;
use super::{Place, Serving};
use crate::desired::{Desired, NamespaceDef};
use crate::identity;
use crate::pools::Pools;
use crate::seen::Seen;

/// What is served as a namespace.
#[derive(Debug, PartialEq, Eq)]
struct Served {
    bytes: u64,
    /// What keeps it is not there.
    is_absent: bool,
    /// The volume or the snapshot that keeps it, if one does.
    kept_in: Option<Uuid>,
}

/// What is served at one moment.
#[derive(Debug)]
pub struct Snapshot {
    node: Uuid,
    pub pools: Pools,
    namespaces: BTreeMap<Place, Served>,
    absent: BTreeSet<Place>,
    unbound: BTreeSet<Address>,
    bound: BTreeMap<Address, Address>,
    seen: Seen,
}

impl Serving {
    /// What is served now.
    pub fn snapshot(&self) -> Snapshot {
        let namespace = |(place, media): (&Place, &Media)| {
            let (bytes, is_absent, kept_in) = (media.bytes(), media.is_absent(), media.kept_in());
            (place.clone(), Served { bytes, is_absent, kept_in })
        };
        let bound = self.listeners.iter();
        Snapshot {
            node: self.node,
            pools: self.pools.clone(),
            namespaces: self.media.iter().map(namespace).collect(),
            absent: self.absent.clone(),
            unbound: self.unbound.clone(),
            bound: bound.map(|(address, at)| (*address, at.local())).collect(),
            seen: self.seen.clone(),
        }
    }
}

impl Snapshot {
    /// Whether readers see nothing else in it than in the one before.
    pub fn is_seen_as(&self, before: &Self) -> bool {
        let Self { node, pools, namespaces, absent, unbound, bound, seen } = self;
        *node == before.node
            && *namespaces == before.namespaces
            && *absent == before.absent
            && *unbound == before.unbound
            && *bound == before.bound
            && *seen == before.seen
            && pools.are_seen_as(&before.pools)
    }

    /// The identity that a namespace is served with; while what keeps it is absent, what it was.
    pub fn uuid(&self, nqn: &Nqn, nsid: u32, def: &NamespaceDef) -> Uuid {
        let served = self.namespaces.get(&(nqn.clone(), nsid));
        if served.is_some_and(|served| served.is_absent)
            && let Some(seen) = self.seen.get(nqn, nsid, &def.backend)
        {
            return seen.uuid;
        }
        namespace_uuid(self.node, (nqn, nsid), def, &self.pools, &self.seen)
    }

    /// Size of a namespace in bytes; 0 when there is none.
    pub fn namespace_bytes(&self, place: &Place) -> u64 {
        self.namespaces.get(place).map_or(0, |served| served.bytes)
    }

    /// Whether hosts can use a namespace.
    pub fn is_served(&self, place: &Place) -> bool {
        self.namespaces.get(place).is_some_and(|served| !served.is_absent)
    }

    /// How many namespaces hosts can use.
    pub fn namespaces_served(&self) -> usize {
        self.namespaces.values().filter(|served| !served.is_absent).count()
    }

    /// Where a volume or a snapshot is served.
    pub fn place_of(&self, kept_in: Uuid) -> Option<&Place> {
        let mut all = self.namespaces.iter();
        all.find(|(_, served)| served.kept_in == Some(kept_in)).map(|(place, _)| place)
    }

    /// The volume or the snapshot that is served there.
    pub fn kept_in(&self, place: &Place) -> Option<Uuid> {
        self.namespaces.get(place)?.kept_in
    }

    /// The address that `listener` is bound to: its own, with the port that port 0 became.
    pub fn bound(&self, listener: Address) -> Option<Address> {
        self.bound.get(&listener).copied()
    }

    /// What is asked for and not there, in words; of pools, [`Pools::problems`] says it.
    pub fn absences(&self, current: &Desired) -> Vec<String> {
        let listed = self.namespaces.iter().filter(|(_, served)| served.is_absent);
        let places: BTreeSet<_> = listed.map(|(place, _)| place).chain(&self.absent).collect();
        let late = places.into_iter().filter_map(|(nqn, nsid)| {
            let def = current.subsystem(nqn)?.namespaces.get(nsid)?;
            Some(format!("namespace {nsid} of {nqn} waits for {}", def.backend))
        });
        let unbound = self.unbound.iter().map(|address| format!("{address} is not listened on"));
        late.chain(unbound).collect()
    }
}

/// The identity that a namespace is served with: a volume's or snapshot's own, whatever it is mapped as; while its pool is not
/// open, what it was.
pub(super) fn namespace_uuid(
    node: Uuid,
    (nqn, nsid): (&Nqn, u32),
    def: &NamespaceDef,
    pools: &Pools,
    seen: &Seen,
) -> Uuid {
    let of_volume = || {
        let kept_in = pools.kept_in(&def.backend)?;
        kept_in.ok().map(|volume| Uuid::from_bytes(volume.id()))
    };
    let before = || seen.get(nqn, nsid, &def.backend).map(|seen| seen.uuid);
    let derived = || identity::namespace(node, nqn, nsid, &def.backend);
    def.uuid.or_else(of_volume).or_else(before).unwrap_or_else(derived)
}
