#!/bin/sh
# Makes a container image, an archive in OCI's layout: packaging/image.sh PROGRAM VERSION OUT.tar. In it are the
# program and the libraries it is linked with, and no shell. The same files make the same image.
set -eu
program=$1 version=$2 out=$3
epoch=${SOURCE_DATE_EPOCH:?the time that files in the image have}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

archive() { tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=gnu -C "$1" -cf - .; }
digest() { sha256sum "$1" | cut -d' ' -f1; }
# Takes a file in as a blob, and prints what describes it.
blob() {
    size=$(stat -c %s "$1") hash=$(digest "$1")
    mv "$1" "$work/layout/blobs/sha256/$hash"
    printf '{"mediaType":"%s","digest":"sha256:%s","size":%s}' "$2" "$hash" "$size"
}
case $(uname -m) in x86_64) machine=amd64 ;; aarch64) machine=arm64 ;; *) machine=$(uname -m) ;; esac

tree=$work/tree
mkdir -p "$work/layout/blobs/sha256" "$tree/etc" "$tree/var/lib/flashloom" "$tree/tmp"
chmod 1777 "$tree/tmp"
# Whichever user it runs as, a volume that is mounted there is that user's.
install -D -m 755 "$program" "$tree/usr/bin/flashloom"
echo 'flashloom:x:65532:65532:Flashloom:/var/lib/flashloom:/usr/bin/flashloom' > "$tree/etc/passwd"
echo 'flashloom:x:65532:' > "$tree/etc/group"
ldd "$program" | sed -n 's#.*[[:space:]]\(/[^ ]*\) (0x.*#\1#p' | while read -r library; do
    install -D -m 755 "$library" "$tree$library"
done

archive "$tree" > "$work/layer.tar"
layer=$(digest "$work/layer.tar")
gzip -n "$work/layer.tar"
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
cat > "$work/config" <<END
{"created":"$created","architecture":"$machine","os":"linux","config":{"User":"65532:65532","Entrypoint":["/usr/bin/flashloom"],"Cmd":["serve"],
"Env":["PATH=/usr/bin","FLASHLOOM_STATE_DIR=/var/lib/flashloom"],"ExposedPorts":{"4420/tcp":{}},"Volumes":{"/var/lib/flashloom":{}},
"Labels":{"org.opencontainers.image.title":"flashloom","org.opencontainers.image.version":"$version","org.opencontainers.image.licenses":"Apache-2.0"}},
"rootfs":{"type":"layers","diff_ids":["sha256:$layer"]},"history":[{"created":"$created","created_by":"packaging/image.sh"}]}
END
config=$(blob "$work/config" application/vnd.oci.image.config.v1+json)
layer=$(blob "$work/layer.tar.gz" application/vnd.oci.image.layer.v1.tar+gzip)
manifest=application/vnd.oci.image.manifest.v1+json
printf '{"schemaVersion":2,"mediaType":"%s","config":%s,"layers":[%s]}' "$manifest" "$config" "$layer" > "$work/manifest"
manifest=$(blob "$work/manifest" "$manifest")
printf '{"schemaVersion":2,"manifests":[%s,"annotations":{"org.opencontainers.image.ref.name":"%s"}}]}' \
    "${manifest%\}}" "$version" > "$work/layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' > "$work/layout/oci-layout"
archive "$work/layout" > "$out"
