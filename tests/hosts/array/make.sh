# An array in the guest: one pool with its log on persistent memory, one with its log on its drives.
. /hosts/guest/array.sh
# The emulated memory has no place for labels: it is one namespace, raw until it is told to be fsdax.
ndctl create-namespace --force --reconfig=namespace0.0 --mode=fsdax --map=mem >/dev/null
mkfs.ext4 -q -b 4096 /dev/pmem0
mount_dax
start memory:1MiB --listen 0.0.0.0:4420 --discovery off

# What the kernel uses is not taken from it, whatever is forced.
mkswap /dev/vdi >/dev/null
swapon /dev/vdi
refused 'is in use' array pool create other --drive /dev/vdi --force
refused 'is in use' array namespace add drive:/dev/vdi
refused 'is in use' array bench --filename /dev/vdi --rw write --size 1MiB
swapoff /dev/vdi

refused 'DAX' array pool create pmem --drive /dev/vdc --log pmem:/dev/shm/log --log-size 16MiB
[ ! -e /dev/shm/log ] || fail "the refused log was left behind"
array pool create pmem --drive /dev/vdc --drive /dev/vdd --drive /dev/vde --drive /dev/vdf \
    --raid raid6 --log "pmem:$DAX/log" --log-size 64MiB >/dev/null
array pool show pmem -o json |
    expect '.status.log.kind == "pmem" and (.status.log.protection | test("survive power loss"))'
mapped_synchronously || fail "not mapped with MAP_SYNC: $(grep -A 30 "$DAX/log" "/proc/$(pgrep -x flashloom)/smaps")"
array pool create drives --drive /dev/vdg --drive /dev/vdh --raid mirror --log drives --log-size 16MiB >/dev/null
nsid=1
for pool in pmem drives; do
    array volume create "$pool/v" --size 1TiB >/dev/null
    array volume map "$pool/v" --subnqn nqn.2026-11.io.flashloom:array --nsid "$nsid" --allow-any-host >/dev/null
    nsid=$((nsid + 1))
done

# What open.sh looks for: the drives keep what was flushed, and lose the rest, when the power goes.
truncate -s 4096 block
printf kept | dd of=block conv=notrunc status=none
dd if=block of=/dev/vdi bs=4096 oflag=direct conv=fsync status=none
dd if=block of=/dev/vdi bs=4096 oflag=direct seek=1000 status=none
