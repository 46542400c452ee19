# SPDX-License-Identifier: MIT OR Apache-2.0
# Throw-away clusters for tests, and what to ask them. Sourced by ../test.sh and
# guest.sh, which set: work (a directory), bin (the server's programs), hints
# (the directory of the table), table (the program of table.c), load_path
# (settings by which the server finds the extensions), patience (seconds to wait
# for what must come true); and define unprivileged COMMAND..., which runs it as
# a user that may run a server. Needs sessions.sh.
#
# A cluster is a directory $work/NAME: its data, its socket, its log.

# new_cluster NAME [SETTING...]: make one, not started yet. All of them are
# copies of the first.
new_cluster() {
	name=$1
	shift
	if [ ! -d "$work/template/data" ]; then
		unprivileged mkdir "$work/template"
		unprivileged "$bin/initdb" -D "$work/template/data" -A trust -N -U postgres \
			--locale=C.UTF-8 >"$work/initdb.log" 2>&1 ||
			die "initdb failed: $(cat "$work/initdb.log")"
	fi
	unprivileged cp -r "$work/template" "$work/$name"
	{
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$work/$name'"
		echo "fsync = off"
		echo "shared_buffers = 16MB"
		echo "max_connections = 40"
		echo "autovacuum = off"
		echo "shared_preload_libraries = 'giveway, giveway_test'"
		echo "giveway.hints_dir = '$hints'"
		printf '%s\n' "$load_path"
		for setting in "$@"; do echo "$setting"; done
	} >>"$work/$name/data/postgresql.conf"
}

start() {
	unprivileged "$bin/pg_ctl" -D "$work/$1/data" -l "$work/$1/log" -w -s start ||
		die "cluster $1 does not start: $(tail -5 "$work/$1/log")"
}

stop() {
	unprivileged "$bin/pg_ctl" -D "$work/$1/data" -w -s -m fast stop
}

reload() {
	unprivileged "$bin/pg_ctl" -D "$work/$1/data" -s reload
}

# configure NAME SETTING: add a line to its configuration.
configure() {
	echo "$2" >>"$work/$1/data/postgresql.conf"
}

# sql NAME STATEMENT [USER [DATABASE]]: the result, without decoration; what
# goes wrong is part of it.
sql() {
	"$bin/psql" -X -A -t -q -h "$work/$1" -U "${3:-postgres}" \
		-d "${4:-postgres}" -c "$2" 2>&1 || true
}

# What prints words, in psql.
echo='\echo'

session_client() {
	exec "$bin/psql" -X -A -t -q -h "$work/$1" -U "${2:-postgres}" -d "${3:-postgres}"
}

# open_session NAME [USER [DATABASE]]: a session that stays. Sets $session, for
# say() and the others, and $session_pid, its backend.
open_session() {
	connect "$@"
	say "$session" "SELECT pg_backend_pid()"
	session_pid=$said
}

# slot PID: what the table says of it: tier, weight, locks held, waits, reader.
slot() {
	"$table" show "$slots" "$1" | cut -d' ' -f2-6
}
