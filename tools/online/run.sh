#!/bin/sh
# Users who are online, as hash, sorted set and sets, one by one and in batches: time, processor time and memory of Redis
# and Darter. `tools/online/run.sh [flags]`; --help lists them. DARTER and REDIS name other binaries.
set -e
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${DARTER_CLIENTS_CACHE:-$HOME/.cache/darter-clients}/online
mkdir -p "$build"
(cd "$here" && go build -o "$build/online" .)
exec "$build/online" "$@" "redis=${REDIS:-/usr/bin/redis-server}" "darter=${DARTER:-$root/target/release/darter}"
