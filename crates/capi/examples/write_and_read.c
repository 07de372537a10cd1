/*
 * Writes a block of a remote namespace and reads it back, keeping several reads in flight.
 *
 *     cc write_and_read.c $(pkg-config --cflags --libs flashloom) -o write_and_read
 *     ./write_and_read 127.0.0.1 4420 nqn.2026-11.io.flashloom:default
 */

#include <flashloom.h>

#include <stdio.h>
#include <string.h>

static int fail(const char *what, const fl_error *error) {
    fprintf(stderr, "%s: %s\n", what, error->message);
    return 1;
}

int main(int argc, char **argv) {
    enum { DEPTH = 8 };
    fl_error error;
    fl_namespace *ns;
    fl_queue *queue;
    fl_info info;
    fl_completion ends[DEPTH];
    char *memory;
    int left;

    if (argc != 4) {
        fprintf(stderr, "usage: %s TRADDR TRSVCID SUBNQN\n", argv[0]);
        return 2;
    }
    fl_options *options = fl_options_new();
    if (fl_options_set(options, "traddr", argv[1], &error) < 0 ||
        fl_options_set(options, "trsvcid", argv[2], &error) < 0 ||
        fl_options_set(options, "subnqn", argv[3], &error) < 0)
        return fail("options", &error);
    if (fl_namespace_open(options, 1, &ns, &error) < 0)
        return fail("open", &error);
    fl_options_free(options);
    fl_namespace_info(ns, &info, sizeof info);
    printf("%llu blocks of %u bytes\n", (unsigned long long)info.blocks, info.block_bytes);

    /* One command at a time: each call returns when it has ended. */
    memory = fl_alloc((size_t)DEPTH * info.block_bytes);
    strcpy(memory, "Hello, block 0!");
    if (fl_write(ns, memory, 0, 1, FL_FUA, &error) < 0)
        return fail("write", &error);

    /* Many at once: a queue. */
    if (fl_queue_new(ns, DEPTH, &queue, &error) < 0)
        return fail("queue", &error);
    for (uint64_t block = 0; block < DEPTH; block++) {
        fl_command read = {.opcode = FL_OP_READ, .lba = block, .blocks = 1, .user_data = block};
        read.buffer = memory + block * info.block_bytes;
        if (fl_queue_submit(queue, &read, 1, &error) != 1)
            return fail("submit", &error);
    }
    for (left = DEPTH; left > 0;) {
        int count = fl_queue_wait(queue, ends, DEPTH, 1, -1);
        for (int at = 0; at < count; at++)
            if (ends[at].code != FL_OK)
                fprintf(stderr, "block %llu: %s\n", (unsigned long long)ends[at].user_data, ends[at].message);
        left -= count;
    }
    printf("%s\n", memory);

    fl_queue_free(queue);
    fl_free(memory, (size_t)DEPTH * info.block_bytes);
    fl_namespace_close(ns);
    return 0;
}
