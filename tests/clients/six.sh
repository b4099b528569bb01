#!/bin/sh
# Six servers and an etcd on this machine as one cluster, three masters with a replica each: tests/clients/six.sh FOLDER [FIRST_PORT]
# All keep their data below FOLDER and run until Enter is pressed, or until CMD ends if one is given in $SIX_RUNS. $DARTER_BIN is
# the server, by default the one of this repository.
set -eu

folder=${1:?usage: six.sh FOLDER [FIRST_PORT]}
first=${2:-7001}
store=$((first + 20))
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=${DARTER_BIN:-$root/target/release/darter}
[ -x "$bin" ] || bin=$root/target/debug/darter

pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null || true; done; wait' EXIT

mkdir -p "$folder"
url=http://127.0.0.1:$store
peer=http://127.0.0.1:$((store + 1))
etcd --data-dir "$folder/etcd" --listen-client-urls "$url" --advertise-client-urls "$url" --listen-peer-urls "$peer" \
    --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" >"$folder/etcd.log" 2>&1 &
pids="$pids $!"

nodes=
for at in 0 1 2 3 4 5; do
    port=$((first + at))
    mkdir -p "$folder/node$at"
    "$bin" --bind 127.0.0.1 --port "$port" --dir "$folder/node$at" --appendonly yes \
        --cluster_mode=yes --cluster_store "etcd://127.0.0.1:$store" --cluster_name six >"$folder/node$at/log" 2>&1 &
    pids="$pids $!"
    nodes="$nodes 127.0.0.1:$port"
done
for at in 0 1 2 3 4 5; do
    until redis-cli -p $((first + at)) info cluster 2>/dev/null | grep -q '^cluster_store_connected:1'; do sleep 0.1; done
done

# shellcheck disable=SC2086 # each address is a word
redis-cli --cluster create $nodes --cluster-replicas 1 --cluster-yes
echo "redis-cli -c -p $first"
if [ -n "${SIX_RUNS:-}" ]; then
    sh -c "$SIX_RUNS"
else
    read -r _
fi
