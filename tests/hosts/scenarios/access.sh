# Only listed hosts get in; an unlisted one is refused with the right status and sees nothing.
serve memory:64MiB
host_allow_only "$NQN" nqn.2014-08.org.nvmexpress:uuid:6d1a1c0e-6a37-4c4e-8a0b-3a1e3e6e0009
nvme discover --transport tcp --traddr "$ADDRESS" --trsvcid "$PORT" -o json |
    expect '[(.records // [])[] | select(.subnqn == $nqn)] | length == 0' --arg nqn "$NQN"
! nvme connect --transport tcp --traddr "$ADDRESS" --trsvcid "$PORT" --nqn "$NQN" || fail "an unlisted host connected"
dmesg | grep -qE 'is not allowed|Connect Invalid Host|failed to connect'
! nvme connect --transport tcp --traddr "$ADDRESS" --trsvcid "$PORT" --nqn "$NQN-unknown" || fail "an unknown subsystem connected"
host_allow "$NQN" "$(cat /etc/nvme/hostnqn)"
nvme discover --transport tcp --traddr "$ADDRESS" --trsvcid "$PORT" -o json |
    expect '[.records[] | select(.subnqn == $nqn)] | length == 1' --arg nqn "$NQN"
connect
disconnect
