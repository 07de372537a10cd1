# The program in this machine makes a remote namespace a block device of its kernel: features, data, file system,
# discard, a target that is killed under load, and an end by Ctrl-C that leaves nothing behind.
read -r PORT NQN <<<"$(call address)"
attach() {
    /hosts/flashloom attach --ublk --traddr "$ADDRESS" --trsvcid "$PORT" --subnqn "$NQN" --poll interrupt \
        --keep-alive-tmo 1s --reconnect-delay 1s "$@" </dev/null >/tmp/attached 2>/tmp/attach.log 3>&- &
    SERVER=$!
    wait_for 120 attached
    DEV=$(grep '^/dev/ublkb' /tmp/attached) || fail "no block device: $(cat /tmp/attach.log)"
    wait_for 60 readable "${DEV#/dev/}"
}
attached() { grep -q '^/dev/ublkb' /tmp/attached || ! kill -0 "$SERVER"; }
detach() {
    kill -INT "$SERVER"
    wait "$SERVER" || fail "attach ended with $?: $(cat /tmp/attach.log)"
    [ ! -e "$DEV" ] && [ -z "$(ls -d /dev/ublkc* /sys/block/ublkb* 2>/dev/null)" ] || fail "$DEV was left behind"
}
queue() { cat "/sys/block/${DEV#/dev/}/queue/$1"; }
load_sectors() { awk '{print $3 + $7}' "/sys/block/${DEV#/dev/}/stat"; }

attach --nr-io-queues 2
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
load_done

mkfs.ext4 -q -F "$DEV"
mkdir -p /mnt/files
mount "$DEV" /mnt/files
cp -a /etc /mnt/files/
(cd /mnt/files && find etc -type f -print0 | sort -z | xargs -0 sha256sum) >/tmp/sums
umount /mnt/files
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
