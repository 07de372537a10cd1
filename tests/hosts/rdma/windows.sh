# Programs append to the log of a pool in this guest by themselves: direct write windows, in persistent memory of this machine. The
# array is served by rdma/target.sh, and stopped.
. /hosts/rdma/load.sh
start

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
load_over_a_kill
killed "$LOAD"
ls "$DAX"/log.window-* >/dev/null || fail "no window was left"
start
check
wait_for 30 no_window
[ -z "$(ls "$DAX"/log.window-* 2>/dev/null)" ] || fail "rings were left: $(ls "$DAX")"
array volume unmap fast/v --yes >/dev/null
array volume delete fast/v --yes >/dev/null
array pool delete fast --yes >/dev/null
pkill -TERM -x flashloom
wait_for 60 not_serving
