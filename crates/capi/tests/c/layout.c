/* What the compiler makes of the header's types, for comparison with the library's. */

#include <flashloom.h>

#include <stdio.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))
#define VALUE(name) printf(#name " %lld\n", (long long)(name))

int main(void) {
    SIZE(fl_error);
    FIELD(fl_error, code);
    FIELD(fl_error, status);
    FIELD(fl_error, message);
    SIZE(fl_discovery_entry);
    FIELD(fl_discovery_entry, trtype);
    FIELD(fl_discovery_entry, treq);
    FIELD(fl_discovery_entry, portid);
    FIELD(fl_discovery_entry, cntlid);
    FIELD(fl_discovery_entry, trsvcid);
    FIELD(fl_discovery_entry, traddr);
    FIELD(fl_discovery_entry, subnqn);
    SIZE(fl_info);
    FIELD(fl_info, blocks);
    FIELD(fl_info, block_bytes);
    FIELD(fl_info, transfer_max_bytes);
    FIELD(fl_info, atomic_blocks);
    FIELD(fl_info, atomic_power_fail_blocks);
    FIELD(fl_info, optimal_write_blocks);
    FIELD(fl_info, flags);
    FIELD(fl_info, copy_ranges);
    FIELD(fl_info, copy_range_blocks);
    FIELD(fl_info, copy_blocks);
    FIELD(fl_info, nguid);
    FIELD(fl_info, eui64);
    SIZE(fl_range);
    FIELD(fl_range, lba);
    FIELD(fl_range, blocks);
    SIZE(fl_command);
    FIELD(fl_command, opcode);
    FIELD(fl_command, flags);
    FIELD(fl_command, lba);
    FIELD(fl_command, blocks);
    FIELD(fl_command, range_count);
    FIELD(fl_command, buffer);
    FIELD(fl_command, ranges);
    FIELD(fl_command, user_data);
    SIZE(fl_completion);
    FIELD(fl_completion, user_data);
    FIELD(fl_completion, code);
    FIELD(fl_completion, status);
    FIELD(fl_completion, message);
    VALUE(FL_VERSION_MAJOR);
    VALUE(FL_VERSION_MINOR);
    return 0;
}
