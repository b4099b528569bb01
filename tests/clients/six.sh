#!/bin/sh
# Six servers and an etcd on this machine as one cluster, three masters with a replica each: tests/clients/six.sh FOLDER [FIRST_PORT]
# A node that dies is started again. All keep their data below FOLDER and run until Enter is pressed, or until CMD ends if one is
# given in $SIX_RUNS. $DARTER_BIN is the server, by default the one of this repository, and $SIX_FLAGS are more of its flags.
set -eu

first=7001
. "$(dirname "$0")/local.sh"

# Runs a server, and another one when it has died, until it is told to end.
keep() {
    trap 'kill "$child" 2>/dev/null; wait; exit' TERM
    while :; do
        "$bin" "$@" &
        child=$!
        wait "$child" || true
        sleep 1
    done
}

nodes=
for at in 0 1 2 3 4 5; do
    port=$((first + at))
    mkdir -p "$folder/node$at"
    # shellcheck disable=SC2086 # each flag is a word
    keep --bind 127.0.0.1 --port "$port" --dir "$folder/node$at" --appendonly yes ${SIX_FLAGS:-} \
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
