//! Bounds of the servers, each with its reason.

use std::time::Duration;

use reactor::POOL_BYTES;

/// Data of an option, bytes; longer ones are refused. A name has at most 4096 by the specification, and
/// a client asks for a handful of contexts.
pub const OPTION_BYTES_MAX: usize = 16 * 1024;

/// What is read and thrown away of an option or a payload that is refused, bytes: beyond that the
/// connection ends instead. Room for the largest request a client may send without asking.
pub const SKIP_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The most data of one request, bytes: what a client may rely on that asks for no limit.
pub const REQUEST_BYTES_MAX: u32 = 32 * 1024 * 1024;

/// Bytes of an export's name, and of its description: what fits a line. The specification allows 4096.
pub const NAME_BYTES_MAX: usize = 512;

/// Data moved by one command at most, bytes: a larger request is cut, so that its parts travel side by
/// side and a client that stops in the middle of one ties up this and no more.
pub const PIECE_BYTES: usize = 256 * 1024;

/// Requests in flight of one connection: more wait in the socket. libnbd and the kernel keep 64 to 128.
pub const REQUESTS_MAX: usize = 128;

/// Clients at once: more are turned away. Each may tie up [`READ_BYTES`], a part of a write and one of a
/// read of the reactor's buffers.
pub const CLIENTS_MAX: usize = 32;

/// Bytes received with one call, and so the room of a connection's inbox.
pub const RECEIVE_BYTES: usize = 128 * 1024;

/// From this many bytes of a payload on, they are received straight to where they belong.
pub const DIRECT_BYTES: usize = 4 * 1024;

/// What may be received behind a payload that goes straight to its place, bytes: some requests.
pub const BEHIND_BYTES: usize = 4 * 1024;

/// Bytes of buffers that the reads of a connection may hold until its client has taken their data.
/// Further reads wait, so that a client that does not read ties up this and no more.
pub const READ_BYTES: usize = 4 * PIECE_BYTES;

/// Replies without data that a client has not yet taken, bytes: beyond that it is not listened to.
pub const UNSENT_HEADS_BYTES: usize = 64 * 1024;

/// Writes at once: of every request a part (the others of a large write follow it).
pub const WRITES_MAX: usize = CLIENTS_MAX * (REQUESTS_MAX + PARTS_MAX) * 2;

/// Parts of the largest request, with blocks as large as they come.
const PARTS_MAX: usize = REQUEST_BYTES_MAX as usize / PIECE_BYTES;

/// Bytes that one Write Zeroes names at most: 65,536 blocks, which is what there is room for in NLB, of 512 bytes. Targets
/// that say how much they take (WZSL) take this much.
pub const ZEROES_BYTES: u64 = 32 << 20;
const _: () = assert!(ZEROES_BYTES <= 65_536 * 512);

/// How long a client may take to choose an export.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an ending connection waits for its requests and for its client to take the replies.
pub const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

const _: () = assert!(OPTION_BYTES_MAX + 64 <= RECEIVE_BYTES);
const _: () = assert!(SKIP_BYTES_MAX >= 2 * REQUEST_BYTES_MAX as u64);
// Whatever clients do not take or do not send, there are buffers left for the others.
const _: () = assert!(CLIENTS_MAX * (READ_BYTES + 3 * PIECE_BYTES) < POOL_BYTES);
const _: () = assert!((REQUEST_BYTES_MAX as usize).is_multiple_of(PIECE_BYTES));

/// Queues of a virtio device: one for each of a guest's processors.
pub const QUEUES_MAX: usize = 64;

/// Entries of a virtio queue. QEMU's own bound.
pub const RING_MAX: u16 = 1024;

/// Segments of one virtio request's data: what a queue of QEMU's usual size (128 entries) has beside the
/// request's head and status.
pub const SEGMENTS_MAX: u32 = 126;

/// Ranges of one virtio discard or write zeroes.
pub const RANGES_MAX: u32 = 256;

/// Regions of a guest's memory: as many as the protocol allows in one message.
pub const REGIONS_MAX: usize = 8;

/// Bytes of a virtio device's configuration space, as vhost-user bounds it.
pub const CONFIG_BYTES_MAX: usize = 256;

/// Payload of a vhost-user message, bytes: the largest are those of memory regions and of configuration.
pub const MESSAGE_BYTES_MAX: usize = 512;

const _: () = assert!(RING_MAX.is_power_of_two());
// Of every virtio request one part at a time is written, and of a queue so many requests run at once.
const _: () = assert!(QUEUES_MAX * REQUESTS_MAX <= WRITES_MAX);

/// Bytes of one request of a block device of this kernel (ublk): what the driver takes without being asked.
pub const UBLK_REQUEST_BYTES: u32 = 512 * 1024;
