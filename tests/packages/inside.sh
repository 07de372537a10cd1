#!/bin/bash
# In a clean Debian: installs the package and does what the manual says, upgrades it with data in place, removes it, and
# does the same with the .rpm.
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /packages
trap 'echo "packages: failed at: $BASH_COMMAND" >&2; journalctl -u flashloom --no-pager -n 30 >&2' ERR
say() { echo "packages: $*"; }
state() { systemctl show flashloom --property "$1" --value; }

systemctl is-system-running --wait > /dev/null || true
[ ! -e /usr/bin/flashloom ]

say "five commands, from the package to a verified write"
[ "$(wc -l < first-write)" = 5 ]
bash -euxo pipefail first-write
grep -q '^Uid:.\+[1-9]' "/proc/$(state MainPID)/status"
[ "$(stat -c %U:%a /var/lib/flashloom)" = flashloom:750 ]
# Or a log in /dev/shm would be deleted at each end of the service.
[ "$(state RemoveIPC)" = no ]
bash -n /usr/share/bash-completion/completions/flashloom
man -w flashloom-pool-create > /dev/null
dpkg -V flashloom

say "upgraded with data in place, and with a changed configuration"
kept="--traddr 127.0.0.1 --subnqn nqn.2026-11.io.flashloom:tank --nsid 1"
flashloom bench $kept --rw randwrite --size 64MiB --runtime 2s --verify --journal acks -o json > /dev/null
echo '# ours' >> /etc/flashloom/flashloom.toml
before=$(state MainPID)
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq ./next.deb > /dev/null
[ "$(dpkg-query -f '${Version}' -W flashloom)" = "$(dpkg-deb -f next.deb Version)" ]
[ "$(state ActiveState)" = active ] && [ "$(state MainPID)" != "$before" ]
grep -q '^# ours' /etc/flashloom/flashloom.toml
flashloom bench $kept --check --journal acks -o json > /dev/null

say "removed: the service ends, what hosts wrote stays; purged: so it does"
apt-get remove -y -qq flashloom > /dev/null
[ ! -e /usr/bin/flashloom ] && [ -e /etc/flashloom/flashloom.toml ] && ! systemctl is-active -q flashloom
apt-get purge -y -qq flashloom > /dev/null
[ ! -e /etc/flashloom/flashloom.toml ] && [ -e /var/lib/flashloom/state.json ]

say "the .rpm serves what the .deb left"
rpm -i --nodeps ./*.rpm
rpm -V --nodeps flashloom
systemctl start flashloom
flashloom bench $kept --check --journal acks -o json > /dev/null
rpm -e flashloom
[ ! -e /usr/bin/flashloom ] && ! systemctl is-active -q flashloom && [ -e /var/lib/flashloom/state.json ]

say "the image serves with what is in it alone"
mkdir -p image/rootfs
tar -C image -xf ./*.oci.tar
(cd image/blobs/sha256 && for blob in *; do echo "$blob  $blob"; done | sha256sum --check --quiet)
for blob in image/blobs/sha256/*; do ! tar -C image/rootfs -xzf "$blob" 2> /dev/null || break; done
chroot image/rootfs /usr/bin/flashloom --state-dir /tmp/state serve memory:64MiB > /dev/null 2> image/log &
until chroot image/rootfs /usr/bin/flashloom --state-dir /tmp/state status > /dev/null 2>&1; do kill -0 $!; done
chroot image/rootfs /usr/bin/flashloom bench --traddr 127.0.0.1 --subnqn nqn.2026-11.io.flashloom:default --nsid 1 \
    --rw randwrite --size 16MiB --runtime 1s --verify -o json > /dev/null
kill $! && wait $!
say "ok"
