#!/bin/sh
# Builds the Debian package of what cargo has built: dist/package.sh BINARIES OUT
#
#   BINARIES  target/release or target/debug
#   OUT       made anew; afterwards giveway_VERSION_ARCHITECTURE.deb lies in it
#
# The source of the package is laid out in OUT/giveway as dist/debian expects it,
# so the tree itself stays as it is.
set -eu

fail() {
	printf 'package: error: %s\npackage: remedy: %s\n' "$1" "$2" >&2
	exit 1
}

[ $# = 2 ] || fail "two arguments are expected" "dist/package.sh BINARIES OUT"
binaries=$(realpath "$1")
top=$(realpath "$(dirname "$0")/..")
out=$(realpath -m "$2")
source=$out/giveway

command -v dh >/dev/null || fail "debhelper is not installed" "make setup"
for file in giveway scx_ufs libgiveway_cfl.so; do
	[ -f "$binaries/$file" ] || fail "$file is not in $1" "make build"
done

rm -rf "$out"
mkdir -p "$source/bin"
cd "$top"
cp README.md ARCHITECTURE.md "$source"
cp -r docs dist dist/debian "$source"
rm -r "$source/dist/debian"
for file in giveway scx_ufs libgiveway_cfl.so; do
	cp "$binaries/$file" "$source/bin"
done
cargo xtask notices >"$source/third-party.txt"

cd "$source"
dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes
ls "$out"/*.deb
