# What every scenario script finds defined. Run as `scenario.sh FOLDER/NAME`; any command that fails
# fails the scenario, and so does a complaint of the kernel about itself.
set -Eeuo pipefail
trap 'echo "failed: ${BASH_SOURCE[0]##*/}:$LINENO: $BASH_COMMAND"' ERR

TRANSPORT=tcp
ADDRESS=10.0.2.2
PORT=
NQN=
CTRL=

fail() {
    echo "failed: $*"
    exit 1
}

# call VERB ARGUMENTS...: asks the harness outside and prints its answer.
call() {
    local code lines line
    printf 'CALL %s\n' "$*" >&3
    read -r -u 3 _ code lines
    while ((lines-- > 0)); do
        IFS= read -r -u 3 line
        printf '%s\n' "$line"
    done
    return "$code"
}

# wait_for SECONDS COMMAND...: until the command succeeds; fails when it never does.
wait_for() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        if ((SECONDS >= until)); then
            hangs
            fail "gave up waiting for: $*"
        fi
        sleep 0.1
    done
}

# What the guest is at when something does not come: its programs, those that wait for I/O and where, and the paths.
hangs() {
    ps -eo pid,ppid,stat,wchan:32,args | awk '$2 != 2' | tail -n 40
    grep . /sys/class/nvme/nvme*/state /sys/block/nvme*/{ana_state,inflight} 2>/dev/null || true
    echo 1 >/proc/sys/kernel/sysrq
    echo w >/proc/sysrq-trigger
}

# serve BACKEND [ARGUMENTS...]: starts a target outside; sets PORT and NQN. Blocks of 512 bytes
# unless said otherwise.
serve() {
    local answer
    [[ "$*" == *--block-size* ]] || set -- "$@" --block-size 512
    answer=$(call serve "$@") || fail "the target did not start: $answer"
    read -r PORT NQN <<<"$answer"
}

# flashloom ARGUMENTS...: the command line against the running target's management socket.
flashloom() {
    call flashloom "$@"
}

# The command line's words for what scenarios change, in one place.
subsystem_add() { flashloom subsystem add "$1" --allow-any-host; }
subsystem_remove() { flashloom subsystem remove "$1" --yes; }
namespace_add() { flashloom namespace add --subnqn "$1" --block-size 512 "$2"; }
namespace_resize() { flashloom namespace resize --yes --subnqn "$1" "$2" "$3"; }
namespace_remove() { flashloom namespace remove --yes --subnqn "$1" "$2"; }
host_allow() { flashloom host add --subnqn "$1" "$2"; }
host_allow_only() {
    flashloom subsystem set "$1" --allow-any-host false --yes
    host_allow "$1" "$2"
}

# controllers [NQN]: names of the connected controllers of a subsystem.
controllers() {
    local node
    for node in /sys/class/nvme/nvme*; do
        [ -e "$node/subsysnqn" ] || continue
        [ "$(cat "$node/subsysnqn" 2>/dev/null)" = "${1:-$NQN}" ] && echo "${node##*/}"
    done
    return 0
}

