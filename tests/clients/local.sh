# What six.sh and group.sh share: sourced by them with FOLDER and FIRST_PORT. Sets $folder, $first, $bin (the server: $DARTER_BIN,
# by default the one of this repository) and $store (the port of an etcd, which it starts). What is in $pids ends with the script.
folder=${1:?usage: $0 FOLDER [FIRST_PORT]}
first=${2:-$first}
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
