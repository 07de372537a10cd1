# Mixed sizes at random places, every block's checksum read back. blktests nvme/010.
serve file:134217728
connect
verify_load
verify_load --bsrange=512-64k --blockalign=512 --randseed=11
no_io_error
