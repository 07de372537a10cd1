# A reservation that a host asked to persist outlives the target, killed with signal 9; one that it
# did not ask it for is gone. blktests has no such test.
serve file:67108864
connect --reconnect-delay=1 --ctrl-loss-tmo=600
nvme id-ns "/dev/$CTRL" --namespace-id=1 -o json | expect '.rescap % 2 == 1'
report() { nvme resv-report "/dev/$CTRL" --namespace-id=1 --eds -o json; }
ready() { report >/dev/null 2>&1; }
restart() {
    call kill
    wait_for 60 not_live
    call launch
    wait_for 120 live
    wait_for 60 ready
}
nvme resv-register "/dev/$CTRL" --namespace-id=1 --nrkey=0xa1 --rrega=0 --cptpl=3
nvme resv-acquire "/dev/$CTRL" --namespace-id=1 --crkey=0xa1 --rtype=3 --racqa=0
restart
report | expect '.rtype == 3 and .regctl == 1 and .ptpls == 1'
nvme resv-release "/dev/$CTRL" --namespace-id=1 --crkey=0xa1 --rtype=3 --rrela=0
restart
report | expect '.rtype == 0 and .regctl == 1'
nvme set-feature "/dev/$CTRL" --namespace-id=1 --feature-id=0x83 --value=0
nvme resv-acquire "/dev/$CTRL" --namespace-id=1 --crkey=0xa1 --rtype=1 --racqa=0
restart
report | expect '.rtype == 0 and .regctl == 0 and .ptpls == 0'
