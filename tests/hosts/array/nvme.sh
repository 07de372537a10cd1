# What the scripts share that use NVMe drives of the guest, which `call pull` and `call plug` take out and put in.
. /hosts/guest/array.sh
STATE=/run/nvme-state
ADDRESS=127.0.0.1
PORT=4420
NQN=nqn.2026-11.io.flashloom:default

# controller SERIAL: the kernel's name of the drive with it.
controller() {
    local at
    for at in /sys/class/nvme/nvme*; do
        [ "$(cat "$at/transport" 2>/dev/null)" = pcie ] || continue
        [ "$(tr -d ' ' <"$at/serial" 2>/dev/null)" = "$1" ] && echo "${at##*/}" && return
    done
    return 1
}
# device SERIAL PREFIX: its namespace's node whose name begins so: `ng` or `nvme`. Their numbers differ where it came again.
device() {
    local name at
    name=$(controller "$1") || return 1
    for at in "/sys/class/nvme/$name/$2"*; do
        [[ ${at##*/} =~ ^$2[0-9]+n[0-9]+$ ]] && [ -e "/dev/${at##*/}" ] && echo "/dev/${at##*/}" && return
    done
    return 1
}
has_drive() { device "$1" ng >/dev/null && device "$1" nvme >/dev/null; }
kill_array() {
    pkill -KILL -x flashloom
    wait_for 60 not_serving
}
# A namespace is listed, and waits for its drive.
not_served() { array namespace list -o json >namespaces.json && jq -e "any(.[]; .served == false)" namespaces.json >/dev/null; }
# told WORDS: an event says so.
told() { array events -o json >events.json && grep -q "$1" events.json; }
# What the program has to say of a failure.
trap '[ $? -eq 0 ] || array events || true' EXIT
