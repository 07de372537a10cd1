/*
 * Uses whatever a target of others offers: host PORT SUBNQN. Every command it has, with digests and without; then, for
 * each line of standard input, some writes that are read back. Says "done" after the first part and after each line.
 */

#include <flashloom.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 1024, ROUNDS = 20 };

static fl_error error;

static void check(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, error.message);
        exit(1);
    }
}

static void expect(int is, const char *what) {
    if (!is) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

static fl_namespace *open_with(char **argv, const char *digests, const char *queues) {
    fl_namespace *ns;
    fl_options *options = fl_options_new();
    check(fl_options_set(options, "trsvcid", argv[1], &error), "trsvcid");
    check(fl_options_set(options, "subnqn", argv[2], &error), "subnqn");
    check(fl_options_set(options, "hdr-digest", digests, &error), "hdr-digest");
    check(fl_options_set(options, "data-digest", digests, &error), "data-digest");
    check(fl_options_set(options, "nr-io-queues", queues, &error), "nr-io-queues");
    check(fl_options_set(options, "poll", "interrupt", &error), "poll");
    check(fl_options_set(options, "reconnect-delay", "500ms", &error), "reconnect-delay");
    check(fl_options_set(options, "timeout", "60s", &error), "timeout");
    check(fl_namespace_open(options, 1, &ns, &error), "open");
    fl_options_free(options);
    return ns;
}

static void fill(unsigned char *bytes, size_t count, unsigned seed) {
    for (size_t at = 0; at < count; at++)
        bytes[at] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
}

static void everything(fl_namespace *ns, unsigned seed) {
    fl_info info;
    fl_range range = {40, 8, 0};
    check(fl_namespace_info(ns, &info, sizeof info), "info");
    size_t bytes = (size_t)BLOCKS * info.block_bytes;
    unsigned char *data = fl_alloc(bytes), *back = fl_alloc(bytes);
    expect(info.blocks >= 2 * BLOCKS, "room");
    fill(data, bytes, seed);
    check(fl_write(ns, data, 3, BLOCKS, 0, &error), "write");
    check(fl_write(ns, data, 3, 1, FL_FUA, &error), "write with FUA");
    check(fl_flush(ns, &error), "flush");
    check(fl_read(ns, back, 3, BLOCKS, &error), "read");
    expect(memcmp(data, back, bytes) == 0, "what is read is what was written");
    if (info.flags & FL_INFO_WRITE_ZEROES) {
        check(fl_write_zeroes(ns, 20, 8, 0, &error), "write zeroes");
        check(fl_read(ns, back, 20, 8, &error), "read");
        for (size_t at = 0; at < 8 * (size_t)info.block_bytes; at++)
            expect(back[at] == 0, "zeroes");
    }
    if (info.flags & FL_INFO_DEALLOCATE)
        check(fl_deallocate(ns, &range, 1, &error), "deallocate");
    if (info.flags & FL_INFO_VERIFY)
        check(fl_verify(ns, 0, 100, &error), "verify");
    if (info.flags & FL_INFO_COMPARE) {
        check(fl_compare(ns, data + 100 * (size_t)info.block_bytes, 103, 8, &error), "compare");
        expect(fl_compare(ns, data, 103, 8, &error) == FL_ENVME, "a difference is found");
    }
    expect(fl_read(ns, back, info.blocks, 1, &error) < 0, "a read beyond the end fails");
    printf("%llu blocks of %u bytes, %u bytes a command, flags %#x\n", (unsigned long long)info.blocks,
           info.block_bytes, info.transfer_max_bytes, (unsigned)info.flags);
    fl_free(data, bytes);
    fl_free(back, bytes);
}

int main(int argc, char **argv) {
    char line[80];
    unsigned seed = 7;
    fl_info info;
    expect(argc == 3, "two arguments");
    fl_namespace *plain = open_with(argv, "off", "1"), *ns = open_with(argv, "on", "2");
    everything(plain, 1);
    fl_namespace_close(plain);
    everything(ns, 2);
    check(fl_namespace_info(ns, &info, sizeof info), "info");
    size_t bytes = 8 * (size_t)info.block_bytes;
    unsigned char *data = fl_alloc(bytes), *back = fl_alloc(bytes);
    do {
        puts("done");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            break;
        for (int round = 0; round < ROUNDS; round++) {
            fill(data, bytes, ++seed);
            check(fl_write(ns, data, 8 * (uint64_t)round, 8, 0, &error), "write");
            check(fl_read(ns, back, 8 * (uint64_t)round, 8, &error), "read");
            expect(memcmp(data, back, bytes) == 0, "what is read is what was written last");
        }
    } while (1);
    fl_free(data, bytes);
    fl_free(back, bytes);
    fl_namespace_close(ns);
    return 0;
}
