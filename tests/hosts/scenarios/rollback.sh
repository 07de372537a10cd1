# A file system goes back to a snapshot. Unmounted and unmapped first, it has again what it had then. Under a host that has
# it that has to be meant: it stays the same device, is told that it has another size, its reads go on, direct ones have what
# the volume went back to, and what is mounted then is that. What it had in between is in the snapshots kept.
serve memory:1MiB
call pool fast 2 512MiB >/dev/null
flashloom volume create fast/v --size 256MiB >/dev/null

# A host is told of the namespace; then DEV is that.
show() {
    flashloom volume map fast/v --subnqn "$NQN" --nsid 2 >/dev/null
    wait_for 60 has_node 2
    DEV=/dev/$(node 2)
    wait_for 60 readable "${DEV#/dev/}"
}
identity() { cat "/sys/block/${DEV#/dev/}/uuid"; }
has_size() { [ "$(blockdev --getsize64 "$DEV")" = $(($1 * 1024 * 1024)) ]; }
is_as_summed() {
    mount "$DEV" /mnt/v
    (cd /mnt/v && sha256sum --quiet -c <<<"$1" && [ "$(find . -type f | sort | tr -d '\n')" = "$2" ]) || fail "$3"
    umount /mnt/v
}
connect
show
UUID=$(identity)
mkdir -p /mnt/v
mkfs.ext4 -q "$DEV"
mount "$DEV" /mnt/v
dd if=/dev/urandom of=/mnt/v/gone bs=1M count=16 status=none
dd if=/dev/urandom of=/mnt/v/kept bs=1M count=16 status=none
OLD=$(cd /mnt/v && sha256sum gone kept)
umount /mnt/v
flashloom snapshot create fast/v@old >/dev/null
mount "$DEV" /mnt/v
rm /mnt/v/gone
dd if=/dev/urandom of=/mnt/v/kept bs=1M count=16 conv=notrunc status=none
dd if=/dev/urandom of=/mnt/v/more bs=1M count=16 status=none
NEW=$(cd /mnt/v && sha256sum kept more)
umount /mnt/v
flashloom volume resize fast/v 320MiB
wait_for 60 has_size 320

# No host has it: nothing has to be meant.
flashloom volume unmap fast/v --yes
wait_for 60 no_node 2
flashloom snapshot rollback fast/v@old --keep-as new >/dev/null
show
[ "$(identity)" = "$UUID" ] || fail "it is another namespace after a rollback"
has_size 256 || fail "it has not the size that it had then"
is_as_summed "$OLD" "./gone./kept" "the file system is not what it was before"

# A host has it mounted, and reads.
mount "$DEV" /mnt/v
refused 'would change under the hosts' flashloom snapshot rollback fast/v@new --keep-as again
umount /mnt/v
has_size 256 || fail "what was refused was told to the host"
is_as_summed "$OLD" "./gone./kept" "what was refused was done"
fio --name=reader --filename="$DEV" --direct=1 --rw=randread --bs=4k --iodepth=4 --ioengine=libaio --time_based \
    --runtime=600 --trigger-file=/tmp/reader.stop --trigger=true >/tmp/reader.log 2>&1 &
READER=$!
beginning() { dd if="$DEV" bs=1M count=256 iflag=direct status=none | sha256sum; }
WAS=$(beginning)
load_moves
flashloom snapshot rollback fast/v@new --keep-as again --yes >/dev/null
load_moves
kill -0 "$READER" || fail "a read failed: $(cat /tmp/reader.log)"
touch /tmp/reader.stop
wait "$READER" || fail "a read failed: $(cat /tmp/reader.log)"
[ "$(beginning)" != "$WAS" ] || fail "the device has what it had before"
wait_for 60 has_size 320
[ "/dev/$(node 2)" = "$DEV" ] || fail "it is another device after a rollback"
[ "$(identity)" = "$UUID" ] || fail "it is another namespace after a rollback under a host"
is_as_summed "$NEW" "./kept./more" "the file system is not what it was in between"
flashloom snapshot rollback fast/v@again --no-keep --yes >/dev/null
wait_for 60 has_size 256
is_as_summed "$OLD" "./gone./kept" "the file system is not what it went forth from"
no_io_error
