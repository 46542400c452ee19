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
# All else is as in ../test.sh, which also has the case that needs a pooler.
set -eu

here=/lab/test
suites=/lab/extension
scheduler="UFS reads the table"
. "$here/guest_setup.sh"

new_table() {
	unload_ufs
	load_ufs "$1"
}

# Another size makes another table.
replace_table() {
	unload_ufs
	load_ufs "${1:-$((ufs_slots == 64 ? 65 : 64))}"
}

# As pg_regress would, which is not in a server for the lab.
regress() {
	local suite expected
	for suite in settings slots roles; do
		sql "$1" "DROP DATABASE IF EXISTS suite" >/dev/null
		sql "$1" "CREATE DATABASE suite TEMPLATE template0"
		"$bin/psql" -X -a -q -h "$work/$1" -U postgres -d suite \
			<"$suites/sql/$suite.sql" >"$work/$suite.out" 2>&1 || true
		expected=$suites/expected/$suite${2:+_$2}.out
		[ -f "$expected" ] || expected=$suites/expected/$suite.out
		diff "$expected" "$work/$suite.out" || true
	done
}

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
