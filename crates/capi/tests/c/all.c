/* Every function of libflashloom, against a target: all PORT SUBNQN. */

#define _POSIX_C_SOURCE 200809L

#include <flashloom.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: %s (%d, %#x: %s)\n", __FILE__, __LINE__, #condition,        \
                    error.code, (unsigned)error.status, error.message);                         \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

enum { DEPTH = 16, ROUNDS = 100 };

static fl_options *options_for(const char *port, const char *subnqn) {
    fl_error error = {0};
    fl_options *options = fl_options_new();
    CHECK(options != NULL);
    CHECK(fl_options_set(options, "trsvcid", port, &error) == FL_OK);
    CHECK(fl_options_set(options, "subnqn", subnqn, &error) == FL_OK);
    CHECK(fl_options_set(options, "poll", "interrupt", &error) == FL_OK);
    CHECK(fl_options_set(options, "data_digest", "on", &error) == FL_OK);
    return options;
}

static void mistakes(const fl_options *options) {
    fl_error error = {0};
    fl_namespace *ns = NULL;
    fl_options *copy = fl_options_copy(options);
    CHECK(fl_options_set(copy, "colour", "blue", &error) == FL_EINVAL);
    CHECK(error.code == FL_EINVAL && strstr(error.message, "colour") != NULL);
    CHECK(fl_options_set(copy, "traddr", NULL, &error) == FL_EINVAL);
    CHECK(fl_options_set(NULL, "traddr", "::1", NULL) == FL_EINVAL);
    CHECK(fl_options_set(copy, "subnqn", "nqn.2026-11.io.flashloom:none", &error) == FL_OK);
    CHECK(fl_namespace_open(copy, 1, &ns, &error) == FL_EREFUSED && ns == NULL);
    CHECK(error.status != 0 && error.message[0] != 0);
    CHECK(fl_options_set(copy, "trsvcid", "1", &error) == FL_OK);
    CHECK(fl_namespace_open(copy, 1, &ns, &error) == FL_ECONNECT);
    CHECK(fl_namespace_open(options, 7, &ns, &error) == FL_EUNSUPPORTED);
    CHECK(fl_namespace_open(NULL, 1, &ns, &error) == FL_EINVAL);
    CHECK(strcmp(fl_strerror(FL_EFULL), "the queue is full") == 0);
    CHECK(fl_strerror(77) != NULL && fl_strerror(FL_OK) != NULL);
    fl_options_free(copy);
    fl_options_free(NULL);
    CHECK(fl_options_copy(NULL) == NULL);
}

static void discover(const fl_options *options, const char *subnqn) {
    fl_error error = {0};
    fl_discovery *discovery = NULL;
    fl_discovery_entry entry;
    size_t at, found = 0;
    fl_options *service = fl_options_copy(options);
    CHECK(fl_options_set(service, "subnqn", "", &error) == FL_OK);
    CHECK(fl_discover(service, &discovery, &error) == FL_OK);
    for (at = 0; at < fl_discovery_count(discovery); at++) {
        CHECK(fl_discovery_get(discovery, at, &entry, sizeof entry) == FL_OK);
        found += entry.trtype == 3 && strcmp(entry.subnqn, subnqn) == 0;
        CHECK(strcmp(entry.traddr, "127.0.0.1") == 0);
    }
    CHECK(found == 1);
    CHECK(fl_discovery_get(discovery, at, &entry, sizeof entry) == FL_EINVAL);
    fl_discovery_free(discovery);
    fl_options_free(service);
}

