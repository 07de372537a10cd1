# RDMA FLUSH over soft RoCE (src/bin/flush.rs): on persistent memory without a file system, whose pages can be locked. What the
# array had there is gone.
. /hosts/guest/array.sh
umount "$DAX"
ndctl create-namespace --force --reconfig=namespace0.0 --mode=devdax --map=mem >/dev/null
/hosts/flush 10.0.2.15:4430 /dev/dax0.0 || fail "$(dmesg | tail -n 5)"
