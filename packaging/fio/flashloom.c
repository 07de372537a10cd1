/* SPDX-License-Identifier: GPL-2.0-only */

/*
 * fio's engine for NVMe/TCP namespaces, through libflashloom: no kernel driver, no block device.
 *
 *     fio --ioengine=external:./flashloom.so --traddr=192.0.2.10 --subnqn=nqn.2026-11.io.flashloom:default \
 *         --name=test --rw=randrw --bs=4k --iodepth=32 --verify=crc32c
 *
 * Licence. An engine is compiled with fio's headers and runs inside of fio, which is under the GNU General Public
 * License, version 2 only. So is this file, unlike the rest of Flashloom, which is under the Apache License 2.0 and
 * contains nothing of this file or of fio. It is offered as source: whoever passes on a compiled engine together with
 * libflashloom should know that many read those two licences as not compatible. To compile and use it is not passing it
 * on.
 */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fio.h"
#include "optgroup.h"

#include <flashloom.h>

/* What the job file says. fio writes through the offsets in the table below. */
struct settings {
	void *pad;
	char *traddr;
	char *trsvcid;
	char *subnqn;
	char *hostnqn;
	unsigned int nsid;
	char *io_queues;
	char *write_queues;
	char *queue_size;
	char *header_digest;
	char *data_digest;
	char *poll;
	char *window;
	char *more;
};

/* What a job has. */
struct job {
	fl_namespace *ns;
	fl_queue *queue;
	fl_completion *ends;
	uint32_t block_bytes;
	size_t memory_bytes;
	/* Commands that fio has not been told of as submitted. */
	unsigned int unsent;
};

#define TEXT(option, field, words) {			\
	.name	= option,				\
	.lname	= option,				\
	.type	= FIO_OPT_STR_STORE,			\
	.off1	= offsetof(struct settings, field),	\
	.help	= words,				\
	.category = FIO_OPT_C_ENGINE,			\
	.group	= FIO_OPT_G_INVALID,			\
}

static struct fio_option table[] = {
	TEXT("traddr", traddr, "IP address or host name of the target"),
	TEXT("trsvcid", trsvcid, "TCP port of the target"),
	TEXT("subnqn", subnqn, "NQN of the subsystem"),
	TEXT("hostnqn", hostnqn, "NQN to connect as"),
	{
		.name	= "nsid",
		.lname	= "nsid",
		.type	= FIO_OPT_INT,
		.off1	= offsetof(struct settings, nsid),
		.def	= "1",
		.minval	= 1,
		.help	= "Namespace",
		.category = FIO_OPT_C_ENGINE,
		.group	= FIO_OPT_G_INVALID,
	},
	TEXT("nr_io_queues", io_queues, "I/O queues of the job"),
	TEXT("nr_write_queues", write_queues, "I/O queues beside them for what is no read"),
	TEXT("queue_size", queue_size, "Commands outstanding on each I/O queue"),
	TEXT("hdr_digest", header_digest, "Header digests: on or off"),
	TEXT("data_digest", data_digest, "Data digests: on or off"),
	TEXT("poll_policy", poll, "How to wait: adaptive, busy or interrupt"),
	TEXT("window", window, "Direct write window: off, auto, shm, rdma or require"),
	TEXT("connect", more, "Other options of libflashloom: NAME=VALUE;NAME=VALUE"),
	{ .name = NULL },
};

static int failed(struct thread_data *td, const char *what, const fl_error *error)
{
	log_err("flashloom: %s: %s\n", what, error->message);
	td_verror(td, EIO, what);
	return 1;
}

/* Sets NAME=VALUE;NAME=VALUE, which is taken apart. */
static int set_more(fl_options *options, char *more, fl_error *error)
{
	char *rest = NULL, *pair;

	for (pair = strtok_r(more, ";", &rest); pair; pair = strtok_r(NULL, ";", &rest)) {
		char *value = strchr(pair, '=');

		if (value)
			*value++ = '\0';
		if (fl_options_set(options, pair, value, error) < 0)
			return -1;
	}
	return 0;
}

static int connect_to(struct thread_data *td, fl_namespace **ns)
{
	const struct settings *set = td->eo;
	const struct {
		const char *name;
		const char *value;
	} named[] = {
		{ "traddr", set->traddr },
		{ "trsvcid", set->trsvcid },
		{ "subnqn", set->subnqn },
		{ "hostnqn", set->hostnqn },
		{ "nr-io-queues", set->io_queues },
		{ "nr-write-queues", set->write_queues },
		{ "queue-size", set->queue_size },
		{ "hdr-digest", set->header_digest },
		{ "data-digest", set->data_digest },
		{ "poll", set->poll },
		{ "window", set->window },
	};
	char *more = set->more ? strdup(set->more) : NULL;
	fl_options *options = fl_options_new();
	fl_error error = { 0 };
	int result = 0;
	size_t at;

	for (at = 0; at < sizeof(named) / sizeof(named[0]) && !result; at++)
		if (named[at].value)
			result = fl_options_set(options, named[at].name, named[at].value, &error);
	if (!result && more)
		result = set_more(options, more, &error);
	if (!result)
		result = fl_namespace_open(options, set->nsid, ns, &error);
	fl_options_free(options);
	free(more);
	return result ? failed(td, "connect", &error) : 0;
}

