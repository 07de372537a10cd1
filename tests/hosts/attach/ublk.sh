# The program in this machine makes a remote namespace a block device of its kernel: features, data, file system,
# discard, a target that is killed under load, the program itself killed under load, another size, and an end
# by Ctrl-C that leaves nothing behind.
. /hosts/attach/device.sh
read -r PORT NQN <<<"$(call address)"

attach --nr-io-queues 2
[ "$(ls "/sys/block/${DEV#/dev/}/mq" | wc -l)" -eq 2 ] || fail "not two queues"
[ "$(queue logical_block_size)" -eq 4096 ] || fail "logical blocks of $(queue logical_block_size)"
[ "$(queue write_cache)" = "write back" ] || fail "no flush"
[ "$(queue discard_max_bytes)" -gt 0 ] || fail "no discard"
[ "$(queue write_zeroes_max_bytes)" -gt 0 ] || fail "no write zeroes"

verify_load --bsrange=4k-1m --size=48m --io_size=32m
blkdiscard "$DEV"
[ "$(call allocated)" -lt 1000000 ] || fail "$(call allocated) bytes are left after a discard"
dd if=/dev/zero bs=1M count=64 status=none | cmp - "$DEV"

background_load --size=32m
load_moves
call kill
call launch
load_moves
for round in 1 2; do
    attach_again --nr-io-queues 2
    load_moves
done
load_done

mkfs.ext4 -q -F "$DEV"
mkdir -p /mnt/files
mount "$DEV" /mnt/files
cp -a /etc /mnt/files/
(cd /mnt/files && find etc -type f -print0 | sort -z | xargs -0 sha256sum) >/tmp/sums
umount /mnt/files
e2fsck -f -n "$DEV"

has_sectors() { [ "$(cat "/sys/block/${DEV#/dev/}/size")" -eq "$1" ]; }
has_sectors 131072 || fail "$(cat "/sys/block/${DEV#/dev/}/size") sectors"
namespace_resize "$NQN" 1 96MiB
wait_for 30 has_sectors 196608
e2fsck -f -n "$DEV"
resize2fs -f "$DEV"
e2fsck -f -n "$DEV"
no_io_error
detach

attach --read-only
[ "$(cat "/sys/block/${DEV#/dev/}/ro")" = 1 ] || fail "a read-only device can be written"
mount -o ro,noload "$DEV" /mnt/files
(cd /mnt/files && sha256sum --quiet --check /tmp/sums)
umount /mnt/files
no_io_error
detach
