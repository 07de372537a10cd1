# The kernel's host uses our target by RDMA, both in this guest, over soft RoCE on its Ethernet card.
. /hosts/guest/array.sh
TRANSPORT=rdma
ADDRESS=10.0.2.15
PORT=4420
NQN=nqn.2026-11.io.flashloom:default
WHERE="rdma://$ADDRESS:$PORT"
CARD=$(ls /sys/class/net | grep -v '^lo$' | head -n 1)
# What the program has to say of a failure.
trap '[ $? -eq 0 ] || { array events; tail -n 20 /run/array.log; } || true' EXIT

ndctl create-namespace --force --reconfig=namespace0.0 --mode=fsdax --map=mem >/dev/null
mkfs.ext4 -q -b 4096 /dev/pmem0
mount_dax
start memory:64MiB --block-size 512 --listen 127.0.0.1:4420 --discovery off

# Without a device, or at another address, words say what is missing; nothing is kept of it.
refused 'no RDMA device' array listener add "$WHERE"
refused 'no RDMA device' "$PROGRAM" discover --traddr "$WHERE"
rdma link add rxe0 type rxe netdev "$CARD"
refused 'no RDMA device.*10.0.2.99' array listener add rdma://10.0.2.99:4420
array listener add "$WHERE" >/dev/null
array listener list -o json | expect 'any(.[]; .address == $where)' --arg where "$WHERE"
refused 'in use|exists|already' array listener add "$WHERE"

log() { nvme discover --transport "$1" --traddr "$2" --trsvcid "$PORT" -o json; }
log rdma "$ADDRESS" | expect '.records[] | select(.subnqn == $nqn and .trtype == "rdma") |
    .traddr == $address and .trsvcid == $port and .rdma_qptype == "connected" and .rdma_cms == "rdma-cm"' \
    --arg nqn "$NQN" --arg address "$ADDRESS" --arg port "$PORT"
# Who asks by TCP hears of it too.
log tcp 127.0.0.1 | expect 'any(.records[]; .trtype == "rdma" and .traddr == $address)' --arg address "$ADDRESS"

# Identify says what the transport needs; data of each length comes back, in the capsule and by the card, also in
# more pieces than one.
connect --nr-io-queues 2
nvme id-ctrl "/dev/$CTRL" -o json | expect '.ioccsz == 260 and .icdoff == 0 and (.sgls / 4 | floor) % 2 == 1 and .mdts == 8'
[ "$(cat "/sys/class/nvme/$CTRL/transport")" = rdma ] || fail "not by RDMA"
verify_load --bsrange=512-1m --blockalign=512 --size=12m --io_size=12m
dd if=/dev/urandom of=whole bs=1M count=3 status=none
dd if=whole of="$DEV" bs=3M count=1 oflag=direct status=none
dd if="$DEV" of=back bs=512 count=6144 iflag=fullblock status=none
cmp whole back
nvme io-passthru "/dev/${DEV#/dev/}" --opcode=2 --namespace-id=1 --data-len=1048576 --read --cdw12=2047 --raw-binary >passed 2>/dev/null
cmp -n 1048576 whole passed
mkfs.ext4 -q -b 4096 "$DEV"
mkdir -p /mnt/rdma
mount "$DEV" /mnt/rdma
dd if=whole of=/mnt/rdma/file conv=fsync status=none
umount /mnt/rdma
mount "$DEV" /mnt/rdma
cmp whole /mnt/rdma/file
umount /mnt/rdma

# Another host, at the same time; and one that is not admitted, told so.
OTHER=nqn.2014-08.org.nvmexpress:uuid:6d1a1c0e-6a37-4c4e-8a0b-3a1e3e6e0002
other() {
    nvme connect --transport rdma --traddr "$ADDRESS" --trsvcid "$PORT" --nqn "$NQN" --nr-io-queues 1 \
        --hostnqn "$OTHER" --hostid 6d1a1c0e-6a37-4c4e-8a0b-3a1e3e6e0002
}
two() { [ "$(controllers | wc -l)" = 2 ]; }
other
wait_for 30 two
disconnect
array subsystem set "$NQN" --allow-any-host false --yes >/dev/null
refused . other
dmesg | grep -q 'not allowed' || fail "the host does not know why: $(dmesg | tail -n 5)"
array subsystem set "$NQN" --allow-any-host true --yes >/dev/null

# A host that leaves in the midst of a load, twice.
for round in 1 2; do
    connect --nr-io-queues 2
    fio --name=load --filename="$DEV" --direct=1 --rw=randrw --bs=128k --size=32m --iodepth=16 --ioengine=libaio \
        --time_based --runtime=600 --output=/tmp/load.log &
    LOAD=$!
    LOAD_FROM=0
    load_moves
    disconnect
    ! wait "$LOAD" || fail "the load did not notice"
done

# The program is killed under a load, which goes on where it was with the next: the pool's log is on persistent memory.
array pool create fast --drive "$DAX/drive,size=160MiB" --log "pmem:$DAX/log" --log-size 16MiB >/dev/null
array volume create fast/v --size 64MiB >/dev/null
NQN=nqn.2026-11.io.flashloom:fast
array volume map fast/v --subnqn "$NQN" --nsid 1 --allow-any-host >/dev/null
connect --nr-io-queues 2 --reconnect-delay 1 --ctrl-loss-tmo 120
LOAD_FROM=0
background_load
load_moves
pkill -KILL -x flashloom
wait_for 60 not_serving
start
load_moves
load_done
verify_load --size=4m --io_size=4m
disconnect

# Listeners go and come back while hosts are connected.
connect --nr-io-queues 1
array listener remove "$WHERE" --yes >/dev/null
readable "${DEV#/dev/}" || fail "a connection went with its listener"
disconnect
refused . nvme connect --transport rdma --traddr "$ADDRESS" --trsvcid "$PORT" --nqn "$NQN"
array listener add "$WHERE" >/dev/null
connect --nr-io-queues 1
verify_load --size=2m --io_size=2m
disconnect
# No queue is left behind.
no_queues() { ! rdma resource show qp | grep -q 'type RC'; }
wait_for 30 no_queues
pkill -TERM -x flashloom
wait_for 60 not_serving
