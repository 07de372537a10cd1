# Programs append to the log of a pool in this guest by themselves: direct write windows, in persistent memory of this machine and
# through the network card. The array is served by rdma/target.sh, and stopped.
. /hosts/guest/array.sh
ADDRESS=10.0.2.15
NQN=nqn.2026-11.io.flashloom:quick
LOG=/dev/shm/quick.log
ACKS=/run/acks
trap '[ $? -eq 0 ] || { array events; tail -n 20 /run/array.log; tail -n 5 /run/load.log 2>/dev/null; } || true' EXIT

start
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

# On persistent memory what a card stored is durable when it was flushed, which this one can. The files are of a DAX file system,
# whose pages no card can have locked; it takes those for others where its kernel is as it was when this was written. That is
# seen and said, and nothing is written so.
NQN=nqn.2026-11.io.flashloom:fast
POOL=fast
if bench --rw randwrite --size 1MiB --io-size 1MiB --iodepth 1 --verify --window require -o json >report.json 2>why; then
    expect '.jobs[0].flashloom.direct_writes > 20 and .jobs[0].flashloom.verify.errors == 0' <report.json
else
    grep -q 'reads other bytes of persistent memory' why report.json || fail "$(cat why report.json)"
    bench --rw randwrite --size 1MiB --io-size 1MiB --iodepth 1 --verify --window auto -o json >report.json
    expect '.jobs[0].flashloom.direct_writes == 0 and .jobs[0].flashloom.verify.errors == 0' <report.json
fi
wait_for 30 no_window

# Programs of this guest store there by themselves: flushed, it is durable. The program is killed under such a load, then both
# are, so that an opening finds in the files what nobody has taken; nothing is lost.
WHERE=127.0.0.1
KIND=shm
bench --rw randwrite --size 1MiB --io-size 1MiB --iodepth 1 --verify --window shm -o json >report.json
expect '.jobs[0].flashloom.direct_writes > 100 and .jobs[0].flashloom.verify.errors == 0' <report.json
wait_for 30 no_window
load
goes_on
standing 1
killed
start
goes_on
wait_for 60 standing 1
goes_on
killed "$LOAD"
ls "$DAX"/log.window-* >/dev/null || fail "no window was left"
start
check
wait_for 30 no_window
[ -z "$(ls "$DAX"/log.window-* 2>/dev/null)" ] || fail "rings were left: $(ls "$DAX")"
array volume unmap fast/v --yes >/dev/null
array volume delete fast/v --yes >/dev/null
array pool delete fast --yes >/dev/null

NQN=nqn.2026-11.io.flashloom:quick
POOL=quick
WHERE="rdma://$ADDRESS"
KIND=rdma
array pool create quick --drive "/dev/shm/quick,size=320MiB" --log "bbu:$LOG" --log-size 16MiB --shards 2 >/dev/null
array volume create quick/v --size 32MiB >/dev/null
array volume map quick/v --subnqn "$NQN" --nsid 1 --allow-any-host >/dev/null

# Writes of several lengths go by the window, and are read as they were written.
for length in 4096 12288 65536; do
    bench --rw randwrite --bs "$length" --size 4MiB --io-size 2MiB --iodepth 1 --verify --window rdma -o json >report.json
    expect '.jobs[0].flashloom.direct_writes > 20' <report.json
    expect '.jobs[0].flashloom.verify.errors == 0' <report.json
done
wait_for 30 no_window

# Who came by TCP has none by RDMA, and one in memory of this machine.
array bench --traddr 127.0.0.1 --trsvcid 4420 --subnqn "$NQN" --poll interrupt --rw randwrite --size 1MiB --io-size 1MiB \
    --window shm -o json | expect '.jobs[0].flashloom.direct_writes > 100'
array bench --traddr 127.0.0.1 --trsvcid 4420 --subnqn "$NQN" --poll interrupt --rw randwrite --size 1MiB --io-size 1MiB \
    --window rdma -o json | expect '.jobs[0].flashloom.direct_writes == 0'

# The program is killed under such a load, which goes on with the next; nothing is lost.
load
goes_on
standing 1
killed
start
goes_on
wait_for 60 standing 1
goes_on
kill -KILL "$LOAD"
check
# What its host left is given back, memory included.
wait_for 60 no_window
wait_for 60 no_rings

# A snapshot ends the window of a host that writes; it has another soon, and loses nothing.
load
goes_on
array snapshot create quick/v@one >/dev/null
goes_on
wait_for 60 standing 1
kill -KILL "$LOAD"
check
pkill -TERM -x flashloom
wait_for 60 not_serving
