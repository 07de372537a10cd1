# Everything that crossed the wire is well formed to Wireshark's dissector.
serve memory:64MiB
call capture
for digests in "" "--hdr-digest --data-digest"; do
    # shellcheck disable=SC2086
    connect $digests --nr-io-queues=2
    verify_load --size=2m --io_size=2m
    nvme smart-log "/dev/$CTRL" >/dev/null
    nvme effects-log "/dev/$CTRL" >/dev/null
    nvme dsm "$DEV" --ad --slbs=0 --blocks=16
    disconnect
done
nvme discover --transport tcp --traddr "$ADDRESS" --trsvcid "$PORT" >/dev/null
frames=$(call decode) || fail "malformed: $frames"
[ "$frames" -gt 200 ] || fail "only $frames frames of NVMe/TCP"
echo "$frames frames of NVMe/TCP"
