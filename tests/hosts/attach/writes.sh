# A file is written without end, behind this script's back.
. /hosts/attach/disk.sh
mkdir -p /mnt/files
mount "$DEV" /mnt/files
setsid sh -c 'while :; do dd if=/dev/urandom of=/mnt/files/scratch bs=64k count=128 oflag=direct; done' </dev/null >/dev/null 2>&1 3>&- &
load_moves
