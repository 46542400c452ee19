#!/bin/sh
# Installs what Giveway takes on Debian 12 and 13: scripts/setup.sh [SET]
#
#   build   to compile the programs
#   package that, and what Debian packages of it are made with
#   demo    as build, and what the lab is made with
#   test    that, and what tests, packages and the linter take (without SET: this)
#   mariadb as demo, and what the MariaDB plugin is compiled and tested with: 600 MB
#
# Does nothing, quickly and without the network, when everything is there.
# Needs root, or sudo, only when something is missing.
set -eu

# Rust of at least the version that Cargo.toml names as rust-version.
rust_minor_min=95

# Compilers: of C for Rust's linker, of BPF; libraries of the scheduler's loader.
for_build="build-essential ca-certificates clang-19 git libelf-dev make pkg-config zlib1g-dev"
# Debian packages.
for_package="debhelper dh-dkms"
# The lab's image and kernel, and its emulator, which is built from source.
for_demo="
debian-archive-keyring dpkg-dev e2fsprogs mmdebstrap procps xz-utils zstd
bison flex libfdt-dev libglib2.0-dev libpixman-1-dev ninja-build patch python3-venv
"
# Packages of ours and their checks; kernels from source; programs that tests run.
for_test="
$for_package
fish gdb lintian man-db systemd zsh
bc pahole
mariadb-client mariadb-server-core memcached pgbouncer postgresql
postgresql-server-dev-all rocksdb-tools sqlite3
"
# Headers of the server, in a package that also has the server as a library.
for_mariadb="libmariadb-dev libmariadbd-dev mariadb-client mariadb-server-core"

say() { printf 'setup: %s\n' "$*"; }
fail() {
	printf 'setup: error: %s\n' "$1" >&2
	printf 'setup: remedy: %s\n' "$2" >&2
	exit 1
}

set=${1:-test}
case $set in
build) packages=$for_build ;;
package) packages="$for_build $for_package" ;;
demo) packages="$for_build $for_demo" ;;
test) packages="$for_build $for_demo $for_test" ;;
mariadb) packages="$for_build $for_demo $for_mariadb" ;;
*) fail "there is no set '$set'" "write build, package, demo, test or mariadb" ;;
esac

rust_is_recent() {
	command -v cargo >/dev/null 2>&1 && command -v rustc >/dev/null 2>&1 || return 1
	minor=$(rustc --version | sed -n 's/^rustc 1\.\([0-9]*\)\..*/\1/p')
	[ -n "$minor" ] && [ "$minor" -ge "$rust_minor_min" ]
}

rust_has_linter() {
	cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1
}

installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

install() {
	command -v apt-get >/dev/null 2>&1 ||
		fail "this set-up knows Debian only, and here is no apt-get" \
			"install the counterparts of these packages, then run cargo instead of make: $*"
	if [ "$(id -u)" = 0 ]; then
		root=
	elif command -v sudo >/dev/null 2>&1; then
		root=sudo
	else
		fail "packages are missing and this is neither root nor a user of sudo" \
			"as root: apt-get install $*"
	fi

	say "installing: $*"
	export DEBIAN_FRONTEND=noninteractive
	$root apt-get update -q
	# $root is not quoted, so that it vanishes when it is empty.
	$root apt-get install -q -y --no-install-recommends "$@"
}

if ! rust_is_recent; then
	packages="$packages cargo-web rustc-web"
	[ "$set" != test ] || packages="$packages rustfmt-web rust-web-clippy"
elif [ "$set" = test ] && ! rust_has_linter; then
	if rustup which cargo >/dev/null 2>&1; then
		say "adding clippy and rustfmt to rustup's toolchain"
		rustup component add clippy rustfmt
	elif installed rustc-web; then
		packages="$packages rustfmt-web rust-web-clippy"
	fi
fi

missing=
for package in $packages; do
	installed "$package" || missing="$missing $package"
done
if [ -n "$missing" ]; then
	# Not quoted: one word per package.
	install $missing
	say "done"
fi

rust_is_recent ||
	fail "Rust 1.$rust_minor_min or newer is needed, and $(rustc --version 2>/dev/null || echo none) is first in PATH" \
		"rustup update, or put /usr/bin first in PATH"
[ "$set" != test ] || rust_has_linter ||
	fail "the Rust that is first in PATH, $(command -v cargo), has no clippy or no rustfmt" \
		"install cargo-clippy and cargo-fmt of $(rustc --version) from where it came"
