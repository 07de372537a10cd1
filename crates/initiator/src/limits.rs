//! Bounds of the host side, each with its reason.

use std::time::Duration;

/// Entries of the admin queue: one command at a time, a keep alive and event requests beside it. What the Linux
/// host uses.
pub const ADMIN_QUEUE_ENTRIES: u16 = 32;

/// The largest page asked for with one admin command, bytes.
pub const ADMIN_PAGE_BYTES: u32 = 16 * 1024;

/// Tries to read a discovery log whose generation counter keeps moving under the reader.
pub const DISCOVERY_TRIES: usize = 8;

/// Records taken from one discovery log: a page of that many is 16 MiB; a larger count is a broken controller.
pub const DISCOVERY_RECORDS_MAX: u64 = 16 * 1024;

/// Logical blocks that one command can name (NLB is 16 bits, 0's based).
pub const BLOCKS_MAX: u32 = 1 << 16;

/// Commands outstanding on an I/O queue unless asked otherwise; what the Linux host uses.
pub const QUEUE_SIZE: u16 = 128;

/// Times a command is sent again when its status says that it may succeed then; what the Linux host uses.
pub const RETRIES: u32 = 5;

/// Between two attempts at a command that ends with a path error. The target has let it wait before, mostly, and a path
/// that answers at once is not asked for nothing else.
pub const PATH_ERROR_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Paths of one namespace: two to four are usual, and each command looks at all of them.
pub const PATHS_MAX: usize = 16;

/// Milliseconds between two looks at a controller's ANA log page, when commands tell that a look is due: a
/// controller whose commands and page contradict each other is not asked all the time.
pub const ANA_LOOK_MS: u64 = 50;

/// Looks per I/O timeout for commands that exceed it: the timeout is kept to a quarter.
pub const TIMEOUT_LOOKS: u32 = 4;

/// How long a controller may take to quiesce that does not say (CQT 0), unless the user knows better.
pub const UNREPORTED_QUIESCE: Duration = Duration::from_secs(30);

/// Milliseconds between looks at CSTS while a controller gets ready or shuts down.
pub const STATUS_POLL_MS: u64 = 1;

/// Commands that a batching queue sends together unless asked otherwise: a system call and a wake-up of the other
/// end are a small part of what so many commands cost. i10's own figure.
pub const BATCH_COMMANDS: u16 = 16;

/// Bytes of data that a batching queue sends together: as much as one send takes, i10's own figure.
pub const BATCH_BYTES: u32 = 64 * 1024;

/// How long a command waits for a batch at most: what a command may lose, and less than a drive's own latency. i10's own figure.
pub const BATCH_WAIT: Duration = Duration::from_micros(50);

/// How long whoever waits for a completion looks at the socket itself: longer than a target in memory takes, and
/// little to the other tasks of the reactor.
pub const POLL_SPIN: Duration = Duration::from_micros(50);

/// How long the kernel polls a network card's queue for a socket, what its documentation recommends.
pub const BUSY_POLL: Duration = Duration::from_micros(50);

/// Bytes that one Write Zeroes names at most: what the command has room for in blocks of 512 bytes, which targets that
/// limit it (WZSL) take.
pub const ZEROES_BYTES: u32 = 32 << 20;

const _: () = assert!(ADMIN_PAGE_BYTES as usize >= nvme::limits::IDENTIFY_BYTES);

/// How long each step of fetching the rings of a direct write window may take: the target is on this machine.
pub const WINDOW_PATIENCE: Duration = Duration::from_secs(2);

/// How long a write waits for a window that ends, once the association is gone, too (`docs/anof.md`, "A write").
/// Tests have less time.
pub const WINDOW_END: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 10_000 });

/// How long it waits whatever the association does: the target is stuck then.
pub const WINDOW_END_MOST: Duration = Duration::from_secs(30);

/// How long it looks for the end all the time: a target that is not busy takes what is there within microseconds.
pub const WINDOW_SPIN: Duration = Duration::from_micros(50);

/// Between two looks after that.
pub const WINDOW_LOOK: Duration = Duration::from_micros(100);

/// How often a thread tries to have a window that another one writes by, before it sends a command: about as long as
/// one record of 4 KiB takes.
pub const WINDOW_TRIES: u32 = 32;

/// How long a window stood at least that was not soon taken away.
pub const WINDOW_STOOD: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 10_000 });

/// How long a window that is required is asked for where another has it, or the last one is being ended: this host's own may be.
pub const WINDOW_REQUIRED: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// Between two attempts meanwhile.
pub const WINDOW_REQUIRED_LOOK: Duration = Duration::from_millis(20);

/// Between two attempts to have another window in place of one that ended.
pub const WINDOW_DELAY: Duration = Duration::from_secs(1);

/// The same, after attempts that failed, and windows that were soon taken away: it doubles up to this.
pub const WINDOW_DELAY_MOST: Duration = Duration::from_secs(30);

/// Rings up to this length, in bytes, are written through the cache: they stay in that of a core, and are taken from
/// there. Longer ones are written past it, as what is there is not what is written next (`bench window`, 4 KiB, through
/// and past: 263 and 567 ns by a ring of 1 MiB, 575 and 483 by one of 16 MiB).
pub const WINDOW_NEAR: u64 = 1 << 20;
