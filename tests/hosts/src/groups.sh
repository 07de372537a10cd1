# A target behind a card with four queues: a pair of virtual cards between this network namespace and another.
# $1: the program. The working folder is empty. Writes how two reactors' queues come by the card, with queue groups.
set -eu
mkfifo up go
ip link set lo up
unshare --net sh -ec '
    ip link set lo up
    echo > up
    read -r _ < go
    exec setpriv --pdeathsig KILL -- "$0" --state-dir far serve memory:16MiB --listen 10.9.9.2:4420
' "$1" > target.log 2>&1 &
target=$!
trap 'kill $target; cat target.log >&2' EXIT
read -r _ < up
far() { nsenter --net=/proc/$target/ns/net "$@"; }
ip link add near numrxqueues 4 numtxqueues 4 type veth \
    peer name far numrxqueues 4 numtxqueues 4 netns $target
ip address add 10.9.9.1/24 dev near
ip link set near up
far ip address add 10.9.9.2/24 dev far
far ip link set far up
# A virtual card has queues that can be told apart only while it joins what it receives.
ethtool --offload near gro on > /dev/null
far ethtool --offload far tso off gso off > /dev/null
echo > go
tries=0
until grep -q 'nvme connect' target.log; do
    tries=$((tries + 1))
    [ $tries -le 300 ]
    sleep 0.1
done
nqn=$(sed -n 's/^nvme connect.* -n //p' target.log)
"$1" bench --traddr 10.9.9.2 --trsvcid 4420 --subnqn "$nqn" --rw randread --bs 4k --queues 6 --cpus 0,1 \
    --poll interrupt --optimizations default,groups --runtime 1s -o json
