#!/usr/bin/env bash
# Brings up the unchanged docker-compose.yml, places work and puts apps through the published port, breaks
# things, and takes everything down again; then the same cluster with docker-compose.secure.yml, once.
#
#   scripts/compose-test.sh                  VENDUE=path/to/vendue to use another binary than target/debug
#   scripts/compose-test.sh --real-images    only says whether a registry has the base images
#
# Needs docker and docker-compose (1.29 or v2). Where there is no docker the test is skipped, said
# loudly; with CI=true that is a failure. The base images are the real ones where they are here already
# or a registry answers. Else our own are made, which takes root with debootstrap, under the names that
# Dockerfile and docker-compose.yml use; they lose those names at the end and are kept as vendue-test/*
# for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly DEBIAN=debian:bookworm-slim RUST=rust:1-slim-bookworm NATS=nats:2.14-alpine
readonly PATIENCE=180 # seconds
readonly APP_FILE=examples/apps/web.toml # three instances of `shop`
export VENDUE_IMAGE=vendue-test/vendue
project=vendue-test-$$
files=(-f docker-compose.yml)
lent=() # names that are taken back from images of our own at the end
registry=unknown
work=$(mktemp -d)

say() { echo "compose-test: $*"; }
fail() { say "FAILED: $*" >&2; exit 1; }

skip() {
    [ "${CI:-}" != true ] || fail "$* (and CI=true allows no skipping)"
    echo "################################################################"
    say "SKIPPED: $*"
    echo "################################################################"
    exit 0
}

if docker compose version >/dev/null 2>&1; then
    compose() { docker compose --ansi never -p "$project" "${files[@]}" "$@"; }
elif command -v docker-compose >/dev/null; then
    compose() { docker-compose --ansi never -p "$project" "${files[@]}" "$@"; }
else
    skip "neither docker compose nor docker-compose is installed"
fi
docker info >/dev/null 2>&1 || skip "no docker daemon answers"

# ------------------------------------------------------------------ the end, whatever happens

up=no
take_down() {
    [ $up = no ] && return
    up=no
    compose down --volumes --timeout 15 >"$work/down.log" 2>&1 || tail -20 "$work/down.log"
    local left
    left=$(docker ps -aq --filter "label=com.docker.compose.project=$project")$(
        docker network ls -q --filter "label=com.docker.compose.project=$project")$(
        docker volume ls -q --filter "label=com.docker.compose.project=$project")
    [ -z "$left" ] || fail "left behind: $left"
}

at_exit() {
    local code=$?
    trap - EXIT
    # a second signal must not leave half of it behind
    trap '' HUP INT TERM
    if [ $code != 0 ] && [ $up = yes ]; then
        say "state and logs at the failure:"
        compose ps || true
        compose logs --tail 15 || true
    fi
    (take_down) || code=1
    for name in "${lent[@]}"; do docker rmi --no-prune "$name" >/dev/null 2>&1 || true; done
    rm -rf --one-file-system "$work"
    exit $code
}
trap at_exit EXIT
trap 'exit 1' HUP INT TERM

# ------------------------------------------------------------------ images

# Runs a command and shows what it printed only if it fails. In the background, because `set -e` has no
# effect in a function that is called as a condition.
attempt() { # COMPLAINT COMMAND...
    local complaint=$1
    shift
    ("$@") >"$work/attempt.log" 2>&1 &
    wait $! || { tail -40 "$work/attempt.log"; fail "$complaint"; }
}

# Whether the real image is here, or comes from a registry. One that did not answer is not asked again.
real_image() { # NAME
    if docker image inspect "$1" >/dev/null 2>&1; then return 0; fi
    [ $registry != none ] || return 1
    # the first image is the smallest: it shows whether a registry answers at all
    local seconds=600
    [ $registry = there ] || seconds=60
    registry=none
    timeout $seconds docker pull --quiet "$1" >"$work/pull.log" 2>&1 || return 1
    registry=there
}

# Sees to it that there is an image of this name: the real one, else our own with its name lent to it.
provide() { # NAME OWN-NAME MAKER
    if real_image "$1"; then return; fi
    if ! docker image inspect "$2" >/dev/null 2>&1; then
        say "making $1"
        attempt "cannot make $1" "$3" "$2"
    fi
    docker tag "$2" "$1"
    lent+=("$1")
}

