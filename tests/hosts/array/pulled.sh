# A pool on NVMe drives with its log on them: what the program says of a drive is what the drive says, and one that is
# pulled under a verified load and plugged again is whole by itself.
. /hosts/array/nvme.sh
STATE=/run/pool-state
/lib/systemd/systemd-udevd --daemon
udevadm trigger --subsystem-match=block
by_id() { echo "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_$1"; }
DRIVES=()
for name in pool0 pool1 pool2 pool3 pool4; do
    wait_for 120 test -b "$(by_id "$name")"
    DRIVES+=(--drive "$(by_id "$name")")
done
start memory:1MiB --listen 127.0.0.1:4420 --discovery off
array pool create fast "${DRIVES[@]}" --raid raid6 --log-size 8MiB >/dev/null
refused 'is in use' array namespace add --force --subnqn "$NQN" "passthrough:$(device pool0 ng)"

# What is said of a drive is what the drive says. The daemon has asked all of them by itself.
asked() { array drive list -o json >drives.json && jq -e 'all(.[]; .hardware.smart != null)' drives.json >/dev/null; }
wait_for 120 asked
array drive show fast/0 >shown
nvme smart-log "/dev/$(controller pool0)" -o json >smart.json
nvme id-ctrl "/dev/$(controller pool0)" -o json >identity.json
# shown NAME: what is said by that name.
shown() { sed -nE "s/^│ $1 +┆ (.*[^ ]) +│$/\1/p" shown; }
same() { [ "$(shown "$1")" = "$2" ] || fail "$1: '$(shown "$1")', and the drive says '$2': $(cat shown)"; }
said() { jq -r "$1" "$2"; }
same model "$(said '.mn | rtrimstr(" ") | gsub(" +$"; "")' identity.json)"
same serial "$(said '.sn | gsub(" +$"; "")' identity.json)"
same firmware "$(said '.fr | gsub(" +$"; "")' identity.json)"
same temperature "$(said '.temperature - 273' smart.json) C"
same wear "$(said .percent_used smart.json) %"
same spare "$(said .avail_spare smart.json) %"
same 'media errors' "$(said .media_errors smart.json)"
same 'power-on hours' "$(said .power_on_hours smart.json)"
same transport pcie

array volume create fast/v --size 64MiB --block-size 4096 >/dev/null
array volume map fast/v --subnqn "$NQN" --nsid 2 >/dev/null
connect --reconnect-delay=1 --ctrl-loss-tmo=600
wait_for 60 has_node 2
DEV=/dev/$(node 2)
wait_for 60 readable "${DEV#/dev/}"
dd if=/dev/urandom of=kept bs=1M count=8 status=none
dd if=kept of="$DEV" bs=1M oflag=direct conv=fsync status=none

# The first of those that hold the log goes under a load, and comes back.
healths() { array pool show fast -o json | jq -c '[.status.drives[].health]'; }
whole() { [ "$(healths)" = '["online","online","online","online","online"]' ]; }
not_whole() { ! whole; }
background_load --offset=16m
load_moves
call pull pool0
wait_for 120 not_whole
load_moves
healths
load_running || fail "the load ended: $(cat /tmp/load.log)"
dd if=/dev/urandom of=later bs=1M count=4 status=none
dd if=later of="$DEV" bs=1M seek=8 oflag=direct conv=fsync status=none
call plug pool0
wait_for 240 whole
load_moves
load_done
same_bytes() {
    dd if="$DEV" bs=1M count=8 iflag=direct status=none | cmp - kept
    dd if="$DEV" bs=1M skip=8 count=4 iflag=direct status=none | cmp - later
}
same_bytes

# The one that came back counts: two others go, and everything is there.
call pull pool1
call pull pool2
same_bytes
disconnect
pkill -TERM -x flashloom
wait_for 60 not_serving
