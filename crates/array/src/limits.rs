//! Bounds of the node, each with its reason.

use std::time::Duration;

/// How long a group of the machine is looked up by its name: a directory service that is slow or away holds up no start.
pub const GROUP_PATIENCE: Duration = Duration::from_secs(3);
/// So many of those may go on unanswered: each has a thread.
pub const GROUP_LOOKUPS: usize = 4;

/// How long an operation of a drive of another machine may take, connecting included: hosts wait for it beside other
/// copies, and a network that is well takes milliseconds.
pub const REMOTE_OPERATION: Duration = Duration::from_secs(3);
/// How long each step of connecting to it may take, so that the operation that waits for it hears which one did not end.
pub const REMOTE_STEP: Duration = Duration::from_secs(2);
/// Keep Alive Timeout of its associations: one that nobody uses is found out about as soon as one that is used.
pub const REMOTE_KEEP_ALIVE: Duration = Duration::from_secs(3);
/// From one attempt to connect to it to the next.
pub const REMOTE_ATTEMPTS: Duration = Duration::from_secs(1);
/// How long leaving it in order may take: whoever comes next copes with one that was not left.
pub const REMOTE_LEAVE: Duration = Duration::from_secs(1);
/// Commands in flight to it on each reactor: those of a log, which are few and long.
pub const REMOTE_QUEUE: u16 = 64;
/// Bytes that one command zeroes or frees there: a disk zeroes so many well within the time of an operation.
pub const REMOTE_ZEROES: u64 = 16 << 20;
/// Bytes that one command reads or writes there, where the target takes so many: all of an operation. Tests have less.
pub const REMOTE_TRANSFER: u32 = if cfg!(test) { 128 << 10 } else { 1 << 20 };
const _: () = assert!(REMOTE_STEP.as_millis() < REMOTE_OPERATION.as_millis());
const _: () = assert!(REMOTE_ZEROES <= initiator::limits::ZEROES_BYTES as u64);
/// Events kept in memory for `GET /v1/events`: a day of a quiet node; the log has the rest.
pub const EVENTS: usize = 1024;
/// Bytes of events in one file of the state directory, of which there are two: some 20,000 events.
pub const EVENTS_BYTES: u64 = 4 << 20;
/// Configurations kept that were served before: what is missed is missed within some changes.
pub const HISTORY: usize = 32;
/// Snapshots that all schedules together keep: half of what one pool has room for, and some MiB of `state.json`, which is
/// written with each run.
pub const SCHEDULED_SNAPSHOTS: u64 = 64 << 10;
/// How often it is looked whether a schedule is due.
pub const SCHEDULE_LOOK: Duration = Duration::from_secs(1);
/// Commands that wait for the owner of the node's state: as many as the management socket has connections. Whoever
/// sends more waits.
pub const COMMANDS: usize = 256;
/// Events of hosts that come and go at one look: a switch that fails takes hundreds.
pub const HOST_EVENTS: usize = 16;
/// How long a job that was cut short is told of as something to look at, in milliseconds: a day.
pub const JOB_TOLD_MS: u64 = 24 * 3600 * 1000;
/// Jobs under way at once: each has a thread, and a request of the management socket's 256 connections began it.
pub const JOBS_UNDER_WAY: usize = 256;
/// Jobs kept that are over: a request that is tried again with the same key comes within minutes.
pub const JOBS_KEPT: usize = 256;
/// How long a job may take that is not written down: two syncs for what is done sooner would be most of its cost.
pub const JOB_BRIEF: Duration = Duration::from_secs(1);
/// Numbers of jobs that one write of `jobs.json` is for: a daemon that is killed leaves out so many at most.
pub const JOB_NUMBERS: u64 = 64;
/// Longest `jobs.json` read, in bytes: each job has names, a key and a sentence or two.
pub const JOBS_BYTES: u64 = 16 << 20;
/// Reactors of one node: one per core of the largest two-socket machines.
pub const REACTORS: usize = 256;
/// Reactors started when no CPUs are named: enough for two 100 GbE ports.
pub const REACTORS_UNASKED: usize = 8;
/// Longest configuration file read, in bytes: 256 subsystems with 64 namespaces fit in 4 MiB.
pub const CONFIG_BYTES: u64 = 4 << 20;
/// Longest `state.json` written and read, in bytes: it has what two of the longest configuration
/// files ask for, some eight times as long as JSON with every default spelled out.
pub const STATE_BYTES: u64 = 16 * CONFIG_BYTES;
/// Longest file of one namespace's reservations, in bytes: a registrant is a host and a key in JSON.
pub const RESERVATIONS_BYTES: u64 = 512 + 256 * stdx::num::u64_of(target::limits::MAX_REGISTRANTS);
/// Longest file of one subsystem's events, in bytes: as long as the log page with the most of them.
pub const EVENT_LOG_BYTES: u64 =
    stdx::num::u64_of(stdx::num::usize32(target::limits::PERSISTENT_EVENT_LOG_SIZE)) << 16;
