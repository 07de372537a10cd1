# Namespaces come, grow and go while another one is under load; the host notices by itself.
serve memory:64MiB
connect
background_load
sized() { [ "$(blockdev --getsize64 "/dev/$1" 2>/dev/null)" = "$2" ]; }
for round in 1 2; do
    namespace_add "$NQN" memory:32MiB
    wait_for 60 has_node 2
    second=$(node 2)
    wait_for 60 readable "$second"
    sized "$second" $((32 << 20)) || fail "the new namespace has the wrong size"
    dd if=/dev/urandom of="/dev/$second" bs=1M count=4 oflag=direct status=none
    namespace_resize "$NQN" 2 64MiB
    wait_for 60 sized "$second" $((64 << 20))
    load_moves
    namespace_remove "$NQN" 2
    wait_for 60 no_node 2
    load_moves
done
load_done
