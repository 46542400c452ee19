#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the extension for one server and tests it in clusters of its own, as
# an unprivileged user, in a temporary directory, without UFS: a plain file of
# the table's layout stands in for its map, so that every store can be seen.
#
#	postgres/test.sh [PG_CONFIG]	default: the newest server here
#	KEEP=1 postgres/test.sh		leave the directory, for a look at the logs
#
# Takes about a minute. test/table.c reads the table, test/cluster.sh starts
# servers, test/sessions.sh talks to them, test/cases.sh has the cases; giveway/sql the
# regression suites.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
die() {
	printf 'test: error: %s\n' "$1" >&2
	exit 1
}

pg_config=${1:-}
if [ -z "$pg_config" ]; then
	for candidate in /usr/lib/postgresql/*/bin/pg_config; do
		[ -f "$("$candidate" --pgxs 2>/dev/null)" ] && pg_config=$candidate
	done
	[ -n "$pg_config" ] ||
		die "no server with development files is here; remedy: scripts/setup.sh"
fi
bin=$("$pg_config" --bindir)

# A server refuses to run as root: go on as another user.
if [ "$(id -u)" = 0 ] && [ -z "${GIVEWAY_TEST_DIR:-}" ]; then
	user=postgres
	id "$user" >/dev/null 2>&1 || user=nobody
	GIVEWAY_TEST_DIR=$(mktemp -d)
	export GIVEWAY_TEST_DIR
	mkdir "$GIVEWAY_TEST_DIR/tree"
	# That user may not be able to read the checkout.
	(cd "$here/.." && tar -cf - postgres crates/hints/include) |
		tar -xf - -C "$GIVEWAY_TEST_DIR/tree"
	chown -R "$user" "$GIVEWAY_TEST_DIR"
	status=0
	pg_config=$(realpath -s "$pg_config")
	# Nor to be in it: clients complain of that.
	cd "$GIVEWAY_TEST_DIR"
	setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups \
		env HOME="$GIVEWAY_TEST_DIR" "$GIVEWAY_TEST_DIR/tree/postgres/test.sh" \
		"$pg_config" || status=$?
	[ -n "${KEEP:-}" ] || rm -rf "$GIVEWAY_TEST_DIR"
	exit "$status"
fi

work=$(mktemp -d -p "${GIVEWAY_TEST_DIR:-${TMPDIR:-/tmp}}")
clean_up() {
	for pid_file in "$work"/*/data/postmaster.pid; do
		[ -f "$pid_file" ] && kill -QUIT "$(head -1 "$pid_file")"
	done
	[ -n "${KEEP:-}" ] && echo "test: logs and data are in $work" ||
		rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
# A session that has ended is for the cases to notice.
trap '' PIPE

# Build aside: the checkout stays as it is.
mkdir -p "$work/tree/crates/hints"
cp -r "$here" "$work/tree/postgres"
cp -r "$here/../crates/hints/include" "$work/tree/crates/hints/"
for extension in giveway giveway_test; do
	source=$work/tree/postgres/$extension
	make -s -C "$source" PG_CONFIG="$pg_config" COPT=-Werror >"$work/make.log" 2>&1 ||
		die "$extension does not build: $(cat "$work/make.log")"
	make -s -C "$source" PG_CONFIG="$pg_config" install DESTDIR="$work/dest" \
		>"$work/make.log" 2>&1 ||
		die "$extension is not installed: $(cat "$work/make.log")"
done
table=$work/table
cc -O1 -Wall -Wextra -Werror -I"$work/tree/crates/hints/include" \
	"$here/test/table.c" -o "$table" || die "table.c does not build"

# How a server finds extensions outside its own directories differs.
library_dir=$work/dest$("$pg_config" --pkglibdir)
load_path="dynamic_library_path = '$library_dir:\$libdir'"
major=$("$pg_config" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
settings=$("$bin/postgres" --describe-config | cut -f1)
if grep -qx extension_destdir <<<"$settings"; then
	load_path="$load_path
extension_destdir = '$work/dest'"
elif grep -qx extension_control_path <<<"$settings"; then
	load_path="$load_path
extension_control_path = '$work/dest$("$pg_config" --sharedir):\$system'"
else
	# A server of the lab. It works from wherever it is copied to.
	cp -r "$(dirname "$bin")" "$work/server"
	bin=$work/server/bin
	pg_config=$bin/pg_config
	load_path=
	for extension in giveway giveway_test; do
		make -s -C "$work/tree/postgres/$extension" PG_CONFIG="$pg_config" install \
			>"$work/make.log" 2>&1 || die "$(cat "$work/make.log")"
	done
fi

. "$here/test/sessions.sh"
. "$here/test/cluster.sh"
. "$here/test/cases.sh"

# What cases.sh wants to be told.
hints=$work/hints
slots=$hints/giveway_slots
suites=$work/tree/postgres/giveway
scheduler='UFS is not attached: load it with "giveway start"'
patience=20
mkdir "$hints"
unprivileged() {
	"$@"
}
new_table() {
	"$table" create "$slots" "$1"
}
replace_table() {
	"$table" replace "$slots" "${1:-64}"
}
regress() {
	if ! make -s -C "$suites" PG_CONFIG="$pg_config" installcheck \
		PGHOST="$work/$1" PGUSER=postgres >"$work/regress.log" 2>&1; then
		cat "$suites/regression.diffs" 2>/dev/null || cat "$work/regress.log"
	fi
	# Either variant is a success for pg_regress.
	diff "$suites/expected/slots${2:+_$2}.out" "$suites/results/slots.out" || true
	diff "$suites/expected/roles${2:+_$2}.out" "$suites/results/roles.out" || true
	diff "$suites/expected/sessions${2:+_$2}.out" \
		"$suites/output_iso/results/sessions.out" || true
}

echo "test: $("$pg_config" --version) in $bin"
run_cases ${CASES:-$all_cases}
