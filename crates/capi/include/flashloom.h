/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libflashloom: NVMe/TCP namespaces for programs, without a kernel driver.
 *
 * fl_namespace_open connects to a subsystem, on a thread that the library starts for it, and keeps the association:
 * when it is lost it is replaced, and commands wait for that as long as the options say. fl_read, fl_write and the
 * like block until they are done. An fl_queue keeps many commands in flight.
 *
 * Threads. Any thread may use an fl_namespace, and any number of them at once. An fl_queue, an fl_options and an
 * fl_discovery are for one thread at a time. Nothing may be used while, or after, it is freed or closed. The library
 * keeps no state of its own. A child that fork(2) made must not use handles of its parent. The library's threads have
 * the signal mask of the thread that opened the namespace.
 *
 * Errors. Functions that return an int return a negative enum fl_code when they fail. They write what happened, in
 * words too, to `error` unless that is NULL, and leave it alone otherwise.
 *
 * Memory. Data is sent from and received into the caller's memory, without a copy in between. Any memory will do;
 * what fl_alloc gives is aligned so that the kernel's copies are fast.
 *
 * Versions. Functions, enumerators and fields keep their meaning as long as FL_VERSION_MAJOR and the shared object's
 * name are the same. Structures whose size a function takes may grow at their end.
 */

#ifndef FLASHLOOM_H
#define FLASHLOOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FL_VERSION_MAJOR 0
#define FL_VERSION_MINOR 1

/* The version of the library in use: FL_VERSION_MAJOR << 16 | FL_VERSION_MINOR. */
uint32_t fl_version(void);

/* ---- Errors ---- */

/* Why something failed. */
enum fl_code {
    FL_OK = 0,
    /* An argument makes no sense. */
    FL_EINVAL = -1,
    /* The address does not resolve, nothing answers there, or what answers does not speak NVMe/TCP. */
    FL_ECONNECT = -2,
    /* The controller refused the connection: fl_error.status says why. */
    FL_EREFUSED = -3,
    /* A command failed: fl_error.status says why. */
    FL_ENVME = -4,
    /* No answer came in time. */
    FL_ETIMEDOUT = -5,
    /* The association is lost, and waiting for another one is over or was not wanted. */
    FL_ELOST = -6,
    /* As FL_ELOST, of a command that changes something: it may have been executed, or in part. */
    FL_EINDOUBT = -7,
    /* The namespace was removed, or another one is in its place. */
    FL_EREMOVED = -8,
    /* The controller or the namespace cannot do that. */
    FL_EUNSUPPORTED = -9,
    /* The namespace is shut down. */
    FL_ECLOSED = -10,
    /* As many commands are outstanding as the queue has room for. */
    FL_EFULL = -11,
    /* The operating system refused something. */
    FL_ESYSTEM = -12,
    /* A defect of the library; the handle is of no use any more. */
    FL_EPANIC = -13
};

/* What happened. */
typedef struct fl_error {
    /* An enum fl_code. */
    int32_t code;
    /* NVMe status of FL_ENVME and FL_EREFUSED: status code in bits 7:0, status code type in bits 10:8, do not retry in
     * bit 14. */
    uint16_t status;
    uint16_t reserved;
    /* In words, ended by a NUL. */
    char message[248];
} fl_error;

/* A code in words, for ever valid. */
const char *fl_strerror(int code);

/* ---- Options: whom to connect to, and how ---- */

typedef struct fl_options fl_options;

/* Options as they are by default: port 4420 of 127.0.0.1, as the host that /etc/nvme names, else one derived from the
 * machine's identity. NULL when there is no memory. */
fl_options *fl_options_new(void);

/* A copy. NULL when there is no memory, or `options` is NULL. */
fl_options *fl_options_copy(const fl_options *options);

void fl_options_free(fl_options *options);

/*
 * Sets an option by its name, which is mostly nvme-cli's; '_' is as good as '-'. Times are in seconds unless they end in
 * "ms", "s" or "m"; switches take "on" and "off".
 *
 *   traddr            IP address or host name; for NVMe/RDMA with rdma:// before it
 *   trsvcid           TCP port
 *   subnqn            NQN of the subsystem
 *   hostnqn           NQN to connect as
 *   hostid            Host Identifier to connect with, a UUID; after hostnqn, which brings one of its own
 *   path              one more address of the subsystem, "ADDR" or "ADDR:PORT": another path. Each adds one
 *   path-policy       how commands are spread over paths: "numa" (the first one), "round-robin" or "queue-depth"
 *   nr-io-queues      I/O queues, for reads only when there are write queues
 *   nr-write-queues   I/O queues beside them for what is no read
 *   nr-poll-queues    I/O queues beside them for whoever waits for one command: fl_read and the like, queues of depth 1
 *   queue-size        commands outstanding on each queue
 *   keep-alive-tmo    Keep Alive Timeout
 *   reconnect-delay   time between attempts to connect again
 *   ctrl-loss-tmo     how long it is tried to connect again; "off" is for ever
 *   fast-io-fail-tmo  after so long without the controller commands fail; "off" has them wait
 *   io-timeout        how long a command may go unanswered before it is aborted; "off" is for ever
 *   timeout           how long a connection or an admin command may take
 *   hdr-digest, data-digest  switches
 *   tos               type of service, or traffic class
 *   so-priority       priority of the connections
 *   fencing           "proven", or "trusted" for targets that execute nothing of a lost association
 *   cqt               Command Quiesce Time of a controller that reports none; 30s unless set
 *   optimizations     what makes it fast: "default", "all", "none" or names with commas between; "-NAME" takes one off
 *   cpu               CPU of the library's thread for a namespace
 *   poll              "adaptive" (spins a little, then sleeps), "busy" (never sleeps) or "interrupt": how that thread
 *                     waits, and how fl_queue_wait does
 *   window            whether writes go by a direct write window, memory of the target: "off", "auto" (of whatever kind
 *                     can be had), "shm" (of a target on this machine), "rdma" (of one that is reached by NVMe/RDMA), or
 *                     "require", with which a namespace without one is not opened. Such a write is done and durable when
 *                     it is submitted; what the window does not take goes as a command. A volume has one window: where
 *                     several processes open it, leave it to one of them
 */
