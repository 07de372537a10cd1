# Two ways to one namespace, joined by the kernel's native multipathing: it obeys the ANA state of each under a
# verified load, and goes on when one is lost and when it is back. blktests nvme/057, 058.
[ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ] || fail "no native multipathing"
# A file: the target is killed in the end, and has to have everything afterwards.
serve file:67108864
SECOND=$(call listen)
OPTIONS=(--reconnect-delay=1 --ctrl-loss-tmo=600)
connect "${OPTIONS[@]}"
A=$CTRL
connect_second() {
    nvme connect --transport tcp --traddr "$ADDRESS" --trsvcid "$SECOND" --nqn "$NQN" "${OPTIONS[@]}"
    B=$(controllers | grep -vx "$A")
    CTRL=$B
    wait_for 60 live
}
connect_second

set_ana() { flashloom listener set-ana "127.0.0.1:$1" "$2" --yes >/dev/null; }
# is CONTROLLER STATE: whether the host knows the path to be so.
is() { [ "$(cat "/sys/class/nvme/$1/"nvme*c*n1/ana_state 2>/dev/null)" = "$2" ]; }
# move STATE-OF-A STATE-OF-B
move() {
    set_ana "$PORT" "$1"
    set_ana "$SECOND" "$2"
    wait_for 60 is "$A" "$1"
    wait_for 60 is "$B" "$2"
}
# through CONTROLLER: sectors that went that way.
through() { awk '{print $3 + $7}' "/sys/class/nvme/$1/"nvme*c*n1/stat; }
# only CONTROLLER OTHER: the load goes the first way, and nothing the other.
only() {
    load_moves
    local here there
    here=$(through "$1") there=$(through "$2")
    load_moves
    [ "$(through "$1")" -gt "$here" ] || fail "nothing went through $1"
    [ "$(through "$2")" -eq "$there" ] || fail "something went through $2"
}

wait_for 60 is "$A" optimized
wait_for 60 is "$B" optimized
nvme list-subsys "$DEV" -o json | expect '[.. | .Paths? // empty | .[]] | length == 2'
nvme ana-log "/dev/$A" -o json >ana
expect '[.. | objects | select((.nnsids? // 0) > 0) | .state] == ["optimized"]' <ana
for policy in numa round-robin queue-depth; do
    echo "$policy" >/sys/class/nvme-subsystem/*/iopolicy 2>/dev/null || continue
    verify_load --size=4m --io_size=4m
done
echo numa >/sys/class/nvme-subsystem/*/iopolicy

background_load
move non-optimized optimized
only "$B" "$A"
move optimized inaccessible
only "$A" "$B"
move inaccessible non-optimized
only "$B" "$A"
# No way at all for a moment: the load waits, once what was under way has ended.
idle() { [ "$(cat /sys/class/nvme/*/nvme*c*n1/stat | awk '{n += $9} END {print n}')" -eq 0 ]; }
move inaccessible persistent-loss
wait_for 60 idle
held=$(load_sectors)
move change inaccessible
[ "$(load_sectors)" -eq "$held" ] || fail "something moved without a way"
move non-optimized inaccessible
only "$A" "$B"
move optimized non-optimized

# The way in use is lost, and comes back.
flashloom listener remove "127.0.0.1:$PORT" --yes >/dev/null
echo 1 >"/sys/class/nvme/$A/reset_controller" 2>/dev/null || true
CTRL=$A
wait_for 60 not_live
load_moves
flashloom listener add "127.0.0.1:$PORT" >/dev/null
wait_for 120 live
wait_for 60 is "$A" optimized
only "$A" "$B"
# The other way is taken away by the host, and given back.
move non-optimized optimized
nvme disconnect --device "$B" >/dev/null
load_moves
connect_second
wait_for 60 is "$B" optimized
only "$B" "$A"
# Both are lost at once.
call kill
CTRL=$A
wait_for 60 not_live
call launch
wait_for 120 live
CTRL=$B
wait_for 120 live
wait_for 60 is "$A" non-optimized
load_moves
load_done
no_io_error
