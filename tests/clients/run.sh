#!/bin/sh
# Runs real clients against a server: tests/clients/run.sh HOST PORT [CLIENT...]
# NAME-cluster is the library's cluster client, against a server of its own with --cluster_mode=emulated ($DARTER_BIN).
# NAME-nodes is the same against three servers with --cluster_mode=yes, NAME-moves against six whose slots move as a whole.
# NAME-group is the library's Sentinel client against a group of three whose leader changes (group.sh), NAME-failover its cluster
# client against six whose masters change.
# NAME-cache is the library's client-side cache; it empties the server.
# With MEMCACHED_PORT those of memcached too. Libraries go to $DARTER_CLIENTS_CACHE (default ~/.cache/darter-clients). Exits non-zero when a client fails.
set -u

host=${1:?usage: run.sh HOST PORT [CLIENT...]}
port=${2:?usage: run.sh HOST PORT [CLIENT...]}
shift 2
here=$(cd "$(dirname "$0")" && pwd)
cache=${DARTER_CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/darter-clients}
mkdir -p "$cache"
limit="timeout 120"

# Starts a server that emulates a cluster, unless one runs; its port is then in $cluster_port.
cluster_server() {
    [ -z "${cluster_pid:-}" ] || return 0
    root=$here/../..
    bin=${DARTER_BIN:-$root/target/release/darter}
    [ -x "$bin" ] || bin=$root/target/debug/darter
    cluster_port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || return
    "$bin" --bind 127.0.0.1 --port "$cluster_port" --save "" --cluster_mode=emulated >"$cache/cluster.log" 2>&1 &
    cluster_pid=$!
    trap 'kill "$cluster_pid" 2>/dev/null' EXIT
    for _ in $(seq 120); do
        redis-cli -p "$cluster_port" ping >/dev/null 2>&1 && return 0
        sleep 0.5
    done
    echo "no cluster server: $(tail -1 "$cache/cluster.log")" >&2
    return 1
}

# The cluster client of a library; its own check has installed it.
cluster() {
    cluster_server || return
    case $1 in
    redis-py) install_redis_py && $limit "$cache/redis-py/venv/bin/python" "$here/redis-py/cluster.py" 127.0.0.1 "$cluster_port" ;;
    ioredis) install_npm ioredis && CLIENT_DIR="$cache/ioredis" $limit node "$here/ioredis/cluster.js" 127.0.0.1 "$cluster_port" ;;
    go-redis) install_go_redis && $limit "$cache/go-redis/check" 127.0.0.1 "$cluster_port" cluster ;;
    jedis) install_jedis && $limit java -cp "$cache/jedis/jars/*" "$here/jedis/Cluster.java" 127.0.0.1 "$cluster_port" ;;
    redis-cli) redis_cli_cluster ;;
    esac
}

# The cluster client of a library against three servers whose slots change owners (three.sh).
nodes() {
    three_port=$(python3 -c 'import socket
while True:
    s = [socket.socket() for _ in range(3)]
    s[0].bind(("127.0.0.1", 0)); port = s[0].getsockname()[1]
    try:
        [s[at].bind(("127.0.0.1", port + at)) for at in (1, 2)]
        print(port); break
    except OSError: pass') || return
    three_folder=$(mktemp -d) || return
    case $1 in
    redis-py) install_redis_py && three="'$cache/redis-py/venv/bin/python' '$here/redis-py/nodes.py' 127.0.0.1 $three_port" ;;
    ioredis) install_npm ioredis && three="CLIENT_DIR='$cache/ioredis' node '$here/ioredis/nodes.js' 127.0.0.1 $three_port" ;;
    go-redis) install_go_redis && three="'$cache/go-redis/check' 127.0.0.1 $three_port nodes" ;;
    redis-cli) three="redis-cli --cluster check 127.0.0.1:$three_port | grep -q 'All 16384 slots covered'" ;;
    esac || return
    THREE_RUNS=$three $limit "$here/three.sh" "$three_folder" "$three_port" >"$cache/three.log" 2>&1 ||
        { tail -3 "$cache/three.log" >&2; return 1; }
    rm -rf "$three_folder"
}