int fl_options_set(fl_options *options, const char *name, const char *value, fl_error *error);

/* ---- Discovery ---- */

typedef struct fl_discovery fl_discovery;

/* What a discovery service knows. Texts are ended by a NUL. */
typedef struct fl_discovery_entry {
    /* Transport type (3 is TCP), address family (1 is IPv4, 2 is IPv6), subsystem type (1 is a referral, 2 is an NVM
     * subsystem, 3 is the discovery subsystem itself), transport requirements: as the specification has them. */
    uint8_t trtype;
    uint8_t adrfam;
    uint8_t subtype;
    uint8_t treq;
    uint16_t portid;
    uint16_t cntlid;
    char trsvcid[40];
    char traddr[264];
    char subnqn[264];
} fl_discovery_entry;

/* Reads the discovery log of the service at the options' address. */
int fl_discover(const fl_options *options, fl_discovery **discovery, fl_error *error);

size_t fl_discovery_count(const fl_discovery *discovery);

/* Copies entry `index` to `entry`, of `size` bytes. */
int fl_discovery_get(const fl_discovery *discovery, size_t index, fl_discovery_entry *entry, size_t size);

void fl_discovery_free(fl_discovery *discovery);

/* ---- Namespaces ---- */

typedef struct fl_namespace fl_namespace;

/* Bits of fl_info.flags. */
enum fl_info_flags {
    FL_INFO_READ_ONLY = 1 << 0,
    /* A completed write may be lost when power fails until a flush, unless it had FL_FUA. */
    FL_INFO_VOLATILE_CACHE = 1 << 1,
    FL_INFO_WRITE_ZEROES = 1 << 2,
    /* Write zeroes with FL_DEALLOCATE_ZEROES gives space back. */
    FL_INFO_ZEROES_DEALLOCATE = 1 << 3,
    FL_INFO_DEALLOCATE = 1 << 4,
    FL_INFO_DEALLOCATED_READS_ZEROES = 1 << 5,
    FL_INFO_COMPARE = 1 << 6,
    FL_INFO_VERIFY = 1 << 7,
    FL_INFO_COPY = 1 << 8
};

/* What a namespace is. */
typedef struct fl_info {
    /* Logical blocks, and bytes of each. */
    uint64_t blocks;
    uint32_t block_bytes;
    /* Most data of one read, write or compare of an fl_queue. */
    uint32_t transfer_max_bytes;
    /* Blocks that a write changes all or none of, as others see it, and when power fails. */
    uint32_t atomic_blocks;
    uint32_t atomic_power_fail_blocks;
    /* Blocks that a write is best made of, and aligned to. */
    uint32_t optimal_write_blocks;
    /* Of enum fl_info_flags. */
    uint32_t flags;
    /* Most source ranges of a copy, blocks of one, and blocks in all. */
    uint16_t copy_ranges;
    uint16_t copy_range_blocks;
    uint32_t copy_blocks;
    /* Zero when the namespace has none. */
    uint8_t nguid[16];
    uint8_t eui64[8];
} fl_info;

/* Blocks from `lba` on. */
typedef struct fl_range {
    uint64_t lba;
    uint32_t blocks;
    uint32_t reserved;
} fl_range;

/* Flags of commands. */
enum fl_flags {
    /* The data is durable when the command has ended (writes, write zeroes). */
    FL_FUA = 1 << 0,
    /* Blocks of write zeroes may be given back, as long as they read as zeroes. */
    FL_DEALLOCATE_ZEROES = 1 << 1
};

/* Connects to namespace `nsid`. */
int fl_namespace_open(const fl_options *options, uint32_t nsid, fl_namespace **ns, fl_error *error);

/* Disconnects. Every queue of the namespace must be freed before. NULL is nothing to close. */
void fl_namespace_close(fl_namespace *ns);

/* Ends the association: commands in flight fail, and so do all that follow. For those who will not wait until a target
 * that is away comes back. */
int fl_namespace_shut_down(fl_namespace *ns, fl_error *error);

