#!/bin/bash
# Process 1 of the guest: connects to the harness and runs one scenario after the other.
#
# Lines to the harness:   READY <kernel> | OUT <text> | CALL <verb> <arguments> | DONE <exit code>
# Lines from the harness: RUN <scenario> <seconds> | REPLY <exit code> <number of lines that follow>
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /dev/shm /dev/pts /run/nvme /run/lock
mount -t tmpfs tmpfs /dev/shm
mount -t configfs none /sys/kernel/config
mount -t debugfs none /sys/kernel/debug
ln -sfn /proc/self/fd /dev/fd
hostname linux-host
ip link set lo up
card=$(ls /sys/class/net | grep -v '^lo$' | head -n 1)
ip link set "$card" up
ip address add 10.0.2.15/24 dev "$card"
ip route add default via 10.0.2.2
# A card brings its link up in its own time.
until [ "$(cat "/sys/class/net/$card/carrier")" = 1 ]; do sleep 0.1; done
mkdir -p /etc/nvme
echo nqn.2014-08.org.nvmexpress:uuid:6d1a1c0e-6a37-4c4e-8a0b-3a1e3e6e0001 >/etc/nvme/hostnqn
echo 6d1a1c0e-6a37-4c4e-8a0b-3a1e3e6e0001 >/etc/nvme/hostid

for word in $(cat /proc/cmdline); do
    case $word in hosts.port=*) port=${word#hosts.port=} ;; esac
done

# A dead harness must not leave a machine behind; `-no-reboot` turns the reset into an exit.
leave() {
    echo 1 >/proc/sys/kernel/sysrq
    echo b >/proc/sysrq-trigger
}
trap leave EXIT

# Puts the machine back to how a scenario expects to find it.
tidy() {
    pkill -KILL -s "$1" 2>/dev/null
    awk '$2 ~ "^/mnt/" {print $2}' /proc/mounts | sort -r | while read -r at; do umount -l "$at"; done
    timeout 60 nvme disconnect-all >/dev/null 2>&1
    rm -rf /mnt/* /tmp/*
}

run() {
    local scenario=$1 seconds=$2 code session out
    dmesg -C
    mkfifo /run/out
    sed -u 's/^/OUT /' </run/out >&3 &
    out=$!
    setsid timeout -k 20 "$seconds" bash /hosts/guest/scenario.sh "$scenario" >/run/out 2>&1 &
    session=$!
    wait "$session"
    code=$?
    tidy "$session"
    wait "$out"
    rm -f /run/out
    if [ "$code" -ne 0 ]; then
        dmesg | tail -n 150 | sed 's/^/OUT kernel: /' >&3
    fi
    echo "DONE $code" >&3
}

exec 3<>"/dev/tcp/10.0.2.2/$port" || leave
echo "READY $(uname -r)" >&3
while read -r -u 3 verb scenario seconds; do
    [ "$verb" = RUN ] && run "$scenario" "$seconds"
done
leave
