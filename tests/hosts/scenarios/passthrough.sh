# Commands past the block layer, by ioctl and by io_uring on the character device.
# blktests nvme/029, 046, 049, 067.
serve memory:64MiB
connect
generic=/dev/ng${DEV#/dev/nvme}
fio --name=verify --filename="$generic" --ioengine=io_uring_cmd --cmd_type=nvme --rw=randwrite --bs=8k --size=8m \
    --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --output-format=json >/tmp/fio.json || fail "$(cat /tmp/fio.json)"
expect '.jobs[0].error == 0' </tmp/fio.json
# Commands that the kernel does not cut: of 256 KiB and 1 MiB, which were beyond MDTS.
head -c 1048576 /dev/urandom >data
for bytes in 262144 1048576; do
    nvme write "$DEV" --start-block=8 --block-count=$((bytes / 512 - 1)) --data-size="$bytes" --data=data
    nvme read "$DEV" --start-block=8 --block-count=$((bytes / 512 - 1)) --data-size="$bytes" --data=found
    head -c "$bytes" data | cmp - found || fail "$bytes bytes came back as others"
done
nvme admin-passthru "/dev/$CTRL" --opcode=0x06 --cdw10=1 --data-len=4096 --read --raw-binary >page
[ "$(stat -c %s page)" -eq 4096 ] || fail "an Identify page of $(stat -c %s page) bytes"
refused 'invalid' nvme admin-passthru "/dev/$CTRL" --opcode=0x06 --cdw10=0xff --data-len=4096 --read
