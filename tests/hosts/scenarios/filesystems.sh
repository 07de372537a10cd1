# The two file systems that most hosts use: made, filled, checked, mounted again, the same files.
# blktests nvme/012.
serve memory:512MiB
connect
fill() {
    mkdir -p "$1/tree/deep"
    cp -a /usr/sbin /etc "$1/tree/"
    for number in $(seq 1 200); do echo "$number" >"$1/tree/deep/$number"; done
    rm -rf "$1/tree/deep/1"*
    (cd "$1" && find tree -type f -print0 | sort -z | xargs -0 sha256sum) >"$2"
}
check() { (cd "$1" && sha256sum --quiet --check "$2"); }
mkdir -p /mnt/files
mkfs.ext4 -q -F "$DEV"
mount "$DEV" /mnt/files
fill /mnt/files /tmp/sums
umount /mnt/files
e2fsck -f -n "$DEV"
mount "$DEV" /mnt/files
check /mnt/files /tmp/sums
umount /mnt/files
mkfs.xfs -q -f "$DEV"
mount "$DEV" /mnt/files
fill /mnt/files /tmp/sums
umount /mnt/files
xfs_repair -n "$DEV"
mount "$DEV" /mnt/files
check /mnt/files /tmp/sums
umount /mnt/files
no_io_error
