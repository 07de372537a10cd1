# What a file system or a host gives back, the backing file gives back. blktests nvme/019, 065.
serve file:402653184
connect
allocated() { call allocated; }
below() { [ "$(allocated)" -lt "$1" ]; }
# All at once: the kernel would write inode tables for minutes, beside what is measured.
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$DEV"
mkdir -p /mnt/files
mount "$DEV" /mnt/files
dd if=/dev/urandom of=/mnt/files/large bs=1M count=48 status=none
sync -f /mnt/files
full=$(allocated)
[ "$full" -ge $((48 << 20)) ] || fail "48 MiB written, $full allocated"
rm /mnt/files/large
sync -f /mnt/files
fstrim -v /mnt/files
below $((full - (44 << 20))) || fail "$full allocated before fstrim, $(allocated) after"
umount /mnt/files
dd if=/dev/urandom of="$DEV" bs=1M count=8 oflag=direct status=none
blkdiscard "$DEV"
below $((1 << 20)) || fail "$(allocated) allocated after discarding all"
dd if=/dev/urandom of="$DEV" bs=1M count=8 oflag=direct status=none
blkdiscard --zeroout --length $((8 << 20)) "$DEV"
cmp --bytes=$((8 << 20)) "$DEV" /dev/zero
no_io_error
