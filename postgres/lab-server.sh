#!/bin/sh
# Makes a server for the lab's guests: PostgreSQL, stock or with the lock-hint
# patch, the extensions giveway and giveway_test installed, and nothing that no
# guest needs.
#
#   postgres/lab-server.sh MAJOR stock|patched
#
# Prints where it is: a directory below the cache, named by a digest of what
# went into it and therefore never changed. The link lab-MAJOR-KIND beside it
# points at the latest one; that is where giveway looks. The tree runs wherever
# it is copied to; programs that use libpq want LD_LIBRARY_PATH=.../lib.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/giveway/postgres

fail() {
	printf 'lab-server: error: %s\n' "$1" >&2
	printf 'lab-server: remedy: %s\n' "$2" >&2
	exit 1
}

[ $# -eq 2 ] || fail "expected MAJOR and stock|patched" \
	"postgres/lab-server.sh 17 patched"
major=$1
kind=$2
prefix=$("$here/build-server.sh" "$major" "$kind")

# What goes in, beside the server: the extensions and the contract with UFS.
cd "$here/.."
digest=$({
	basename "$prefix"
	cat postgres/lab-server.sh
	find postgres/giveway postgres/giveway_test crates/hints/include -type f \
		\( -name '*.[ch]' -o -name '*.sql' -o -name '*.control' -o -name Makefile \) \
		! -path '*/sql/*' | LC_ALL=C sort | xargs cat
} | sha256sum | cut -c1-12)
name=lab-$major-$kind
server=$cache/$name-$digest

if [ ! -x "$server/bin/postgres" ]; then
	# Made beside and renamed, so that a half-made server is never used.
	part=$server.part
	rm -rf "$part"
	mkdir -p "$part/tree/crates/hints"
	cp -a "$prefix" "$part/server"
	cp -a postgres "$part/tree/"
	cp -a crates/hints/include "$part/tree/crates/hints/"
	for extension in giveway giveway_test; do
		# pg_config answers for the place where it lies.
		make -s -C "$part/tree/postgres/$extension" COPT=-Werror \
			PG_CONFIG="$part/server/bin/pg_config" clean all install >&2
	done
	# Where exactly these lie depends on the prefix.
	rm -rf "$part/server/include"
	find "$part/server/lib" "$part/server/share" \
		\( -name pgxs -o -name pkgconfig -o -name '*.a' -o -name doc -o -name man \) \
		-prune -exec rm -rf {} +
	find "$part/server/bin" "$part/server/lib" -type f \
		\( -perm -100 -o -name '*.so*' \) -exec strip {} +
	mv "$part/server" "$server"
	rm -rf "$part"
fi
ln -sfn "$(basename "$server")" "$cache/$name"
echo "$server"
