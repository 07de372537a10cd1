#!/bin/sh
# Makes a .deb, a .rpm and a container image of a program that is built: packaging/packages.sh PROGRAM OUT, from the
# repository's folder. The same program makes the same bytes: times are those of the latest commit, or of
# SOURCE_DATE_EPOCH. rpmbuild is in Debian's package `rpm`.
set -eu
program=$1 out=$2
here=$(dirname "$0")
version=$("$program" --version | sed 's/^flashloom \([^ ]*\).*/\1/')
: "${SOURCE_DATE_EPOCH:=$(git -C "$here" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

stage=$work/stage
DESTDIR=$stage PREFIX=/usr "$here/install.sh" "$program"

rpmbuild --quiet -bb --define "version $version" --define "stage $stage" --define "_topdir $work/rpm" --define "_rpmdir $out" \
    --define "_rpmfilename %{name}-%{version}-%{release}.%{_arch}.rpm" "$here/rpm/flashloom.spec"

"$here/image.sh" "$stage/usr/bin/flashloom" "$version" "$out/flashloom-$version.oci.tar"

# Debian looks for zsh's completions in a folder of its own.
mv "$stage/usr/share/zsh/site-functions" "$stage/usr/share/zsh/vendor-completions"
mkdir "$stage/DEBIAN" "$work/debian"
install -m 755 "$here"/deb/* "$stage/DEBIAN"
echo /etc/flashloom/flashloom.toml > "$stage/DEBIAN/conffiles"
# What dpkg-shlibdeps asks of a source package.
printf 'Source: flashloom\n\nPackage: flashloom\nArchitecture: any\n' > "$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O "$stage/usr/bin/flashloom" | sed 's/^shlibs:Depends=//')
cat > "$stage/DEBIAN/control" <<END
Package: flashloom
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: Flashloom developers <developers@flashloom.invalid>
Depends: $libraries, systemd | systemd-standalone-sysusers
Suggests: librdmacm1t64 | librdmacm1, ibverbs-providers
Installed-Size: $(find "$stage" -path "$stage/DEBIAN" -prune -o -printf '%y %s\n' |
    awk '{ n += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print n }')
Section: admin
Priority: optional
Description: all-flash array in user space, served over NVMe-oF
 Flashloom serves drives over NVMe-oF from user space: pools with RAID, a durable
 log, thin volumes, and one program to run and to manage them.
END
find "$stage" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb -Zgzip --root-owner-group --build "$stage" "$out/flashloom_${version}_$(dpkg --print-architecture).deb" > /dev/null
ls "$out"
