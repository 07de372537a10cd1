//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Reactors alive at once in a process: the bits a waker has for them. One per core, and tests
/// start some besides.
pub const REACTORS_MAX: usize = 1 << waker_bits::REACTOR;

/// Tasks alive at once on one reactor: 128 queues of depth 1024 with one task per slot, and as much
/// again for connections, timers and the rest.
pub const TASKS_MAX: usize = 1 << 18;

/// Of them, those that [`try_spawn`](crate::try_spawn) leaves to [`spawn`](crate::spawn): what is
/// spawned without asking is bounded by connections, some tasks each, and by what is configured.
pub(crate) const TASKS_SPARED: usize = 1 << 16;
const _: () = assert!(8 * CONNECTIONS_MAX < TASKS_SPARED && 2 * TASKS_SPARED < TASKS_MAX);

/// How a waker's 64 bits are shared out.
pub(crate) mod waker_bits {
    pub const SLOT: u32 = 22;
    pub const REACTOR: u32 = 10;
    pub const GENERATION: u32 = 32;
    const _: () = assert!(SLOT + REACTOR + GENERATION == u64::BITS);
    const _: () = assert!(super::TASKS_MAX <= 1 << SLOT);
}

/// Submission entries: what one turn may queue before it must enter the kernel midway.
pub(crate) const SQ_ENTRIES: u32 = 512;

/// Operations in flight on one ring. Completions never overflow the queue, which has one entry for
/// each, and one for each cancellation beside.
pub(crate) const OPS_MAX: usize = 15 * 1024;
pub(crate) const CQ_ENTRIES: u32 = 16 * 1024;
const _: () = assert!(OPS_MAX + SQ_ENTRIES as usize <= CQ_ENTRIES as usize);

/// Of them, waits for sockets, events and requests of our block devices: all that files do not need. A wait beyond
/// is tried again each turn; a file operation has a slot for sure.
pub(crate) const WAITS_MAX: usize = OPS_MAX - FILE_OPS_MAX;

/// Connections that one reactor may be given by whoever accepts: each waits to receive, which takes one slot, and
/// one more while its peer does not read.
pub const CONNECTIONS_MAX: usize = 5 * 1024;

/// Waits beside those: listening sockets, events, connections of ours to others.
const WAITS_BESIDE: usize = 1024;
const _: () = assert!(2 * CONNECTIONS_MAX + WAITS_BESIDE <= WAITS_MAX);

/// Timers armed at once: one for each task.
pub(crate) const TIMERS_MAX: usize = TASKS_MAX;

/// Parts in which the deadline of a file operation passes: a stop of the whole process counts as one of them,
/// however long it is.
pub(crate) const DEADLINE_STEPS: u32 = 4;

/// Task polls of one turn before sockets and completions are looked at again.
pub(crate) const POLLS_PER_TURN: usize = 4096;

/// Completions reaped in one turn: the rest waits for the next one, so that a flood of them does
/// not keep sockets waiting.
pub(crate) const COMPLETIONS_PER_TURN: usize = 1024;

/// Sockets that get a receive each turn without being asked to by the ring. An empty receive costs
/// about a quarter of a microsecond, so this bounds what idle ones add to a turn.
pub(crate) const HOT_MAX: usize = 32;

/// Turns in which others found work and a hot socket did not, before it cools. With 16 connections
/// of depth 1, cooling earlier (after 0 to 8 turns) gave 8 to 32 % fewer round trips than this, in
/// one set of 12 rounds on a loaded machine.
pub(crate) const HOT_MISSES: u32 = 32;

/// Closures waiting in a reactor's mailbox.
pub(crate) const MAIL_MAX: usize = 4096;

/// Wakes from other threads waiting in a mailbox; past it every task is woken, which is always
/// correct and never common.
pub(crate) const MAIL_WAKES_MAX: usize = 4096;

/// Wakes on their way from one reactor to another: those of a turn. Further ones go by the mailbox.
pub(crate) const PEER_WAKES: usize = 512;

/// How long `adaptive` spins after the last work where that mostly finds more. Covers a round trip of a host that answers at
/// once; longer gaps sleep.
pub const ADAPTIVE_SPIN: Duration = Duration::from_micros(50);

/// How long `eager` spins after the last work.
pub const EAGER_SPIN: Duration = Duration::from_micros(100);

/// About what it takes to sleep and to be woken: spinning as long costs no more than that, whatever comes.
pub(crate) const WAKE_COST: Duration = Duration::from_micros(5);

/// The longest sleep in the ring with no timer armed: nothing depends on it, it only bounds the
/// damage of a lost wake.
pub(crate) const SLEEP_MAX_NANOS: u64 = 10_000_000_000;

/// How long a stopping reactor waits for operations the kernel still holds.
pub(crate) const DRAIN_NANOS: u64 = 10_000_000_000;

/// How often a spinning reactor asks the kernel whether somebody else wanted its CPU.
pub(crate) const CONTENTION_CHECK_NANOS: u64 = 1_000_000;

/// How long a reactor spins without work before it gives a wanted CPU away: longer than a round trip
/// under steady load, which others must not lengthen by a scheduler's slice.
pub(crate) const CONTENTION_PATIENCE_NANOS: u64 = 50_000;

