#!/usr/bin/env bash
# Changes the code in small ways, one at a time (cargo-mutants), and counts the changes that the
# crate's own tests notice. Fails when they notice less than 97 % in a crate.
#
#   scripts/mutants.sh [CRATE [FILE]]    one crate, or one of its files (auctioneer/src/feed.rs)
#   JOBS=2 scripts/mutants.sh            two changes at a time
#
# A whole run takes an hour and more; .cargo/mutants.toml says which files are changed. What was not
# noticed is listed in .tools/mutants/CRATE/mutants.out/missed.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly LEAST=97
file=${2:-}
# of a file alone, the crate is the first part of its path
crate=${1:-${file%%/*}}

# The crates with files in .cargo/mutants.toml, in its order.
crates() { sed -n 's/^ *"\([^/"]*\)\/.*/\1/p' .cargo/mutants.toml | awk '!seen[$0]++'; }

# What of a crate's tests is run: a server is needed by the integration tests of these two.
tests_of() { # CRATE
    case $1 in
        rep | auctioneer) echo --lib ;;
    esac
}

run() { # CRATE
    local out=.tools/mutants/$1 args=(--package "$1" --no-shuffle --jobs "${JOBS:-1}")
    [ -z "$file" ] || args+=(--file "$file")
    rm -rf "$out"
    mkdir -p "$out"
    # it fails when anything is missed; the share is judged here
    # shellcheck disable=SC2046 # no argument or one
    .tools/bin/cargo-mutants mutants "${args[@]}" --output "$out" -- $(tests_of "$1") || true
    [ -f "$out/mutants.out/outcomes.json" ] || { echo "mutants: $1: no result"; return 1; }
}

# One line for a crate; false under the least share. A change that made the tests hang was noticed.
judge() { # CRATE
    python3 - "$1" ".tools/mutants/$1/mutants.out/outcomes.json" $LEAST <<'PYTHON'
import json, sys
crate, file, least = sys.argv[1], sys.argv[2], float(sys.argv[3])
outcomes = json.load(open(file))
caught, missed = outcomes["caught"] + outcomes["timeout"], outcomes["missed"]
if caught + missed == 0:
    sys.exit(f"{crate}: nothing was changed; is the file in .cargo/mutants.toml?")
share = 100 * caught / (caught + missed)
print(f"{crate}: {caught} of {caught + missed} changes noticed ({share:.1f} %), {missed} missed")
sys.exit(share < least)
PYTHON
}

[ -d "${crate:-.}" ] || { echo "mutants: there is no crate $crate" >&2; exit 2; }
scripts/setup.sh mutants
failed=() lines=()
for name in ${crate:-$(crates)}; do
    [ -d "$name" ] || continue
    echo "== $name"
    run "$name" || { failed+=("$name"); continue; }
    line=$(judge "$name") || failed+=("$name")
    lines+=("$line")
    echo "$line"
done
echo "== mutants, in $SECONDS s"
printf '%s\n' "${lines[@]}"
if [ ${#failed[@]} -gt 0 ]; then
    echo "under $LEAST %: ${failed[*]}; see .tools/mutants/CRATE/mutants.out/missed.txt"
    exit 1
fi
