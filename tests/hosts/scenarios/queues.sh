# One and four I/O queues; separate maps for writes and for polled reads. blktests nvme/047.
serve memory:128MiB
queues() { cat "/sys/class/nvme/$CTRL/queue_count"; }
for number in 1 4; do
    connect --nr-io-queues=$number
    [ "$(queues)" -eq $((number + 1)) ] || fail "$(queues) queues, not $((number + 1))"
    verify_load --size=8m --io_size=8m --numjobs=1
    disconnect
done
connect --nr-io-queues=2 --nr-write-queues=2 --nr-poll-queues=2
[ "$(queues)" -eq 7 ] || fail "$(queues) queues, not 7"
verify_load --size=8m --io_size=8m
# Linux 7.3 locks a socket, and may sleep, where it polls under RCU; it warns about itself.
KNOWN='WARNING: .*rcu_note_context_switch'
fio --name=polled --filename="$DEV" --direct=1 --rw=randread --bs=4k --size=4m --ioengine=io_uring --hipri \
    --iodepth=4 --output-format=json >/tmp/fio.json
expect '.jobs[0].error == 0' </tmp/fio.json
disconnect
connect --nr-io-queues=4 --queue-size=16
verify_load --size=4m --io_size=4m --iodepth=64
no_io_error
