#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the plugin and tests it in servers of its own, as an unprivileged user, in a
# temporary directory, on Unix sockets only, without UFS: a plain file of the table's
# layout stands in for its map, so that every store can be seen.
#
#	mariadb/test.sh
#	CASES="case_ceiling" mariadb/test.sh	some cases; they do not need each other
#	KEEP=1 mariadb/test.sh			leave the directory, for a look at the logs
#
# Takes about a minute. postgres/test has what reads the table and runs cases, test/server.sh
# starts servers, test/cases.sh has the cases, test/client.c what the shell's client
# cannot say.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
die() {
	printf 'test: error: %s\n' "$1" >&2
	exit 1
}
include=${INCLUDE:-/usr/include/mariadb/server}
[ -e "$include/mysql/plugin.h" ] ||
	die "the server's headers are not here; remedy: scripts/setup.sh mariadb"
PATH=$PATH:/usr/sbin
command -v mariadbd >/dev/null || die "no mariadbd is here; remedy: scripts/setup.sh mariadb"

# A server refuses to run as root: go on as another user.
if [ "$(id -u)" = 0 ] && [ -z "${GIVEWAY_TEST_DIR:-}" ]; then
	GIVEWAY_TEST_DIR=$(mktemp -d)
	export GIVEWAY_TEST_DIR
	mkdir "$GIVEWAY_TEST_DIR/tree"
	# That user may not be able to read the checkout.
	(cd "$here/.." && tar -cf - mariadb postgres/test crates/hints/include) |
		tar -xf - -C "$GIVEWAY_TEST_DIR/tree"
	chown -R nobody "$GIVEWAY_TEST_DIR"
	status=0
	cd "$GIVEWAY_TEST_DIR"
	setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups \
		env HOME="$GIVEWAY_TEST_DIR" "$GIVEWAY_TEST_DIR/tree/mariadb/test.sh" || status=$?
	[ -n "${KEEP:-}" ] || rm -rf "$GIVEWAY_TEST_DIR"
	exit "$status"
fi

work=$(mktemp -d -p "${GIVEWAY_TEST_DIR:-${TMPDIR:-/tmp}}")
helpers=
clean_up() {
	for pid_file in "$work"/*/pid; do
		[ -f "$pid_file" ] && kill -9 "$(cat "$pid_file")" 2>/dev/null
	done
	[ -z "$helpers" ] || kill $helpers 2>/dev/null
	[ -n "${KEEP:-}" ] && echo "test: logs and data are in $work" || rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
# A session that has ended is for the cases to notice.
trap '' PIPE

# Build aside: the checkout stays as it is.
cp -r "$here/giveway" "$work/source"
mkdir "$work/plugins"
make -s -C "$work/source" INCLUDE="$include" HINTS="-I$here/../crates/hints/include" \
	WARNINGS="-Wall -Wextra -Wno-missing-field-initializers -Werror" clean install \
	PLUGIN_DIR="$work/plugins" >"$work/make.log" 2>&1 ||
	die "the plugin does not build: $(cat "$work/make.log")"
table=$work/table
cc -O1 -Wall -Wextra -Werror -I"$here/../crates/hints/include" \
	"$here/../postgres/test/table.c" -o "$table" || die "table.c does not build"
client=$work/client
cc -O1 -Wall -Wextra -Werror -I"$include/.." "$here/test/client.c" -o "$client" -lmariadb ||
	die "client.c does not build"

hints=$work/hints
slots=$hints/giveway_slots
patience=20
mkdir "$hints"
. "$here/../postgres/test/sessions.sh"
. "$here/test/server.sh"
. "$here/test/cases.sh"

echo "test: $(mariadbd --version)"
run_cases ${CASES:-$all_cases}
