# An NVMe drive that gets hosts' commands as they are, served by a user who is not root.
. /hosts/array/nvme.sh
wait_for 60 has_drive whole
STATE=/run/nobody-state
mkdir "$STATE"
chown 65534 "$STATE"
GENERIC=$(device whole ng)
PHYSICAL=$(device whole nvme)
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$PROGRAM" --state-dir "$STATE" serve --cpus 0 "passthrough:$GENERIC" --listen 127.0.0.1:4420 --discovery off; }
refused 'needs to read and write the device' nobody
chown 65534 "$GENERIC" "$PHYSICAL"
setsid setpriv --reuid=65534 --regid=65534 --clear-groups "$PROGRAM" --state-dir "$STATE" serve --cpus 0 "passthrough:$GENERIC" \
    --listen 127.0.0.1:4420 --discovery off </dev/null >/run/nobody.log 2>&1 3>&- &
wait_for 60 serving_or_gone
serving || fail "$(cat /run/nobody.log)"
connect
dd if=/dev/urandom of=long bs=1M count=1 status=none
dd if=long of="$DEV" bs=1M oflag=direct conv=fsync status=none
dd if="$DEV" bs=1M count=1 iflag=direct status=none | cmp - long
nvme verify "$DEV" --start-block=64 --block-count=7 >/dev/null
# Log pages are root's: hosts are told that there are none of namespaces, and who looks at events why.
wait_for 60 told 'cannot be asked for its SMART log'
refused 'invalid field' nvme get-log "$DEV" --log-id=2 --log-len=512 --namespace-id=1
nvme smart-log "$DEV" >/dev/null
disconnect
pkill -TERM -x flashloom
wait_for 60 not_serving
