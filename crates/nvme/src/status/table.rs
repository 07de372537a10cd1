//! Every status code of the Base Specification 2.1, the NVM Command Set 1.1 and Fabrics, by name.

use super::Status;

statuses! { known;
    0: {
        SUCCESS = 0x00, "Successful Completion";
        INVALID_OPCODE = 0x01, "Invalid Command Opcode";
        INVALID_FIELD = 0x02, "Invalid Field in Command";
        COMMAND_ID_CONFLICT = 0x03, "Command ID Conflict";
        DATA_TRANSFER_ERROR = 0x04, "Data Transfer Error";
        ABORTED_POWER_LOSS = 0x05, "Commands Aborted due to Power Loss Notification";
        INTERNAL_ERROR = 0x06, "Internal Error";
        ABORT_REQUESTED = 0x07, "Command Abort Requested";
        ABORTED_SQ_DELETION = 0x08, "Command Aborted due to SQ Deletion";
        ABORTED_FAILED_FUSED = 0x09, "Command Aborted due to Failed Fused Command";
        ABORTED_MISSING_FUSED = 0x0a, "Command Aborted due to Missing Fused Command";
        INVALID_NAMESPACE_OR_FORMAT = 0x0b, "Invalid Namespace or Format";
        COMMAND_SEQUENCE_ERROR = 0x0c, "Command Sequence Error";
        INVALID_SGL_SEGMENT_DESCRIPTOR = 0x0d, "Invalid SGL Segment Descriptor";
        INVALID_NUMBER_OF_SGL_DESCRIPTORS = 0x0e, "Invalid Number of SGL Descriptors";
        DATA_SGL_LENGTH_INVALID = 0x0f, "Data SGL Length Invalid";
        METADATA_SGL_LENGTH_INVALID = 0x10, "Metadata SGL Length Invalid";
        SGL_DESCRIPTOR_TYPE_INVALID = 0x11, "SGL Descriptor Type Invalid";
        INVALID_USE_OF_CMB = 0x12, "Invalid Use of Controller Memory Buffer";
        PRP_OFFSET_INVALID = 0x13, "PRP Offset Invalid";
        ATOMIC_WRITE_UNIT_EXCEEDED = 0x14, "Atomic Write Unit Exceeded";
        OPERATION_DENIED = 0x15, "Operation Denied";
        SGL_OFFSET_INVALID = 0x16, "SGL Offset Invalid";
        HOST_IDENTIFIER_INCONSISTENT_FORMAT = 0x18, "Host Identifier Inconsistent Format";
        KEEP_ALIVE_TIMER_EXPIRED = 0x19, "Keep Alive Timer Expired";
        KEEP_ALIVE_TIMEOUT_INVALID = 0x1a, "Keep Alive Timeout Invalid";
        ABORTED_PREEMPT_AND_ABORT = 0x1b, "Command Aborted due to Preempt and Abort";
        SANITIZE_FAILED = 0x1c, "Sanitize Failed";
        SANITIZE_IN_PROGRESS = 0x1d, "Sanitize In Progress";
        SGL_DATA_BLOCK_GRANULARITY_INVALID = 0x1e, "SGL Data Block Granularity Invalid";
        NOT_SUPPORTED_FOR_QUEUE_IN_CMB = 0x1f, "Command Not Supported for Queue in CMB";
        NAMESPACE_IS_WRITE_PROTECTED = 0x20, "Namespace is Write Protected";
        COMMAND_INTERRUPTED = 0x21, "Command Interrupted";
        TRANSIENT_TRANSPORT_ERROR = 0x22, "Transient Transport Error";
        PROHIBITED_BY_LOCKDOWN = 0x23, "Command Prohibited by Command and Feature Lockdown";
        ADMIN_COMMAND_MEDIA_NOT_READY = 0x24, "Admin Command Media Not Ready";
        INVALID_KEY_TAG = 0x25, "Invalid Key Tag";
        HOST_DISPERSED_NAMESPACE_NOT_ENABLED = 0x26,
            "Host Dispersed Namespace Support Not Enabled";
        HOST_IDENTIFIER_NOT_INITIALIZED = 0x27, "Host Identifier Not Initialized";
        INCORRECT_KEY = 0x28, "Incorrect Key";
        FDP_DISABLED = 0x29, "FDP Disabled";
        INVALID_PLACEMENT_HANDLE_LIST = 0x2a, "Invalid Placement Handle List";
        LBA_OUT_OF_RANGE = 0x80, "LBA Out of Range";
        CAPACITY_EXCEEDED = 0x81, "Capacity Exceeded";
        NAMESPACE_NOT_READY = 0x82, "Namespace Not Ready";
        RESERVATION_CONFLICT = 0x83, "Reservation Conflict";
        FORMAT_IN_PROGRESS = 0x84, "Format In Progress";
        INVALID_VALUE_SIZE = 0x85, "Invalid Value Size";
        INVALID_KEY_SIZE = 0x86, "Invalid Key Size";
        KV_KEY_DOES_NOT_EXIST = 0x87, "KV Key Does Not Exist";
        UNRECOVERED_ERROR = 0x88, "Unrecovered Error";
        KEY_EXISTS = 0x89, "Key Exists";
    }
    1: {
        COMPLETION_QUEUE_INVALID = 0x00, "Completion Queue Invalid";
        INVALID_QUEUE_IDENTIFIER = 0x01, "Invalid Queue Identifier";
        INVALID_QUEUE_SIZE = 0x02, "Invalid Queue Size";
        ABORT_COMMAND_LIMIT_EXCEEDED = 0x03, "Abort Command Limit Exceeded";
        ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED = 0x05, "Asynchronous Event Request Limit Exceeded";
        INVALID_FIRMWARE_SLOT = 0x06, "Invalid Firmware Slot";
        INVALID_FIRMWARE_IMAGE = 0x07, "Invalid Firmware Image";
        INVALID_INTERRUPT_VECTOR = 0x08, "Invalid Interrupt Vector";
        INVALID_LOG_PAGE = 0x09, "Invalid Log Page";
        INVALID_FORMAT = 0x0a, "Invalid Format";
        FIRMWARE_NEEDS_CONVENTIONAL_RESET = 0x0b,
            "Firmware Activation Requires Conventional Reset";
        INVALID_QUEUE_DELETION = 0x0c, "Invalid Queue Deletion";
        FEATURE_NOT_SAVEABLE = 0x0d, "Feature Identifier Not Saveable";
        FEATURE_NOT_CHANGEABLE = 0x0e, "Feature Not Changeable";
        FEATURE_NOT_NAMESPACE_SPECIFIC = 0x0f, "Feature Not Namespace Specific";
        FIRMWARE_NEEDS_SUBSYSTEM_RESET = 0x10,
            "Firmware Activation Requires NVM Subsystem Reset";
        FIRMWARE_NEEDS_CONTROLLER_RESET = 0x11,
            "Firmware Activation Requires Controller Level Reset";
        FIRMWARE_NEEDS_MAXIMUM_TIME = 0x12,
            "Firmware Activation Requires Maximum Time Violation";
        FIRMWARE_ACTIVATION_PROHIBITED = 0x13, "Firmware Activation Prohibited";
        OVERLAPPING_RANGE = 0x14, "Overlapping Range";
        NAMESPACE_INSUFFICIENT_CAPACITY = 0x15, "Namespace Insufficient Capacity";
        NAMESPACE_IDENTIFIER_UNAVAILABLE = 0x16, "Namespace Identifier Unavailable";
        NAMESPACE_ALREADY_ATTACHED = 0x18, "Namespace Already Attached";
        NAMESPACE_IS_PRIVATE = 0x19, "Namespace Is Private";
        NAMESPACE_NOT_ATTACHED = 0x1a, "Namespace Not Attached";
        THIN_PROVISIONING_NOT_SUPPORTED = 0x1b, "Thin Provisioning Not Supported";
        CONTROLLER_LIST_INVALID = 0x1c, "Controller List Invalid";
        SELF_TEST_IN_PROGRESS = 0x1d, "Device Self-test In Progress";
        BOOT_PARTITION_WRITE_PROHIBITED = 0x1e, "Boot Partition Write Prohibited";
        INVALID_CONTROLLER_IDENTIFIER = 0x1f, "Invalid Controller Identifier";
        INVALID_SECONDARY_CONTROLLER_STATE = 0x20, "Invalid Secondary Controller State";
        INVALID_NUMBER_OF_CONTROLLER_RESOURCES = 0x21,
            "Invalid Number of Controller Resources";
        INVALID_RESOURCE_IDENTIFIER = 0x22, "Invalid Resource Identifier";
        SANITIZE_PROHIBITED_WHILE_PMR_ENABLED = 0x23,
            "Sanitize Prohibited While Persistent Memory Region is Enabled";
        ANA_GROUP_IDENTIFIER_INVALID = 0x24, "ANA Group Identifier Invalid";
        ANA_ATTACH_FAILED = 0x25, "ANA Attach Failed";
        INSUFFICIENT_CAPACITY = 0x26, "Insufficient Capacity";
        NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED = 0x27, "Namespace Attachment Limit Exceeded";
        PROHIBITION_NOT_SUPPORTED = 0x28, "Prohibition of Command Execution Not Supported";
        COMMAND_SET_NOT_SUPPORTED = 0x29, "I/O Command Set Not Supported";
        COMMAND_SET_NOT_ENABLED = 0x2a, "I/O Command Set Not Enabled";
        COMMAND_SET_COMBINATION_REJECTED = 0x2b, "I/O Command Set Combination Rejected";
        INVALID_COMMAND_SET = 0x2c, "Invalid I/O Command Set";
        IDENTIFIER_UNAVAILABLE = 0x2d, "Identifier Unavailable";
        NAMESPACE_IS_DISPERSED = 0x2e, "Namespace Is Dispersed";
        INVALID_DISCOVERY_INFORMATION = 0x2f, "Invalid Discovery Information";
        ZONING_DATA_STRUCTURE_LOCKED = 0x30, "Zoning Data Structure Locked";
        ZONING_DATA_STRUCTURE_NOT_FOUND = 0x31, "Zoning Data Structure Not Found";
        INSUFFICIENT_DISCOVERY_RESOURCES = 0x32, "Insufficient Discovery Resources";
        REQUESTED_FUNCTION_DISABLED = 0x33, "Requested Function Disabled";
        ZONEGROUP_ORIGINATOR_INVALID = 0x34, "ZoneGroup Originator Invalid";
        INVALID_HOST_COMMAND = 0x35, "Invalid Host";
        INVALID_NVM_SUBSYSTEM = 0x36, "Invalid NVM Subsystem";
        INVALID_CONTROLLER_DATA_QUEUE = 0x37, "Invalid Controller Data Queue";
        NOT_ENOUGH_RESOURCES = 0x38, "Not Enough Resources";
        CONTROLLER_SUSPENDED = 0x39, "Controller Suspended";
        CONTROLLER_NOT_SUSPENDED = 0x3a, "Controller Not Suspended";
        CONTROLLER_DATA_QUEUE_FULL = 0x3b, "Controller Data Queue Full";
        CONFLICTING_ATTRIBUTES = 0x80, "Conflicting Attributes";
        INVALID_PROTECTION_INFORMATION = 0x81, "Invalid Protection Information";
        WRITE_TO_READ_ONLY_RANGE = 0x82, "Attempted Write to Read Only Range";
        COMMAND_SIZE_LIMIT_EXCEEDED = 0x83, "Command Size Limit Exceeded";
        INCOMPATIBLE_NAMESPACE_OR_FORMAT = 0x85, "Incompatible Namespace or Format";
        FAST_COPY_NOT_POSSIBLE = 0x86, "Fast Copy Not Possible";
        OVERLAPPING_IO_RANGE = 0x87, "Overlapping I/O Range";
        NAMESPACE_NOT_REACHABLE = 0x88, "Namespace Not Reachable";
        INSUFFICIENT_RESOURCES = 0x89, "Insufficient Resources";
        // Vendor specific: of direct write windows (`docs/anof.md`).
        NO_WINDOW = 0xc0, "No Window";
        WINDOW_BUSY = 0xc1, "Window Busy";
    }
    2: {
        WRITE_FAULT = 0x80, "Write Fault";
        UNRECOVERED_READ_ERROR = 0x81, "Unrecovered Read Error";
        GUARD_CHECK_ERROR = 0x82, "End-to-end Guard Check Error";
        APPLICATION_TAG_CHECK_ERROR = 0x83, "End-to-end Application Tag Check Error";
        REFERENCE_TAG_CHECK_ERROR = 0x84, "End-to-end Reference Tag Check Error";
        COMPARE_FAILURE = 0x85, "Compare Failure";
        ACCESS_DENIED = 0x86, "Access Denied";
        DEALLOCATED_OR_UNWRITTEN_BLOCK = 0x87, "Deallocated or Unwritten Logical Block";
        STORAGE_TAG_CHECK_ERROR = 0x88, "End-to-End Storage Tag Check Error";
    }
    3: {
        INTERNAL_PATH_ERROR = 0x00, "Internal Path Error";
        ANA_PERSISTENT_LOSS = 0x01, "Asymmetric Access Persistent Loss";
        ANA_INACCESSIBLE = 0x02, "Asymmetric Access Inaccessible";
        ANA_TRANSITION = 0x03, "Asymmetric Access Transition";
        CONTROLLER_PATHING_ERROR = 0x60, "Controller Pathing Error";
        HOST_PATHING_ERROR = 0x70, "Host Pathing Error";
        ABORTED_BY_HOST = 0x71, "Command Aborted By Host";
    }
}

// The command specific codes 80h to BFh belong to the command: these are those of Fabrics commands
// and of the Discovery log (section 4.2.3.2 of the Base Specification, Fabrics figure).
statuses! { fabrics_known;
    1: {
        CONNECT_INCOMPATIBLE_FORMAT = 0x80, "Incompatible Format";
        CONNECT_CONTROLLER_BUSY = 0x81, "Controller Busy";
        CONNECT_INVALID_PARAMETERS = 0x82, "Connect Invalid Parameters";
        CONNECT_RESTART_DISCOVERY = 0x83, "Connect Restart Discovery";
        CONNECT_INVALID_HOST = 0x84, "Connect Invalid Host";
        DISCONNECT_INVALID_QUEUE_TYPE = 0x85, "Invalid Queue Type";
        DISCOVER_RESTART = 0x90, "Discover Restart";
        AUTHENTICATION_REQUIRED = 0x91, "Authentication Required";
    }
}
