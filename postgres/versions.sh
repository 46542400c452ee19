#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs test.sh on the server of each major version that Debian has, as packaged there,
# each in a root of its own that is made for it and removed with it.
#
#	postgres/versions.sh [MAJOR...]		default: all of them
#
# Takes root, mmdebstrap, the network, and about three minutes for each. Goes on after
# one that fails; its last lines say how each has ended, and so does its status.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mirror=${GIVEWAY_DEBIAN_MIRROR:-http://deb.debian.org/debian}
declare -A suites=([15]=bookworm [17]=trixie [18]=sid)

fail() {
	printf 'versions: error: %s\n' "$1" >&2
	printf 'versions: remedy: %s\n' "$2" >&2
	exit 1
}

[ "$(id -u)" = 0 ] || fail "making a root takes root" "sudo postgres/versions.sh $*"
command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing" "scripts/setup.sh demo"
[ $# -gt 0 ] || set -- 15 17 18
for major; do
	[ -n "${suites[$major]:-}" ] ||
		fail "no release is known that has PostgreSQL $major" "15, 17 or 18"
done

# Prints what the test of one version prints.
try() {
	local major=$1 suite=${suites[$1]} include=build-essential,pgbouncer,procps
	include=$include,postgresql-$major,postgresql-server-dev-$major
	# The tree's own files, whatever else lies in a checkout.
	mmdebstrap --quiet --format=null --variant=apt --include="$include" \
		--aptopt='Acquire::Check-Valid-Until "false"' \
		--customize-hook="tar -C '$here/..' -cf - postgres crates/hints/include |
			tar --no-same-owner -xf - -C \"\$1/srv\"" \
		--customize-hook="chroot \"\$1\" /srv/postgres/test.sh \
			/usr/lib/postgresql/$major/bin/pg_config" \
		"$suite" - "deb $mirror $suite main" 2>&1
}

ended=()
status=0
for major; do
	echo "versions: PostgreSQL $major of ${suites[$major]}"
	verdict=passed
	try "$major" || verdict=FAILED
	[ $verdict = passed ] || status=1
	ended+=("PostgreSQL $major (${suites[$major]}): $verdict")
done
printf 'versions: %s\n' "${ended[@]}"
exit $status
