# A discovery controller that stays: keep alive holds it, and a change is announced by an
# asynchronous event that user space sees. blktests nvme/003.
DISCOVERY=nqn.2014-08.org.nvmexpress.discovery
serve memory:64MiB
udevadm monitor --kernel --property --subsystem-match=nvme >/tmp/events &
nvme discover --transport tcp --traddr "$ADDRESS" --trsvcid "$PORT" --persistent --keep-alive-tmo=2 -o json >/dev/null
CTRL=$(controllers $DISCOVERY)
[ -n "$CTRL" ] || fail "no discovery controller stayed"
[ "$(cat "/sys/class/nvme/$CTRL/cntrltype")" = discovery ] || fail "not a discovery controller"
stays_live 7
nvme id-ctrl "/dev/$CTRL" -o json | expect '.cntrltype == 2 and (.oaes / 2147483648 | floor) % 2 == 1'
subsystem_add "$NQN-later"
announced() { grep -q NVME_AEN=0x70f002 /tmp/events; }
wait_for 60 announced
nvme discover --device "$CTRL" -o json | expect '[.records[].subnqn] | index($nqn) != null' --arg nqn "$NQN-later"
nvme disconnect --device "$CTRL"
