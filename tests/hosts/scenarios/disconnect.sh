# The host disconnects in the middle of a load: the load ends with errors, nothing hangs, and the
# next connection works. blktests nvme/031, 040.
serve memory:64MiB
for round in 1 2 3; do
    connect
    fio --name=load --filename="$DEV" --direct=1 --rw=randrw --bs=16k --size=32m --iodepth=32 --ioengine=libaio \
        --time_based --runtime=600 --output=/tmp/load.log &
    LOAD=$!
    LOAD_FROM=0
    load_moves
    disconnect
    ! wait "$LOAD" || fail "the load did not notice"
done
connect
verify_load --size=4m --io_size=4m
disconnect
[ "$(call running)" = true ] || fail "the target ended"
