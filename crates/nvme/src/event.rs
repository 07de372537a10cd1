//! Asynchronous events (section 5.1.2).

use stdx::num::low8;

wire_enum! {
    /// Asynchronous Event Type.
    pub enum Type: u8 {
        Error = 0, "Error status";
        Health = 1, "SMART / Health status";
        Notice = 2, "Notice";
        Immediate = 3, "Immediate";
        OneShot = 4, "One-Shot";
        CommandSet = 6, "I/O Command specific status";
        VendorSpecific = 7, "Vendor specific";
    }
}

/// An asynchronous event that this crate has a name for, with the log page that tells more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Write to an invalid doorbell register and its kin: type Error, information as given.
    Error(u8),
    /// NVM subsystem reliability.
    Reliability,
    /// Temperature threshold.
    Temperature,
    /// Spare below threshold.
    Spare,
    /// Attached Namespace Attribute Changed.
    NamespaceAttribute,
    /// Firmware Activation Starting.
    FirmwareActivation,
    /// Asymmetric Namespace Access Change.
    AnaChange,
    /// Discovery Log Page Change.
    DiscoveryChange,
    /// Normal NVM Subsystem Shutdown.
    NormalShutdown,
    /// Reservation Log Page Available.
    ReservationLog,
}

impl Event {
    /// Event type.
    #[must_use]
    pub const fn event_type(self) -> Type {
        match self {
            Self::Error(_) => Type::Error,
            Self::Reliability | Self::Temperature | Self::Spare => Type::Health,
            Self::NamespaceAttribute
            | Self::FirmwareActivation
            | Self::AnaChange
            | Self::DiscoveryChange => Type::Notice,
            Self::NormalShutdown => Type::Immediate,
            Self::ReservationLog => Type::CommandSet,
        }
    }

    /// Event information.
    #[must_use]
    pub const fn information(self) -> u8 {
        match self {
            Self::Error(information) => information,
            Self::Reliability
            | Self::NamespaceAttribute
            | Self::NormalShutdown
            | Self::ReservationLog => 0x00,
            Self::Temperature | Self::FirmwareActivation => 0x01,
            Self::Spare => 0x02,
            Self::AnaChange => 0x03,
            Self::DiscoveryChange => 0xf0,
        }
    }

    /// Log page whose reading clears the event.
    #[must_use]
    pub const fn log_page(self) -> u8 {
        use crate::log::lid;
        match self {
            Self::Error(_) => lid::ERROR_INFORMATION,
            Self::Reliability | Self::Temperature | Self::Spare => lid::SMART,
            Self::NamespaceAttribute => lid::CHANGED_NAMESPACES,
            Self::FirmwareActivation => lid::FIRMWARE_SLOT,
            Self::AnaChange => lid::ANA,
            Self::DiscoveryChange => lid::DISCOVERY,
            // The event has no log page; 0 as the specification leaves it.
            Self::NormalShutdown => 0,
            Self::ReservationLog => lid::RESERVATION_NOTIFICATION,
        }
    }

    /// Completion DW0 of the Asynchronous Event Request.
    #[must_use]
    pub const fn to_dw0(self) -> u32 {
        self.event_type().raw() as u32
            | (self.information() as u32) << 8
            | (self.log_page() as u32) << 16
    }

    /// The event of a completion DW0; `None` when this crate has no name for it.
    #[must_use]
    pub fn from_dw0(dw0: u32) -> Option<Self> {
        let information = low8(u64::from(dw0) >> 8);
        match (Type::from_raw(low8(dw0.into()) & 0x07)?, information) {
            (Type::Error, information) => Some(Self::Error(information)),
            (Type::Health, 0x00) => Some(Self::Reliability),
            (Type::Health, 0x01) => Some(Self::Temperature),
            (Type::Health, 0x02) => Some(Self::Spare),
            (Type::Notice, 0x00) => Some(Self::NamespaceAttribute),
            (Type::Notice, 0x01) => Some(Self::FirmwareActivation),
            (Type::Notice, 0x03) => Some(Self::AnaChange),
            (Type::Notice, 0xf0) => Some(Self::DiscoveryChange),
            (Type::Immediate, 0x00) => Some(Self::NormalShutdown),
            (Type::CommandSet, 0x00) => Some(Self::ReservationLog),
            _ => None,
        }
    }
}

/// Error event information (type Error).
pub mod error {
    codes! { u8;
        WRITE_TO_INVALID_DOORBELL = 0x00, "Write to Invalid Doorbell Register";
        INVALID_DOORBELL_VALUE = 0x01, "Invalid Doorbell Write Value";
        DIAGNOSTIC_FAILURE = 0x02, "Diagnostic Failure";
        PERSISTENT_INTERNAL_ERROR = 0x03, "Persistent Internal Error";
        TRANSIENT_INTERNAL_ERROR = 0x04, "Transient Internal Error";
        FIRMWARE_IMAGE_LOAD_ERROR = 0x05, "Firmware Image Load Error";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_read_back_and_stand_where_linux_looks() {
        for event in [
            Event::Error(error::TRANSIENT_INTERNAL_ERROR),
            Event::Reliability,
            Event::Temperature,
            Event::Spare,
            Event::NamespaceAttribute,
            Event::FirmwareActivation,
            Event::AnaChange,
            Event::DiscoveryChange,
            Event::NormalShutdown,
            Event::ReservationLog,
        ] {
            assert_eq!(Event::from_dw0(event.to_dw0()), Some(event));
        }
        assert_eq!(Event::NamespaceAttribute.to_dw0(), 0x0004_0002);
        assert_eq!(Event::DiscoveryChange.to_dw0(), 0x0070_f002);
        assert_eq!(Event::ReservationLog.to_dw0(), 0x0080_0006);
    }
}
