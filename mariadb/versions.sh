#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs test.sh on the server of each version that Debian has, as packaged there, with the
# plugin compiled for it, each in a root of its own that is made for it and removed with it.
#
#	mariadb/versions.sh [SUITE...]		default: bookworm (10.11), trixie (11.8)
#
# Takes root, mmdebstrap, the network, and about five minutes for each. Goes on after one
# that fails; its last lines say how each has ended, and so does its status.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mirror=${GIVEWAY_DEBIAN_MIRROR:-http://deb.debian.org/debian}

fail() {
	printf 'versions: error: %s\n' "$1" >&2
	printf 'versions: remedy: %s\n' "$2" >&2
	exit 1
}

[ "$(id -u)" = 0 ] || fail "making a root takes root" "sudo mariadb/versions.sh $*"
command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing" "scripts/setup.sh demo"
[ $# -gt 0 ] || set -- bookworm trixie

# Prints what the test of one version prints. Of the headers' package only they are taken:
# the rest of it is the server as a library, 600 MB.
try() {
	mmdebstrap --quiet --format=null --variant=apt \
		--include=gcc,libc6-dev,make,mariadb-client,mariadb-server-core,libmariadb-dev \
		--customize-hook="tar -C '$here/..' -cf - mariadb postgres/test \
			crates/hints/include | tar --no-same-owner -xf - -C \"\$1/srv\"" \
		--customize-hook='chroot "$1" sh -ec "cd /tmp
			apt-get download -q libmariadbd-dev
			dpkg-deb --fsys-tarfile libmariadbd-dev_*.deb |
				tar -xf - -C / ./usr/include/mariadb/server"' \
		--customize-hook='chroot "$1" /srv/mariadb/test.sh' \
		"$1" - "deb $mirror $1 main" 2>&1
}

ended=()
status=0
for suite; do
	echo "versions: MariaDB of $suite"
	verdict=passed
	try "$suite" || verdict=FAILED
	[ $verdict = passed ] || status=1
	ended+=("MariaDB of $suite: $verdict")
done
printf 'versions: %s\n' "${ended[@]}"
exit $status
