//! Reservations of one namespace (NVMe Base 2.1, section 8.1.22): a state machine without I/O.
//!
//! A *registrant* is a host (by its 128-bit Host Identifier), not a controller: a host's several
//! controllers share one registration. [`State::execute`] either refuses a command and changes
//! nothing, or applies it whole and returns what must follow: notices for the Reservation
//! Notification log, hosts whose outstanding commands a preempt-and-abort ends.
//!
//! Where the specification leaves a case open, the choice is written beside the code.

mod access;
mod command;
mod keep;
mod log;
mod published;
mod report;
mod shared;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

pub use access::{Access, CommandGroup};
pub use command::Command;
pub use keep::{Keeper, Keeping, keep};
pub use log::{NoticeMask, NotificationLog};
pub use shared::{CachedAccess, Shared};

pub use nvme::reservation::{ChangePersistence, Type};

use crate::limits::MAX_REGISTRANTS;

/// A Host Identifier in its extended, 128-bit form. Fabrics hosts always use it (EXHID = 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub [u8; 16]);

/// Whether every registrant is a holder of a reservation of this type.
const fn is_all_registrants(kind: Type) -> bool {
    matches!(kind, Type::WriteExclusiveAllRegistrants | Type::ExclusiveAccessAllRegistrants)
}

/// Whether registrants may access as the holder does (Registrants Only and All Registrants), so
/// that they care when the reservation goes away.
const fn concerns_registrants(kind: Type) -> bool {
    !matches!(kind, Type::WriteExclusive | Type::ExclusiveAccess)
}

/// One host's registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    pub host: HostId,
    pub key: u64,
}

/// The reservation held on a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// One holder: the first four types.
    By { kind: Type, holder: HostId },
    /// Every registrant is a holder.
    ByAll { kind: Type },
}

impl Held {
    fn new(kind: Type, host: HostId) -> Self {
        if is_all_registrants(kind) {
            Self::ByAll { kind }
        } else {
            Self::By { kind, holder: host }
        }
    }

    pub const fn kind(self) -> Type {
        match self {
            Self::By { kind, .. } | Self::ByAll { kind } => kind,
        }
    }
}

/// Why a reservation command is refused. The state is then unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("Reservation Conflict")]
    Conflict,
    #[error("Invalid Field in Command")]
    InvalidField,
    /// No room for one more registrant; see [`MAX_REGISTRANTS`].
    #[error("too many registrants")]
    Full,
}

/// Reservation notification types, as in the Reservation Notification log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeKind {
    RegistrationPreempted,
    ReservationReleased,
    ReservationPreempted,
}

/// A notice for every controller of `host`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    pub host: HostId,
    pub kind: NoticeKind,
}

/// What follows from a command that was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    pub notices: Vec<Notice>,
    /// Hosts whose outstanding commands on this namespace are to end before the command
    /// completes (Preempt and Abort). Empty for every other command.
    pub abort: Vec<HostId>,
}

/// Everything that persists through power loss when PTPL is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    pub generation: u32,
    pub registrations: Vec<Registration>,
    pub held: Option<Held>,
}

impl Saved {
    /// Whether it is a state that reservations can be in.
    #[must_use]
    pub fn holds_together(&self) -> bool {
        State::power_on(PowerLoss::Keeps, Some(self.clone())).is_some()
    }
}

/// Whether the namespace can keep reservations through power loss (RESCAP bit 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerLoss {
    /// Nothing durable stands behind the namespace: PTPL can never be set.
    Forgets,
    Keeps,
}

/// The reservation state of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    power_loss: PowerLoss,
    /// Persist Through Power Loss State (PTPLS).
    ptpl: bool,
    /// Generation counter of the Reservation Status data structure; wraps.
    generation: u32,
    /// In order of registration, at most one a host.
    registrations: Vec<Registration>,
    held: Option<Held>,
    /// From which address those registered that did so since the process began.
    from: BTreeMap<HostId, IpAddr>,
}

