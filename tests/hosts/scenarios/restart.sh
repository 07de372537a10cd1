# The target is killed with signal 9 under a verified load and started again: the host reconnects,
# no I/O fails and nothing acknowledged is lost. blktests nvme/040, 060, 061.
serve file:67108864
connect --reconnect-delay=1 --ctrl-loss-tmo=600
background_load --size=32m
for round in 1 2 3; do
    load_moves
    call kill
    wait_for 60 not_live
    call launch
    wait_for 120 live
done
load_moves
load_done
no_io_error
