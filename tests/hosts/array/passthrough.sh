# An NVMe drive that gets hosts' commands as they are; the host is the guest's own kernel.
. /hosts/array/nvme.sh
wait_for 60 has_drive whole
GENERIC=$(device whole ng)
PHYSICAL=$(device whole nvme)

# What is no such namespace, or in use, is refused, and told what to name in its place.
start memory:1MiB --listen 127.0.0.1:4420 --discovery off
add() { array namespace add --subnqn "$NQN" --nsid 7 "passthrough:$1"; }
refused "write passthrough:$GENERIC" add "$PHYSICAL"
refused "name one of its namespaces: $GENERIC" add "/dev/$(controller whole)"
refused 'no NVMe namespace' add /dev/null
refused 'is not there' add /dev/ng77n77
# One partition, of 65536 sectors from 2048 on.
{
    head -c 446 /dev/zero
    printf '\000\000\000\000\203\000\000\000\000\010\000\000\000\000\001\000'
    head -c 48 /dev/zero
    printf '\125\252'
} >table
dd if=table of="$PHYSICAL" conv=fsync status=none
blockdev --rereadpt "$PHYSICAL"
wait_for 60 test -b "${PHYSICAL}p1"
refused "write drive:${PHYSICAL}p1" add "${PHYSICAL}p1"
mkfs.ext4 -q "${PHYSICAL}p1"
mkdir -p /mnt/p1
mount "${PHYSICAL}p1" /mnt/p1
refused "$PHYSICAL is in use" add "$GENERIC"
umount /mnt/p1
refused 'blocks of 512 bytes, not 4096' array namespace add --subnqn "$NQN" --block-size 4096 "passthrough:$GENERIC"
array namespace add --subnqn "$NQN" --nsid 2 "passthrough:$GENERIC" >/dev/null
refused "is namespace 2 of" add "$GENERIC"
connect --reconnect-delay=1 --ctrl-loss-tmo=600
wait_for 60 has_node 2
DEV=/dev/$(node 2)
wait_for 60 readable "${DEV#/dev/}"

# Hosts see what the drive says of itself.
nvme id-ns "$PHYSICAL" -o json >physical.json
nvme id-ns "$DEV" -o json >ours.json
SAME='[.nsze, .ncap, .nuse, .nvmcap, .dlfeat, .noiob, .npwg, .npwa, .npdg, .npda, .nows, .nsfeat % 2, .lbafs[.flbas % 16]]'
[ "$(jq -c "$SAME" physical.json)" = "$(jq -c "$SAME" ours.json)" ] || fail "$(jq -c "$SAME" physical.json ours.json)"
[ "$(jq -c '[.nguid, .eui64]' physical.json)" != "$(jq -c '[.nguid, .eui64]' ours.json)" ] || fail 'the identity is the drive'\''s'

# So does the daemon, of the drive that it is.
nvme id-ctrl "$PHYSICAL" -o json | jq -r .sn | xargs >serial
hardware() { array namespace list -o json | jq -r '.[] | select(.nsid == 2) | .hardware | .serial, .smart.wear_percent'; }
is_known() { [ "$(hardware)" = "$(cat serial; echo 0)" ]; }
wait_for 60 is_known

# How the drive is is told of its namespace; the subsystem's own page is another.
smart() { nvme get-log "$1" --log-id=2 --log-len=512 --namespace-id="$2" --raw-binary "${@:3}"; }
same_health() { smart "$DEV" 2 >ours.smart && smart "$PHYSICAL" 1 >physical.smart && cmp -s ours.smart physical.smart; }
wait_for 60 same_health
smart "$DEV" 0xffffffff >subsystem.smart
cmp -s subsystem.smart ours.smart && fail 'the subsystem has the drive'\''s page'
[ "$(nvme id-ctrl "$DEV" -o json | jq '.lpa % 2')" = 1 ] || fail 'no page of namespaces'
celsius() { nvme smart-log "$1" --namespace-id="$2" -o json | jq .temperature; }
[ "$(celsius "$DEV" 2)" = "$(celsius "$PHYSICAL" 1)" ] || fail "$(celsius "$DEV" 2)"
[ "$(smart "$DEV" 2 --lpo=504 | od -An -tx1)" = "$(tail -c 8 physical.smart | cat - <(head -c 504 /dev/zero) | od -An -tx1)" ] || fail 'another part of it'
refused 'invalid field' smart "$DEV" 2 --lpo=516
refused 'invalid field' smart "$DEV" 7
# What hosts may not do with a drive, and may not learn of it.
for page in 0x06 0x07 0x81 0xc0; do
    refused 'invalid log page.*0x6' nvme get-log "$DEV" --log-id=$page --log-len=512 --namespace-id=2
done
for opcode in 0x10 0x14 0x19 0x0d 0x80 0x81 0x82 0x84 0x86 0xc8; do
    refused 'invalid.*opcode.*0x6001' nvme admin-passthru "$DEV" --opcode=$opcode --namespace-id=2
