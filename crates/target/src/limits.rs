//! Limits of the target, each with its reason.

use std::time::Duration;

use stdx::num::usize64;

/// Registrants of one namespace. Clusters that fence by reservation have tens of nodes; the bound
/// keeps a host that invents Host Identifiers from growing the state without end.
pub const MAX_REGISTRANTS: usize = 128;

/// Unread Reservation Notification log pages of one controller. The page's own count of further
/// pages is a byte, and a host that has missed this many has to ask for a report anyway.
pub const MAX_RESERVATION_NOTICES: usize = 64;
const _: () = assert!(MAX_RESERVATION_NOTICES <= 256);

// ---- Registry -----------------------------------------------------------------------------

/// Subsystems of one target. A discovery log is read in one sitting by every host: some hundred
/// entries per listener is what stays readable.
pub const SUBSYSTEMS_MAX: usize = 256;
/// Listeners of one target: every subsystem is listed once per listener.
pub const LISTENERS_MAX: usize = 64;
/// Referrals to other discovery services.
pub const REFERRALS_MAX: usize = 64;
/// Hosts on one subsystem's list.
pub const HOSTS_MAX: usize = 4096;
/// Namespaces of one subsystem unless its specification says less: one page of the Identify
/// active namespace list, and of the Changed Attached Namespace List, holds them all.
pub const NAMESPACES_MAX: u32 = 1024;
/// Controllers of one subsystem, and of the discovery service: bounds what a flood of Connects
/// can hold. A further Connect is answered Controller Busy.
pub const CONTROLLERS_MAX: usize = 1024;

/// Refused Connects told in a window, and its length: enough to see what is wrong, and few enough that nobody's
/// attempts push what else happened out of the list of events.
pub const REFUSALS_TOLD: usize = 8;
pub const REFUSALS_WINDOW_NANOS: u64 = 60_000_000_000;

// ---- Queues -------------------------------------------------------------------------------

/// I/O queue pairs of one controller.
pub const IO_QUEUES_MAX: u16 = 128;
/// Entries of an I/O queue; CAP.MQES is one less, MAXCMD the same.
pub const IO_QUEUE_ENTRIES_MAX: u16 = 1024;
/// Entries of the admin queue; advertised as ASQSZ in discovery. Hosts use 32.
pub const ADMIN_QUEUE_ENTRIES_MAX: u16 = 128;
/// Bytes that admin commands bring beside their capsule: a page is more than any feature has.
pub const ADMIN_DATA_BYTES: usize = 4096;
/// Bytes of in-capsule data of an I/O queue (IOCCSZ).
pub const IO_IN_CAPSULE_BYTES: u32 = 16 << 10;
/// Bytes of in-capsule data of the admin queue, which NVMe/TCP fixes (TCP transport 1.1).
pub const ADMIN_IN_CAPSULE_BYTES: u32 = 8 << 10;
/// Largest data transfer of one command in bytes (MDTS). Hosts split what is larger and have the parts under way side
/// by side; what they pass through for programs is not split, and those send this much.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// MDTS: the power of two of 4 KiB pages that [`TRANSFER_BYTES_MAX`] is.
pub const MDTS: u8 = 8;
const _: () = assert!(TRANSFER_BYTES_MAX as usize <= media::drive::TRANSFER_MAX);
const _: () = assert!(TRANSFER_BYTES_MAX <= fabric::limits::TRANSFER_BYTES);

// ---- What the hosts of one reactor may hold -------------------------------------------------

