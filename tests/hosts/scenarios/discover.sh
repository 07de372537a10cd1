# The discovery log names the subsystem, at the address the host reached it by, and its
# generation counter moves with every change. blktests nvme/002, 016, 017, 030.
serve memory:64MiB
log() { nvme discover --transport tcp --traddr "$ADDRESS" --trsvcid "$PORT" -o json; }
log | expect '[.records[] | select(.subnqn == $nqn)] | length == 1' --arg nqn "$NQN"
log | expect '.records[] | select(.subnqn == $nqn) | .traddr == $address and .trsvcid == $port
    and .trtype == "tcp" and .adrfam == "ipv4" and .subtype == "nvme subsystem" and .portid >= 0' \
    --arg nqn "$NQN" --arg address "$ADDRESS" --arg port "$PORT"
first=$(log | jq .genctr)
[ "$(log | jq .genctr)" = "$first" ] || fail "the counter moved without a change"
for number in 1 2 3 4 5 6 7 8; do subsystem_add "$NQN-$number"; done
log | expect '[.records[] | select(.subtype == "nvme subsystem")] | length == 9'
second=$(log | jq .genctr)
[ "$second" != "$first" ] || fail "the counter stayed at $first"
for number in 1 2 3 4 5 6 7 8; do subsystem_remove "$NQN-$number"; done
log | expect '[.records[] | select(.subtype == "nvme subsystem")] | length == 1'
[ "$(log | jq .genctr)" != "$second" ] || fail "the counter stayed at $second"
