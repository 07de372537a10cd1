# The array is killed with signal 9 and started again.
. /hosts/guest/array.sh
pkill -KILL -x flashloom
wait_for 60 not_serving
start
mapped_synchronously || fail "not mapped with MAP_SYNC when it is opened again"