# redis-py while slots move as a whole between the masters of six.sh; needs an etcd. A busy machine is no reason for a failover.
moves() {
    install_redis_py || return
    choose_ports
    SIX_FLAGS="--ha_lease_ms 5000" SIX_RUNS="'$cache/redis-py/venv/bin/python' '$here/redis-py/moving.py' 127.0.0.1 $group_port" \
        local_run six
}

# The cluster client of a library while slots move, or while masters change: changes NAME moves|failover; needs an etcd.
changes() {
    install_redis_py || return
    case $1 in
    go-redis) install_go_redis && work="'$cache/go-redis/check'" ;;
    ioredis | node-redis) install_npm "$1" && work="env CLIENT_DIR='$cache/$1' node '$here/$1/work.js'" ;;
    jedis | lettuce) "install_$1" && work="java -cp '$cache/$1/jars/*' '$here/$1/Work.java'" ;;
    redis-rs) install_redis_rs && work="'$cache/redis-rs/target/debug/darter-work-redis-rs'" ;;
    esac || return
    choose_ports
    case $2 in
    moves) six_flags="--ha_lease_ms 5000" ;;
    failover) six_flags="--min_replicas_to_ack 1" ;;
    esac
    SIX_FLAGS=$six_flags SIX_RUNS="'$cache/redis-py/venv/bin/python' '$here/changes.py' $2 127.0.0.1 $group_port $work" local_run six
}

# A client of a library while the leader of a group changes; needs an etcd. group NAME: its Sentinel client with group.sh; group NAME
# cluster: its cluster client with six.sh.
group() {
    choose_ports
    case $1 in
    redis-py) install_redis_py && group_check="'$cache/redis-py/venv/bin/python' '$here/redis-py/group.py' 127.0.0.1 $group_port ${2:-}" ;;
    ioredis) install_npm ioredis && group_check="CLIENT_DIR='$cache/ioredis' node '$here/ioredis/group.js' 127.0.0.1 $group_port ${2:-}" ;;
    go-redis) install_go_redis && group_check="'$cache/go-redis/check' 127.0.0.1 $group_port group ${2:-}" ;;
    esac || return
    case ${2:-} in
    cluster) SIX_FLAGS="--min_replicas_to_ack 1" SIX_RUNS=$group_check local_run six ;;
    *) GROUP_RUNS=$group_check local_run group ;;
    esac
}

choose_ports() {
    group_port=$((20000 + ($$ + ${groups:=0} * 40) % 10000))
    groups=$((groups + 1))
}

# Runs six.sh or group.sh, which run a check.
local_run() {
    local_folder=$(mktemp -d) || return
    $limit "$here/$1.sh" "$local_folder" "$group_port" >"$cache/$1.log" 2>&1 || { tail -3 "$cache/$1.log" >&2; return 1; }
    rm -rf "$local_folder"
}

# redis-cli that follows redirections, and its look at a cluster.
redis_cli_cluster() {
    answer=$(printf 'SET foo 1\nSET bar 2\nMGET foo bar\nCLUSTER KEYSLOT foo\n' | $limit redis-cli -c -p "$cluster_port" | tr '\n' ' ')
    [ "$answer" = "OK OK 1 2 12182 " ] || { echo "redis-cli -c: got $answer" >&2; return 1; }
    $limit redis-cli --cluster check "127.0.0.1:$cluster_port" | grep -q 'All 16384 slots covered'
}

# Each function installs what its check needs, once, and then runs it; a new version in the folder installs anew.
install_redis_py() {
    fresh redis-py requirements.txt || { python3 -m venv "$cache/redis-py/venv" &&
        "$cache/redis-py/venv/bin/pip" -q install -r "$here/redis-py/requirements.txt" && done_with redis-py requirements.txt; }
}

redis_py() {
    install_redis_py || return
    $limit "$cache/redis-py/venv/bin/python" "$here/redis-py/check.py" "$host" "$port"
}