static void blocking(fl_namespace *ns, const fl_info *info) {
    fl_error error = {0};
    size_t block = info->block_bytes, blocks = 3 * info->transfer_max_bytes / block + 1, at;
    unsigned char *data = fl_alloc(blocks * block), *back = malloc(blocks * block);
    fl_range ranges[2] = {{5, 2, 0}, {9, 1, 0}};
    CHECK(data != NULL && back != NULL && (uintptr_t)data % 4096 == 0 && data[block] == 0);
    for (at = 0; at < blocks * block; at++)
        data[at] = (unsigned char)(at * 2654435761u >> 13);
    CHECK(fl_write(ns, data, 5, blocks, FL_FUA, &error) == FL_OK);
    CHECK(fl_flush(ns, &error) == FL_OK);
    CHECK(fl_read(ns, back, 5, blocks, &error) == FL_OK);
    CHECK(memcmp(data, back, blocks * block) == 0);
    CHECK(fl_compare(ns, data, 5, blocks, &error) == FL_OK);
    CHECK(fl_compare(ns, data, 6, 1, &error) == FL_ENVME && (error.status & 0x7ff) == 0x285);
    CHECK(fl_verify(ns, 0, info->blocks, &error) == FL_OK);
    CHECK(fl_copy(ns, ranges, 2, info->blocks - 3, &error) == FL_OK);
    CHECK(fl_read(ns, back, info->blocks - 3, 3, &error) == FL_OK);
    CHECK(memcmp(back, data, 2 * block) == 0 && memcmp(back + 2 * block, data + 4 * block, block) == 0);
    CHECK(fl_write_zeroes(ns, 5, 1, FL_FUA | FL_DEALLOCATE_ZEROES, &error) == FL_OK);
    CHECK(fl_deallocate(ns, ranges, 2, &error) == FL_OK);
    CHECK(fl_read(ns, back, 5, 1, &error) == FL_OK);
    for (at = 0; at < block; at++)
        CHECK(back[at] == 0);
    CHECK(fl_read(ns, back, info->blocks, 1, &error) == FL_EUNSUPPORTED);
    CHECK(fl_read(ns, NULL, 0, 1, &error) == FL_EINVAL);
    CHECK(fl_write(ns, data, 0, 1, 4, &error) == FL_EINVAL);
    CHECK(fl_deallocate(ns, NULL, 2, &error) == FL_EINVAL);
    fl_free(data, blocks * block);
    free(back);
}

/* A thread with a queue and blocks of its own: writes and reads them by turns, many in flight. */
struct lane {
    fl_namespace *ns;
    uint64_t first;
};

static void *lane(void *argument) {
    const struct lane *mine = argument;
    fl_error error = {0};
    fl_queue *queue = NULL;
    fl_command command = {0};
    fl_completion ends[DEPTH];
    fl_info info;
    unsigned char *buffers;
    unsigned rounds[DEPTH] = {0};
    int writing[DEPTH] = {0}, count, at;
    size_t left = 2 * DEPTH * ROUNDS;
    CHECK(fl_namespace_info(mine->ns, &info, sizeof info) == FL_OK);
    buffers = fl_alloc(DEPTH * (size_t)info.block_bytes);
    CHECK(fl_queue_new(mine->ns, DEPTH, &queue, &error) == FL_OK);
    for (at = 0; at < DEPTH; at++) {
        command.opcode = FL_OP_WRITE;
        command.lba = mine->first + (uint64_t)at;
        command.blocks = 1;
        command.buffer = buffers + at * (size_t)info.block_bytes;
        command.user_data = (uint64_t)at;
        memset(command.buffer, at, info.block_bytes);
        writing[at] = 1;
        CHECK(fl_queue_submit(queue, &command, 1, &error) == 1);
    }
    CHECK(fl_queue_submit(queue, &command, 1, &error) == 0);
    CHECK(fl_queue_outstanding(queue) == DEPTH);
    while (left > 0) {
        switch (left % 3) {
        case 0:
            count = fl_queue_wait(queue, ends, DEPTH, 1, -1);
            break;
        case 1:
            count = fl_queue_poll(queue, ends, 3);
            break;
        default:
            if (fl_queue_arm(queue) == 0) {
                struct pollfd watched = {fl_queue_fd(queue), POLLIN, 0};
                CHECK(fl_queue_outstanding(queue) == 0 || poll(&watched, 1, 10000) == 1);
            }
            count = fl_queue_poll(queue, ends, DEPTH);
        }
        CHECK(count >= 0);
        for (at = 0; at < count; at++) {
            size_t slot = (size_t)ends[at].user_data;
            unsigned char *buffer = buffers + slot * info.block_bytes;
            CHECK(ends[at].code == FL_OK && ends[at].message == NULL);
            CHECK(buffer[info.block_bytes - 1] == (unsigned char)(slot + rounds[slot]));
            left--;
            if (!writing[slot] && ++rounds[slot] == ROUNDS)
                continue;
            writing[slot] = !writing[slot];
            memset(buffer, writing[slot] ? (int)(slot + rounds[slot]) : 0, info.block_bytes);
            command.opcode = writing[slot] ? FL_OP_WRITE : FL_OP_READ;
            command.lba = mine->first + slot;
            command.buffer = buffer;
            command.user_data = slot;
            CHECK(fl_queue_submit(queue, &command, 1, &error) == 1);
        }
        CHECK(fl_queue_commit(queue) == FL_OK);
    }
    CHECK(fl_queue_wait(queue, ends, DEPTH, 1, 0) == 0 && fl_queue_arm(queue) == 0);
    fl_queue_free(queue);
    fl_free(buffers, DEPTH * (size_t)info.block_bytes);
    return NULL;
}

