#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# PostgreSQL's own regression and isolation suites under UFS, in a guest of the
# lab, on a server with the extension preloaded and all hints on.
#
#	postgres/installcheck-in-lab.sh MAJOR stock|patched [regress|isolation]...
#
# Needs `make build`; takes half an hour or more. What differs from the expected
# results, and the logs, are left in ./results-of-the-guest. GIVEWAY names
# another giveway than target/release/giveway.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 2 ] || {
	echo "usage: postgres/installcheck-in-lab.sh MAJOR stock|patched [SUITE...]" >&2
	exit 2
}
server=$("$here/lab-server.sh" "$1" "$2")
suites=$("$here/build-server.sh" "$1" suites)
shift 2
"${GIVEWAY:-$here/../target/release/giveway}" lab run \
	--cpus 2 --clock lockstep --timeout 36000 --results results-of-the-guest \
	--file "$server:server" --file "$suites:suites" --file "$here/test:test" \
	-- bash test/installcheck.sh "$@"