/// How long a busy reactor keeps giving its CPU away after it saw that.
pub(crate) const CONTENTION_YIELD_NANOS: u64 = 20_000_000;

/// Connections waiting to be accepted.
pub(crate) const BACKLOG: i32 = 1024;

/// The same of a Unix socket that keeps the borders of messages: programs of this machine, each for a moment.
pub(crate) const PACKETS_BACKLOG: i32 = 128;

/// Alignment of every buffer: what direct I/O may ask for at most, and a page.
pub const BUFFER_ALIGN: usize = 4096;

/// The largest buffer: a 1 MiB transfer whose ends had to be widened to whole drive blocks.
pub const BUFFER_MAX: usize = 2 * 1024 * 1024;
const _: () = assert!(BUFFER_MAX.is_power_of_two() && BUFFER_ALIGN.is_power_of_two());

/// Bytes of buffers one reactor gives out at most. 64 transfers of 1 MiB, or 16384 of 4 KiB;
/// whoever needs more waits for its turn.
pub const POOL_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of the second pool, for whoever holds a buffer of the first: two of the largest.
pub const SCRATCH_BYTES: usize = 2 * BUFFER_MAX;

/// File operations in flight on one reactor: more wait. Each has a slot in the ring that nothing else takes, and
/// counts as several where it moves more than [`FILE_OP_BYTES`].
pub(crate) const FILE_OPS_MAX: usize = 4096;

/// Bytes that one of them moves: so that all together hold no more than the pool.
pub(crate) const FILE_OP_BYTES: usize = 16 * 1024;
const _: () = assert!(FILE_OPS_MAX * FILE_OP_BYTES == POOL_BYTES);

/// Of them, those of one file: 512, or 8 MiB, which is more than any drive needs to be busy. One that does not answer
/// keeps what it was given, buffers and all, past every deadline; the other drives of its reactor go on with the rest,
/// of which no file gets more than twice what it then leaves: some fifteen that hang still leave something.
pub(crate) const FILE_OPS_OF_ONE: usize = FILE_OPS_MAX / 8;
const _: () = assert!(BUFFER_MAX / FILE_OP_BYTES <= FILE_OPS_OF_ONE);

/// Bytes of buffers that one file which does not answer keeps on a reactor, at most.
pub const FILE_BYTES_KEPT: usize = FILE_OPS_OF_ONE * FILE_OP_BYTES;

/// Submission entries of the ring for commands of drives: what one turn may queue before it must enter the kernel midway.
pub(crate) const COMMAND_SQ_ENTRIES: u32 = 128;

/// Commands in flight there. They are among the file operations, so that each has a slot, and a place in the queue
/// of completions.
pub(crate) const COMMANDS_MAX: usize = FILE_OPS_MAX;
pub(crate) const COMMAND_CQ_ENTRIES: u32 = 4096;
const _: () = assert!(COMMANDS_MAX <= COMMAND_CQ_ENTRIES as usize);

/// Bytes of work that those of one address may do in a turn while others are active: some ten microseconds, which is
/// what others wait for. See [`turns`](crate::turns).
pub(crate) const TURN_BYTES: i64 = 64 * 1024;

/// Time in a turn for tasks that nobody waits for, while several are active: so long, and one poll more, they wait for
/// them.
pub(crate) const BEHIND_SHARED_NANOS: u64 = 30_000;

/// While one is alone: short against what it may notice, long against what a turn costs beside.
pub(crate) const BEHIND_NANOS: u64 = 200_000;

/// How long somebody who did something counts as active: longer than it takes until hosts that wait for each answer ask
/// again, drives included.
pub(crate) const LATELY_NANOS: u64 = 100_000_000;

/// What one that shares a [ledger](crate::budget) may hold for each byte or place that is left: alone it gets two
/// thirds.
pub(crate) const SHARE: usize = 2;

/// Helper threads running blocking calls at once, over all reactors.
pub(crate) const BLOCKING_MAX: usize = 8;

/// Where the clock of a simulated reactor begins: not 0, which differences would hide.
pub const SIMULATED_START_NANOS: u64 = 1_000_000_000;

/// How long after a turn began its tasks may still spin for answers: many answers a turn, and little to whatever
/// only turns can notice.
pub(crate) const SPIN_TURN_NANOS: u64 = 200_000;

/// Requests at once of a queue of a block device that this kernel has from us: an operation in the ring for each.
pub const UBLK_DEPTH_MAX: u16 = 512;

/// Queues of such a device, all served by one reactor: beyond that it has enough with any of them.
pub const UBLK_QUEUES_MAX: u16 = 16;

const _: () =
    assert!(UBLK_DEPTH_MAX as usize * UBLK_QUEUES_MAX as usize + WAITS_BESIDE <= WAITS_MAX);

/// How long udev may take to make a device's node, and how often it is looked for.
pub(crate) const UBLK_OPEN_NANOS: u64 = 10_000_000_000;
pub(crate) const UBLK_OPEN_PAUSE: Duration = Duration::from_millis(5);
