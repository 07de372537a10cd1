# The machine lost its power while it had a load on the disk, and starts again.
. /hosts/attach/disk.sh
e2fsck -p "$DEV" || [ $? -eq 1 ]
mkdir -p /mnt/files
mount "$DEV" /mnt/files
(cd /mnt/files && sha256sum --quiet --check sums)
umount /mnt/files
verify_load
no_io_error