done

verify_load --size=8m --io_size=8m
wait_for 60 same_health
# at DEVICE BLOCK BLOCKS: what is there, of 4 KiB each, past all caches.
at() { dd if="$1" bs=4096 skip="$2" count="$3" iflag=direct status=none; }
# Commands come to the drive, and its answers back as they are: the same commands, sent by either way.
dd if=/dev/urandom of=data bs=4096 count=1 status=none
tr '\000-\377' '\001-\377\000' <data >other
nvme write "$DEV" --start-block=64 --block-count=7 --data-size=4096 --data=data --force-unit-access >/dev/null
at "$PHYSICAL" 8 1 | cmp - data
both() {
    local ours physical
    ours=$("$1" "$2" "$DEV" "${@:3}" 2>&1) && ours="0 $ours" || ours="$? $ours"
    physical=$("$1" "$2" "$PHYSICAL" "${@:3}" 2>&1) && physical="0 $physical" || physical="$? $physical"
    # More: our log has an entry for it.
    ours=${ours/(0x2/(0x}
    [ "$ours" = "$physical" ] || fail "$*: by us '$ours', by itself '$physical'"
    echo "$2: $ours"
}
both nvme compare --start-block=64 --block-count=7 --data-size=4096 --data=data
both nvme compare --start-block=64 --block-count=7 --data-size=4096 --data=other
both nvme verify --start-block=64 --block-count=7
both nvme flush
refused 'invalid' nvme write-uncor "$DEV" --start-block=64 --block-count=7
nvme write-zeroes "$DEV" --start-block=64 --block-count=7 --deac >/dev/null
at "$PHYSICAL" 8 1 | cmp --bytes=4096 - /dev/zero
dd if=/dev/urandom of="$DEV" bs=1M count=8 oflag=direct conv=fsync status=none
nvme dsm "$DEV" --ad --slbs=0,8192 --blocks=4096,64 >/dev/null
at "$PHYSICAL" 0 512 | cmp --bytes=$((2 << 20)) - /dev/zero
at "$PHYSICAL" 1024 8 | cmp --bytes=$((8 << 12)) - /dev/zero
# A block that cannot be read is told as the drive tells it, and those beside it are there.
both nvme read --start-block=200000 --block-count=7 --data-size=4096
refused '0x2?281' nvme read "$DEV" --start-block=200000 --block-count=7 --data-size=4096
nvme read "$DEV" --start-block=200008 --block-count=7 --data-size=4096 >/dev/null
# Many ranges are freed by one command, and nothing between them.
dd if=/dev/urandom of=kept bs=8192 count=64 status=none
dd if=kept of="$DEV" bs=8192 seek=512 oflag=direct conv=fsync status=none
slbs=() blocks=()
for ((n = 0; n < 64; n++)); do slbs+=($((8192 + 16 * n))) blocks+=(8); done
comma() { local IFS=,; echo "$*"; }
nvme dsm "$DEV" --ad --slbs="$(comma "${slbs[@]}")" --blocks="$(comma "${blocks[@]}")" >/dev/null || fail "$(comma "${slbs[@]}")"
for ((n = 0; n < 64; n += 9)); do
    at "$PHYSICAL" $((1024 + 2 * n)) 1 | cmp --bytes=4096 - /dev/zero
    at "$PHYSICAL" $((1025 + 2 * n)) 1 | cmp - <(dd if=kept bs=4096 skip=$((2 * n + 1)) count=1 status=none)
done
# The drive copies.
dd if=kept of="$DEV" bs=8192 oflag=direct conv=fsync status=none
nvme copy "$DEV" --sdlba=65536 --slbs=0,16 --blocks=7,255 >/dev/null
at "$PHYSICAL" 8192 33 | cmp - <(dd if=kept bs=4096 count=1 status=none; dd if=kept bs=4096 skip=2 count=32 status=none)
# One long command goes in parts that the drive takes.
dd if=/dev/urandom of=long bs=1M count=1 status=none
nvme write "$DEV" --start-block=8192 --block-count=2047 --data-size=$((1 << 20)) --data=long >/dev/null
nvme read "$DEV" --start-block=8192 --block-count=2047 --data-size=$((1 << 20)) --data=again >/dev/null
cmp long again

# The drive is pulled under a load, the program killed, and started without it: hosts wait, and go on when it is there.
background_load --offset=16m
load_moves
call pull whole
wait_for 60 told 'went away; hosts wait'
array health -o json >health.json || true
grep -q "waits for passthrough:$GENERIC" health.json
load_running || fail "the load ended: $(cat /tmp/load.log)"
call plug whole
load_moves
call pull whole
wait_for 60 not_served
kill_array
start
wait_for 60 not_served
call plug whole
load_moves
load_done
at "$DEV" 1024 256 | cmp - long
disconnect
pkill -TERM -x flashloom
wait_for 60 not_serving
