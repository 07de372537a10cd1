#!/bin/sh
# Installs a program that is built, and what its service needs: packaging/install.sh PROGRAM. PREFIX (/usr/local) and
# DESTDIR are as usual. A configuration that is there already is kept.
set -eu
program=$1
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}
to=$root$prefix
from=$(dirname "$0")
umask 022

install -D -m 755 "$program" "$to/bin/flashloom"
# Names of functions stay, for backtraces.
strip --strip-debug "$to/bin/flashloom"

"$program" man --out "$to/share/man/man1"
gzip -9nf "$to"/share/man/man1/flashloom*.1
completions() { mkdir -p "$(dirname "$to/share/$2")" && "$program" completions "$1" > "$to/share/$2"; }
completions bash bash-completion/completions/flashloom
completions zsh zsh/site-functions/_flashloom
completions fish fish/vendor_completions.d/flashloom.fish

mkdir -p "$to/lib/systemd/system"
sed "s#/usr/bin/#$prefix/bin/#" "$from/flashloom.service" > "$to/lib/systemd/system/flashloom.service"
install -D -m 644 "$from/flashloom.sysusers" "$to/lib/sysusers.d/flashloom.conf"
[ -e "$root/etc/flashloom/flashloom.toml" ] ||
    install -D -m 644 "$from/flashloom.toml" "$root/etc/flashloom/flashloom.toml"
for file in prometheus/flashloom.rules.yml grafana/flashloom.json; do
    install -D -m 644 "$from/$file" "$to/share/flashloom/$file"
done
for file in README.md CHANGELOG.md LICENSE; do
    install -D -m 644 "$from/../$file" "$to/share/doc/flashloom/$file"
done

# Into the running system, and not into a folder that becomes a package: its user, and its unit.
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemd-sysusers "$to/lib/sysusers.d/flashloom.conf"
    systemctl daemon-reload
fi
