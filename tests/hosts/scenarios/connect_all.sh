# One command connects every subsystem that discovery shows.
serve memory:64MiB
subsystem_add "$NQN-second"
namespace_add "$NQN-second" memory:32MiB
nvme connect-all --transport tcp --traddr "$ADDRESS" --trsvcid "$PORT"
wait_for 60 has_node 1 "$NQN"
wait_for 60 has_node 1 "$NQN-second"
[ "$(controllers "$NQN" | wc -l)" -eq 1 ] || fail "not one controller for $NQN"
[ "$(controllers "$NQN-second" | wc -l)" -eq 1 ] || fail "not one controller for $NQN-second"
nvme disconnect-all
wait_for 60 gone
no_io_error