impl State {
    pub const fn new(power_loss: PowerLoss) -> Self {
        Self {
            power_loss,
            ptpl: false,
            generation: 0,
            registrations: Vec::new(),
            held: None,
            from: BTreeMap::new(),
        }
    }

    pub const fn held(&self) -> Option<Held> {
        self.held
    }

    pub fn registrations(&self) -> &[Registration] {
        &self.registrations
    }

    pub const fn generation(&self) -> u32 {
        self.generation
    }

    pub const fn persists(&self) -> bool {
        self.ptpl
    }

    /// The Reservation Capabilities byte of Identify Namespace: all six types, IEKEY as of
    /// revision 1.3, and PTPL only where something durable stands behind the namespace.
    pub const fn capabilities(&self) -> u8 {
        match self.power_loss {
            PowerLoss::Forgets => 0xfe,
            PowerLoss::Keeps => 0xff,
        }
    }

    pub fn is_registrant(&self, host: HostId) -> bool {
        self.position(host).is_some()
    }

    pub fn is_holder(&self, host: HostId) -> bool {
        match self.held {
            Some(Held::By { holder, .. }) => holder == host,
            Some(Held::ByAll { .. }) => self.is_registrant(host),
            None => false,
        }
    }

    /// Set Features, Reservation Persistence (83h), and the CPTPL field.
    ///
    /// # Errors
    /// Invalid Field when PTPL is asked of a namespace that cannot persist.
    pub fn set_persist(&mut self, persist: bool) -> Result<(), Refusal> {
        if persist && self.power_loss == PowerLoss::Forgets {
            return Err(Refusal::InvalidField);
        }
        self.ptpl = persist;
        Ok(())
    }

    /// What has to reach stable storage before a command completes; `None` when PTPL is clear.
    pub fn saved(&self) -> Option<Saved> {
        self.ptpl.then(|| Saved {
            generation: self.generation,
            registrations: self.registrations.clone(),
            held: self.held,
        })
    }

    /// The state after power on. A `saved` state that does not hold together (from a damaged
    /// store) is refused whole rather than repaired.
    pub fn power_on(power_loss: PowerLoss, saved: Option<Saved>) -> Option<Self> {
        let Some(saved) = saved else { return Some(Self::new(power_loss)) };
        let state = Self {
            power_loss,
            ptpl: true,
            generation: saved.generation,
            registrations: saved.registrations,
            held: saved.held,
            from: BTreeMap::new(),
        };
        (power_loss == PowerLoss::Keeps && state.holds_together()).then_some(state)
    }

    /// As [`execute`](Self::execute), from an address: names cost nothing, and however many hosts one address says to be, it
    /// registers no more of them than twice as many as others may yet.
    ///
    /// # Errors
    /// As there.
    pub fn execute_from(
        &mut self,
        host: HostId,
        address: IpAddr,
        command: &Command,
    ) -> Result<Effects, Refusal> {
        let before = (!self.is_registrant(host)).then(|| self.clone());
        let effects = self.execute(host, command)?;
        let is_its = |host: &HostId| self.registrations.iter().any(|known| known.host == *host);
        self.from.retain(|host, _| is_its(host));
        if let Some(before) = before
            && self.is_registrant(host)
        {
            let of_it = 1 + self.from.values().filter(|from| **from == address).count();
            let left = MAX_REGISTRANTS.saturating_sub(self.registrations.len());
            if of_it > 1 && of_it > 2 * left {
                *self = before;
                return Err(Refusal::Full);
            }
            self.from.insert(host, address);
        }
        Ok(effects)
    }

    /// Applies `command`, issued by a controller of `host`.
    ///
    /// # Errors
    /// A [`Refusal`]; nothing has changed then.
    pub fn execute(&mut self, host: HostId, command: &Command) -> Result<Effects, Refusal> {
        let effects = match *command {
            Command::Register { new_key, persistence } => {
                self.with_persistence(persistence, |s| s.register(host, new_key))
            }
            Command::Unregister { current_key, persistence } => {
                self.with_persistence(persistence, |s| s.unregister(host, current_key))
            }
            Command::Replace { current_key, new_key, persistence } => {
                self.with_persistence(persistence, |s| s.replace(host, current_key, new_key))
            }
            Command::Acquire { current_key, kind } => self.acquire(host, current_key, kind),
            Command::Preempt { current_key, preempt_key, kind, abort } => {
                self.preempt(host, current_key, preempt_key, kind, abort)
            }
            Command::Release { current_key, kind } => self.release(host, current_key, kind),
            Command::Clear { current_key } => self.clear(host, current_key),
        }?;
        if command.counts() {
            self.generation = self.generation.wrapping_add(1);
        }
        debug_assert!(self.holds_together());
        Ok(effects)
    }

