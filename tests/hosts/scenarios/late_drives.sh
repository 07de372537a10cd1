# The target is killed under a mounted ext4 and started while the drives of its pool are away, and killed and started
# once more in the midst of that: the host waits. When the drives come, the file system goes on as if nothing had been.
# Then all drives of the running target refuse what is written, and take it again: the host waits for that, too, and
# reads what is there meanwhile.
serve memory:1MiB
call pool fast 4 192MiB >/dev/null
flashloom volume create fast/v --size 256MiB >/dev/null
flashloom volume map fast/v --subnqn "$NQN" --nsid 2 >/dev/null
connect --reconnect-delay=1 --ctrl-loss-tmo=600
wait_for 60 has_node 2
DEV=/dev/$(node 2)
wait_for 60 readable "${DEV#/dev/}"
mkdir -p /mnt/late
mkfs.ext4 -q "$DEV"
# Without access times: to write one down a read would wait for the journal.
mount -o noatime "$DEV" /mnt/late
rm -f late.stop late.failed late.count
write_on() {
    local number=0
    while [ ! -e late.stop ]; do
        number=$((number + 1))
        # fsync: each file is acknowledged before it counts.
        dd if=/dev/urandom of="/mnt/late/$((number % 50))" bs=4k count=4 conv=fsync status=none || {
            touch late.failed
            return
        }
        echo "$number" >late.count
    done
}
write_on &
WRITER=$!
written() { [ "$(cat late.count 2>/dev/null || echo 0)" -gt "$1" ]; }
goes_on() { wait_for 120 written $(($(cat late.count 2>/dev/null || echo 0) + 2)); }
goes_on

call drives fast away
for _ in 1 2; do
    call kill
    wait_for 60 not_live
    call launch
    wait_for 120 live
    flashloom namespace list -o json | expect '.[] | select(.nsid == 2) | .served == false'
    stays_live 5
    [ "/dev/$(node 2)" = "$DEV" ] || fail "another block device: $(node 2)"
done
call drives fast back
goes_on
flashloom pool show fast -o json | expect '.health == "online"'

dd if=/dev/urandom of=kept bs=1M count=8 status=none
dd if=kept of=/mnt/late/kept bs=1M conv=fsync status=none
health() { [ "$(flashloom pool show fast -o json | jq -r .health)" = "$1" ]; }
call drives fast refuse
wait_for 60 health beyond-redundancy
stays_live 5
flashloom volume show fast/v -o json | expect '.state == "waiting"'
timeout 60 dd if=/mnt/late/kept bs=1M iflag=direct status=none | cmp - kept
call drives fast take
wait_for 120 health online
goes_on
[ "/dev/$(node 2)" = "$DEV" ] || fail "another block device: $(node 2)"
touch late.stop
wait "$WRITER"
[ ! -e late.failed ] || fail "a write failed"
umount /mnt/late
e2fsck -f -n "$DEV"
no_io_error
