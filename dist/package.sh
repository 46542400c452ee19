#!/bin/sh
# Builds the Debian packages of what cargo has built: dist/package.sh [--node] BINARIES OUT
#
#   --node    the package 'giveway' only, which is all that a node needs
#   BINARIES  target/release or target/debug
#   OUT       made anew; afterwards giveway_VERSION_ARCHITECTURE.deb lies in it, and
#             those of giveway-bench and giveway-sql
#
# The source of the package is laid out in OUT/giveway as dist/debian expects it,
# so the tree itself stays as it is.
set -eu

fail() {
	printf 'package: error: %s\npackage: remedy: %s\n' "$1" "$2" >&2
	exit 1
}

programs="giveway scx_ufs libgiveway_cfl.so"
profiles=pkg.giveway.node
if [ "${1:-}" = --node ]; then
	shift
else
	programs="$programs giveway-bench giveway-sql"
	profiles=
fi
[ $# = 2 ] || fail "two arguments are expected" "dist/package.sh [--node] BINARIES OUT"
binaries=$(realpath "$1")
top=$(realpath "$(dirname "$0")/..")
out=$(realpath -m "$2")
source=$out/giveway

command -v dh >/dev/null || fail "debhelper is not installed" "make setup"
for file in $programs; do
	[ -f "$binaries/$file" ] || fail "$file is not in $1" "make build"
done

rm -rf "$out"
mkdir -p "$source/bin"
cd "$top"
cp README.md ARCHITECTURE.md "$source"
cp -r docs dist dist/debian "$source"
rm -r "$source/dist/debian"
for file in $programs; do
	cp "$binaries/$file" "$source/bin"
done
cargo xtask notices >"$source/third-party.txt"

cd "$source"
dpkg-buildpackage --build-profiles="$profiles" --build=binary --unsigned-source --unsigned-changes
ls "$out"/*.deb
