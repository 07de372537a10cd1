# Controller resets and rescans under load. blktests nvme/005, 022, 027, 040, 053.
serve memory:64MiB
connect
background_load
for round in 1 2 3; do
    load_moves
    nvme reset "/dev/$CTRL"
    wait_for 60 live
    nvme ns-rescan "/dev/$CTRL"
done
load_moves
load_done
no_io_error
