# Mixed sizes at random places, every block's checksum read back. blktests nvme/010.
serve file:134217728
connect
verify_load
verify_load --bsrange=512-64k --blockalign=512 --randseed=11
disconnect
serve file:134217728 --block-size 4096
connect
[ "$(blockdev --getss "$DEV")" -eq 4096 ] || fail "logical blocks of $(blockdev --getss "$DEV") bytes"
verify_load --randseed=13 --size=8m --io_size=8m
no_io_error
