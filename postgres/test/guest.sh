#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The cases of cases.sh in a guest of the lab, where the table is UFS's own and
# UFS obeys it; and those that only a guest can show (under_ufs.sh).
#
#	bash test/guest.sh [CASE...]	default: all
#
# Runs as root in /lab, in which it finds:
#
#	server/		a server with both extensions (../lab-server.sh)
#	scx_ufs		the scheduler
#	extension/	../giveway: its suites and control file
#	test/		this directory
#	table		the program of table.c
#
# UFS gives the table to the group postgres, as docs/postgres.md tells
# administrators to. All else is as in ../test.sh, which also has the case that
# needs a pooler.
set -eu

die() {
	printf 'test: error: %s\n' "$1" >&2
	exit 1
}

work=/tmp/test
here=/lab/test
bin=/lab/server/bin
table=/lab/table
suites=/lab/extension
hints=/run/giveway/bpf
load_path=
scheduler="UFS reads the table"
# Loading UFS takes the guest's verifier several seconds.
patience=120
major=$("$bin/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
export LD_LIBRARY_PATH=/lab/server/lib
chmod 755 /lab
install -d -o postgres "$work"
# A session that has ended is for the cases to notice.
trap '' PIPE

unprivileged() {
	setpriv --reuid postgres --regid postgres --init-groups "$@"
}

ufs_pid=
ufs_slots=

# load_ufs SLOTS [OPTION...]: with a table of this size, the same one if it is
# there.
load_ufs() {
	ufs_slots=$1
	shift
	/lab/scx_ufs --hint-group postgres --hint-slots "$ufs_slots" "$@" \
		>>"$work/ufs.log" 2>&1 &
	ufs_pid=$!
	wait_until "grep -qx enabled /sys/kernel/sched_ext/state" ||
		die "UFS is not loaded: $(cat "$work/ufs.log")"
}

# unload_ufs [SIGNAL]
unload_ufs() {
	[ -n "$ufs_pid" ] || return 0
	kill "-${1:-TERM}" "$ufs_pid"
	wait "$ufs_pid" 2>/dev/null || true
	ufs_pid=
	wait_until "grep -qx disabled /sys/kernel/sched_ext/state" ||
		die "UFS does not leave: $(cat "$work/ufs.log")"
}

new_table() {
	unload_ufs
	load_ufs "$1"
}

# Another size makes another table.
replace_table() {
	unload_ufs
	load_ufs $((ufs_slots == 64 ? 65 : 64))
}

# As pg_regress would, which is not in a server for the lab.
regress() {
	local suite expected
	for suite in settings slots; do
		sql "$1" "DROP DATABASE IF EXISTS suite" >/dev/null
		sql "$1" "CREATE DATABASE suite TEMPLATE template0"
		"$bin/psql" -X -a -q -h "$work/$1" -U postgres -d suite \
			<"$suites/sql/$suite.sql" >"$work/$suite.out" 2>&1 || true
		expected=$suites/expected/$suite${2:+_$2}.out
		[ -f "$expected" ] || expected=$suites/expected/$suite.out
		diff "$expected" "$work/$suite.out" || true
	done
}

. "$here/cluster.sh"
. "$here/cases.sh"
. "$here/under_ufs.sh"

if [ $# = 0 ]; then
	for case in $all_cases $cases_under_ufs; do
		[ "$case" = case_pooler ] || set -- "$@" "$case"
	done
fi
echo "test: $("$bin/postgres" --version) under UFS"
run_cases "$@" || failed=1
[ -z "${KEEP:-}" ] || cp "$work"/*.log "$work"/*/log /results/ 2>/dev/null || true
exit "${failed:-0}"
