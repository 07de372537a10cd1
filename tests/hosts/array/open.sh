# The array starts on what a machine left that lost its power.
. /hosts/guest/array.sh
word() { dd if=/dev/vdi bs=4096 skip="$1" count=1 status=none | tr -d '\0'; }
[ "$(word 0)" = kept ] || fail "the drives lose what was flushed"
[ -z "$(word 1000)" ] || fail "the drives keep what was not flushed"
mount_dax
start
mapped_synchronously || fail "not mapped with MAP_SYNC after the power came back"