    /// A refused registration leaves PTPL alone, and a refused PTPL leaves the registration alone.
    fn with_persistence(
        &mut self,
        persistence: ChangePersistence,
        apply: impl FnOnce(&mut Self) -> Result<Effects, Refusal>,
    ) -> Result<Effects, Refusal> {
        let before = self.ptpl;
        match persistence {
            ChangePersistence::NoChange => {}
            ChangePersistence::Clear => self.set_persist(false)?,
            ChangePersistence::Set => self.set_persist(true)?,
        }
        apply(self).inspect_err(|_| self.ptpl = before)
    }

    fn register(&mut self, host: HostId, new_key: u64) -> Result<Effects, Refusal> {
        match self.position(host) {
            // Registering the key one already has is no error; another key asks for Replace.
            Some(at) if self.registrations[at].key == new_key => Ok(Effects::default()),
            Some(_) => Err(Refusal::Conflict),
            None => self.add(host, new_key),
        }
    }

    fn replace(
        &mut self,
        host: HostId,
        current_key: Option<u64>,
        new_key: u64,
    ) -> Result<Effects, Refusal> {
        match (self.position(host), current_key) {
            (Some(at), Some(key)) if self.registrations[at].key != key => Err(Refusal::Conflict),
            (Some(at), _) => {
                self.registrations[at].key = new_key;
                Ok(Effects::default())
            }
            // IEKEY: "without regard to its registration status".
            (None, None) => self.add(host, new_key),
            (None, Some(_)) => Err(Refusal::Conflict),
        }
    }

    fn unregister(&mut self, host: HostId, current_key: Option<u64>) -> Result<Effects, Refusal> {
        let at = self.position(host).ok_or(Refusal::Conflict)?;
        if current_key.is_some_and(|key| key != self.registrations[at].key) {
            return Err(Refusal::Conflict);
        }
        let was = self.held;
        self.registrations.remove(at);
        self.drop_orphaned_reservation();
        let mut effects = Effects::default();
        if self.held.is_none() && was.is_some_and(|held| concerns_registrants(held.kind())) {
            self.tell_others(&mut effects, host, NoticeKind::ReservationReleased);
        }
        Ok(effects)
    }

    fn acquire(&mut self, host: HostId, key: u64, kind: Type) -> Result<Effects, Refusal> {
        self.require_key(host, key)?;
        match self.held {
            None => {
                self.held = Some(Held::new(kind, host));
                Ok(Effects::default())
            }
            // A holder asking for what it has; changing the type takes a preempt.
            Some(held) if self.is_holder(host) && held.kind() == kind => Ok(Effects::default()),
            Some(_) => Err(Refusal::Conflict),
        }
    }

