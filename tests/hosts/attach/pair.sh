# The program in this machine makes a mirror of two targets a block device of its kernel; one target is killed under
# load, and then the program.
. /hosts/attach/device.sh
serve "memory:48MiB" --block-size 4096
ONE=traddr=$ADDRESS,trsvcid=$PORT,nqn=$NQN
serve "memory:48MiB" --block-size 4096
TWO=traddr=$ADDRESS,trsvcid=$PORT,nqn=$NQN
/hosts/flashloom raid create --name pair --level raid1 --member "$ONE" --member "$TWO"
attach --member "$ONE" --member "$TWO" --fast-io-fail-tmo 1s
verify_load --size=8m --io_size=8m
background_load
load_moves
call kill
load_moves
attach_again --member "$ONE" --member "$TWO" --degraded --fast-io-fail-tmo 1s
load_moves
load_done
no_io_error
detach
