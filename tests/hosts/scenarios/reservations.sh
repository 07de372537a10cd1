# Two hosts and one namespace: register, acquire, conflict, report, preempt, release.
# blktests nvme/054.
serve memory:64MiB
connect
first=$CTRL
nvme connect --transport tcp --traddr "$ADDRESS" --trsvcid "$PORT" --nqn "$NQN" \
    --hostnqn nqn.2014-08.org.nvmexpress:uuid:6d1a1c0e-6a37-4c4e-8a0b-3a1e3e6e0002 --hostid 6d1a1c0e-6a37-4c4e-8a0b-3a1e3e6e0002
second=$(controllers | grep -v "^$first$")
[ -n "$second" ] || fail "no second controller"
CTRL=$second
wait_for 60 live
# A controller's own character device sends through that controller; the shared block device
# would choose a path.
ready() { nvme io-passthru "/dev/$1" --opcode=2 --namespace-id=1 --data-len=512 --read --cdw12=0 >/dev/null 2>&1; }
wait_for 60 ready "$first"
wait_for 60 ready "$second"
write_through() { nvme io-passthru "/dev/$1" --opcode=1 --namespace-id=1 --data-len=512 --write --cdw12=0 --input-file=block; }
head -c 512 /dev/urandom >block
report() { nvme resv-report "/dev/$1" --namespace-id=1 --eds -o json; }
report "$first" | expect '.rtype == 0 and .regctl == 0'
refused 'reservation conflict' nvme resv-acquire "/dev/$first" --namespace-id=1 --crkey=1 --rtype=1 --racqa=0
nvme resv-register "/dev/$first" --namespace-id=1 --nrkey=0xa1 --rrega=0
nvme resv-register "/dev/$second" --namespace-id=1 --nrkey=0xb2 --rrega=0
report "$second" | expect '.regctl == 2'
for type in 1 2 3 4 5 6; do
    nvme resv-acquire "/dev/$first" --namespace-id=1 --crkey=0xa1 --rtype=$type --racqa=0
    report "$second" | expect '.rtype == $type' --argjson type $type
    write_through "$first" >/dev/null
    case $type in
        1 | 2) refused 'reservation conflict' write_through "$second" ;;
        *) write_through "$second" >/dev/null ;;
    esac
    if [ $type -eq 2 ]; then
        refused 'reservation conflict' nvme io-passthru "/dev/$second" --opcode=2 --namespace-id=1 --data-len=512 --read
    fi
    nvme resv-release "/dev/$first" --namespace-id=1 --crkey=0xa1 --rtype=$type --rrela=0
    report "$second" | expect '.rtype == 0'
done
nvme resv-acquire "/dev/$first" --namespace-id=1 --crkey=0xa1 --rtype=1 --racqa=0
nvme resv-acquire "/dev/$second" --namespace-id=1 --crkey=0xb2 --prkey=0xa1 --rtype=1 --racqa=2
report "$second" | expect '.rtype == 1 and .regctl == 1'
refused 'reservation conflict' write_through "$first"
write_through "$second" >/dev/null
nvme resv-notif-log "/dev/$first" -o json | expect 'type == "object"'
nvme resv-release "/dev/$second" --namespace-id=1 --crkey=0xb2 --rtype=1 --rrela=1
nvme resv-register "/dev/$second" --namespace-id=1 --crkey=0xb2 --rrega=1 2>/dev/null || true
report "$second" | expect '.rtype == 0 and .regctl == 0'
write_through "$first" >/dev/null