install_npm() {
    fresh "$1" package.json || { cp "$here/$1/package.json" "$cache/$1/" &&
        npm install --silent --no-audit --no-fund --prefix "$cache/$1" && done_with "$1" package.json; }
}

npm_client() {
    install_npm "$1" || return
    CLIENT_DIR="$cache/$1" $limit node "$here/$1/check.js" "$host" "$port"
}

install_go_redis() {
    fresh go-redis check.go || { cp "$here/go-redis/go.mod" "$here/go-redis/check.go" "$cache/go-redis/" &&
        (cd "$cache/go-redis" && GOFLAGS=-mod=mod go mod tidy && go build -o check .) && done_with go-redis check.go; }
}

go_redis() {
    install_go_redis || return
    $limit "$cache/go-redis/check" "$host" "$port"
}

install_jedis() {
    fresh jedis pom.xml || { mvn -q -f "$here/jedis/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$cache/jedis/jars" && done_with jedis pom.xml; }
}

jedis() {
    install_jedis || return
    $limit java -cp "$cache/jedis/jars/*" "$here/jedis/Check.java" "$host" "$port"
}

install_lettuce() {
    fresh lettuce pom.xml || { mvn -q -f "$here/lettuce/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$cache/lettuce/jars" && done_with lettuce pom.xml; }
}

install_rueidis() {
    fresh rueidis cache.go || { cp "$here/rueidis/go.mod" "$here/rueidis/cache.go" "$cache/rueidis/" &&
        (cd "$cache/rueidis" && GOFLAGS=-mod=mod go mod tidy && go build -o check .) && done_with rueidis cache.go; }
}

# The client-side cache of a library.
client_cache() {
    case $1 in
    redis-py) install_redis_py && $limit "$cache/redis-py/venv/bin/python" "$here/redis-py/cache.py" "$host" "$port" ;;
    node-redis) install_npm node-redis && CLIENT_DIR="$cache/node-redis" $limit node "$here/node-redis/cache.js" "$host" "$port" ;;
    jedis) install_jedis && $limit java -cp "$cache/jedis/jars/*" "$here/jedis/Cache.java" "$host" "$port" ;;
    lettuce) install_lettuce && $limit java -cp "$cache/lettuce/jars/*" "$here/lettuce/Cache.java" "$host" "$port" ;;
    rueidis) install_rueidis && $limit "$cache/rueidis/check" "$host" "$port" ;;
    esac
}

install_redis_rs() {
    mkdir -p "$cache/redis-rs/src" && cp "$here/redis-rs/Cargo.toml" "$cache/redis-rs/" && cp "$here/redis-rs/src/"*.rs "$cache/redis-rs/src/" &&
        cargo build -q --manifest-path "$cache/redis-rs/Cargo.toml" --target-dir "$cache/redis-rs/target"
}

redis_rs() {
    install_redis_rs || return
    $limit "$cache/redis-rs/target/debug/darter-check-redis-rs" "$host" "$port"
}

pymemcache() {
    fresh pymemcache requirements.txt || { python3 -m venv "$cache/pymemcache/venv" &&
        "$cache/pymemcache/venv/bin/pip" -q install -r "$here/pymemcache/requirements.txt" && done_with pymemcache requirements.txt; } || return
    $limit "$cache/pymemcache/venv/bin/python" "$here/pymemcache/check.py" "$host" "$MEMCACHED_PORT"
}

gomemcache() {
    fresh gomemcache check.go || { cp "$here/gomemcache/go.mod" "$here/gomemcache/check.go" "$cache/gomemcache/" &&
        (cd "$cache/gomemcache" && GOFLAGS=-mod=mod go mod tidy && go build -o check .) && done_with gomemcache check.go; } || return
    $limit "$cache/gomemcache/check" "$host" "$MEMCACHED_PORT"
}

# libmemcached's own check of the text protocol.
memccapable_text() {
    out=$($limit memccapable -h "$host" -p "$MEMCACHED_PORT" -a 2>&1) || { echo "$out" | grep -v pass >&2; return 1; }
    case $out in *FAIL*) echo "$out" | grep FAIL >&2; return 1 ;; esac
}

