#!/bin/sh
# Starts an etcd and three members of a group on this machine, and ends them with Ctrl-C. Needs etcd and darter in the path
# (or DARTER=path). Ports: 6401 to 6403 for clients, 26401 to 26403 for clients of Sentinel. See docs/failover.md.
set -eu
darter=${DARTER:-darter}
folder=$(mktemp -d)
pids=
end() {
  for pid in $pids; do kill "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$folder"
}
trap end EXIT
trap 'exit 0' INT TERM
etcd --data-dir "$folder/etcd" --listen-client-urls http://127.0.0.1:6479 --advertise-client-urls http://127.0.0.1:6479 \
  --listen-peer-urls http://127.0.0.1:6480 --initial-advertise-peer-urls http://127.0.0.1:6480 \
  --initial-cluster default=http://127.0.0.1:6480 >"$folder/etcd.log" 2>&1 &
pids=$!
for n in 1 2 3; do
  mkdir "$folder/$n"
  "$darter" --port "640$n" --bind 127.0.0.1 --dir "$folder/$n" --appendonly yes --ha_store etcd://127.0.0.1:6479 \
    --min_replicas_to_ack 1 --sentinel_port "2640$n" "$@" >"$folder/$n.log" 2>&1 &
  pids="$pids $!"
  echo "member $n: port 640$n, process $!, log $folder/$n.log"
done
echo "redis-cli -p 6401 DARTER GROUP    shows the group; kill -9 a process to see another one lead"
wait
