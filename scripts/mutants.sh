#!/usr/bin/env bash
# Changes the code in small ways, one at a time, and counts the changes that the crate's own tests
# notice. Fails when they notice less than 97 % in a crate.
#
#   scripts/mutants.sh [CRATE [FILE]]    one crate, or one of its files (auctioneer/src/feed.rs)
#   JOBS=1 scripts/mutants.sh            one change at a time; otherwise one for each processor
#
# cargo-mutants lists the changes; .cargo/mutants.toml says of which files. The program in mutants/
# compiles all of them into one test program, each behind a switch, and runs the tests once for each.
# Results are in .tools/mutants/CRATE/: missed.txt is what was not noticed, does-not-compile.txt and
# not-switchable.txt (constants, patterns) what could not be tried.
set -euo pipefail
cd "$(dirname "$0")/.."

file=${2:-}
# of a file alone, the crate is the first part of its path
crate=${1:-${file%%/*}}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}

# The crates with files in .cargo/mutants.toml, in its order.
crates() { sed -n 's/^ *"\([^/"]*\)\/.*/\1/p' .cargo/mutants.toml | awk '!seen[$0]++'; }

# What of a crate's tests is run: a server is needed by the integration tests of these.
tests_of() { # CRATE
    case $1 in
        rep | auctioneer | advertiser) echo --lib ;;
    esac
}

run() { # CRATE
    local out=.tools/mutants/$1 only=()
    # the files of the configuration would be added to this one
    [ -z "$file" ] || only=(--no-config --file "$file")
    rm -rf "$out"
    mkdir -p "$out"
    .tools/bin/cargo-mutants mutants --list --json --package "$1" "${only[@]}" >"$out/changes.json"
    # shellcheck disable=SC2046 # no argument or one
    "$CARGO_TARGET_DIR/debug/mutants" "$1" .tools/mutants "${JOBS:-$(nproc)}" $(tests_of "$1") |
        tee "$out/log.txt"
}

[ -d "${crate:-.}" ] || { echo "mutants: there is no crate $crate" >&2; exit 2; }
scripts/setup.sh mutants
# the copy of the workspace is for one run at a time
mkdir -p .tools/mutants
exec 9>.tools/mutants/lock
flock 9
cargo build --quiet -p mutants
failed=()
for name in ${crate:-$(crates)}; do
    [ -d "$name" ] || continue
    echo "== $name"
    run "$name" || failed+=("$name")
done
echo "== mutants, in $SECONDS s"
sed -n 's/^result: //p' .tools/mutants/*/log.txt
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed, or under 97 %: ${failed[*]}; see .tools/mutants/CRATE/missed.txt"
    exit 1
fi
