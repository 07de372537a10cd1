//! Opcodes by command set, their names, and the direction of their data (section 4.1.1).

/// Admin commands (section 3.1.3.4 and Figure "Admin Command Opcodes").
pub mod admin {
    codes! { u8;
        DELETE_IO_SQ = 0x00, "Delete I/O Submission Queue";
        CREATE_IO_SQ = 0x01, "Create I/O Submission Queue";
        GET_LOG_PAGE = 0x02, "Get Log Page";
        DELETE_IO_CQ = 0x04, "Delete I/O Completion Queue";
        CREATE_IO_CQ = 0x05, "Create I/O Completion Queue";
        IDENTIFY = 0x06, "Identify";
        ABORT = 0x08, "Abort";
        SET_FEATURES = 0x09, "Set Features";
        GET_FEATURES = 0x0a, "Get Features";
        ASYNC_EVENT_REQUEST = 0x0c, "Asynchronous Event Request";
        NAMESPACE_MANAGEMENT = 0x0d, "Namespace Management";
        FIRMWARE_COMMIT = 0x10, "Firmware Commit";
        FIRMWARE_IMAGE_DOWNLOAD = 0x11, "Firmware Image Download";
        DEVICE_SELF_TEST = 0x14, "Device Self-test";
        NAMESPACE_ATTACHMENT = 0x15, "Namespace Attachment";
        KEEP_ALIVE = 0x18, "Keep Alive";
        DIRECTIVE_SEND = 0x19, "Directive Send";
        DIRECTIVE_RECEIVE = 0x1a, "Directive Receive";
        VIRTUALIZATION_MANAGEMENT = 0x1c, "Virtualization Management";
        NVME_MI_SEND = 0x1d, "NVMe-MI Send";
        NVME_MI_RECEIVE = 0x1e, "NVMe-MI Receive";
        CAPACITY_MANAGEMENT = 0x20, "Capacity Management";
        DISCOVERY_INFORMATION_MANAGEMENT = 0x21, "Discovery Information Management";
        FABRIC_ZONING_RECEIVE = 0x22, "Fabric Zoning Receive";
        LOCKDOWN = 0x24, "Lockdown";
        FABRIC_ZONING_LOOKUP = 0x25, "Fabric Zoning Lookup";
        CLEAR_EXPORTED_NVM_RESOURCE = 0x28, "Clear Exported NVM Resource Configuration";
        FABRIC_ZONING_SEND = 0x29, "Fabric Zoning Send";
        CREATE_EXPORTED_NVM_SUBSYSTEM = 0x2a, "Create Exported NVM Subsystem";
        MANAGE_EXPORTED_NVM_SUBSYSTEM = 0x2d, "Manage Exported NVM Subsystem";
        MANAGE_EXPORTED_NAMESPACE = 0x31, "Manage Exported Namespace";
        MANAGE_EXPORTED_PORT = 0x35, "Manage Exported Port";
        SEND_DISCOVERY_LOG_PAGE = 0x39, "Send Discovery Log Page";
        TRACK_SEND = 0x3d, "Track Send";
        TRACK_RECEIVE = 0x3e, "Track Receive";
        MIGRATION_SEND = 0x41, "Migration Send";
        MIGRATION_RECEIVE = 0x42, "Migration Receive";
        CONTROLLER_DATA_QUEUE = 0x45, "Controller Data Queue";
        DOORBELL_BUFFER_CONFIG = 0x7c, "Doorbell Buffer Config";
        FABRICS = 0x7f, "Fabrics Commands";
        FORMAT_NVM = 0x80, "Format NVM";
        SECURITY_SEND = 0x81, "Security Send";
        SECURITY_RECEIVE = 0x82, "Security Receive";
        SANITIZE = 0x84, "Sanitize";
        LOAD_PROGRAM = 0x85, "Load Program";
        GET_LBA_STATUS = 0x86, "Get LBA Status";
        PROGRAM_ACTIVATION_MANAGEMENT = 0x88, "Program Activation Management";
        MEMORY_RANGE_SET_MANAGEMENT = 0x89, "Memory Range Set Management";
        // Vendor specific: of direct write windows (`docs/anof.md`).
        WINDOW_END = 0xc0, "Window End";
        WINDOW_RECEIVE = 0xc2, "Window Receive";
    }

    /// First vendor specific opcode.
    pub const VENDOR_SPECIFIC: u8 = 0xc0;

    /// The name to show for any opcode.
    #[must_use]
    pub const fn name(opcode: u8) -> &'static str {
        super::or_class(known(opcode), opcode >= VENDOR_SPECIFIC)
    }
}

/// I/O commands: those every command set shares and those of the NVM Command Set 1.1.
pub mod io {
    codes! { u8;
        FLUSH = 0x00, "Flush";
        WRITE = 0x01, "Write";
        READ = 0x02, "Read";
        WRITE_UNCORRECTABLE = 0x04, "Write Uncorrectable";
        COMPARE = 0x05, "Compare";
        WRITE_ZEROES = 0x08, "Write Zeroes";
        DATASET_MANAGEMENT = 0x09, "Dataset Management";
        VERIFY = 0x0c, "Verify";
        RESERVATION_REGISTER = 0x0d, "Reservation Register";
        RESERVATION_REPORT = 0x0e, "Reservation Report";
        RESERVATION_ACQUIRE = 0x11, "Reservation Acquire";
        IO_MANAGEMENT_RECEIVE = 0x12, "I/O Management Receive";
        RESERVATION_RELEASE = 0x15, "Reservation Release";
        CANCEL = 0x18, "Cancel";
        COPY = 0x19, "Copy";
        IO_MANAGEMENT_SEND = 0x1d, "I/O Management Send";
        FABRICS = 0x7f, "Fabrics Commands";
    }

    /// First vendor specific opcode.
    pub const VENDOR_SPECIFIC: u8 = 0x80;

    /// The name to show for any opcode.
    #[must_use]
    pub const fn name(opcode: u8) -> &'static str {
        super::or_class(known(opcode), opcode >= VENDOR_SPECIFIC)
    }
}

/// Fabrics command types (FCTYPE, section 6).
pub mod fabrics {
    codes! { u8;
        PROPERTY_SET = 0x00, "Property Set";
        CONNECT = 0x01, "Connect";
        PROPERTY_GET = 0x04, "Property Get";
        AUTHENTICATION_SEND = 0x05, "Authentication Send";
        AUTHENTICATION_RECEIVE = 0x06, "Authentication Receive";
        DISCONNECT = 0x08, "Disconnect";
    }

    /// First vendor specific type.
    pub const VENDOR_SPECIFIC: u8 = 0xc0;

    /// The name to show for any command type.
    #[must_use]
    pub const fn name(fctype: u8) -> &'static str {
        super::or_class(known(fctype), fctype >= VENDOR_SPECIFIC)
    }
}

const fn or_class(known: Option<&'static str>, vendor: bool) -> &'static str {
    match known {
        Some(name) => name,
        None if vendor => "Vendor Specific",
        None => "Reserved",
    }
}

/// Direction of a command's data: bits 1:0 of its opcode or command type. That a command may carry
/// data does not say that this one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    None,
    HostToController,
    ControllerToHost,
    Bidirectional,
}

impl Direction {
    /// The direction an opcode, or the FCTYPE of a Fabrics command, stands for.
    #[must_use]
    pub const fn of(opcode: u8) -> Self {
        match opcode & 0x03 {
            0 => Self::None,
            1 => Self::HostToController,
            2 => Self::ControllerToHost,
            _ => Self::Bidirectional,
        }
    }
}
