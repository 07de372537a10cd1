# Our host side uses our target by RDMA, which is what the script before this left; then the kernel's.
. /hosts/guest/array.sh
ADDRESS=10.0.2.15
HOST=nqn.2014-08.org.nvmexpress:uuid:6d1a1c0e-6a37-4c4e-8a0b-3a1e3e6e0003
trap '[ $? -eq 0 ] || { array events; tail -n 20 /run/array.log; } || true' EXIT

# ours VERB ARGUMENTS...: the command line as a host, of NQN at WHERE.
ours() { "$PROGRAM" "$@" --traddr "$WHERE" --subnqn "$NQN" --hostnqn "$HOST"; }
# verified ARGUMENTS...: a verified load of ours, all of it done.
verified() {
    ours bench --verify --poll interrupt -o json "$@" >bench.json 2>bench.log || fail "$*: $(tail -n 20 bench.log)"
    expect 'all(.jobs[]; .error == 0 and .flashloom.verify.verified_bytes > 0)' <bench.json
}
# everything SPLIT: data of those lengths, in the capsule and beside it, on several queues; more at once than there are
# places for; and one command at a time, polled.
everything() {
    verified --rw randrw --bssplit "$1" --size 4MiB --io-size 1MiB --iodepth 8 --nr-io-queues 2
    verified --rw write --bs 1m --size 6MiB --iodepth 6
    verified --rw randrw --bs 16k --size 1MiB --io-size 256k --iodepth 1
}
# survives GO COME: a load goes on behind a target that goes and comes; what it was told is done is there.
survives() {
    rm -f acks.jnl
    ours bench --rw randwrite --bs 4k --size 256k --io-size 1MiB --rate-iops 60 --iodepth 4 --verify --journal acks.jnl \
        --poll interrupt --reconnect-delay 500ms --reconnect 2m -o json >load.json 2>load.log &
    LOAD=$!
    wait_for 60 acknowledged 1000
    "$1"
    "$2"
    wait "$LOAD" || fail "the load: $(tail -n 20 load.log)"
    expect '.jobs[0].flashloom.reconnects >= 1' <load.json
    ours bench --check --journal acks.jnl --poll interrupt >check.log 2>&1 || fail "$(cat check.log)"
}
# acknowledged BYTES: the journal has so many of acknowledgements.
acknowledged() {
    load_running || fail "the load ended early: $(tail -n 20 load.log)"
    [ "$(stat -c %s acks.jnl 2>/dev/null || echo 0)" -gt "$1" ]
}

# ---- Our own target ---------------------------------------------------------------------------
WHERE="rdma://$ADDRESS:4420"
NQN=nqn.2026-11.io.flashloom:fast
start
"$PROGRAM" discover --traddr "$WHERE" -o json |
    expect 'any(.records[]; .trtype == "rdma" and .subnqn == $nqn)' --arg nqn "$NQN"
ours id-ctrl -o json | expect '.ioccsz == 260 and .mdts == 8'
NQN=nqn.2026-11.io.flashloom:default everything 512/40:4k/30:8k/20:64k/10
# One namespace by both transports.
verified --rw randrw --bs 4k --size 256k --iodepth 4 --path 127.0.0.1:4420 --path-policy round-robin
# It is the oldest: the others are hosts.
killed() {
    DAEMON=$(pgrep -x -o flashloom)
    kill -KILL "$DAEMON"
    wait_for 60 buried
}
buried() { [ ! -e "/proc/$DAEMON" ]; }
survives killed start

# What is wrong is said: nobody there, no device that leads there, no place for so many queues, a host that may not.
refused 'nothing listens there' "$PROGRAM" id-ctrl --traddr "rdma://$ADDRESS:4499"
refused 'no RDMA device.*127.0.0.1' "$PROGRAM" id-ctrl --traddr rdma://127.0.0.1
refused 'timed out|no route|unreachable|did not' "$PROGRAM" id-ctrl --traddr rdma://10.0.2.99
refused 'no resources .status 6' ours bench --rw read --bs 4k --size 4MiB --nr-io-queues 40 --iodepth 1024
array subsystem set "$NQN" --allow-any-host false --yes >/dev/null
refused 'does not allow this host' ours id-ctrl
array subsystem set "$NQN" --allow-any-host true --yes >/dev/null
pkill -TERM -x flashloom
wait_for 60 not_serving

# ---- The kernel's -----------------------------------------------------------------------------
nvmet=/sys/kernel/config/nvmet
NQN=nqn.2026-11.io.flashloom:foreign
WHERE="rdma://$ADDRESS:4421"
truncate -s 32M /run/foreign.img
mkdir "$nvmet/subsystems/$NQN"
echo 1 >"$nvmet/subsystems/$NQN/attr_allow_any_host"
mkdir "$nvmet/subsystems/$NQN/namespaces/1"
echo /run/foreign.img >"$nvmet/subsystems/$NQN/namespaces/1/device_path"
echo 1 >"$nvmet/subsystems/$NQN/namespaces/1/buffered_io"
echo 1 >"$nvmet/subsystems/$NQN/namespaces/1/enable"
mkdir "$nvmet/ports/1"
echo rdma >"$nvmet/ports/1/addr_trtype"
echo ipv4 >"$nvmet/ports/1/addr_adrfam"
echo "$ADDRESS" >"$nvmet/ports/1/addr_traddr"
echo 4421 >"$nvmet/ports/1/addr_trsvcid"
offered() { ln -s "$nvmet/subsystems/$NQN" "$nvmet/ports/1/subsystems/$NQN"; }
withdrawn() { rm "$nvmet/ports/1/subsystems/$NQN"; }
offered
"$PROGRAM" discover --traddr "$WHERE" -o json |
    expect 'any(.records[]; .trtype == "rdma" and .subnqn == $nqn)' --arg nqn "$NQN"
# It takes data in the capsule, and what is longer by its own reads and writes of our memory.
ours id-ctrl -o json | expect '.ioccsz >= 260 and (.sgls / 4 | floor) % 2 == 1'
everything 4k/50:8k/30:64k/20
survives withdrawn offered
echo 0 >"$nvmet/subsystems/$NQN/attr_allow_any_host"
refused 'does not allow this host|SUBNQN' ours id-ctrl
withdrawn
refused 'nothing listens there' ours id-ctrl
# Nothing is left behind.
no_queues() { ! rdma resource show qp | grep -q 'type RC'; }
wait_for 30 no_queues
