#!/bin/sh
# Three members of a group and an etcd on this machine: tests/clients/group.sh FOLDER [FIRST_PORT]
# Clients of Sentinel are answered ten ports above each member; the master's name is `darter`. All keep their data below FOLDER
# and run until Enter is pressed, or until CMD ends if one is given in $GROUP_RUNS. $DARTER_BIN is the server, by default the one
# of this repository.
set -eu

folder=${1:?usage: group.sh FOLDER [FIRST_PORT]}
first=${2:-6401}
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

for at in 0 1 2; do
    port=$((first + at))
    mkdir -p "$folder/member$at"
    "$bin" --bind 127.0.0.1 --port "$port" --dir "$folder/member$at" --appendonly yes --ha_store "etcd://127.0.0.1:$store" \
        --min_replicas_to_ack 1 --sentinel_port $((port + 10)) >"$folder/member$at/log" 2>&1 &
    pids="$pids $!"
done
for at in 0 1 2; do
    until redis-cli -p $((first + at)) info replication 2>/dev/null | grep -q '^sync_members:3'; do sleep 0.1; done
done

redis-cli -p "$first" DARTER GROUP
if [ -n "${GROUP_RUNS:-}" ]; then
    sh -c "$GROUP_RUNS"
else
    read -r _
fi
