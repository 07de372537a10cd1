# A hundred connections one after the other leave neither memory nor files behind in the target.
serve memory:64MiB
cycle() {
    nvme connect --transport tcp --traddr "$ADDRESS" --trsvcid "$PORT" --nqn "$NQN" --nr-io-queues=1 >/dev/null
    nvme disconnect --nqn "$NQN" >/dev/null
}
for round in 1 2 3 4 5; do cycle; done
wait_for 60 gone
read -r memory files <<<"$(call usage)"
for round in $(seq 100); do cycle; done
wait_for 60 gone
settled() {
    read -r memory_now files_now <<<"$(call usage)"
    [ "$files_now" -le "$files" ] && [ "$memory_now" -le $((memory + 4096)) ]
}
wait_for 60 settled
echo "resident $memory KiB -> $memory_now KiB, files $files -> $files_now"
