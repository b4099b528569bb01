#!/bin/sh
# Three servers on this machine as one cluster: tests/clients/three.sh FOLDER [FIRST_PORT]
# The servers keep their data and their configuration below FOLDER and run until Enter is pressed, or until CMD ends if one is
# given in $THREE_RUNS. $DARTER_BIN is the server, by default the one of this repository.
set -eu

folder=${1:?usage: three.sh FOLDER [FIRST_PORT]}
first=${2:-7001}
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=${DARTER_BIN:-$root/target/release/darter}
[ -x "$bin" ] || bin=$root/target/debug/darter

pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null || true; done; wait' EXIT

for at in 0 1 2; do
    mkdir -p "$folder/node$at"
    "$bin" --bind 127.0.0.1 --port $((first + at)) --dir "$folder/node$at" --appendonly yes \
        --cluster_mode=yes --cluster_node_id "node$at" >"$folder/node$at/log" 2>&1 &
    pids="$pids $!"
done

# The configuration: who owns which slots. Every node gets the same text.
group() {
    printf '{"slot_ranges":[{"start":%d,"end":%d}],"master":{"id":"node%d","ip":"127.0.0.1","port":%d},"replicas":[],"migrations":[]}' \
        "$2" "$3" "$1" $((first + $1))
}
config="[$(group 0 0 5460),$(group 1 5461 10922),$(group 2 10923 16383)]"
for at in 0 1 2; do
    until redis-cli -p $((first + at)) ping >/dev/null 2>&1; do sleep 0.1; done
    redis-cli -p $((first + at)) DFLYCLUSTER CONFIG "$config"
done

redis-cli -p "$first" CLUSTER NODES
echo "redis-cli -c -p $first"
if [ -n "${THREE_RUNS:-}" ]; then
    sh -c "$THREE_RUNS"
else
    read -r _
fi
