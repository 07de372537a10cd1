# What the scripts of direct write windows share: a verified load by one, which is killed, and what it was told is done looked at.
. /hosts/guest/array.sh
ADDRESS=10.0.2.15
NQN=nqn.2026-11.io.flashloom:quick
LOG=/dev/shm/quick.log
ACKS=/run/acks
trap '[ $? -eq 0 ] || { array events; tail -n 20 /run/array.log; tail -n 5 /run/load.log 2>/dev/null; } || true' EXIT

WHERE="rdma://$ADDRESS"
bench() { array bench --traddr "$WHERE" --trsvcid 4420 --subnqn "$NQN" --poll interrupt "$@"; }

standing() { array pool show "$POOL" -o json | jq -e ".status.windows == $1" >/dev/null; }
no_window() { standing 0; }
no_rings() { ! rdma resource show mr | grep -q 'mrlen 4194304'; }

# A verified load by a window of the kind $KIND, over $WHERE. It is ended, not finished.
load() {
    rm -f "$ACKS"
    setsid "$PROGRAM" --state-dir "$STATE" bench --traddr "$WHERE" --trsvcid 4420 --subnqn "$NQN" --poll interrupt \
        --rw randwrite --size 16MiB --iodepth 1 --verify --window "$KIND" --reconnect 120s --runtime 60m --journal "$ACKS" \
        </dev/null >/run/load.log 2>&1 3>&- &
    LOAD=$!
}
noted() { stat -c %s "$ACKS" 2>/dev/null || echo 0; }
more() { [ "$(noted)" -gt "$((FROM + 4000))" ]; }
goes_on() {
    FROM=$(noted)
    wait_for 120 more
}
check() {
    bench --check --journal "$ACKS" -o json >report.json
    expect '.jobs[0].flashloom.verify | .verified_bytes == .acknowledged_bytes and .verified_bytes > 0' <report.json
}
# killed [PROCESS]: the array, and that process just before it, end as they are.
killed() {
    # A load may be older.
    DAEMON=$(pgrep -o -f "^$PROGRAM --state-dir $STATE serve")
    kill -KILL "$@" "$DAEMON"
    wait_for 60 daemon_gone
}
daemon_gone() { [ ! -e "/proc/$DAEMON" ]; }
# A load under which the array is killed; it goes on with the next one, by a window again.
load_over_a_kill() {
    load
    goes_on
    standing 1
    killed
    start
    goes_on
    wait_for 60 standing 1
    goes_on
}