/// Bytes of data that wait for hosts to send or to take them, and of what is to be sent beside it; most of a reactor's
/// pool of buffers.
pub const DATA_HELD_BYTES: usize = 40 << 20;
/// Bytes of in-capsule data whose commands had to wait.
pub const CAPSULES_HELD_BYTES: usize = 8 << 20;
/// Pieces under way of commands that move no data of their host, in all: few, because other hosts' commands wait
/// behind them.
pub const WORK_PIECES_MAX: usize = 8;
/// The most memory of the pool that a piece takes: a power of two, and room to place it in.
pub const PIECE_POOL_BYTES: usize = 2 * usize64(PIECE_BYTES);
// What is left is the machine's own.
const _: () = assert!(
    DATA_HELD_BYTES + CAPSULES_HELD_BYTES + WORK_PIECES_MAX * PIECE_POOL_BYTES
        <= reactor::POOL_BYTES - 4 * reactor::BUFFER_MAX
);
/// The least that a transfer counts for in bytes: transfers are operations of a drive too, of which a reactor has a
/// bounded number.
pub const TRANSFER_CHARGE_MIN: usize = 16 << 10;
/// Entries of all queues connected on one reactor: each can be a task. The other half is for connections.
pub const QUEUE_ENTRIES_MAX: usize = reactor::TASKS_MAX / 2;
/// The least that a queue counts for in entries: queues are connections too, of which a reactor has a bounded number.
pub const QUEUE_CHARGE_MIN: u16 = 32;
const _: () = assert!(QUEUE_ENTRIES_MAX / QUEUE_CHARGE_MIN as usize <= reactor::CONNECTIONS_MAX);
const _: () = assert!(QUEUE_ENTRIES_MAX / 3 >= IO_QUEUE_ENTRIES_MAX as usize);
/// Controllers of one host in one subsystem, unless told otherwise: one for each of its paths, and those that its last
/// life left.
pub const HOST_CONTROLLERS: usize = 64;
/// How long a command waits for drives that its pool lacks before its host is told to send it again: a reset of an adapter
/// is over by then, and hosts give up on a command that says nothing for 30 s.
pub const DRIVES_PATIENCE: Duration = Duration::from_secs(5);
/// The same where more than [this part](DRIVES_WAITING_PART) of a queue's entries wait already: the others are for reads
/// that can be served, which hosts send by the same queues as what they send again.
pub const DRIVES_PATIENCE_CROWDED: Duration = Duration::from_millis(250);
pub const DRIVES_WAITING_PART: usize = 4;
/// Between two looks whether the pool was opened again.
pub const DRIVES_LOOK: Duration = Duration::from_millis(50);
/// Times as many controllers a host may have in one subsystem together with those that ended, and that only wait for
/// what a drive has of their commands.
pub const HOST_CONTROLLERS_ENDED: usize = 4;
/// Controllers of one address in one subsystem, and in the discovery service, whatever host each says it is.
pub const ADDRESS_CONTROLLERS_MAX: usize = 512;
const _: () = assert!(HOST_CONTROLLERS * HOST_CONTROLLERS_ENDED <= ADDRESS_CONTROLLERS_MAX);
const _: () = assert!(ADDRESS_CONTROLLERS_MAX * 3 <= CONTROLLERS_MAX * 2);

// ---- Controller ---------------------------------------------------------------------------

/// Asynchronous Event Requests parked at once (AERL plus one).
pub const ASYNC_EVENT_REQUESTS_MAX: u32 = 4;
/// Abort commands outstanding at once (ACL plus one): as many as the admin queue holds, so that
/// the limit cannot be exceeded.
pub const ABORTS_MAX: u16 = ADMIN_QUEUE_ENTRIES_MAX;
/// Entries of the Error Information log (ELPE plus one), per controller.
pub const ERROR_LOG_ENTRIES: u8 = 64;
/// Events kept in a subsystem's Persistent Event log; the oldest make room.
pub const PERSISTENT_EVENTS_MAX: usize = 512;
/// Largest event in bytes: header and data of Change Namespace.
pub const PERSISTENT_EVENT_BYTES_MAX: usize = 72;
/// PELS: largest size of the Persistent Event log page, in 64 KiB.
pub const PERSISTENT_EVENT_LOG_SIZE: u32 = 1;
/// Namespaces in the Changed Attached Namespace List before it says "more than that".
pub const CHANGED_NAMESPACES_MAX: usize = 1024;
/// Longest time in seconds that an ANA group is in ANA Change state (ANATT). A change of state is
/// immediate here; an administrator who sets that state by hand has to leave it within this time,
/// because hosts reset a controller that does not.
pub const ANA_TRANSITION_SECONDS: u8 = 10;
/// Delays in units of 100 ms before a host sends a command again that may succeed later (CRDT1 and CRDT2): one second where
/// the system could not do it just now, five where something has to come back. Hosts try five times more: what a drive
/// that answers nothing keeps up takes tens of seconds.
pub const RETRY_DELAYS: [u16; 2] = [10, 50];
/// Milliseconds after the loss of an association was noticed until nothing of it can undo what its host does by another
/// (CQT): until all cores know what its commands have under way. What a backend has of them ends before anything else is
/// written there, however long that takes.
pub const QUIESCE_MS: u16 = 500;
/// Granularity of the Keep Alive Timer in units of 100 ms (KAS): one second.
pub const KEEP_ALIVE_GRANULARITY: u16 = 10;
/// Longest Keep Alive Timeout granted, in ms. The spec's field is 32 bits of ms (49 days); a dead
/// host is to be noticed the same day.
pub const KEEP_ALIVE_MS_MAX: u32 = 3_600_000;
/// Keep Alive Timeout in ms of a discovery controller whose host asked for none: such a
/// connection is meant to be short (Base 2.1 section 3.1.3.3.2: two minutes without a command).
pub const DISCOVERY_IDLE_MS: u32 = 120_000;
/// How long, in ms, a controller without a Keep Alive Timer and without I/O queues may be silent.
pub const UNUSED_IDLE_MS: u32 = 120_000;
/// How long, in ms, an association without an enabled controller is kept (after Connect, reset or
/// shutdown), so that silent hosts do not hold controllers for ever.
pub const DISABLED_IDLE_MS: u32 = 120_000;
/// Worst case time from enable to ready, in units of 500 ms (CAP.TO and CRTO.CRWMT). Enabling is
/// immediate; hosts want a non-zero bound.
pub const READY_TIMEOUT: u8 = 4;

