#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# throughput.sh [ROUNDS]: programs whose threads contend, on glibc's locks and on
# ours in turns. Prints a row for each run: program, locks, what it did. Programs
# that are not installed are left out, with a line on standard error.
#
#   stress-ng   operations a second     stress-ng --mutex 4
#   bump N      thousands a second      N goroutines in C's mutexes
#   sysbench    95th percentile, ms     sysbench threads --threads=16
#   rocksdb     operations a second     db_bench readwhilewriting, 4 readers
#   hold        ms held, each thread    2 or 8 threads, sections of equal and of
#                                       different length
#   cost        ns                      an uncontended pair, one thread and two
set -eu

rounds=${1:-5}
here=$(cd "$(dirname "$0")" && pwd)
library=$here/../../../target/release/libgiveway_cfl.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[ -e "$library" ] || {
	echo "build it first: cargo build --release -p giveway-cfl-preload" >&2
	exit 1
}
have() {
	command -v "$1" >/dev/null || { echo "left out: $1 is not installed" >&2; return 1; }
}

cc -O2 -pthread "$here/hold.c" -o "$work/hold"
cc -O2 -pthread "$here/../tests/programs/cost.c" -o "$work/cost"
cc -O2 -pthread -DALONE "$here/../tests/programs/cost.c" -o "$work/alone"
programs="hold_2 hold_2_unequal hold_8_unequal cost alone"
! have stress-ng || programs="stress_ng $programs"
! have sysbench || programs="sysbench $programs"
! have db_bench || programs="rocksdb $programs"
! have go || {
	(cd "$work" && CGO_ENABLED=1 GO111MODULE=off go build -o bump "$here/bump.go")
	programs="bump_2 bump_8 $programs"
}

stress_ng() { "$@" stress-ng --mutex 4 -t 3 --metrics-brief 2>&1 | awk '$4 == "mutex" && $5 ~ /^[0-9]+$/ { print $9 }'; }
sysbench_threads() { "$@" sysbench threads --threads=16 --time=4 run | awk '/95th/ { print $3 }'; }
readwhilewriting() {
	"$@" db_bench --benchmarks=fillrandom,readwhilewriting --num=200000 --threads=4 \
		--duration=4 --db="$work/db" 2>/dev/null | awk '/^readwhilewriting/ { print $5 }'
}

measure() {
	program=$1
	shift
	case $program in
	stress_ng) stress_ng "$@" ;;
	sysbench) sysbench_threads "$@" ;;
	rocksdb) readwhilewriting "$@" ;;
	bump_*) "$@" "$work/bump" "${program#bump_}" ;;
	hold_2) "$@" "$work/hold" 2 0 2000 ;;
	hold_2_unequal) "$@" "$work/hold" 2 0 500 5000 ;;
	hold_8_unequal) "$@" "$work/hold" 8 0 2000 4000 ;;
	cost) "$@" "$work/cost" | tr '\n' ' ' ;;
	alone) "$@" "$work/alone" | tr '\n' ' ' ;;
	esac
}

round=0
while [ "$round" -lt "$rounds" ]; do
	round=$((round + 1))
	for program in $programs; do
		echo "$program glibc $(measure "$program" env)"
		echo "$program ours $(measure "$program" env "LD_PRELOAD=$library")"
	done
done
