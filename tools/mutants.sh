#!/bin/sh
# Proves that the simulation bites: builds it once with every fault of crates/model/src/mutant.rs planted, chooses
# one at a time, and fails if one goes unnoticed within $SEEDS seeds. Arguments are names; without any, all.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
seeds=${SEEDS:-2000}

# In a target folder of its own: the flag changes every crate, and must not throw away the ordinary build.
RUSTFLAGS="${RUSTFLAGS:-} --cfg headwater_mutants" ${CARGO:-cargo} build --release --locked --target-dir target/mutants \
    -p headwater-tests --bin simulate

names="$*"
[ -n "$names" ] || names=$(sed -n '/NAMES/,/^\]/s/^ *"\(.*\)",$/\1/p' crates/model/src/mutant.rs)
[ -n "$names" ] || { echo "mutants: no names found in crates/model/src/mutant.rs" >&2; exit 1; }

survived=""
for name in $names; do
    status=0
    target/mutants/release/simulate --seeds "$seeds" --json --mutant "$name" >"target/mutants/$name.log" 2>&1 || status=$?
    # 1 is "violations found"; anything else above 0 is a fault of the run itself and proves nothing.
    case $status in
    0) survived="$survived $name"; echo "survived  $name" ;;
    1) echo "found     $name" ;;
    *) echo "mutants: the run of $name failed with $status:" >&2; tail -5 "target/mutants/$name.log" >&2; exit 1 ;;
    esac
done
[ -z "$survived" ] || { echo "mutants: not found within $seeds seeds:$survived" >&2; exit 1; }
