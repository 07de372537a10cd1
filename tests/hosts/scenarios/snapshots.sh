# Snapshots of a mounted file system and of a database's two volumes: mounted beside what goes on, unchanged whatever
# becomes of their volume, and read-only to Linux. Clones of them are mounted to be written, and neither they nor what they
# are of has anything of the other's. All their space comes back.
serve memory:1MiB
call pool fast 2 512MiB >/dev/null
flashloom volume create fast/v --size 384MiB >/dev/null
flashloom volume map fast/v --subnqn "$NQN" --nsid 2 >/dev/null
connect
wait_for 60 has_node 2
DEV=/dev/$(node 2)
wait_for 60 readable "${DEV#/dev/}"

# A host is told of namespaces that come; then SEEN is that of this NSID.
show() {
    flashloom "$1" map "$2" --subnqn "$NQN" --nsid "$3" >/dev/null
    wait_for 60 has_node "$3"
    SEEN=/dev/$(node "$3")
    wait_for 60 readable "${SEEN#/dev/}"
}
hide() {
    flashloom "$1" unmap "$2" --yes
    wait_for 60 no_node "$3"
}
used() { flashloom pool show fast -o json | jq .status.used; }
given_back() { (( $(used) < full - (22 << 20) )); }
is_as_summed() { (cd "$1" && sha256sum --quiet -c <<<"$2") || fail "$3"; }
mkdir -p /mnt/live /mnt/then /mnt/clone
for kind in ext4 xfs; do
    case $kind in
    ext4) mkfs.ext4 -q "$DEV"; how=ro,noload; written=rw ;;
    xfs) mkfs.xfs -q -f "$DEV"; how=ro,norecovery,nouuid; written=rw,nouuid ;;
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
    show snapshot "fast/v@$kind" 3
    [ "$(blockdev --getro "$SEEN")" = 1 ] || fail "$SEEN can be written"
    refused 'not permitted|Read-only' dd if=/dev/zero of="$SEEN" bs=4096 count=1 oflag=direct status=none
    mount -o "$how" "$SEEN" /mnt/then
    is_as_summed /mnt/then "$SUMS" "$kind: the snapshot is not what was there"
    # Beside it the volume goes on, and so does a clone.
    dd if=/dev/urandom of=/mnt/live/more bs=1M count=24 status=none
    sync -f /mnt/live
    LIVE=$(cd /mnt/live && sha256sum kept more)
    flashloom volume clone "fast/v@$kind" "fast/$kind" >/dev/null
    show volume "fast/$kind" 4
    mount -o "$written" "$SEEN" /mnt/clone
    is_as_summed /mnt/clone "$SUMS" "$kind: the clone does not begin as the snapshot"
    rm /mnt/clone/gone
    dd if=/dev/urandom of=/mnt/clone/kept bs=1M count=8 conv=notrunc status=none
    dd if=/dev/urandom of=/mnt/clone/own bs=1M count=8 status=none
    CLONE=$(cd /mnt/clone && sha256sum kept own)
    umount /mnt/clone
    echo 3 >/proc/sys/vm/drop_caches
    is_as_summed /mnt/then "$SUMS" "$kind: the snapshot has changed"
    is_as_summed /mnt/live "$LIVE" "$kind: the volume has something of its clone"
    umount /mnt/then
    hide volume "fast/$kind" 4
    hide snapshot "fast/v@$kind" 3
    # What the file system gives back, and no snapshot sees, the pool has again.
    full=$(used)
    rm /mnt/live/more
    sync -f /mnt/live
    fstrim /mnt/live
    wait_for 90 given_back
    umount /mnt/live
done

# Over a kill of the target, too: the last of them is what it was.
show snapshot fast/v@xfs 3
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
hide snapshot fast/v@xfs 3

# What a clone has stays without the snapshot, and without what the volume has in those places.
flashloom snapshot delete fast/v@ext4 --yes
flashloom snapshot delete fast/v@xfs --yes
blkdiscard "$DEV"
show volume fast/xfs 4
mount -o rw,nouuid "$SEEN" /mnt/clone
is_as_summed /mnt/clone "$CLONE" "the clone has lost what its snapshot had"
umount /mnt/clone
hide volume fast/xfs 4

# All the space comes back.
flashloom volume delete fast/ext4 --yes
flashloom volume delete fast/xfs --yes
is_empty() { (( $(used) < 16 << 20 )); }
wait_for 90 is_empty
