# Hosts of bad will, by RDMA (src/bin/hostile.rs): each loses its connection, or is told no, and nobody else notices. The array
# is what the scripts before this left.
. /hosts/guest/array.sh
WHERE=rdma://10.0.2.15:4420
NQN=nqn.2026-11.io.flashloom:default
trap '[ $? -eq 0 ] || { array events; tail -n 20 /run/array.log; tail -n 5 load.log; } || true' EXIT

start
DAEMON=$(pgrep -x -o flashloom)
no_queues() { ! rdma resource show qp | grep -q 'type RC'; }
descriptors() { ls "/proc/$DAEMON/fd" | wc -l; }
resident() { awk '/^VmRSS/ { print $2 }' "/proc/$DAEMON/status"; }
LIKE_OTHERS="--traddr $WHERE --subnqn $NQN --poll interrupt"
LOAD_OF_OTHERS="--verify --bs 4k --size 256k --iodepth 4 -o json --rw randrw"
bench() { "$PROGRAM" bench $LIKE_OTHERS $LOAD_OF_OTHERS "$@"; }

# What the first host has made here stays for others.
bench --io-size 64k >bench.json 2>load.log
wait_for 30 no_queues
DESCRIPTORS=$(descriptors)
RESIDENT=$(resident)
# A host like others, which ends when it loses a connection.
rm -f acks.jnl
"$PROGRAM" bench $LIKE_OTHERS $LOAD_OF_OTHERS --journal acks.jnl --rate-iops 20 --runtime 60m >bench.json 2>load.log &
LOAD=$!
/hosts/hostile 10.0.2.15:4420 "$NQN" || fail "$(array events)"
load_running || fail "a host like others suffered: $(cat load.log)"
kill -KILL "$LOAD"
wait "$LOAD" || true
# What it was told is written is there.
"$PROGRAM" bench $LIKE_OTHERS --check --journal acks.jnl >check.log 2>&1 || fail "a host like others was spoilt: $(cat check.log)"
# Nothing is left of any of them.
wait_for 60 no_queues
as_before() { [ "$(descriptors)" -le "$DESCRIPTORS" ]; }
wait_for 30 as_before
[ "$(resident)" -lt "$((RESIDENT + 32768))" ] || fail "$RESIDENT KiB before, $(resident) after"
bench --io-size 64k >bench.json 2>load.log
expect '.jobs[0].error == 0' <bench.json
pkill -TERM -x flashloom
wait_for 60 not_serving