/* Copies what the namespace is now to `info`, of `size` bytes. It changes when the namespace is resized. */
int fl_namespace_info(const fl_namespace *ns, fl_info *info, size_t size);

/* Blocking commands. Any number of blocks will do: they are cut into as many commands as it takes, which are in flight
 * together. When one fails, the others may have been executed. `buffer` has room for the blocks. */
int fl_read(fl_namespace *ns, void *buffer, uint64_t lba, uint64_t blocks, fl_error *error);
int fl_write(fl_namespace *ns, const void *buffer, uint64_t lba, uint64_t blocks, uint32_t flags, fl_error *error);
/* A difference is FL_ENVME with status 0x285 (Compare Failure). */
int fl_compare(fl_namespace *ns, const void *buffer, uint64_t lba, uint64_t blocks, fl_error *error);
/* Makes every write that has ended durable. */
int fl_flush(fl_namespace *ns, fl_error *error);
int fl_write_zeroes(fl_namespace *ns, uint64_t lba, uint64_t blocks, uint32_t flags, fl_error *error);
/* Has the controller read the blocks: fails if they cannot be read. */
int fl_verify(fl_namespace *ns, uint64_t lba, uint64_t blocks, fl_error *error);
/* Tells that the blocks are not needed. */
int fl_deallocate(fl_namespace *ns, const fl_range *ranges, size_t count, fl_error *error);
/* Copies the ranges, one behind the other, to `destination` on, within the limits of fl_info. */
int fl_copy(fl_namespace *ns, const fl_range *ranges, size_t count, uint64_t destination, fl_error *error);

/* ---- Queues: many commands in flight ---- */

typedef struct fl_queue fl_queue;

/* The commands, by their NVMe opcodes. */
enum fl_opcode {
    FL_OP_FLUSH = 0x00,
    FL_OP_WRITE = 0x01,
    FL_OP_READ = 0x02,
    FL_OP_COMPARE = 0x05,
    FL_OP_WRITE_ZEROES = 0x08,
    FL_OP_DEALLOCATE = 0x09,
    FL_OP_VERIFY = 0x0c,
    FL_OP_COPY = 0x19
};

typedef struct fl_command {
    /* An enum fl_opcode. */
    uint32_t opcode;
    /* Of enum fl_flags. */
    uint32_t flags;
    /* First block; of a copy, the first block of its destination. */
    uint64_t lba;
    uint32_t blocks;
    /* Of deallocate and copy: how many ranges. */
    uint32_t range_count;
    /* Of read, write and compare: room for the blocks, which nobody else touches until the command has ended (others
     * may read what is written from). */
    void *buffer;
    /* Of deallocate and copy; copied when the command is submitted. */
    const fl_range *ranges;
    /* Comes back in the completion. */
    uint64_t user_data;
} fl_command;

/* A command that has ended. */
typedef struct fl_completion {
    uint64_t user_data;
    /* An enum fl_code. */
    int32_t code;
    /* As in fl_error. */
    uint16_t status;
    uint16_t reserved;
    /* What happened in words, valid until the next call for the queue; NULL when the command succeeded. */
    const char *message;
} fl_completion;

/* A queue of `depth` commands at most, 1 to 4096. */
int fl_queue_new(fl_namespace *ns, uint32_t depth, fl_queue **queue, fl_error *error);

/* Waits for the commands that are outstanding, and frees the queue. See fl_namespace_shut_down. */
void fl_queue_free(fl_queue *queue);

/* Takes up to `count` commands, and returns how many: fewer when the queue is full, or when one makes no sense; an error
 * when that is the first. They may be executed in any order. They are sent by fl_queue_commit, fl_queue_poll,
 * fl_queue_wait or fl_queue_arm: so many at once cost no more than one. */
int fl_queue_submit(fl_queue *queue, const fl_command *commands, size_t count, fl_error *error);

/* Sends what was submitted. */
int fl_queue_commit(fl_queue *queue);

/* Sends what was submitted, and reaps up to `room` commands that have ended, without waiting. Returns how many. */
int fl_queue_poll(fl_queue *queue, fl_completion *completions, size_t room);

/* As fl_queue_poll, and waits until `least` (or all that are outstanding) have ended, for `timeout` nanoseconds at most,
 * or for ever when that is negative. */
int fl_queue_wait(fl_queue *queue, fl_completion *completions, size_t room, size_t least, int64_t timeout);

/* Commands submitted and not reaped. */
size_t fl_queue_outstanding(const fl_queue *queue);

/* For event loops: a descriptor that becomes readable (poll(2) and the like; do not read from it) when a command has
 * ended after fl_queue_arm. It belongs to the queue. */
int fl_queue_fd(const fl_queue *queue);

/* Has the descriptor tell, and quiet until then. Returns 1 when something can be reaped already, which the descriptor
 * may not tell. So: arm; if that gives 0, wait for the descriptor; poll; and again. */
int fl_queue_arm(fl_queue *queue);

/* ---- Memory ---- */

/* Zeroed memory, aligned to a page; NULL when there is none, or `bytes` is 0. */
void *fl_alloc(size_t bytes);

/* Gives it back, of the same size. NULL is nothing to free. */
void fl_free(void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