const _: () = {
    assert!(TRANSFER_BYTES_MAX == 4096 << MDTS);
    assert!(IO_QUEUE_ENTRIES_MAX >= 2 && ADMIN_QUEUE_ENTRIES_MAX >= 32);
    assert!(ABORTS_MAX <= 256, "ACL is an 8-bit field, 0's based");
    assert!(ASYNC_EVENT_REQUESTS_MAX < 16, "few of the admin queue's slots");
    assert!(CHANGED_NAMESPACES_MAX * 4 == 4096);
    assert!(IO_IN_CAPSULE_BYTES.is_multiple_of(16) && ADMIN_IN_CAPSULE_BYTES.is_multiple_of(16));
    assert!(KEEP_ALIVE_GRANULARITY > 0);
    assert!(512 + PERSISTENT_EVENTS_MAX * PERSISTENT_EVENT_BYTES_MAX <= 64 << 10, "PELS");
};

// ---- I/O commands -------------------------------------------------------------------------

/// Ranges of commands that name many ([`Ranges::enter_all`](crate::command)), of one namespace on one core, those that wait
/// among them: shared by the hosts. More wait.
pub const RANGES_TOGETHER_MAX: usize = 32 * 1024;

/// Ranges of one namespace that one core has under way for more than one poll: there is one for every entry of its queues,
/// whatever commands that name many have.
pub const MAX_RANGES_IN_FLIGHT: usize = QUEUE_ENTRIES_MAX + RANGES_TOGETHER_MAX;

/// Ranges that a lost queue has under way in a namespace and that are kept from others one by one: every command is compared
/// with each. Where there are more, so many stretches are that have all of them.
pub const KEPT_MAX: usize = 32;

/// Ranges of a namespace held for compares and writes at once: every command is compared with each. More wait.
pub const HOLDS_MAX: usize = 64;

/// Those that one core's hosts share, where so many cores serve a namespace. The least is what three hosts find something in.
pub const fn holds_of_core(cores: usize) -> usize {
    let (even, least) = (HOLDS_MAX / if cores == 0 { 1 } else { cores }, 6);
    if even < least { least } else { even }
}

/// Commands that waited for blocks and are looked at in one go when these are free: each is a poll that other hosts'
/// commands wait behind. Those behind them go on when they have run.
pub const LOOKED_AT_ONCE: usize = 64;

/// Commands under way that are compared with a range in one go when that is held: some microseconds.
pub const COUNTED_AT_ONCE: u32 = 1024;

/// Holds that may pass a command one after the other before it has later ones wait for it.
pub const PASSED_MAX: u32 = 8;

/// How long they do: what it waits for may be a drive that hangs, and they want other blocks than that. Much longer than
/// holds last on drives that answer, and little of what hosts give a command.
pub const BARRED_NANOS: u64 = 1_000_000_000;

