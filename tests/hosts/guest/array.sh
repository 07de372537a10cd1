# What the scripts of array/ share: an array that runs in the guest, and outlives the script that starts it.
PROGRAM=/hosts/flashloom
DAX=/run/dax
STATE=$DAX/state

# array ARGUMENTS...: the command line against the array in this guest.
array() { "$PROGRAM" --state-dir "$STATE" "$@"; }

# It listens when its pools are open, or take too long for that.
serving() { (: </dev/tcp/127.0.0.1/4420) 2>/dev/null; }
not_serving() { ! pgrep -x flashloom >/dev/null; }

# start [ARGUMENTS...]: starts the array; without arguments it serves what it served last.
start() {
    setsid "$PROGRAM" --state-dir "$STATE" serve --cpus 0 --poll interrupt "$@" </dev/null >>/run/array.log 2>&1 3>&- &
    wait_for 120 serving_or_gone
    serving || fail "the array did not start: $(cat /run/array.log)"
    wait_for 120 settled
}
# No pool is being opened.
settled() { array pool list -o json >pools.json && ! grep -q '"opening"' pools.json; }
serving_or_gone() { serving || not_serving; }

# The array's own file system, on persistent memory.
mount_dax() {
    mkdir -p "$DAX"
    mount -t ext4 -o dax=always /dev/pmem0 "$DAX"
}

# The log's mapping is synchronous (`sf` of proc_pid_smaps(5)): what is stored and flushed needs no system call.
mapped_synchronously() {
    awk -v file="$DAX/log" '$NF == file {of = 1} of && /^VmFlags:/ {print; exit}' "/proc/$(pgrep -x flashloom)/smaps" |
        grep -qw sf
}
