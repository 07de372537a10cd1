#!/bin/sh
# Makes the packages and tries them in a clean Debian that has systemd as its first process: tests/packages.sh, from
# the repository's folder, as root. `packages/inside.sh` is what happens in there. FLASHLOOM_BIN names the program.
set -eu
program=$(realpath "${FLASHLOOM_BIN:-target/debug/flashloom}")
work=$(pwd)/target/packages
here=$(pwd)/tests/packages
mkdir -p "$work"

missing=
for tool in rpmbuild:rpm debootstrap:debootstrap dpkg-shlibdeps:dpkg-dev; do
    command -v "${tool%:*}" > /dev/null || missing="$missing ${tool#*:}"
done
if [ -n "$missing" ]; then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends $missing > /dev/null
fi
# A root to copy from: made once, and never booted.
if [ ! -d "$work/root" ]; then
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian Debian //p' | head -n 1)
    rm -rf "$work/making"
    debootstrap --variant=minbase --include=systemd-sysv,rpm,man-db trixie "$work/making" "$mirror" > "$work/debootstrap.log" 2>&1 ||
        { tail "$work/debootstrap.log" >&2; exit 1; }
    mv "$work/making" "$work/root"
fi

echo "packages: the same program makes the same bytes"
rm -rf "$work/first" "$work/second"
packaging/packages.sh "$program" "$work/first" > /dev/null
SOURCE_DATE_EPOCH= packaging/packages.sh "$program" "$work/second" > /dev/null
for package in "$work"/first/*; do cmp "$package" "$work/second/${package##*/}"; done

echo "packages: the list of what is in them is valid to CycloneDX's own library"
python=python3
if ! $python -c 'import cyclonedx, jsonschema' 2> /dev/null; then
    python=$work/python/bin/python
    [ -x "$python" ] || python3 -m venv "$work/python"
    "$python" -m pip install --quiet 'cyclonedx-python-lib[json-validation]==11.12.0'
fi
cargo xtask sbom > "$work/flashloom.cdx.json"
"$python" - "$work/flashloom.cdx.json" <<'EOF'
import json, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
with open(sys.argv[1]) as file:
    text = file.read()
fault = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
names = {component["name"] for component in json.loads(text)["components"]}
assert {"engine", "io-uring", "tokio"} <= names and "proptest" not in names, names
sys.exit(str(fault) if fault else 0)
EOF

rm -rf "$work/clean"
cp -a --reflink=auto "$work/root" "$work/clean"
mkdir "$work/clean/packages"
cp "$work"/first/* "$here/inside.sh" "$work/clean/packages"
# What the manual says to type, from its first block of commands on.
sed -n '/^```/,/^```/p' docs/install.md | sed '1d; /^```/,$d' > "$work/clean/packages/first-write"
# The next version, as far as a package manager can tell.
dpkg-deb -R "$work"/first/*.deb "$work/clean/packages/next"
sed -i 's/^Version: .*/&+next/' "$work/clean/packages/next/DEBIAN/control"
dpkg-deb -Zgzip --root-owner-group --build "$work/clean/packages/next" "$work/clean/packages/next.deb" > /dev/null
rm -r "$work/clean/packages/next" "$work/second"

unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup "$here/boot.sh" "$work/clean" &
container=$!
# Nothing less ends it, and with it the first process in there.
trap 'kill -KILL "$container" 2> /dev/null || true' EXIT
# The first process in there, once it has what systemd makes when it begins.
until init=$(pgrep -P "$container") && nsenter -t "$init" -a test -S /run/systemd/private 2> /dev/null; do
    kill -0 "$container"
    sleep 0.1
done
nsenter -t "$init" -a /packages/inside.sh
rm -rf "$work/clean" "$work/first"