/// Bytes that Write Zeroes, Verify and Copy handle at once: in memory some ten microseconds, which is what a neighbour's
/// command may wait for each of them. A multiple of every block size.
pub const PIECE_BYTES: u64 = 128 << 10;
const _: () = assert!(PIECE_BYTES <= media::drive::TRANSFER_MAX as u64);
const _: () = assert!(PIECE_BYTES.is_multiple_of(4096));

/// Bytes of a write that are copied to memory at once where other hosts are active. A multiple of every block size.
pub const PART_BYTES: usize = 16 << 10;
const _: () = assert!(PART_BYTES.is_multiple_of(4096));

/// Bytes of one Write Zeroes (WZSL): what the command can name of 512-byte blocks, which is all that Linux hosts, who
/// do not look at the width of its field, may be told.
pub const WRITE_ZEROES_BYTES_MAX: u64 = 32 << 20;
/// WZSL: the power of two of 4 KiB pages that [`WRITE_ZEROES_BYTES_MAX`] is.
pub const WZSL: u8 = 13;
const _: () = assert!(WRITE_ZEROES_BYTES_MAX == 4096 << WZSL);
const _: () = assert!(WRITE_ZEROES_BYTES_MAX <= 65_536 * 512);

/// Bytes of a volume that become a hole at once: a record of the log, and some thousands of blocks to take out of the
/// map. A multiple of every block size.
pub const HOLE_BYTES: u64 = 16 << 20;
const _: () = assert!(HOLE_BYTES.is_multiple_of(4096));

/// Bytes in which memory and files give deallocated space back (NPDG): a page.
pub const DEALLOCATE_BYTES: u32 = 4096;

/// Source ranges of one Copy (MSRC, which is 0's based, is one less): what hosts use.
pub const COPY_MAX_RANGES: u16 = 128;

/// Logical blocks of one source range of a Copy (MSSRL): 2 MiB or 16 MiB.
pub const COPY_MAX_RANGE_BLOCKS: u32 = 4096;

/// Logical blocks of one Copy (MCL): 32 MiB or 256 MiB, so that a command ends in a time that hosts
/// wait for.
pub const COPY_MAX_BLOCKS: u32 = 65_536;
const _: () = assert!(COPY_MAX_RANGE_BLOCKS <= COPY_MAX_BLOCKS);
const _: () = assert!(COPY_MAX_RANGE_BLOCKS <= u16::MAX as u32);

/// Logical blocks of one fused Compare and Write (ACWU, which is 0's based, is one less).
pub const ATOMIC_COMPARE_WRITE_BLOCKS: u32 = 1;
// Who waits to hold several blocks would be passed by those who hold one of them each.
const _: () = assert!(ATOMIC_COMPARE_WRITE_BLOCKS == 1);

// ---- Drives --------------------------------------------------------------------------------

/// Bytes under way in a namespace's drive on one core while several hosts are active there: what one host's command may
/// wait for behind another's. One host gets two thirds of it at most.
pub const DRIVE_SHARED_BYTES: usize = 384 << 10;
/// The least that a command counts for in it.
pub const DRIVE_CHARGE_MIN: usize = 8 << 10;
const _: () = assert!(DRIVE_CHARGE_MIN <= DRIVE_SHARED_BYTES / 3);

// ---- Volumes -------------------------------------------------------------------------------

/// Bytes of a volume that are compared at once.
pub const VOLUME_COMPARE_BYTES: usize = 64 << 10;
/// Between two attempts to end a direct write window where somebody waits for that: hosts that reset a controller wait
/// for some seconds.
pub const WINDOW_END_PAUSE: Duration = Duration::from_secs(2);
/// Direct write windows of a namespace are granted once in so long, after so many at once: each has its pool's catalog
/// written. Hosts ask for another a second after the last one ended; programs that are started one after the other are
/// within the latter.
pub const WINDOW_GRANT_EVERY: Duration = Duration::from_secs(1);
pub const WINDOW_GRANTS_AT_ONCE: usize = 8;

// ---- Metrics ------------------------------------------------------------------------------

/// Hosts that a reactor keeps counts for by name after they are gone; further ones are counted together. A host that
/// connects under ever new names must grow neither memory nor what a scrape reads without end.
pub const PAST_HOSTS_MAX: usize = 64;
/// Sets of counts that it keeps of those, one for each namespace they used: some 25 KiB each.
pub const PAST_LABELS_MAX: usize = 1024;
