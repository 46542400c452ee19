#!/bin/sh
# Builds a PostgreSQL server from Debian's source package, stock or with the
# lock-hint patch, into a prefix of its own; or PostgreSQL's own test suites, to
# be run on either of them.
#
#   postgres/build-server.sh MAJOR patched|stock|suites [PREFIX]
#
# MAJOR is 15, 17 or 18. PREFIX is a directory below the cache by default, and
# is the last line printed. A finished prefix is used again; it is renamed into
# place when it is whole, so an interrupted build leaves nothing behind but a
# directory ending in ".part".
#
# What is built is upstream's tarball out of the source package, without the
# distribution's own patches, which are about its directories. Signatures and
# checksums are apt's, in private directories, so no root is needed. The server
# is meant for the lab: without ICU, TLS, JIT and readline.
#
# GIVEWAY_POSTGRES_TARBALL names a tarball of upstream's to build instead, for when
# the mirror has none.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/giveway/postgres

fail() {
	printf 'build-server: error: %s\n' "$1" >&2
	printf 'build-server: remedy: %s\n' "$2" >&2
	exit 1
}

[ $# -ge 2 ] || fail "expected MAJOR and patched|stock|suites" \
	"postgres/build-server.sh 18 patched"
major=$1
kind=$2
case $major in
15) suite=bookworm ;;
17) suite=trixie ;;
18) suite=sid ;;
*) fail "no source is known for PostgreSQL $major" "15, 17 or 18" ;;
esac
case $kind in
patched | stock) proof=bin/postgres ;;
suites) proof=bin/pg_regress ;;
*) fail "the kind of server is $kind" "patched, stock or suites" ;;
esac

# A prefix is named after what went into it.
tarball=${GIVEWAY_POSTGRES_TARBALL:-}
[ -z "$tarball" ] || [ -r "$tarball" ] || fail "cannot read the tarball $tarball" \
	"set GIVEWAY_POSTGRES_TARBALL to a file, or unset it"
digest=$(cat "$0" "$here/patches/lockhint.patch" ${tarball:+"$tarball"} |
	sha256sum | cut -c1-12)
prefix=${3:-$cache/$major-$kind-$digest}
if [ -x "$prefix/$proof" ]; then
	echo "$prefix"
	exit 0
fi

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || fail "$keyring is missing" \
	"apt-get install debian-archive-keyring"
for program in apt-get bison flex gcc make patch perl; do
	command -v "$program" >/dev/null ||
		fail "$program is missing" "scripts/setup.sh"
done

# The mirror that this machine uses already, as in the lab.
mirror=${GIVEWAY_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' \
	"Created-By: Packages" | grep -m 1 '/debian/*$')} ||
	fail "apt knows no Debian mirror" "set GIVEWAY_DEBIAN_MIRROR to one's address"

apt=$cache/apt-$suite
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/sources"
cat >"$apt/sources/debian.sources" <<END
Types: deb-src
URIs: $mirror
Suites: $suite
Components: main
Signed-By: $keyring
END
apt_get() {
	apt-get -q -o Dir::Etc::sourcelist=/dev/null \
		-o "Dir::Etc::sourceparts=$apt/sources" \
		-o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache" \
		-o Acquire::Languages=none -o "APT::Sandbox::User=$(id -un)" "$@" >&2
}

# PostgreSQL generates its headers at the outermost make only, which `make servers`
# would otherwise be.
unset MAKELEVEL MAKEFLAGS

part=$prefix.part
rm -rf "$part"
mkdir -p "$part/source"
if [ -z "$tarball" ]; then
	apt_get update
	(cd "$part" && apt_get source --download-only "postgresql-$major/$suite") ||
		fail "$mirror has no source of PostgreSQL $major" \
			"set GIVEWAY_POSTGRES_TARBALL to postgresql-$major.N.tar.bz2, from postgresql.org"
	tarball=$(echo "$part"/postgresql-"$major"_*.orig.tar.*)
fi
tar -xf "$tarball" -C "$part/source" --strip-components=1

cd "$part/source"
grep -q "^PACKAGE_VERSION='$major" configure ||
	fail "$tarball is not PostgreSQL $major" "write the major version of the tarball"
[ "$kind" != patched ] || patch -p1 --fuzz=0 <"$here/patches/lockhint.patch" >&2
# The prefix is compiled in; DESTDIR lets it be filled before it has its name.
./configure --quiet --prefix="$prefix" --without-icu --without-readline \
	CFLAGS="-O2 -g1" >&2
if [ "$kind" = suites ]; then
	for suite in regress isolation; do
		make -s -j"${GIVEWAY_JOBS:-1}" -C "src/test/$suite" all >&2
	done
	root=$part/root$prefix
	mkdir -p "$root/bin" "$root/lib" "$root/regress" "$root/isolation"
	cd src/test
	cp regress/pg_regress isolation/pg_isolation_regress \
		isolation/isolationtester "$root/bin/"
	cp regress/*.so "$root/lib/"
	(cd regress && cp -r sql expected data parallel_schedule resultmap "$root/regress/")
	(cd isolation && cp -r specs expected isolation_schedule "$root/isolation/")
else
	make -s -j"${GIVEWAY_JOBS:-1}" >&2
	make -s install DESTDIR="$part/root" >&2
	# What measurements read their data into memory with.
	make -s -C contrib/pg_prewarm install DESTDIR="$part/root" >&2
fi
mkdir -p "$(dirname "$prefix")"
mv "$part/root$prefix" "$prefix"
rm -rf "$part"
echo "$prefix"
