# Snapshots of a mounted file system and of a database's two volumes: mounted beside what goes on, unchanged whatever
# becomes of their volume, and read-only to Linux. Their space comes back.
serve memory:1MiB
call pool fast 2 512MiB >/dev/null
flashloom volume create fast/v --size 384MiB >/dev/null
flashloom volume map fast/v --subnqn "$NQN" --nsid 2 >/dev/null
connect
wait_for 60 has_node 2
DEV=/dev/$(node 2)
wait_for 60 readable "${DEV#/dev/}"

# A host is told of namespaces that come; then DEV is that of this NSID.
show() {
    flashloom snapshot map "$1" --subnqn "$NQN" --nsid "$2" >/dev/null
    wait_for 60 has_node "$2"
    SEEN=/dev/$(node "$2")
    wait_for 60 readable "${SEEN#/dev/}"
}
hide() {
    flashloom snapshot unmap "$1" --yes
    wait_for 60 no_node "$2"
}
mkdir -p /mnt/live /mnt/then
for kind in ext4 xfs; do
    case $kind in
    ext4) mkfs.ext4 -q "$DEV"; how=ro,noload ;;
    xfs) mkfs.xfs -q -f "$DEV"; how=ro,norecovery,nouuid ;;
    esac
    mount "$DEV" /mnt/live
    dd if=/dev/urandom of=/mnt/live/kept bs=1M count=24 status=none
    dd if=/dev/urandom of=/mnt/live/gone bs=1M count=24 status=none
    SUMS=$(cd /mnt/live && sha256sum kept gone)
    # What is in memory only is in no snapshot.
    fsfreeze -f /mnt/live
    flashloom snapshot create "fast/v@$kind" >/dev/null
    fsfreeze -u /mnt/live
    rm /mnt/live/gone
    dd if=/dev/urandom of=/mnt/live/kept bs=1M count=24 conv=notrunc status=none
    sync -f /mnt/live
    fstrim /mnt/live
    show "fast/v@$kind" 3
    [ "$(blockdev --getro "$SEEN")" = 1 ] || fail "$SEEN can be written"
    refused 'not permitted|Read-only' dd if=/dev/zero of="$SEEN" bs=4096 count=1 oflag=direct status=none
    mount -o "$how" "$SEEN" /mnt/then
    (cd /mnt/then && sha256sum --quiet -c <<<"$SUMS") || fail "$kind: the snapshot is not what was there"
    # Beside it the volume goes on.
    dd if=/dev/urandom of=/mnt/live/more bs=1M count=24 status=none
    sync -f /mnt/live
    echo 3 >/proc/sys/vm/drop_caches
    (cd /mnt/then && sha256sum --quiet -c <<<"$SUMS") || fail "$kind: the snapshot has changed"
    umount /mnt/then
    hide "fast/v@$kind" 3
    umount /mnt/live
done

# Over a kill of the target, too: the last of them is what it was.
show fast/v@xfs 3
head -c 64M "$SEEN" | sha256sum >before
call kill >/dev/null
wait_for 60 not_live
call launch >/dev/null
wait_for 120 live
wait_for 60 readable "${SEEN#/dev/}"
echo 3 >/proc/sys/vm/drop_caches
head -c 64M "$SEEN" | sha256sum >after
cmp before after
[ "$(blockdev --getro "$SEEN")" = 1 ] || fail "$SEEN can be written after a restart"
hide fast/v@xfs 3

# All the space comes back.
flashloom snapshot delete fast/v@ext4 --yes
flashloom snapshot delete fast/v@xfs --yes
blkdiscard "$DEV"
used() { flashloom pool show fast -o json | jq .status.used; }
is_empty() { (( $(used) < 16 << 20 )); }
wait_for 90 is_empty