# Users of scripts: queues and locks that are built of them.
python_user() {
    fresh "$1" requirements.txt || { python3 -m venv "$cache/$1/venv" &&
        "$cache/$1/venv/bin/pip" -q install -r "$here/$1/requirements.txt" && done_with "$1" requirements.txt; } || return
    PYTHONDONTWRITEBYTECODE=1 $limit "$cache/$1/venv/bin/python" "$here/$1/check.py" "$host" "$port"
}

asynq() {
    fresh asynq check.go || { cp "$here/asynq/go.mod" "$here/asynq/check.go" "$cache/asynq/" &&
        (cd "$cache/asynq" && GOFLAGS=-mod=mod go mod tidy && go build -o check .) && done_with asynq check.go; } || return
    $limit "$cache/asynq/check" "$host" "$port"
}

redisson() {
    fresh redisson pom.xml || { mvn -q -f "$here/redisson/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$cache/redisson/jars" && done_with redisson pom.xml; } || return
    $limit java -cp "$cache/redisson/jars/*" "$here/redisson/Check.java" "$host" "$port"
}

# redis-cli from a pipe, as a script uses it.
redis_cli() {
    answer=$(printf 'SELECT 9\nFLUSHDB\nSET k v\nGET k\nINCR n\nPING\nDEL k n\n' | $limit redis-cli -h "$host" -p "$port" | tr '\n' ' ')
    [ "$answer" = "OK OK OK v 1 PONG 2 " ] || { echo "redis-cli: got $answer" >&2; return 1; }
    $limit redis-cli -h "$host" -p "$port" --scan >/dev/null && $limit redis-cli -3 -h "$host" -p "$port" ping >/dev/null || return
    redis_cli_big_keys
}

# What redis-cli finds by walking over all keys: the largest by members and by bytes, and the hottest.
redis_cli_big_keys() {
    cli="$limit redis-cli -h $host -p $port"
    { seq 1 500 | sed 's/.*/RPUSH darter:list &/'; seq 1 40 | sed 's/.*/SET darter:& x/'; } | $cli >/dev/null
    found=$($cli --bigkeys) || return
    case $found in *'Biggest   list found '*darter:list*' has 500 items'*) ;; *) echo "redis-cli --bigkeys: $found" >&2; return 1 ;; esac
    found=$($cli --memkeys) || return
    case $found in *'Biggest   list found '*darter:list*' bytes'*) ;; *) echo "redis-cli --memkeys: $found" >&2; return 1 ;; esac
    policy=$($cli CONFIG GET maxmemory-policy | tail -1)
    $cli CONFIG SET maxmemory-policy allkeys-lfu >/dev/null
    seq 1 50 | sed 's/.*/GET darter:7/' | $cli >/dev/null
    found=$($cli --hotkeys)
    $cli CONFIG SET maxmemory-policy "$policy" >/dev/null
    { echo DEL darter:list; seq 1 40 | sed 's/.*/DEL darter:&/'; } | $cli >/dev/null
    case $found in *'hot key found with counter: '*'darter:7'*) ;; *) echo "redis-cli --hotkeys: $found" >&2; return 1 ;; esac
}

# The whole default set; a command the server does not know makes redis-benchmark exit non-zero.
redis_benchmark() {
    out=$($limit redis-benchmark -h "$host" -p "$port" -n 20000 -P 4 --csv 2>&1) || { echo "$out" | tail -3 >&2; return 1; }
    case $out in *[Ee]rror*) echo "$out" | grep -i error | head -3 >&2; return 1 ;; esac
    [ "$(echo "$out" | grep -c '^"')" -ge 20 ] || { echo "redis-benchmark ended early: $out" >&2; return 1; }
}

fresh() { mkdir -p "$cache/$1" && cmp -s "$here/$1/$2" "$cache/$1/.installed"; }
done_with() { cp "$here/$1/$2" "$cache/$1/.installed"; }

