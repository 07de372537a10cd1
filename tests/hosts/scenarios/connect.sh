# A host connects, lists, reads, and nothing is left when it disconnects.
# blktests nvme/006, 008, 021, 028.
serve memory:64MiB
connect
nvme list -o json | expect '.Devices | length == 1'
nvme list-subsys -o json | expect '[.. | .NQN? // empty] | index($nqn) != null' --arg nqn "$NQN"
[ "$(blockdev --getsize64 "$DEV")" -eq $((64 << 20)) ] || fail "wrong size"
disconnect
wait_for 30 no_node 1
no_io_error
