//! What the target's words are for ours.

use api::v1::Kind;
use api::value::{Address, AnaState, Nqn, Transport};
use fabric::TransportAddress;
use nvme::ana::State;
use target::ManageError;
use target::listener::Referral;

use crate::{Error, Result};

/// An ANA state as the target has it.
pub(super) const fn ana(state: AnaState) -> State {
    match state {
        AnaState::Optimized => State::Optimized,
        AnaState::NonOptimized => State::NonOptimized,
        AnaState::Inaccessible => State::Inaccessible,
        AnaState::PersistentLoss => State::PersistentLoss,
        AnaState::Change => State::Change,
    }
}

/// An ANA state as documents have it.
pub(super) const fn ana_state(state: State) -> AnaState {
    match state {
        State::Optimized => AnaState::Optimized,
        State::NonOptimized => AnaState::NonOptimized,
        State::Inaccessible => AnaState::Inaccessible,
        State::PersistentLoss => AnaState::PersistentLoss,
        State::Change => AnaState::Change,
    }
}

/// A referral as the target has it: to a discovery service of the well-known name.
pub(super) fn referral(address: Address) -> Referral {
    Referral { nqn: nvme::nqn::Nqn::discovery(), address: transport_address(address) }
}

/// An address as the fabric has it.
pub(super) const fn transport_address(address: Address) -> TransportAddress {
    match address.transport() {
        Transport::Tcp => TransportAddress::Tcp(address.socket()),
        Transport::Rdma => TransportAddress::Rdma(address.socket()),
    }
}

/// An NQN as the target has it.
pub(super) fn wire(nqn: &Nqn) -> Result<nvme::nqn::Nqn> {
    nvme::nqn::Nqn::new(nqn.as_str())
        .map_err(|error| Error::new(Kind::Invalid, format!("{nqn}: {error}")))
}

pub(super) fn refused(error: ManageError) -> Error {
    let kind = match error {
        ManageError::SubsystemExists(_)
        | ManageError::NamespaceExists(..)
        | ManageError::IdentityTaken(..) => Kind::Conflict,
        ManageError::NoSubsystem(_)
        | ManageError::NoNamespace(..)
        | ManageError::NoHost(..)
        | ManageError::NoListener
        | ManageError::NoReferral => Kind::NotFound,
        ManageError::Full { .. } => Kind::Limit,
        ManageError::DiscoveryName(_) | ManageError::Invalid { .. } => Kind::Invalid,
        ManageError::Reservations(..) => Kind::Failed,
    };
    Error::new(kind, error.to_string())
}
