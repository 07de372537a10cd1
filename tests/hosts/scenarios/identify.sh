# Everything that nvme-cli can ask of Identify and properties is answered and makes sense.
# blktests nvme/004, 025 to 027.
serve memory:64MiB
connect
C=/dev/$CTRL
nvme id-ctrl "$C" -o json >id
expect '.subnqn == $nqn' --arg nqn "$NQN" <id
expect '.mn | startswith("Flashloom")' <id
expect '(.sn | length) > 0 and (.fr | length) > 0' <id
expect '.ver >= 131328 and .cntrltype == 1' <id
expect '.kas > 0 and .aerl >= 3 and .elpe >= 0' <id
expect '(.oaes / 256 | floor) % 2 == 1' <id
expect '.ioccsz * 16 >= 64 + 4096 and .iorcsz == 1 and .icdoff == 0' <id
expect '.sqes == 102 and .cqes == 68 and .maxcmd > 0' <id
expect '.sgls % 4 > 0 and (.sgls / 1048576 | floor) % 2 == 1' <id
expect '(.cmic / 8 | floor) % 2 == 1 and .anagrpmax >= 1 and .nanagrpid == .anagrpmax and .anatt > 0' <id
expect '.nn >= 1 and .mnan >= 0 and .vwc >= 0' <id

nvme id-ns "$DEV" -o json >ns
expect '.nsze == 131072 and .ncap == .nsze and .nuse <= .ncap' <ns
expect '.nguid | test("^0+$") | not' <ns
expect '.lbafs[0].ds == 9 and .flbas == 0' <ns
expect '.anagrpid == 1 and .nmic % 2 == 1' <ns
nvme ns-descs "$DEV" -o json >descriptors
expect '[.. | .uuid? // empty] | length == 1' <descriptors
expect '[.. | .nguid? // empty] | length == 1' <descriptors
[ "$(cat "/sys/block/${DEV#/dev/}/uuid")" = "$(jq -r '[.. | .uuid? // empty][0]' descriptors)" ] || fail "sysfs and nvme-cli differ about the UUID"

nvme list-ns "$C" -o json | expect '[.nsid_list[].nsid] == [1]'
nvme list-ns "$C" --all -o json | expect '[.nsid_list[].nsid] == [1]'
nvme list-ctrl "$C" -o json | expect '.num_ctrl >= 1'
nvme list-ctrl "$C" --namespace-id=1 -o json | expect '.num_ctrl >= 1'
nvme cmdset-ind-id-ns "$C" --namespace-id=1 -o json | expect '.nstat % 2 == 1'
nvme nvm-id-ctrl "$C" -o json | expect '.vsl >= 0 and .wzsl == 13 and .dmrl >= 0'
# What the block layer makes of it: transfers of 1 MiB, zeroes by 32 MiB and not by as much as is transferred.
queue=/sys/block/${DEV#/dev/}/queue
[ "$(cat "$queue/max_hw_sectors_kb")" -eq 1024 ] || fail "transfers of $(cat "$queue/max_hw_sectors_kb") KiB"
[ "$(cat "$queue/write_zeroes_max_bytes")" -eq 33554432 ] || fail "zeroes of $(cat "$queue/write_zeroes_max_bytes") bytes"
nvme nvm-id-ns "$DEV" -o json | expect 'type == "object"'
# This one prints no JSON.
nvme id-iocs "$C" | grep -qi "I/O Command Set"
nvme list-ns "$C" --csi=0 -o json | expect '[.nsid_list[].nsid] == [1]'
# A namespace that is valid but not active is all zeroes; one that cannot be is refused.
nvme id-ns "$C" --namespace-id=9 -o json | expect '.nsze == 0 and .ncap == 0'
refused 'invalid namespace' nvme id-ns "$C" --namespace-id=0xfffffffe

nvme show-regs "$C" -o json | expect '.csts % 2 == 1 and .cc % 2 == 1 and .vs >= 131328'
nvme get-property "$C" --offset=0 | grep -q .
nvme get-property "$C" --offset=0x1c | grep -q 1
refused 'invalid' nvme get-property "$C" --offset=0x1000
nvme ns-rescan "$C"
has_node 1
no_io_error