static void queues(fl_namespace *ns, const fl_info *info) {
    fl_error error = {0};
    fl_queue *queue = NULL;
    fl_range range = {1, 1, 0};
    fl_completion ends[8];
    fl_command commands[7] = {{0}};
    unsigned char *buffer = fl_alloc(info->block_bytes);
    int count, at, failed = 0;
    CHECK(fl_queue_new(ns, 0, &queue, &error) == FL_EINVAL);
    CHECK(fl_queue_new(ns, 100000, &queue, &error) == FL_EINVAL);
    CHECK(fl_queue_new(ns, 8, &queue, &error) == FL_OK);
    commands[0].opcode = FL_OP_FLUSH;
    commands[1].opcode = FL_OP_WRITE_ZEROES;
    commands[2].opcode = FL_OP_VERIFY;
    commands[3].opcode = FL_OP_DEALLOCATE;
    commands[4].opcode = FL_OP_COPY;
    commands[5].opcode = FL_OP_COMPARE;
    commands[6].opcode = 0x77;
    for (at = 0; at < 7; at++) {
        commands[at].lba = info->blocks - 1;
        commands[at].blocks = 1;
        commands[at].ranges = &range;
        commands[at].range_count = 1;
        commands[at].user_data = (uint64_t)at;
    }
    commands[5].buffer = memset(buffer, 1, info->block_bytes);
    CHECK(fl_write_zeroes(ns, 0, 2, 0, &error) == FL_OK);
    CHECK(fl_queue_submit(queue, commands, 7, &error) == 6);
    CHECK(fl_queue_submit(queue, commands + 6, 1, &error) == FL_EINVAL);
    count = fl_queue_wait(queue, ends, 8, 6, -1);
    CHECK(count == 6);
    for (at = 0; at < count; at++) {
        if (ends[at].code == FL_OK)
            continue;
        failed++;
        CHECK(ends[at].user_data == 5 && ends[at].code == FL_ENVME);
        CHECK((ends[at].status & 0x7ff) == 0x285 && strstr(ends[at].message, "Compare") != NULL);
    }
    CHECK(failed == 1);
    fl_queue_free(queue);
    fl_free(buffer, info->block_bytes);
    CHECK(fl_queue_poll(NULL, ends, 8) == FL_EINVAL && fl_queue_fd(NULL) == FL_EINVAL);
    CHECK(fl_queue_commit(NULL) == FL_EINVAL && fl_queue_arm(NULL) == FL_EINVAL);
    CHECK(fl_queue_outstanding(NULL) == 0 && fl_queue_wait(NULL, ends, 8, 1, 0) == FL_EINVAL);
    fl_queue_free(NULL);
}

int main(int argc, char **argv) {
    fl_error error = {0};
    fl_namespace *ns = NULL;
    fl_options *options;
    struct lane lanes[3];
    pthread_t threads[3];
    struct {
        fl_info info;
        unsigned char more[8];
    } newer;
    int at;
    CHECK(argc == 3);
    CHECK(fl_version() == (FL_VERSION_MAJOR << 16 | FL_VERSION_MINOR));
    options = options_for(argv[1], argv[2]);
    mistakes(options);
    discover(options, argv[2]);
    CHECK(fl_namespace_open(options, 1, &ns, &error) == FL_OK);
    fl_options_free(options);
    memset(&newer, 0xff, sizeof newer);
    CHECK(fl_namespace_info(ns, &newer.info, sizeof newer) == FL_OK && newer.more[7] == 0);
    CHECK(newer.info.block_bytes == 512 && newer.info.blocks == 65536);
    CHECK((newer.info.flags & FL_INFO_COPY) && !(newer.info.flags & FL_INFO_READ_ONLY));
    CHECK(fl_namespace_info(ns, NULL, 8) == FL_EINVAL);
    blocking(ns, &newer.info);
    queues(ns, &newer.info);
    for (at = 0; at < 3; at++) {
        lanes[at].ns = ns;
        lanes[at].first = 1000 * (uint64_t)at;
        CHECK(pthread_create(&threads[at], NULL, lane, &lanes[at]) == 0);
    }
    for (at = 0; at < 3; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    CHECK(fl_alloc(0) == NULL && fl_alloc((size_t)-1) == NULL);
    fl_free(NULL, 8);
    CHECK(fl_namespace_shut_down(ns, &error) == FL_OK);
    CHECK(fl_flush(ns, &error) < 0 && error.message[0] != 0);
    fl_namespace_close(ns);
    fl_namespace_close(NULL);
    fl_discovery_free(NULL);
    CHECK(fl_discovery_count(NULL) == 0);
    puts("all is well");
    return 0;
}
