# Every feature that a fabrics controller must have, current, default, saved and supported;
# what is set is read back; what is unknown is refused.
serve memory:64MiB
connect
C=/dev/$CTRL
value() { nvme get-feature "$C" --feature-id="$1" --sel="${2:-0}" "${@:3}" | grep -oE '(0x)?[0-9a-fA-F]+$' | tail -n 1; }
for feature in 0x01 0x02 0x04 0x05 0x07 0x0a 0x0b 0x0f; do
    of=(); [ $feature != 0x05 ] || of=(--namespace-id=1)
    for select in 0 1 2 3; do
        nvme get-feature "$C" --feature-id=$feature --sel=$select "${of[@]}" >answer 2>&1 || fail "feature $feature select $select: $(cat answer)"
    done
    nvme get-feature "$C" --feature-id=$feature --human-readable "${of[@]}" >/dev/null
done
# Volatile Write Cache is there when the controller says that it has one.
if (($(nvme id-ctrl "$C" -o json | jq .vwc) & 1)); then
    nvme get-feature "$C" --feature-id=0x06 --human-readable >/dev/null
else
    refused 'invalid field' nvme get-feature "$C" --feature-id=0x06
fi
nvme get-feature "$C" --feature-id=0x81 --data-len=16 --cdw11=1 --raw-binary >identifier
[ "$(xxd_of identifier)" = 6d1a1c0e6a374c4e8a0b3a1e3e6e0001 ] || fail "host identifier $(xxd_of identifier)"
nvme get-feature "$C" --feature-id=0x82 --namespace-id=1 >/dev/null
nvme get-feature "$C" --feature-id=0x83 --namespace-id=1 >/dev/null
old=$(value 0x0b)
nvme set-feature "$C" --feature-id=0x0b --value=0x1 >/dev/null
[ $(($(value 0x0b))) -eq 1 ] || fail "asynchronous event configuration reads $(value 0x0b)"
nvme set-feature "$C" --feature-id=0x0b --value="$old" >/dev/null
nvme set-feature "$C" --feature-id=0x04 --value=350 >/dev/null
[ $(($(value 0x04))) -eq 350 ] || fail "temperature threshold reads $(value 0x04)"
refused 'invalid' nvme get-feature "$C" --feature-id=0xbf
refused 'invalid' nvme set-feature "$C" --feature-id=0xbf --value=1
live