run() {
    case $1 in
    redis-py) tool=python3 check=redis_py ;;
    bullmq | redlock | ioredis | node-redis) tool=npm check="npm_client $1" ;;
    go-redis) tool=go check=go_redis ;;
    jedis) tool=mvn check=jedis ;;
    rq | celery) tool=python3 check="python_user $1" ;;
    asynq) tool=go check=asynq ;;
    redisson) tool=mvn check=redisson ;;
    redis-rs) tool=cargo check=redis_rs ;;
    pymemcache) tool=python3 check=pymemcache ;;
    gomemcache) tool=go check=gomemcache ;;
    memccapable) tool=memccapable check=memccapable_text ;;
    redis-cli) tool=redis-cli check=redis_cli ;;
    redis-benchmark) tool=redis-benchmark check=redis_benchmark ;;
    redis-py-cluster) tool=python3 check="cluster redis-py" ;;
    ioredis-cluster) tool=npm check="cluster ioredis" ;;
    go-redis-cluster) tool=go check="cluster go-redis" ;;
    jedis-cluster) tool=mvn check="cluster jedis" ;;
    redis-cli-cluster) tool=redis-cli check="cluster redis-cli" ;;
    redis-py-nodes) tool=python3 check="nodes redis-py" ;;
    redis-py-moves) tool=etcd check=moves ;;
    redis-py-failover) tool=etcd check="group redis-py cluster" ;;
    ioredis-failover) tool=etcd check="group ioredis cluster" ;;
    go-redis-failover) tool=etcd check="group go-redis cluster" ;;
    ioredis-moves | go-redis-moves | node-redis-moves | jedis-moves | lettuce-moves | redis-rs-moves) tool=etcd check="changes ${1%-moves} moves" ;;
    node-redis-failover | jedis-failover | lettuce-failover | redis-rs-failover) tool=etcd check="changes ${1%-failover} failover" ;;
    redis-py-group) tool=etcd check="group redis-py" ;;
    ioredis-group) tool=etcd check="group ioredis" ;;
    go-redis-group) tool=etcd check="group go-redis" ;;
    ioredis-nodes) tool=npm check="nodes ioredis" ;;
    go-redis-nodes) tool=go check="nodes go-redis" ;;
    redis-cli-nodes) tool=redis-cli check="nodes redis-cli" ;;
    redis-py-cache) tool=python3 check="client_cache redis-py" ;;
    node-redis-cache) tool=npm check="client_cache node-redis" ;;
    jedis-cache) tool=mvn check="client_cache jedis" ;;
    lettuce-cache) tool=mvn check="client_cache lettuce" ;;
    rueidis-cache) tool=go check="client_cache rueidis" ;;
    *) echo "no client $1" >&2; return 1 ;;
    esac
    if ! command -v $tool >/dev/null; then
        echo "$1: $tool is not installed"
        [ "${DARTER_CLIENTS_SKIP_ABSENT:-0}" = 1 ]
        return
    fi
    if $check; then echo "$1: ok"; else echo "$1: FAILED"; return 1; fi
}

failed=0
all="redis-py ioredis node-redis go-redis jedis redis-rs redis-cli redis-benchmark"
all="$all redis-py-cluster ioredis-cluster go-redis-cluster jedis-cluster redis-cli-cluster"
all="$all redis-py-nodes redis-py-moves ioredis-nodes go-redis-nodes redis-cli-nodes"
all="$all redis-py-group ioredis-group go-redis-group redis-py-failover ioredis-failover go-redis-failover"
all="$all ioredis-moves go-redis-moves node-redis-moves jedis-moves lettuce-moves redis-rs-moves"
all="$all node-redis-failover jedis-failover lettuce-failover redis-rs-failover"
all="$all redis-py-cache node-redis-cache jedis-cache lettuce-cache rueidis-cache"
all="$all bullmq redlock rq celery asynq redisson"
[ -z "${MEMCACHED_PORT:-}" ] || all="$all pymemcache gomemcache memccapable"
for client in ${*:-$all}; do
    run "$client" || failed=$((failed + 1))
done
exit "$failed"
