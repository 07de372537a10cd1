# What the scripts share that make a remote namespace a block device of this machine's kernel.
attach() {
    : >/tmp/attached
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

# The program is killed under load, and started again.
attach_again() {
    local before=$DEV
    kill -KILL "$SERVER"
    wait "$SERVER" || true
    attach "$@"
    [ "$DEV" = "$before" ] && grep -q "was left behind" /tmp/attach.log || fail "$before was not taken over: $(cat /tmp/attach.log)"
}
