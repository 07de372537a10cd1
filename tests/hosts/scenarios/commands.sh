# The NVM commands one by one, with the data and the status each must give.
# blktests nvme/014, 018, 019, 029.
serve memory:64MiB
connect
head -c 8192 /dev/urandom >ours
head -c 8192 /dev/zero >zeroes
head -c 8192 /dev/urandom >others
put() { nvme write "$DEV" --start-block="$1" --block-count=15 --data-size=8192 --data="$2" "${@:3}"; }
get() { nvme read "$DEV" --start-block="$1" --block-count=15 --data-size=8192 --data=read-back "${@:2}" >/dev/null && cmp read-back "$2"; }
holds() { nvme read "$DEV" --start-block="$1" --block-count=15 --data-size=8192 --data=read-back >/dev/null && cmp read-back "$2"; }
put 0 ours >/dev/null
holds 0 ours
put 16 others --force-unit-access >/dev/null
holds 16 others
nvme flush "$DEV"
nvme compare "$DEV" --start-block=0 --block-count=15 --data-size=8192 --data=ours
refused 'compare' nvme compare "$DEV" --start-block=0 --block-count=15 --data-size=8192 --data=others
nvme write-zeroes "$DEV" --start-block=0 --block-count=15
holds 0 zeroes
put 0 ours >/dev/null
nvme write-zeroes "$DEV" --start-block=0 --block-count=15 --deac
holds 0 zeroes
put 0 ours >/dev/null
nvme dsm "$DEV" --ad --slbs=0,64 --blocks=16,16
holds 16 others
holds 0 zeroes
put 0 ours >/dev/null
nvme verify "$DEV" --start-block=0 --block-count=15
nvme copy "$DEV" --sdlba=128 --slbs=0,16 --blocks=15,15
holds 128 ours
holds 144 others
oncs=$(nvme id-ctrl "/dev/$CTRL" -o json | jq .oncs)
if ((oncs & 2)); then
    nvme write-uncor "$DEV" --start-block=256 --block-count=15
    refused 'unrecovered|uncorrect' nvme read "$DEV" --start-block=256 --block-count=15 --data-size=8192 --data=read-back
    put 256 ours >/dev/null
    holds 256 ours
else
    refused 'invalid command opcode' nvme write-uncor "$DEV" --start-block=256 --block-count=15
fi
blocks=$(blockdev --getsz "$DEV")
for command in read write; do
    refused 'out of range' nvme $command "$DEV" --start-block="$blocks" --block-count=0 --data-size=512 --data=ours
    refused 'out of range' nvme $command "$DEV" --start-block=$((blocks - 1)) --block-count=15 --data-size=8192 --data=ours
done
refused 'out of range' nvme write-zeroes "$DEV" --start-block="$blocks" --block-count=0
refused 'out of range' nvme compare "$DEV" --start-block="$blocks" --block-count=0 --data-size=512 --data=ours
refused 'out of range' nvme verify "$DEV" --start-block="$blocks" --block-count=0
refused 'out of range' nvme copy "$DEV" --sdlba="$blocks" --slbs=0 --blocks=0
refused 'invalid command opcode' nvme io-passthru "$DEV" --opcode=0x6d --namespace-id=1
holds 128 ours
live