# Builds where the machine's own network is, since a bridge may not reach a registry's proxy.
build() {
    local args=() name
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        [ -z "${!name:-}" ] || args+=(--build-arg "$name=${!name}")
    done
    docker build --network host "${args[@]}" "$@"
}

make_debian() {
    [ "$(id -u)" = 0 ] || fail "debootstrap needs root"
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        grep '/debian/$' | head -1) || true
    debootstrap --variant=minbase bookworm "$work/debian" "${mirror:-http://deb.debian.org/debian}"
    rm -rf "$work"/debian/var/cache/apt/archives/*.deb "$work/debian/usr/share/doc"
    tar -C "$work/debian" -c . | docker import --change 'CMD ["bash"]' - "$1"
}

# The system image, a C compiler, and this machine's Rust with its certificates and cargo settings.
make_rust() {
    local sysroot rust=$work/rust name settings=
    sysroot=$(rustc --print sysroot)
    mkdir -p "$rust/local/bin" "$rust/local/lib/rustlib" "$rust/certs"
    cp "$sysroot"/bin/{cargo,rustc} "$rust/local/bin/"
    cp "$sysroot"/lib/*.so* "$rust/local/lib/"
    cp -r "$sysroot/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')" "$rust/local/lib/rustlib/"
    cp -L /etc/ssl/certs/ca-certificates.crt "$rust/certs/"
    # how cargo reaches its registry here: limits, mirrors, protocols; nothing that is a secret
    while read -r name; do
        case $name in *TOKEN* | *CREDENTIAL*) continue ;; esac
        settings+="ENV $name=\"${!name}\""$'\n'
    done < <(compgen -e | grep -E '^CARGO_(HTTP|NET|SOURCE|REGISTRIES|REGISTRY)_' || true)
    cat >"$rust/Dockerfile" <<EOF
FROM $DEBIAN
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && apt-get clean
COPY certs /etc/ssl/certs
COPY local /usr/local
$settings
EOF
    build -t "$1" "$rust"
}

make_nats() {
    local from=scratch server
    server=$(scripts/get-nats-server.sh)
    mkdir -p "$work/nats"
    cp -L "$server" "$work/nats/nats-server"
    # a dynamic one, such as Debian's, needs its libraries
    if ldd "$server" >/dev/null 2>&1; then from=$DEBIAN; fi
    printf 'FROM %s\nCOPY nats-server /nats-server\nENTRYPOINT ["/nats-server"]\n' "$from" \
        >"$work/nats/Dockerfile"
    docker build -t "$1" "$work/nats"
}

# ------------------------------------------------------------------ what the cluster says

vendue() { "$vendue" "$@"; }

# Runs a command until it succeeds, for longer than a loaded machine needs.
eventually() { # WHAT COMMAND...
    local deadline=$((SECONDS + PATIENCE)) what=$1 began=$SECONDS
    shift
    until "$@" >"$work/seen" 2>&1; do
        if [ $SECONDS -ge $deadline ]; then
            tail -5 "$work/seen"
            fail "waited $((SECONDS - began)) s: $what"
        fi
        sleep 0.2
    done
    say "$what ($((SECONDS - began)) s)"
}

# The cells of the pool, by name, on one line.
pool() {
    vendue cells --output json | python3 -c '
import json, sys
print(*sorted(entry["cell"]["cell"] for entry in json.load(sys.stdin)["cells"]))'
}

pool_is() { # CELL...
    local now
    now=$(pool)
    echo "the pool: $now"
    [ "$now" = "$*" ]
}

# How many instances of an app run, and in how many zones.
running() { # APP
    vendue ps "$1" --output json | python3 -c '
import json, sys
them = [i for i in json.load(sys.stdin)["instances"] if i["state"] == "running"]
print(len(them), len({i["zone"] for i in them}))'
}

runs_are() { # APP "COUNT ZONES"
    local now
    now=$(running "$1")
    echo "instances and zones of $1: $now"
    [ "$now" = "$2" ]
}

# What is wanted of an app is stored, and this many of it run.
app_is() { # APP WANTED
    local now
    now=$(vendue app show "$1" --output json | python3 -c '
import json, sys
status = json.load(sys.stdin)["status"]
print(status["wanted"], status["running"])')
    echo "wanted and running of $1: $now"
    [ "$now" = "$2 $2" ]
}

# A cell that runs an instance of an app.
cell_of() { # APP
    vendue ps "$1" --output json | python3 -c '
import json, sys
print(next(i["cell"] for i in json.load(sys.stdin)["instances"] if i["state"] == "running"))'
}

container() { compose ps -q "$1"; }

all_healthy() {
    local service
    for service in auctioneer-1 auctioneer-2 manager-1 "${CELLS[@]}"; do
        local health
        health=$(docker inspect --format '{{.State.Health.Status}}' "$(container "$service")")
        echo "$service is $health"
        [ "$health" = healthy ] || return 1
    done
}

free_port() {
    python3 -c '
import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

# ------------------------------------------------------------------ the test

place() { # APP INSTANCES
    attempt "cannot place $1" \
        vendue run --app "$1" --memory 32 --disk 32 --instances "$2" -- sleep 1000
}

images() {
    # the smallest first: see real_image
    if real_image $NATS; then say "the base images are those of the registry"; fi
    provide $DEBIAN vendue-test/debian make_debian
    provide $RUST vendue-test/rust make_rust
    provide $NATS vendue-test/nats make_nats
    say "building the image"
    # the same program as with the profile that is shipped, in a third of the time; the first stage by
    # name too, so that the next run finds it
    rebuild vendue-test/build --build-arg PROFILE=release --target build
    rebuild $VENDUE_IMAGE --build-arg PROFILE=release
}

# Builds the Dockerfile, and drops the image that had the name before.
rebuild() { # NAME OPTION...
    local name=$1 before
    shift
    before=$(docker images -q "$name")
    attempt "the Dockerfile does not build" build "$@" -t "$name" .
    if [ -n "$before" ] && [ "$before" != "$(docker images -q "$name")" ]; then
        # it stays when something still uses it
        docker rmi "$before" >/dev/null 2>&1 || true
    fi
}

bring_up() {
    VENDUE_NATS_PORT=$(free_port)
    export VENDUE_NATS_PORT NATS_URL=nats://127.0.0.1:$VENDUE_NATS_PORT
    up=yes
    attempt "compose up" compose up -d --no-build
    eventually "all four cells are in the pool" pool_is "${CELLS[@]}"
    eventually "every container is healthy" all_healthy
    attempt "vendue cells in a container" compose exec -T auctioneer-1 vendue cells
    eventually "an app is put in a container" put_in_container
    place web 4
    eventually "web runs, two instances in each zone" runs_are web "4 2"
}

break_things() {
    local cut without
    without=("${CELLS[@]:1}")
    docker kill "$(container z1-cell-0)" >/dev/null
    eventually "a killed cell is out of the pool" pool_is "${without[@]}"
    place after-kill 3
    eventually "work is placed on the others" runs_are after-kill "3 2"

    docker restart -t 1 "$(container nats)" >/dev/null
    # the auctioneers keep the cells meanwhile, so the pool does not show who is connected again;
    # `ps` asks the cells themselves, and web has one instance on each of them
    eventually "the restarted server has its cells back, and what they run" runs_are web "3 2"
    eventually "the pool has them too" pool_is "${without[@]}"
    place after-restart 3
    eventually "and takes work" runs_are after-restart "3 2"
    eventually "what ran before runs on" runs_are after-kill "3 2"

    docker kill "$(container auctioneer-1)" >/dev/null
    eventually "the other auctioneer answers alone" pool_is "${without[@]}"
    place after-auctioneer 2
    eventually "and places" runs_are after-auctioneer "2 2"

    cut=$(container z2-cell-1)
    docker network disconnect "${project}_default" "$cut"
    eventually "a cell without its network is out of the pool" pool_is z1-cell-1 z2-cell-0
    docker network connect "${project}_default" "$cut"
    eventually "and back in it with its network" pool_is "${without[@]}"
    eventually "its instances have run all the time" runs_are after-kill "3 2"

    attempt "compose up" compose up -d --no-build
    eventually "what was killed is back" pool_is "${CELLS[@]}"
    eventually "and healthy" all_healthy
}

put_in_container() { compose exec -T auctioneer-1 vendue app put - <$APP_FILE; }

# An app runs on, whichever container ends; and again after all of them, since it is on the volume.
keeps_apps() {
    local killed
    eventually "an app is put" vendue app put $APP_FILE
    eventually "and runs" app_is shop 3
    killed=$(cell_of shop)
    docker kill "$(container "$killed")" >/dev/null
    eventually "what ran on $killed, which was killed, runs elsewhere" runs_are shop "3 2"

    docker restart -t 10 "$(container manager-1)" >/dev/null
    docker restart -t 1 "$(container nats)" >/dev/null
    eventually "the restarted manager and server know the app" app_is shop 3
    eventually "which is changed" vendue app scale shop 4
    eventually "and runs so" app_is shop 4

    attempt "compose down" compose down --timeout 15
    attempt "compose up" compose up -d --no-build
    eventually "all four cells are in the pool of the new containers" pool_is "${CELLS[@]}"
    eventually "the app is wanted, and runs again" app_is shop 4
    eventually "two instances in each zone" runs_are shop "4 2"
}

# A drained cell has left in order, with exit code 0: restarted, it would be back at once.
drain() {
    attempt "cannot drain z2-cell-0" vendue drain z2-cell-0 --deadline 5s --exit
    eventually "a drained cell is out of the pool" pool_is z1-cell-0 z1-cell-1 z2-cell-1
    eventually "its container has ended and stays so" has_exited z2-cell-0
    eventually "the app runs on the others" app_is shop 4
}

# Keys, permissions and TLS: the cluster works, an operator may drain, a user may not, a stranger nothing.
secure() {
    export VENDUE_AUTH_DIR=$work/auth
    attempt "make-secure.sh" env VENDUE="$(realpath "$vendue")" scripts/make-secure.sh
    files=(-f docker-compose.yml -f docker-compose.secure.yml)
    export NATS_URL=tls://127.0.0.1:$VENDUE_NATS_PORT NATS_CA=$work/auth/tls/ca.pem
    export NATS_NKEY=$work/auth/keys/alice.nk
    up=yes
    attempt "compose up" compose up -d --no-build
    eventually "all four cells are in the pool, with keys and TLS" pool_is "${CELLS[@]}"
    eventually "every container is healthy" all_healthy
    place web 4
    eventually "web runs, two instances in each zone" runs_are web "4 2"
    if vendue drain z1-cell-0 >"$work/seen" 2>&1; then fail "a user drains a cell"; fi
    grep -q "not permitted to publish to vendue.cell.z1-cell-0.drain" "$work/seen" ||
        fail "a refusal is not said: $(cat "$work/seen")"
    if NATS_NKEY='' vendue health >/dev/null 2>&1; then fail "a stranger is let in"; fi
    keeps_apps
    export NATS_NKEY=$work/auth/keys/olga.nk
    drain
}

has_exited() { # SERVICE
    local state
    state=$(docker inspect --format '{{.State.Status}} {{.State.ExitCode}} {{.RestartCount}}' \
        "$(compose ps -aq "$1" 2>/dev/null || compose ps -q "$1")")
    echo "$1: $state"
    [ "$state" = "exited 0 0" ]
}

readonly CELLS=(z1-cell-0 z1-cell-1 z2-cell-0 z2-cell-1)
if [ "${1:-}" = --real-images ]; then
    real_image $NATS && real_image $DEBIAN && real_image $RUST
    exit
fi
exec 9>"${TMPDIR:-/tmp}/vendue-compose-test.lock"
flock -n 9 || { say "waiting for another run of this test"; flock 9; }
vendue=${VENDUE:-${CARGO_TARGET_DIR:-target}/debug/vendue}
if [ -z "${VENDUE:-}" ]; then cargo build --quiet -p vendue; fi
images
bring_up
break_things
keeps_apps
drain
take_down
secure
take_down
say "passed in $SECONDS s; nothing is left but the images vendue-test/*"
