#!/bin/sh
# Three members of a group and an etcd on this machine: tests/clients/group.sh FOLDER [FIRST_PORT]
# Clients of Sentinel are answered ten ports above each member; the master's name is `darter`. All keep their data below FOLDER
# and run until Enter is pressed, or until CMD ends if one is given in $GROUP_RUNS. $DARTER_BIN is the server, by default the one
# of this repository.
set -eu

first=6401
. "$(dirname "$0")/local.sh"

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