    /// "Preempting a Reservation or Registration". A preempt whose PRKEY matches nobody is a
    /// conflict: it did not do what was asked, whoever holds the reservation.
    fn preempt(
        &mut self,
        host: HostId,
        key: u64,
        preempt_key: u64,
        kind: Type,
        abort: bool,
    ) -> Result<Effects, Refusal> {
        self.require_key(host, key)?;
        let was = self.held;
        let (doomed, takes_over): (Vec<HostId>, bool) = match was {
            Some(Held::ByAll { .. }) if preempt_key == 0 => {
                (self.hosts(|r| r.host != host).collect(), true)
            }
            Some(Held::By { holder, .. }) if self.key_of(holder) == Some(preempt_key) => {
                (self.hosts(|r| r.key == preempt_key && r.host != host).collect(), true)
            }
            Some(Held::By { .. }) if preempt_key == 0 => return Err(Refusal::InvalidField),
            // Registrations only: the issuer's own goes too when it bears the key.
            _ => (self.hosts(|r| r.key == preempt_key).collect(), false),
        };
        if doomed.is_empty() && !takes_over {
            return Err(Refusal::Conflict);
        }
        self.registrations.retain(|r| !doomed.contains(&r.host));
        if takes_over {
            self.held = Some(Held::new(kind, host));
        } else {
            self.drop_orphaned_reservation();
        }
        let mut effects = Effects::default();
        for &gone in doomed.iter().filter(|&&gone| gone != host) {
            effects.notices.push(Notice { host: gone, kind: NoticeKind::RegistrationPreempted });
        }
        // Remaining registrants hear of it when the type of the reservation changed.
        if takes_over && was.is_some_and(|held| held.kind() != kind) {
            self.tell_others(&mut effects, host, NoticeKind::ReservationReleased);
        }
        if abort {
            effects.abort = doomed;
        }
        Ok(effects)
    }

    fn release(&mut self, host: HostId, key: u64, kind: Type) -> Result<Effects, Refusal> {
        self.require_key(host, key)?;
        let Some(held) = self.held else { return Ok(Effects::default()) };
        if held.kind() != kind {
            return Err(Refusal::InvalidField);
        }
        let mut effects = Effects::default();
        // A registrant that holds nothing releases nothing, successfully.
        if self.is_holder(host) {
            self.held = None;
            if concerns_registrants(kind) {
                self.tell_others(&mut effects, host, NoticeKind::ReservationReleased);
            }
        }
        Ok(effects)
    }

    fn clear(&mut self, host: HostId, key: u64) -> Result<Effects, Refusal> {
        self.require_key(host, key)?;
        let mut effects = Effects::default();
        self.tell_others(&mut effects, host, NoticeKind::ReservationPreempted);
        self.registrations.clear();
        self.held = None;
        Ok(effects)
    }

    fn add(&mut self, host: HostId, key: u64) -> Result<Effects, Refusal> {
        if self.registrations.len() == MAX_REGISTRANTS {
            return Err(Refusal::Full);
        }
        self.registrations.push(Registration { host, key });
        Ok(Effects::default())
    }

    fn require_key(&self, host: HostId, key: u64) -> Result<(), Refusal> {
        if self.key_of(host) == Some(key) { Ok(()) } else { Err(Refusal::Conflict) }
    }

    /// A single holder's reservation ends with its registration, one of all registrants with the
    /// last registration.
    fn drop_orphaned_reservation(&mut self) {
        let orphaned = match self.held {
            Some(Held::By { holder, .. }) => !self.is_registrant(holder),
            Some(Held::ByAll { .. }) => self.registrations.is_empty(),
            None => false,
        };
        if orphaned {
            self.held = None;
        }
    }

    fn tell_others(&self, effects: &mut Effects, issuer: HostId, kind: NoticeKind) {
        effects.notices.extend(self.hosts(|r| r.host != issuer).map(|host| Notice { host, kind }));
    }

    fn hosts(&self, which: impl Fn(&Registration) -> bool) -> impl Iterator<Item = HostId> {
        self.registrations.iter().filter(move |r| which(r)).map(|r| r.host)
    }

    fn position(&self, host: HostId) -> Option<usize> {
        self.registrations.iter().position(|r| r.host == host)
    }

    fn key_of(&self, host: HostId) -> Option<u64> {
        self.position(host).map(|at| self.registrations[at].key)
    }

    fn holds_together(&self) -> bool {
        let unique =
            self.registrations.iter().enumerate().all(|(at, r)| self.position(r.host) == Some(at));
        let held = match self.held {
            None => true,
            Some(Held::By { kind, holder }) => {
                !is_all_registrants(kind) && self.is_registrant(holder)
            }
            Some(Held::ByAll { kind }) => {
                is_all_registrants(kind) && !self.registrations.is_empty()
            }
        };
        unique && held && self.registrations.len() <= MAX_REGISTRANTS
    }
}
