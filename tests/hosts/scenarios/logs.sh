# Every log page is read by nvme-cli; counters count and errors are remembered.
# blktests nvme/023, 025, 039.
serve memory:64MiB
connect
C=/dev/$CTRL
nvme supported-log-pages "$C" -o json >supported
expect 'type == "object"' <supported
nvme smart-log "$C" -o json >smart
expect '.critical_warning == 0 and .media_errors == 0' <smart
reads=$(jq .host_read_commands smart) written=$(jq .data_units_written smart)
dd if=/dev/urandom of="$DEV" bs=1M count=8 oflag=direct status=none
dd if="$DEV" of=/dev/null bs=4k count=256 iflag=direct status=none
nvme smart-log "$C" -o json >smart
expect '.host_read_commands >= ($before | tonumber) + 256' --arg before "$reads" <smart
# In thousands of 512-byte units, rounded up: 8 MiB are 16.
expect '.data_units_written >= ($before | tonumber) + 16' --arg before "$written" <smart
nvme fw-log "$C" -o json | expect '[.. | .["Active Firmware Slot (afi)"]? // empty | tonumber] | max >= 1'
nvme effects-log "$C" -o json >effects
expect 'tostring | length > 100' <effects
nvme changed-ns-list-log "$C" -o json | expect 'type == "object" or type == "array"'
nvme fid-support-effects-log "$C" -o json | expect 'tostring | length > 100'
# Without a reporting context there is nothing to read; the context is released again at the end.
refused 'sequence' nvme persistent-event-log "$C" --action=0 --log_len=512
nvme persistent-event-log "$C" --action=1 --log_len=4096 >persistent
grep -qi 'power' persistent
nvme persistent-event-log "$C" --action=2
nvme resv-notif-log "$C" -o json | expect 'type == "object"'
nvme ana-log "$C" -o json | expect '[.. | objects | select((.nnsids? // 0) > 0) | .state] == ["optimized"]'
refused 'invalid log page' nvme get-log "$C" --log-id=0xbf --log-len=512

count() { nvme id-ctrl "$C" -o json | jq .elpe; }
before=$(nvme error-log "$C" -o json | jq '[.errors[].error_count] | max')
refused 'invalid' nvme admin-passthru "$C" --opcode=0xbb
nvme error-log "$C" -o json >errors
expect '([.errors[].error_count] | max) > ($before | tonumber)' --arg before "$before" <errors
