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

# The operator reads why a host was refused, whose own words do not tell.
told() { flashloom events | grep -qF "$1"; }
wait_for 60 told "is not on the subsystem's list of hosts"
wait_for 60 told "there is no such subsystem here"

# A subsystem that is away for a moment: the host comes back by itself, where it once gave the controller up for good.
NQN=nqn.2026-11.io.flashloom:away
subsystem_add "$NQN"
namespace_add "$NQN" memory:16MiB
connect --reconnect-delay=1 --ctrl-loss-tmo=600
subsystem_remove "$NQN"
wait_for 60 not_live
wait_for 60 told "was refused by \"$NQN\": there is no such subsystem here"
subsystem_add "$NQN"
namespace_add "$NQN" memory:16MiB
wait_for 120 live
wait_for 60 readable "${DEV#/dev/}"
disconnect
