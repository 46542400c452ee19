#!/bin/sh
# Builds the Debian packages of what cargo has built, and of the module for user
# interrupts:
#
#   dist/package.sh [--node] BINARIES OUT
#   dist/package.sh --module OUT
#
#   --node    the package 'giveway' only, which is all that a node needs
#   --module  the package 'giveway-uintr-dkms' only, for which cargo builds nothing
#   BINARIES  target/release or target/debug
#   OUT       made anew; afterwards giveway_VERSION_ARCHITECTURE.deb lies in it, and
#             those of giveway-bench, giveway-sql and giveway-uintr-dkms
#
# The source of the package is laid out in a temporary directory as dist/debian expects
# it, so the tree itself stays as it is. It is not laid out in OUT, whose path may have
# blanks: dh_installdocs fails below such a path.
#
# The same programs, pages and module give the same bytes, wherever, whenever and by
# whomever they are packed: dpkg-buildpackage takes the time of all files from the
# changelog, and debhelper their modes and order.
set -eu

fail() {
	printf 'package: error: %s\npackage: remedy: %s\n' "$1" "$2" >&2
	exit 1
}

programs="giveway scx_ufs libgiveway_cfl.so"
module=yes
profiles=
case ${1:-} in
--node)
	shift
	module=
	profiles=pkg.giveway.node
	;;
--module)
	shift
	programs=
	profiles=pkg.giveway.module
	set -- . "$@"
	;;
*) programs="$programs giveway-bench giveway-sql" ;;
esac
[ $# = 2 ] ||
	fail "arguments are missing" "dist/package.sh [--node] BINARIES OUT, or --module OUT"
binaries=$(realpath "$1")
top=$(realpath "$(dirname "$0")/..")
out=$(realpath -m "$2")

command -v dh >/dev/null || fail "debhelper is not installed" "scripts/setup.sh package"
[ -z "$module" ] || command -v dh_dkms >/dev/null ||
	fail "dh-dkms is not installed" "scripts/setup.sh package"
for file in $programs; do
	[ -f "$binaries/$file" ] || fail "$file is not in $1" "make build"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
case $work in
*[[:space:]]*) fail "debhelper cannot work in $work" "set TMPDIR to a path without blanks" ;;
esac
source=$work/giveway
rm -rf "$out"
mkdir -p "$out" "$source/bin"
cd "$top"
cp README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md SECURITY.md "$source"
cp -r docs dist dist/debian "$source"
rm -r "$source/dist/debian"
for file in $programs; do
	cp "$binaries/$file" "$source/bin"
done
if [ -n "$module" ]; then
	mkdir "$source/module"
	# Tests are no part of it.
	find kernel/uintr -maxdepth 1 -type f -exec cp -t "$source/module" {} +
fi
# The runner of all tests says where its program is: cargo would wait for the compilers
# beside it.
notices() {
	if [ -n "${GIVEWAY_XTASK:-}" ]; then "$GIVEWAY_XTASK" notices; else cargo xtask notices; fi
}
[ -z "$programs" ] || notices >"$source/third-party.txt"

cd "$source"
dpkg-buildpackage --build-profiles="$profiles" --build=binary --unsigned-source --unsigned-changes
find "$work" -maxdepth 1 -type f -exec mv -t "$out" {} +
ls "$out"/*.deb
