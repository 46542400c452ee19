# SPDX-License-Identifier: MIT OR Apache-2.0
# What guest.sh and installcheck.sh share: where things are in the guest, who
# may run a server, and UFS, loaded and unloaded. Sourced as root; gives the
# table to the group postgres, as docs/operate/postgres.md tells administrators to.

die() {
	printf 'test: error: %s\n' "$1" >&2
	exit 1
}

work=/tmp/test
bin=/lab/server/bin
table=/lab/table
hints=/run/giveway/bpf
# The table of the user who runs the servers.
slots=$hints/$(id -u postgres)/giveway_slots
load_path=
patience=30
major=$("$bin/postgres" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
export LD_LIBRARY_PATH=/lab/server/lib
chmod 755 /lab
install -d -o postgres "$work"
# A session that has ended is for the cases to notice.
trap '' PIPE

unprivileged() {
	setpriv --reuid postgres --regid postgres --init-groups "$@"
}

ufs_pid=
ufs_slots=

# load_ufs SLOTS [OPTION...]: with a table of this size, the same one if it is
# there.
load_ufs() {
	# Loading takes the guest's verifier several seconds.
	local patience=120
	ufs_slots=$1
	shift
	(
		forget_sessions
		exec /lab/scx_ufs --hint-group postgres --hint-slots "$ufs_slots" "$@"
	) >>"$work/ufs.log" 2>&1 &
	ufs_pid=$!
	wait_until "grep -qx enabled /sys/kernel/sched_ext/state || ! kill -0 $ufs_pid" || true
	grep -qx enabled /sys/kernel/sched_ext/state ||
		die "UFS is not loaded: $(cat "$work/ufs.log")"
}

# unload_ufs [SIGNAL]
unload_ufs() {
	local patience=120
	[ -n "$ufs_pid" ] || return 0
	kill "-${1:-TERM}" "$ufs_pid"
	wait "$ufs_pid" 2>/dev/null || true
	ufs_pid=
	wait_until "grep -qx disabled /sys/kernel/sched_ext/state" ||
		die "UFS does not leave: $(cat "$work/ufs.log")"
}

. "$here/sessions.sh"
. "$here/cluster.sh"
