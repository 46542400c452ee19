#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Tests the extension under UFS, in a guest of the lab: the cases of test.sh
# with UFS's own table in place of a file, and those that take UFS.
#
#	postgres/test-in-lab.sh MAJOR stock|patched [CASE...]
#
# Needs `make build`. KEEP=1 leaves the logs in ./results-of-the-guest. GIVEWAY
# names another giveway than target/release/giveway.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 2 ] || {
	echo "usage: postgres/test-in-lab.sh MAJOR stock|patched [CASE...]" >&2
	exit 2
}
server=$("$here/lab-server.sh" "$1" "$2")
shift 2
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
cc -O1 -Wall -Wextra -Werror -I"$here/../crates/hints/include" \
	"$here/test/table.c" -o "$made/table"
"${GIVEWAY:-$here/../target/release/giveway}" lab run \
	--cpus 2 --clock lockstep --timeout 7200 \
	--file "$server:server" --file "$here/test:test" \
	--file "$here/giveway:extension" --file "$made/table:table" \
	${KEEP:+--results results-of-the-guest --env KEEP=1} \
	-- bash test/guest.sh "$@"
