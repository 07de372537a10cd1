# A remote namespace is this machine's disk, and so is its root: features, data, file system, discard, a target that is
# killed under load, and the program between them killed likewise. Another disk is a RAID set.
. /hosts/attach/disk.sh
[ "$(queue logical_block_size)" -eq 4096 ] || fail "logical blocks of $(queue logical_block_size)"
[ "$(queue discard_max_bytes)" -gt 0 ] || fail "no discard"
[ "$(queue write_zeroes_max_bytes)" -gt 0 ] || fail "no write zeroes"
[ "$(queue write_cache)" = "write back" ] || fail "no flush"
[ "$(ls "/sys/block/${DEV#/dev/}/mq" | wc -l)" -gt 1 ] || fail "one queue only"

verify_load --bsrange=4k-1m --size=48m --io_size=32m
blkdiscard "$DEV"
[ "$(allocated)" -lt 1000000 ] || fail "$(allocated) bytes are left after a discard"
dd if=/dev/zero bs=1M count=64 status=none | cmp - "$DEV"
dd if=/dev/urandom of="$DEV" bs=1M count=4 oflag=direct status=none
blkdiscard --zeroout --offset 4096 --length 2097152 "$DEV"
dd if=/dev/zero bs=1M count=2 status=none | cmp -n 2097152 - "$DEV" 0 4096

in_flight() { awk '{exit $1 + $2 == 0}' "/sys/block/${DEV#/dev/}/inflight"; }
background_load --size=32m
for round in 1 2; do
    load_moves
    call kill
    call launch
    load_moves
done
call attached kill
call attached launch
load_moves
# With its target gone it has requests in flight for certain.
call kill
wait_for 60 in_flight
call attached kill
call launch
call attached launch
load_moves
load_done
call attached log | grep -q "were left in flight" || fail "nothing was in flight when the program was killed"
no_io_error

PAIR=$(grep -l '^pair$' /sys/block/vd*/serial | cut -d/ -f4)
[ -n "$PAIR" ] || fail "no disk is the set"
(DEV=/dev/$PAIR; verify_load --bsrange=4k-256k --size=24m --io_size=16m)
blkdiscard --zeroout "/dev/$PAIR"
dd if=/dev/zero bs=1M count=24 status=none | cmp -n 25165824 - "/dev/$PAIR"
no_io_error

mkfs.ext4 -q -F "$DEV"
mkdir -p /mnt/files
mount "$DEV" /mnt/files
cp -a /etc /mnt/files/
(cd /mnt/files && find etc -type f -print0 | sort -z | xargs -0 sha256sum) >/tmp/sums
cp /tmp/sums /mnt/files/sums
umount /mnt/files
e2fsck -f -n "$DEV"
mount -o discard "$DEV" /mnt/files
(cd /mnt/files && sha256sum --quiet --check sums)
fstrim -v /mnt/files
sync
no_io_error