/// Faults reported of one configuration file: more than a screen helps nobody.
pub const CONFIG_FAULTS: usize = 20;
/// Connections open at once: 128 controllers of 128 queues each, and as many descriptors. Fewer where there are few
/// reactors, of which each takes [`reactor::CONNECTIONS_MAX`].
pub const CONNECTIONS: usize = 16 << 10;
/// What an operator may lower it to: newcomers have places beside those of some hosts with a queue for each CPU.
pub const CONNECTIONS_LEAST: usize = 2 * NEWCOMERS;
/// What the entries of queues on one reactor may be lowered to: a host that is alone gets a long queue and an admin queue
/// out of its two thirds, and another one still finds some.
pub const QUEUE_ENTRIES_LEAST: usize = 4096;
const _: () = assert!(CONNECTIONS_LEAST <= CONNECTIONS);
const _: () = assert!(QUEUE_ENTRIES_LEAST <= target::limits::QUEUE_ENTRIES_MAX);
/// Bytes of the rings of direct write windows that a pool gives, unless an operator says otherwise: some dozen windows.
pub const WINDOW_BYTES: u64 = 256 << 20;
/// What an operator may set it to: a window with one ring of the least size, and as much memory as logs have.
pub const WINDOW_BYTES_BOUNDS: std::ops::RangeInclusive<u64> = window::RING_BYTES_MIN..=(64 << 30);
/// Bytes of each ring of a window where the host leaves them to the node: a thousand writes of 4 KiB before any of them is
/// taken.
pub const WINDOW_RING_BYTES: u64 = 4 << 20;
/// How long the token for a window is good (`docs/anof.md`).
pub const TOKEN_LIFE: Duration = Duration::from_secs(10);
/// Programs that are handed out rings at once, and how long each may take: it sends 16 bytes and receives some messages.
pub const WINDOW_CALLERS: usize = 64;
/// See [`WINDOW_CALLERS`].
pub const WINDOW_PATIENCE: Duration = Duration::from_secs(2);
/// Connections, of them, that have not become a queue yet. One comes in place of another of an address with most then.
pub const NEWCOMERS: usize = 1024;
/// And of those, from one address: a host connects its queues one after the other, and hosts behind one address are
/// some tens. More are closed.
pub const NEWCOMERS_OF_ADDRESS: usize = 64;
const _: () = assert!(4 * NEWCOMERS <= CONNECTIONS && 4 * NEWCOMERS_OF_ADDRESS <= NEWCOMERS);
/// And of those, that made room for others and are not closed yet: with as many, nobody is let in before some are.
/// Reactors close theirs in their own time.
pub const LEAVING: usize = 64;
/// How often it is looked whether some are.
pub const LEAVING_LOOK: Duration = Duration::from_millis(1);
/// What connected queues, which count for some entries each, and newcomers can have together is no more than there is:
/// whoever has its share of entries finds a seat.
const _: () = assert!(
    target::limits::QUEUE_ENTRIES_MAX / target::limits::QUEUE_CHARGE_MIN as usize + NEWCOMERS
        <= reactor::CONNECTIONS_MAX
);
/// How long a stopping node waits for connections to end in order: a command in flight takes
/// milliseconds; a host that does not read its socket is not waited for longer.
pub const DRAIN: Duration = Duration::from_secs(5);
/// Interval of looks at how full pools are: fast writers take longer from one level to the next.
pub const SPACE: Duration = Duration::from_secs(2);
/// How long pools are waited for that lack drives, before they are opened without them, unless told otherwise:
/// drives that are powered together with their node are there in this time.
pub const WAIT_FOR_DRIVES: Duration = Duration::from_secs(30);
/// How long hosts are kept outside when a node starts, for pools that lack nothing to be open: those that take longer
/// are served as absent meanwhile.
pub const START_PATIENCE: Duration = Duration::from_secs(5);
/// Threads that open drives of namespaces at once: all of a large machine may hang, and each then only sleeps.
pub const DRIVE_OPENERS: usize = 256;
/// How long drives of namespaces are waited for that are opened, before everything else goes on without them: as pools are.
pub const DRIVE_PATIENCE: Duration = START_PATIENCE;
/// How often it is looked meanwhile whether they wait for drives that do not answer: those keep nobody outside.
pub const OPENING_LOOK: Duration = Duration::from_millis(100);
/// Entries of a folder that are looked at for drives of a pool: more than a shelf has.
pub const PLACES_SEARCHED: usize = 1024;
/// Faults of a drive from which on hosts are warned: fewer are mended and forgotten in a drive's life.
pub const FAULTS_WARNED: u64 = 100;
/// Looks at which a pool is tried once something of it is there that was not: what probes new drives may hold them
/// for a moment, and the others may be on their way.
pub const LATE_TRIES: u32 = 5;
/// Spares of one pool: as many as there are drives that may be lost in a long weekend.
pub const SPARES_MAX: usize = 16;
/// How long a spare is waited for that is looked at: drives answer in milliseconds.
pub const SPARE_PATIENCE: Duration = Duration::from_secs(2);
/// How long a drive that failed is left alone before it is taken back where it answers, and what the pause grows to
/// with each attempt: one that comes and goes is of little use.
pub const RETURN_PAUSE: Duration = Duration::from_secs(5);
pub const RETURN_PAUSE_MAX: Duration = Duration::from_secs(600);
/// How often a drive is taken back by itself within so long: it stays out then until an operator wants it. One that is
/// moved to another slot, or whose shelf starts anew, comes back once or twice; the pauses between add up to minutes by then,
/// and each return has the others read all that it has.
pub const RETURNS_BORNE: usize = 5;
/// See [`RETURNS_BORNE`].
pub const RETURNS_WINDOW: Duration = Duration::from_secs(3600);

