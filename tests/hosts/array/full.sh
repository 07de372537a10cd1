# Pools whose drives are files on an ext4 and an xfs that get full: writers are told that there is no space, all else goes
# on, nothing acknowledged is lost, and once there is space again they write on.
. /hosts/guest/array.sh
STATE=/run/full
ADDRESS=127.0.0.1
PORT=4420
NQN=nqn.2026-11.io.flashloom:default
RECORD=$((64 << 10))
dd if=/dev/urandom of=data bs=1M count=24 status=none
start memory:1MiB --listen 127.0.0.1:4420 --discovery off

# leave MIB: takes all of the file system but that.
leave() {
    rm -f "$AT/ballast"
    local free
    free=$(df --output=avail -B 1M "$AT" | tail -n 1)
    fallocate -l $((free - $1))MiB "$AT/ballast"
}
create() {
    array pool create "$FS" --drive "$AT/0,size=96MiB" --drive "$AT/1,size=96MiB" --drive "$AT/2,size=96MiB" \
        --raid raid5 --log drives --log-size 4MiB
}
# same RECORDS: the first so many are there.
same() { cmp --bytes=$(($1 * RECORD)) data "$DEV"; }
# drives_are_online: a lack of space is no failure of a drive.
drives_are_online() { array pool show "$FS" -o json | expect '[.status.drives[].health] | length == 3 and all(. == "online")'; }
# writes_on RECORD: once more, from there on.
writes_on() { dd if=data of="$DEV" bs="$RECORD" skip="$1" seek="$1" oflag=direct conv=fsync status=none 2>/dev/null; }

nsid=2
for device in vdc:ext4 vdd:xfs; do
    FS=${device#*:}
    AT=/mnt/$FS
    mkdir -p "$AT"
    # Root may take what ext4 keeps back.
    case $FS in ext4) mkfs.ext4 -q -m 0 "/dev/${device%:*}" ;; xfs) mkfs.xfs -q "/dev/${device%:*}" ;; esac
    mount "/dev/${device%:*}" "$AT"

    leave 4
    refused 'no room for its labels and log' create
    rm -f "$AT"/[012]
    leave 32
    create >/dev/null
    array volume create "$FS/v" --size 64MiB --block-size 4096 >/dev/null
    array volume map "$FS/v" --subnqn "$NQN" --nsid "$nsid" >/dev/null
    [ "$nsid" -gt 2 ] || connect --ctrl-loss-tmo=600
    wait_for 60 has_node "$nsid"
    DEV=/dev/$(node "$nsid")
    wait_for 60 readable "${DEV#/dev/}"

    # dd counts what was acknowledged.
    if dd if=data of="$DEV" bs="$RECORD" oflag=direct 2>dd.said; then
        fail "all was written: $(df "$AT")"
    fi
    grep -q 'No space left' dd.said || fail "another error: $(cat dd.said)"
    DONE=$(sed -n 's/^\([0-9]*\)+0 records out$/\1/p' dd.said)
    echo "$FS: $DONE of $(($(stat -c %s data) / RECORD)) records fit"
    ((DONE > 48)) || fail "$DONE records only"
    drives_are_online
    same "$DONE"
    # Deallocation goes on, and so do reads of it.
    blkdiscard --offset $((16 * RECORD)) --length $((16 * RECORD)) "$DEV"
    cmp --bytes=$((16 * RECORD)) --ignore-initial=$((16 * RECORD)):0 "$DEV" /dev/zero
    same 16
    cmp --bytes=$(((DONE - 32) * RECORD)) --ignore-initial=$((32 * RECORD)) data "$DEV"
    drives_are_online

    # There is space again.
    rm "$AT/ballast"
    wait_for 60 writes_on 16
    same $(($(stat -c %s data) / RECORD))
    nsid=$((nsid + 1))
done

# All of it outlasts the program.
pkill -KILL -x flashloom
wait_for 60 not_serving
start
for nsid in 2 3; do
    wait_for 60 has_node "$nsid"
    DEV=/dev/$(node "$nsid")
    wait_for 120 readable "${DEV#/dev/}"
    same $(($(stat -c %s data) / RECORD))
done
disconnect
pkill -TERM -x flashloom
wait_for 60 not_serving
