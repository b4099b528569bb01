#!/bin/sh
# Runs real clients against a server: tests/clients/run.sh HOST PORT [CLIENT...]
# Libraries go to $DARTER_CLIENTS_CACHE (default ~/.cache/darter-clients). Exits non-zero when a client fails.
set -u

host=${1:?usage: run.sh HOST PORT [CLIENT...]}
port=${2:?usage: run.sh HOST PORT [CLIENT...]}
shift 2
here=$(cd "$(dirname "$0")" && pwd)
cache=${DARTER_CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/darter-clients}
mkdir -p "$cache"
limit="timeout 120"

# Each function installs what its check needs, once, and then runs it; a new version in the folder installs anew.
redis_py() {
    fresh redis-py requirements.txt || { python3 -m venv "$cache/redis-py/venv" &&
        "$cache/redis-py/venv/bin/pip" -q install -r "$here/redis-py/requirements.txt" && done_with redis-py requirements.txt; } || return
    $limit "$cache/redis-py/venv/bin/python" "$here/redis-py/check.py" "$host" "$port"
}

npm_client() {
    fresh "$1" package.json || { cp "$here/$1/package.json" "$cache/$1/" &&
        npm install --silent --no-audit --no-fund --prefix "$cache/$1" && done_with "$1" package.json; } || return
    CLIENT_DIR="$cache/$1" $limit node "$here/$1/check.js" "$host" "$port"
}

go_redis() {
    fresh go-redis check.go || { cp "$here/go-redis/go.mod" "$here/go-redis/check.go" "$cache/go-redis/" &&
        (cd "$cache/go-redis" && GOFLAGS=-mod=mod go mod tidy && go build -o check .) && done_with go-redis check.go; } || return
    $limit "$cache/go-redis/check" "$host" "$port"
}

jedis() {
    fresh jedis pom.xml || { mvn -q -f "$here/jedis/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$cache/jedis/jars" && done_with jedis pom.xml; } || return
    $limit java -cp "$cache/jedis/jars/*" "$here/jedis/Check.java" "$host" "$port"
}

redis_rs() {
    fresh redis-rs src/main.rs || { mkdir -p "$cache/redis-rs/src" && cp "$here/redis-rs/Cargo.toml" "$cache/redis-rs/" &&
        cp "$here/redis-rs/src/main.rs" "$cache/redis-rs/src/" &&
        cargo build -q --manifest-path "$cache/redis-rs/Cargo.toml" --target-dir "$cache/redis-rs/target" &&
        done_with redis-rs src/main.rs; } || return
    $limit "$cache/redis-rs/target/debug/darter-check-redis-rs" "$host" "$port"
}

# redis-cli from a pipe, as a script uses it.
redis_cli() {
    answer=$(printf 'SELECT 9\nFLUSHDB\nSET k v\nGET k\nINCR n\nPING\nDEL k n\n' | $limit redis-cli -h "$host" -p "$port" | tr '\n' ' ')
    [ "$answer" = "OK OK OK v 1 PONG 2 " ] || { echo "redis-cli: got $answer" >&2; return 1; }
    $limit redis-cli -h "$host" -p "$port" --scan >/dev/null && $limit redis-cli -3 -h "$host" -p "$port" ping >/dev/null
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
    ioredis | node-redis) tool=npm check="npm_client $1" ;;
    go-redis) tool=go check=go_redis ;;
    jedis) tool=mvn check=jedis ;;
    redis-rs) tool=cargo check=redis_rs ;;
    redis-cli) tool=redis-cli check=redis_cli ;;
    redis-benchmark) tool=redis-benchmark check=redis_benchmark ;;
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
for client in ${*:-redis-py ioredis node-redis go-redis jedis redis-rs redis-cli redis-benchmark}; do
    run "$client" || failed=$((failed + 1))
done
exit "$failed"
