#!/bin/sh
# Two commits, built and measured in turn on this machine: benches/compare.sh REV_A REV_B [SUITE [WORD...]]
#
# Prints each row with the time of REV_A over that of REV_B (above 1: B is faster) and its 95 % interval, then what changed
# beyond its noise. The report stays in target/bench/compare.
set -eu

[ $# -ge 2 ] || { echo "usage: benches/compare.sh REV_A REV_B [SUITE [WORD...]]" >&2; exit 2; }
cd "$(dirname "$0")/.."
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
    echo "compare: the tree has changes that are in no commit; commit or stash them first" >&2
    exit 1
fi
# commit REV: its full name
commit() {
    git rev-parse --verify --quiet "$1^{commit}" || { echo "compare: there is no commit '$1'" >&2; exit 1; }
}
a=$(commit "$1")
b=$(commit "$2")
suite=${3:-networks}
[ $# -le 2 ] && shift 2 || shift 3
[ "$a" != "$b" ] || { echo "compare: both are $a" >&2; exit 1; }
python=${PYTHON:-python3}
"$python" benches/run.py --check --suite "$suite" "$@" || exit 2

# build COMMIT: its program, kept in target/bench/revisions
build() {
    place=target/bench/revisions/$1
    if [ ! -x "$place.program" ]; then
        echo "compare: building $(git log -1 --format='%h %s' "$1")" >&2
        mkdir -p target/bench/revisions
        # What an interrupted call left.
        rm -rf "$place"
        git worktree prune
        git worktree add --detach --force "$place" "$1" >&2
        # One folder for what is built, so that dependencies are built once.
        CARGO_TARGET_DIR=$PWD/target/bench/revisions/target cargo build --release --manifest-path "$place/Cargo.toml" >&2
        cp target/bench/revisions/target/release/tilewright "$place.program"
        git worktree remove --force "$place"
    fi
}
build "$a"
build "$b"
code=0
"$python" benches/run.py --suite "$suite" --peers none --tilewright "target/bench/revisions/$b.program" \
    --against "A=target/bench/revisions/$a.program" --output target/bench/compare "$@" || code=$?
"$python" benches/changes.py target/bench/compare/report.json || code=$?
exit $code