# node NSID [NQN]: name of the namespace's block device (its number is not the NSID).
node() {
    local at
    for at in /sys/block/nvme*n*; do
        [[ ${at##*/} =~ ^nvme[0-9]+n[0-9]+$ ]] || continue
        [ "$(cat "$at/nsid" 2>/dev/null)" = "$1" ] || continue
        [ "$(cat "$at/device/subsysnqn" 2>/dev/null)" = "${2:-$NQN}" ] || continue
        echo "${at##*/}"
        return 0
    done
    return 1
}

has_node() { node "$@" >/dev/null; }
no_node() { ! has_node "$@"; }

# A device is usable once the first read works (its node appears before its path is live).
readable() { [ -b "/dev/$1" ] && dd if="/dev/$1" of=/dev/null bs=4096 count=1 iflag=direct status=none 2>/dev/null; }

# connect [OPTIONS...]: connects to the served subsystem; sets CTRL, and DEV for namespace 1.
connect() {
    nvme connect --transport "$TRANSPORT" --traddr "$ADDRESS" --trsvcid "$PORT" --nqn "$NQN" "$@"
    CTRL=$(controllers | tail -n 1)
    [ -n "$CTRL" ] || fail "no controller after connect"
    wait_for 60 has_node 1
    DEV=/dev/$(node 1)
    wait_for 60 readable "${DEV#/dev/}"
}

disconnect() {
    nvme disconnect --nqn "$NQN" >/dev/null
    wait_for 60 gone
}
gone() { [ -z "$(controllers)" ]; }
live() { [ "$(cat "/sys/class/nvme/$CTRL/state" 2>/dev/null)" = live ]; }
not_live() { ! live; }

# stays_live SECONDS: the controller must be live at every look until then.
stays_live() {
    local until=$((SECONDS + $1))
    while ((SECONDS < until)); do
        live || fail "$CTRL is $(cat "/sys/class/nvme/$CTRL/state" 2>&1)"
        sleep 0.2
    done
}

# xxd_of FILE: its bytes in hexadecimal.
xxd_of() { od -An -v -tx1 "$1" | tr -d ' \n'; }

# expect FILTER <JSON: the jq filter must yield true; the document is shown when it does not.
expect() {
    local document
    document=$(cat)
    jq -e "${@:2}" "$1" >/dev/null <<<"$document" || fail "expected $1 of: $(jq -c . <<<"$document" 2>&1 | head -c 3000)"
}

# refused STATUS-PATTERN COMMAND...: the command must fail and its words must match.
refused() {
    local pattern=$1 output
    shift
    if output=$("$@" 2>&1); then
        fail "not refused: $*: $output"
    fi
    grep -qiE "$pattern" <<<"$output" || fail "refused, but not with '$pattern': $*: $output"
}

# verify_load [FIO ARGUMENTS...]: mixed sizes, random places, every block checked by checksum.
verify_load() {
    fio --name=verify --filename="$DEV" --direct=1 --rw=randrw --rwmixread=40 \
        --bsrange=4k-256k --bs_unaligned=0 --size=24m --io_size=24m --iodepth=16 --ioengine=libaio \
        --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randseed=7 --group_reporting \
        --output-format=json "$@" >/tmp/fio.json || { cat /tmp/fio.json; fail "fio found errors"; }
    expect '.jobs[0].error == 0' </tmp/fio.json
}

# background_load [FIO ARGUMENTS...]: a verifying writer that runs until `load_done` ends it.
# /tmp/load.log grows while it makes progress.
background_load() {
    rm -f /tmp/load.stop
    fio --name=load --filename="$DEV" --direct=1 --rw=randwrite --bs=4k --size=8m --iodepth=8 \
        --ioengine=libaio --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_backlog=64 --verify_state_save=0 \
        --time_based --runtime=600 --status-interval=1 --output-format=terse --output=/tmp/load.log \
        --trigger-file=/tmp/load.stop --trigger=true "$@" &
    LOAD=$!
    wait_for 60 load_progress 1
}
# load_progress BYTES: whether the device moved that many KiB since the load began.
# Linux 6.1 counts on the path's own disk (nvme0c0n1), later ones on the shared one (nvme0n1) too.
load_sectors() {
    local name=${DEV#/dev/}
    cat "/sys/block/$name/stat" "/sys/block/${name%n*}c"*"n${name##*n}/stat" 2>/dev/null |
        awk '$3 + $7 > most {most = $3 + $7} END {print most + 0}'
}
load_progress() { [ "$(load_sectors)" -gt "$((${LOAD_FROM:-0} + $1 * 2))" ]; }
# load_moves: waits until another 256 KiB moved, so I/O is known to flow now.
load_moves() {
    LOAD_FROM=$(load_sectors)
    wait_for 120 load_progress 256
}
load_running() { kill -0 "$LOAD" 2>/dev/null; }
load_done() {
    load_running || fail "the load ended early: $(cat /tmp/load.log)"
    touch /tmp/load.stop
    wait "$LOAD" || fail "the load saw errors: $(cat /tmp/load.log)"
}

# The kernel's own complaints fail any scenario. KNOWN is for those that a scenario knows to be
# the host's own fault.
KNOWN='^$'
kernel_quiet() {
    ! dmesg | grep -vE "$KNOWN" | grep -E 'BUG:|Oops|WARNING: |hung_task|blocked for more than|identifiers changed|unusual effects|soft lockup|KASAN'
}
# For scenarios in which no I/O may fail.
no_io_error() {
    ! dmesg | grep -E 'I/O error|critical .* error'
}

cd /tmp
# shellcheck disable=SC1090
source "/hosts/$1.sh"
kernel_quiet
