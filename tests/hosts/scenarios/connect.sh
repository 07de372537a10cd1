# A host connects, reads, and leaves nothing behind when it disconnects.
serve memory:64MiB
connect
nvme list -o json
nvme id-ctrl "/dev/$CTRL" -o json | expect '.cntrltype == 1 and .subnqn == $nqn' --arg nqn "$NQN"
[ "$(blockdev --getsize64 "$DEV")" -eq $((64 << 20)) ] || fail "wrong size"
disconnect
wait_for 30 no_node 1
no_io_error