/// How long a drive has to be well for its next failure to count as its first: one that stumbles for a reason of its own
/// does so within hours, and once in a month says nothing.
pub const FAILED_LATELY: Duration = Duration::from_secs(DAY);

/// Operations of a drive after which it is known to be as fast as the others, if it is: one that was never is made so,
/// and not emptied for it.
pub const FAST_OPERATIONS: u64 = 10_000;
/// How long a drive is slow before `flashloom health` says so: one that has too much to do for a moment needs nothing done.
pub const SLOW_TOLD: Duration = Duration::from_secs(10);

/// How long the deletion of a pool waits for what its drives were asked to write before: as long as they may take to
/// free space, and twice as long as for anything else.
pub const DELETE_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 60_000 });
/// How long a drive that is cleared may answer nothing: it is asked for a GiB at once, and some take seconds for that.
pub const CLEAR_PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked whether anything still uses the drives of a pool that is about to be opened again: what does
/// so ends within milliseconds, mostly.
pub const REST_LOOK: Duration = Duration::from_millis(20);
/// How long a drive is gone before what it had is rebuilt on the others, unless told otherwise: one that is pulled by
/// mistake, or starts anew, is back by then, and needs what it missed only.
pub const REBUILD_AFTER: Duration = Duration::from_secs(600);
/// A week.
pub const REBUILD_SECONDS_MAX: u64 = 7 * 24 * 3600;
/// How long after a pool's last scrub the next one begins by itself, unless told otherwise: damage that nobody reads
/// is found within a month, and a drive reads all it has some hundred times in its life.
pub const SCRUB_EVERY: Duration = Duration::from_secs(30 * DAY);
/// A year.
pub const SCRUB_DAYS_MAX: u64 = 366;
pub const DAY: u64 = 24 * 3600;
/// How often it is written down how far a scrub is: so much is done again after a crash.
pub const SCRUB_KEPT: Duration = Duration::from_secs(10);
/// How often it is looked how far a drive is that is made whole.
pub const DRIVE_LOOK: Duration = Duration::from_millis(200);
/// How often drives that a pool lacks are looked for at all places, although nothing new is seen there.
pub const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How long a taken address is waited for: the kernel lets go of what a killed daemon's rings held
/// within some tens of milliseconds.
pub const LEFT_BEHIND: Duration = Duration::from_secs(1);
/// How long a change waits for the commands that the media of a removed or smaller namespace still has: drives answer
/// within milliseconds, and other changes wait meanwhile. Media that take longer stay in use.
pub const NAMESPACE_DRAIN: Duration = Duration::from_secs(10);
/// How long a reactor may take to answer what is asked of all of them: many turns of the busiest.
pub const ANSWER: Duration = Duration::from_secs(2);
/// How long a reactor that is stopping may be silent: it waits for what the kernel still has of it for ten seconds.
pub const SILENCE: Duration = Duration::from_secs(15);
/// How long a node may take to stop. Service managers wait for 30 s, and then kill it without a word.
pub const STOP: Duration = Duration::from_secs(25);
const _: () = assert!(DRAIN.as_secs() + SILENCE.as_secs() < STOP.as_secs());
/// The program's exit code when a reactor cannot go on.
pub const REACTOR_FAILED: i32 = 7;
/// Hosts whose counters are told by name, the busiest first; the rest are told together. Each is some 150 lines in
/// what a scrape reads.
pub const HOSTS_TOLD: usize = 256;

/// How long pools are waited for that are asked how they are: hardly ever more than a moment, and less than whoever asks
/// has patience for.
pub const STATUS_PATIENCE: Duration = Duration::from_secs(5);

/// How often drives are asked how they are: what they warn of comes over days, and a command every few minutes neither
/// keeps one awake nor is felt.
pub const HARDWARE_EVERY: reactor::Nanos = 300 * 1_000_000_000;
/// How long a drive may take to say so before it is told that it does not: one that is well needs milliseconds, and one
/// that changes its firmware, or empties its caches, some seconds.
pub const HARDWARE_PATIENCE: reactor::Nanos = 30 * 1_000_000_000;
/// Threads that ask at once, one for each drive: all of a large machine may hang, and each then only sleeps.
pub const HARDWARE_READERS: usize = 256;
/// Bytes of stack of each: it reads short files and makes one call.
pub const HARDWARE_STACK: usize = 256 << 10;
/// How long new media errors of a drive are told of as something to look at: a day.
pub const MEDIA_ERRORS_TOLD: reactor::Nanos = 24 * 3600 * 1_000_000_000;