/* Before jobs are forked: how large is the namespace? */
static int setup(struct thread_data *td)
{
	fl_namespace *ns;
	fl_info info;

	if (connect_to(td, &ns))
		return 1;
	fl_namespace_info(ns, &info, sizeof(info));
	fl_namespace_close(ns);
	if (!td->files_index) {
		add_file(td, td->o.filename ? td->o.filename : "flashloom", 0, 0);
		td->o.nr_files = td->o.nr_files ? td->o.nr_files : 1;
		td->o.open_files++;
	}
	td->files[0]->real_file_size = info.blocks * info.block_bytes;
	return 0;
}

static void cleanup(struct thread_data *td)
{
	struct job *job = td->io_ops_data;

	if (!job)
		return;
	fl_queue_free(job->queue);
	fl_namespace_close(job->ns);
	free(job->ends);
	free(job);
	td->io_ops_data = NULL;
}

static int init(struct thread_data *td)
{
	struct job *job = calloc(1, sizeof(*job));
	fl_error error = { 0 };
	fl_info info;

	if (!job)
		return 1;
	td->io_ops_data = job;
	job->ends = calloc(td->o.iodepth, sizeof(*job->ends));
	if (!job->ends || connect_to(td, &job->ns))
		return 1;
	if (fl_queue_new(job->ns, td->o.iodepth, &job->queue, &error) < 0)
		return failed(td, "queue", &error);
	fl_namespace_info(job->ns, &info, sizeof(info));
	job->block_bytes = info.block_bytes;
	if (td->o.max_bs[DDIR_READ] > info.transfer_max_bytes ||
	    td->o.max_bs[DDIR_WRITE] > info.transfer_max_bytes) {
		snprintf(error.message, sizeof(error.message), "at most %u bytes", info.transfer_max_bytes);
		return failed(td, "block size", &error);
	}
	return 0;
}

static enum fio_q_status queue(struct thread_data *td, struct io_u *io_u)
{
	struct job *job = td->io_ops_data;
	fl_command command = { 0 };
	fl_range range = { 0 };
	fl_error error = { 0 };
	int taken;

	fio_ro_check(td, io_u);
	switch (io_u->ddir) {
	case DDIR_READ:
		command.opcode = FL_OP_READ;
		break;
	case DDIR_WRITE:
		command.opcode = FL_OP_WRITE;
		break;
	case DDIR_TRIM:
		command.opcode = FL_OP_DEALLOCATE;
		break;
	default:
		command.opcode = FL_OP_FLUSH;
	}
	if (command.opcode != FL_OP_FLUSH) {
		if (io_u->offset % job->block_bytes || io_u->xfer_buflen % job->block_bytes) {
			log_err("flashloom: I/O is in blocks of %u bytes\n", job->block_bytes);
			io_u->error = EINVAL;
			return FIO_Q_COMPLETED;
		}
		range.lba = command.lba = io_u->offset / job->block_bytes;
		range.blocks = command.blocks = io_u->xfer_buflen / job->block_bytes;
		command.buffer = io_u->xfer_buf;
		command.ranges = &range;
		command.range_count = 1;
	}
	command.user_data = (uintptr_t) io_u;
	taken = fl_queue_submit(job->queue, &command, 1, &error);
	if (taken == 0)
		return FIO_Q_BUSY;
	if (taken < 0) {
		log_err("flashloom: %s\n", error.message);
		io_u->error = EIO;
		return FIO_Q_COMPLETED;
	}
	job->unsent++;
	return FIO_Q_QUEUED;
}

static int commit(struct thread_data *td)
{
	struct job *job = td->io_ops_data;

	fl_queue_commit(job->queue);
	io_u_mark_submit(td, job->unsent);
	job->unsent = 0;
	return 0;
}

static int getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *time)
{
	struct job *job = td->io_ops_data;
	int64_t timeout = time ? time->tv_sec * 1000000000LL + time->tv_nsec : -1;

	return fl_queue_wait(job->queue, job->ends, max < td->o.iodepth ? max : td->o.iodepth, min, timeout);
}

static struct io_u *event(struct thread_data *td, int at)
{
	const struct job *job = td->io_ops_data;
	const fl_completion *end = &job->ends[at];
	struct io_u *io_u = (struct io_u *) (uintptr_t) end->user_data;

	io_u->resid = 0;
	io_u->error = 0;
	if (end->code != FL_OK) {
		log_err("flashloom: %s\n", end->message);
		io_u->error = EIO;
	}
	return io_u;
}

static int iomem_alloc(struct thread_data *td, size_t bytes)
{
	struct job *job = td->io_ops_data;

	job->memory_bytes = bytes;
	td->orig_buffer = fl_alloc(bytes);
	return td->orig_buffer == NULL;
}

static void iomem_free(struct thread_data *td)
{
	const struct job *job = td->io_ops_data;

	if (job)
		fl_free(td->orig_buffer, job->memory_bytes);
}

static int open_file(struct thread_data *td, struct fio_file *file)
{
	return 0;
}

static int close_file(struct thread_data *td, struct fio_file *file)
{
	return 0;
}

static int invalidate(struct thread_data *td, struct fio_file *file)
{
	return 0;
}

/* fio looks for this name. */
struct ioengine_ops ioengine = {
	.name			= "flashloom",
	.version		= FIO_IOOPS_VERSION,
	.flags			= FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_MEMALIGN,
	.setup			= setup,
	.init			= init,
	.cleanup		= cleanup,
	.queue			= queue,
	.commit			= commit,
	.getevents		= getevents,
	.event			= event,
	.iomem_alloc		= iomem_alloc,
	.iomem_free		= iomem_free,
	.open_file		= open_file,
	.close_file		= close_file,
	.invalidate		= invalidate,
	.options		= table,
	.option_struct_size	= sizeof(struct settings),
};
