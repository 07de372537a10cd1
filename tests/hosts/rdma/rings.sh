# Direct write windows through the network card. The array is what rdma/windows.sh has left.
. /hosts/rdma/load.sh
start

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
load_over_a_kill
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
