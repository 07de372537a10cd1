# A pool that a host fills: warned of in time, then writes fail for lack of space while reads and deallocation go on,
# and what is given back can be written again.
serve memory:1MiB
call pool fast 2 192MiB
flashloom volume create fast/v --size 1GiB >/dev/null
flashloom volume map fast/v --subnqn "$NQN" --nsid 2 >/dev/null
connect
wait_for 60 has_node 2
DEV=/dev/$(node 2)
wait_for 60 readable "${DEV#/dev/}"
C=/dev/$CTRL
space() { flashloom pool show fast -o json | jq -r .status.space; }
is() { [[ "$(space)" =~ ^($1)$ ]]; }
warned() { nvme smart-log "$C" -o json | jq -e '.critical_warning % 2 == 1 and .avail_spare < .spare_thresh' >/dev/null; }
not_warned() { ! warned; }
warned && fail "warned of before anything was written"

# Linux asks for no events of SMART / Health: an administrator does. They arrive as events of the device.
nvme set-feature "$C" --feature-id=0x0b --value=0x101 >/dev/null
udevadm monitor --kernel --property >events &
MONITOR=$!
wait_for 30 grep -q KERNEL events

dd if=/dev/urandom of=first bs=1M count=2 status=none
dd if=first of="$DEV" bs=1M oflag=direct status=none
# dd ends when there is no more space, and not before there is next to none.
refused 'No space left' dd if=/dev/zero of="$DEV" bs=128k seek=16 oflag=direct status=none
# A last refused write may leave more than a hundredth of so small a pool.
wait_for 60 is 'critical|full'
wait_for 60 warned
# Type 1, SMART / Health; information 2, spare below threshold; log page 2.
wait_for 60 grep -q 'NVME_AEN=0x020201' events
# Who comes when it is full already is told as soon as it asks.
events_told() { (( $(grep -c 'NVME_AEN=0x020201' events) >= $1 )); }
nvme disconnect --device "$CTRL" >/dev/null
wait_for 60 gone
TOLD=$(grep -c 'NVME_AEN=0x020201' events)
connect
wait_for 60 has_node 2
DEV=/dev/$(node 2)
wait_for 60 readable "${DEV#/dev/}"
C=/dev/$CTRL
nvme set-feature "$C" --feature-id=0x0b --value=0x101 >/dev/null
wait_for 60 events_told $((TOLD + 1))
flashloom pool show fast | grep -qE 'online, (full|critically low)'
refused 'No space left' dd if=/dev/zero of="$DEV" bs=1M count=8 seek=900 oflag=direct status=none
cmp --bytes=$((2 << 20)) first "$DEV"

FILLED=$(call pool_takes fast)
blkdiscard --offset $((2 << 20)) --length $((1022 << 20)) "$DEV"
dd if=/dev/urandom of=second bs=1M count=4 status=none
dd if=second of="$DEV" bs=1M seek=500 oflag=direct status=none
cmp --bytes=$((4 << 20)) --ignore-initial=0:$((500 << 20)) second "$DEV"
cmp --bytes=$((2 << 20)) first "$DEV"
wait_for 60 is enough
wait_for 60 not_warned
# The files of the drives give back what became free.
shrunk() { (( $(call pool_takes fast) < FILLED / 2 )); }
wait_for 90 shrunk
# All that while the connection was never lost: the target answers Keep Alive, however full the pool is.
[[ $(cat "/sys/class/nvme/$CTRL/state") == live ]]
dmesg | grep -E "$CTRL: (.*keep.alive|Reconnecting|starting error recovery)" && fail "the connection was lost"
kill "$MONITOR"
