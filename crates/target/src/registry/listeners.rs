//! Listeners, their ANA states, and referrals: what the discovery log has beside subsystems.

use nvme::ana;

use super::{Draining, ManageError, Target, raise};
use crate::event::Event;
use crate::limits::{LISTENERS_MAX, REFERRALS_MAX};
use crate::listener::{ListenerId, ListenerInfo, Referral};

impl Target {
    /// Notes a listener, for discovery. Returns its number, to be given with each Connect.
    ///
    /// # Errors
    /// [`LISTENERS_MAX`] is reached.
    pub fn add_listener(&self, info: ListenerInfo) -> Result<ListenerId, ManageError> {
        let mut registry = self.lock();
        if registry.listeners.len() >= LISTENERS_MAX {
            return Err(ManageError::Full { what: "the list of listeners", max: LISTENERS_MAX });
        }
        // Ends: there are fewer listeners than numbers.
        let id = loop {
            let id = ListenerId(registry.next_listener);
            registry.next_listener = registry.next_listener.checked_add(1).unwrap_or(1);
            if !registry.listeners.contains_key(&id) {
                break id;
            }
        };
        registry.listeners.insert(id, info);
        let told = registry.discovery_changed(|_| true);
        drop(registry);
        raise(&told, Event::DiscoveryChange);
        Ok(id)
    }

    /// Forgets a listener. Connections that came through it live on.
    ///
    /// # Errors
    /// There is no such listener.
    pub fn remove_listener(&self, id: ListenerId) -> Result<(), ManageError> {
        let mut registry = self.lock();
        registry.listeners.remove(&id).ok_or(ManageError::NoListener)?;
        let told = registry.discovery_changed(|_| true);
        drop(registry);
        raise(&told, Event::DiscoveryChange);
        Ok(())
    }

    /// Gives the namespaces of every subsystem an ANA state for the hosts that are connected through a
    /// listener, and tells them. Their direct write windows have ended when what is returned is [done](Draining::wait).
    ///
    /// # Errors
    /// There is no such listener.
    pub fn set_listener_ana(
        &self,
        id: ListenerId,
        state: ana::State,
    ) -> Result<Draining, ManageError> {
        let mut registry = self.lock();
        registry.listeners.get_mut(&id).ok_or(ManageError::NoListener)?.ana = state;
        let controllers = registry.subsystems.values().flat_map(|s| s.controllers.iter());
        // Under the lock, so that of two changes the later one stays.
        let told: Vec<_> = controllers
            .filter(|controller| controller.path().listener == id && controller.set_ana(state))
            .cloned()
            .collect();
        drop(registry);
        let ending = Draining::windows(&told);
        raise(&told, Event::AnaChange);
        Ok(ending)
    }

    /// Adds a referral to another discovery service; one that is there already stays.
    ///
    /// # Errors
    /// [`REFERRALS_MAX`] is reached.
    pub fn add_referral(&self, referral: Referral) -> Result<(), ManageError> {
        let mut registry = self.lock();
        if registry.referrals.contains(&referral) {
            return Ok(());
        }
        if registry.referrals.len() >= REFERRALS_MAX {
            return Err(ManageError::Full { what: "the list of referrals", max: REFERRALS_MAX });
        }
        registry.referrals.push(referral);
        let told = registry.discovery_changed(|_| true);
        drop(registry);
        raise(&told, Event::DiscoveryChange);
        Ok(())
    }

    /// Removes a referral.
    ///
    /// # Errors
    /// There is no such referral.
    pub fn remove_referral(&self, referral: &Referral) -> Result<(), ManageError> {
        let mut registry = self.lock();
        let at = registry
            .referrals
            .iter()
            .position(|other| other == referral)
            .ok_or(ManageError::NoReferral)?;
        registry.referrals.remove(at);
        let told = registry.discovery_changed(|_| true);
        drop(registry);
        raise(&told, Event::DiscoveryChange);
        Ok(())
    }
}
