//! Bounds of the fabric, each with its reason.

use core::time::Duration;

/// Bytes a connection receives with one call, before its reactor turns to the others: a sixth of a
/// second level cache, so that a command's data is still near when the command is executed, and
/// little enough that a large write delays a small command of another queue by no more than the
/// time to copy this.
pub const RECEIVE_BYTES: usize = 80 * 1024;

/// In-capsule data on an I/O queue (IOCCSZ), bytes: a 16 KiB write needs no R2T.
pub const IN_CAPSULE_IO_BYTES: u32 = 16 * 1024;

/// In-capsule data on an admin queue, bytes: fixed by the transport specification.
pub const IN_CAPSULE_ADMIN_BYTES: u32 = 8 * 1024;

/// The most data that a host is asked for with one transfer, and puts into one PDU (MAXH2CDATA), bytes.
pub const TRANSFER_BYTES: u32 = 1024 * 1024;

/// Bytes one connection may send before its reactor turns to the others: a large transfer delays
/// a small command of another queue by no more than the time to copy this.
pub const SEND_BUDGET_BYTES: usize = 256 * 1024;

/// Bytes that a connection receives or sends with one call where others are active: what they wait for it at least.
pub const PART_BYTES: usize = 32 * 1024;

/// What a call to receive or to send counts for in bytes, and what a command does, beside what they move: they take as
/// long.
pub const CALL_BYTES: usize = 4 * 1024;
pub const COMMAND_BYTES: usize = 4 * 1024;
const _: () = assert!(PART_BYTES <= RECEIVE_BYTES && PART_BYTES <= SEND_BUDGET_BYTES);

/// Pieces of one gather send; the kernel's own limit is 1024, the gain is gone long before.
pub const SEND_PIECES: usize = 128;

/// Bytes a host's connection receives with one call: the data of many small reads, and less than a second level
/// cache, so that it is still near when it is looked at.
pub const HOST_RECEIVE_BYTES: usize = 256 * 1024;

/// Connections tried for one that comes by a given queue of the network card: of 16 queues, one in 60 finds none.
pub const GROUP_DIALS: usize = 64;

/// Transfers that a host lets a controller have outstanding for one command (MAXR2T + 1): what is asked for is queued
/// at once, so that a few cost nothing.
pub const HOST_TRANSFERS: u32 = 16;

/// Sent PDU heads kept before their space is taken back, bytes: a full queue's responses.
pub const HEADS_KEPT_BYTES: usize = 64 * 1024;

/// What a connection may hold that its host has not yet taken, bytes: data, PDU heads and all. Further reads wait,
/// and nothing more is received.
pub const UNSENT_BYTES: usize = 4 * 1024 * 1024;

/// What a connection may hold unsent, bytes, though its host has used up its share: the responses of a short
/// queue, so that one busy connection of a host does not stop the others.
pub const UNSENT_FLOOR_BYTES: usize = 4 * 1024;
const _: () = assert!(UNSENT_FLOOR_BYTES < UNSENT_BYTES);

/// What a piece of data costs that waits to be sent, beside its bytes: its place in the queue.
pub const SEGMENT_BYTES: usize = 64;

/// How often a reactor looks at its connections for those that do not get on.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// How many such looks a PDU may take from its first byte to its last: half a minute. Looks and not time, because
/// a process that stood still itself must not blame its hosts.
pub const PDU_LOOKS: u32 = 30;

/// How many looks a connection may owe data that it was asked for, or take none of what it is sent, while hosts
/// wait that hold less of the memory than its own.
pub const HOARD_LOOKS: u32 = 5;

/// Commands of one queue: the largest queue size (MQES + 1), and so the transfer tags.
pub const QUEUE_DEPTH: u16 = 1024;

/// How long a new connection may take until its ICReq has arrived; a silent one is closed.
pub const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may linger after a C2HTermReq was sent, for the host to read it
/// (NVMe/TCP transport specification, section 3.5: up to 30 seconds).
pub const TERMINATE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a queue that ends waits for its host to take the last completions.
pub const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// Unacknowledged bytes for this long mean a dead host (`TCP_USER_TIMEOUT`).
pub const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// A host that is silent for this long is probed by TCP, every so often, and given up after so many
/// probes: 30 seconds in all. It finds half-open connections that have no keep alive timer.
pub const PROBE_IDLE_SECONDS: i32 = 15;
pub const PROBE_INTERVAL_SECONDS: i32 = 5;
pub const PROBE_COUNT: i32 = 3;

// ---- RDMA -----------------------------------------------------------------------------------

/// In-capsule data over RDMA (IOCCSZ), bytes: a 4 KiB write needs no RDMA_READ. Each command that a host may send has so
/// much memory that the network card receives into, and that is locked.
pub const RDMA_IN_CAPSULE_BYTES: u32 = 4 * 1024;
const _: () = assert!(RDMA_IN_CAPSULE_BYTES <= IN_CAPSULE_IO_BYTES);

/// Commands of an admin queue over RDMA: what discovery tells (ASQSZ).
pub const RDMA_ADMIN_DEPTH: u16 = 128;

/// Memory of a reactor and device through which RDMA moves data, bytes, locked once: some of the largest transfers. The
/// peers of one address get two thirds of what is left at most: a host that takes nothing holds up no other.
pub const STAGING_BYTES: usize = 16 * 1024 * 1024;
const _: () = assert!(STAGING_BYTES >= 4 * TRANSFER_BYTES as usize);

/// Memory that RDMA connections of one reactor have to receive commands into, bytes: the queues of 128 entries that 150
/// cores of hosts make. One address gets two thirds of what is left at most.
pub const RDMA_RECEIVES_BYTES: usize = 128 * 1024 * 1024;

/// Memory of a host's RDMA connection that its controller reads and writes data in, bytes, locked: of an I/O queue, 32 KiB
/// for each command of the usual 128; of an admin queue, one of the largest transfers.
pub const RDMA_HOST_STAGING_BYTES: usize = 4 * 1024 * 1024;
pub const RDMA_HOST_ADMIN_STAGING_BYTES: usize = TRANSFER_BYTES as usize;
const _: () = assert!(RDMA_HOST_STAGING_BYTES >= TRANSFER_BYTES as usize);

/// How long each step of finding the way to a ring may take.
pub const RING_PATIENCE: Duration = Duration::from_secs(2);

/// How long the host of a direct write window looks all the time whether a record has arrived, before it sleeps between
/// looks: some turns through the network.
pub const RING_SPIN: Duration = Duration::from_micros(100);

/// Between two looks after that.
pub const RING_LOOK: Duration = Duration::from_micros(100);

/// Responses of an RDMA connection that are under way beside those of the commands it has.
pub const RDMA_SPARE_RESPONSES: u16 = 8;

// A whole capsule fits in what one call receives, header, digests and padding included.
const _: () = assert!(RECEIVE_BYTES >= 4 * (IN_CAPSULE_IO_BYTES as usize + 512));
