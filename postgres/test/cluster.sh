# SPDX-License-Identifier: MIT OR Apache-2.0
# Throw-away clusters for tests, and what to ask them. Sourced by ../test.sh and
# guest.sh, which set: work (a directory), bin (the server's programs), hints
# (the directory of the table), table (the program of table.c), load_path
# (settings by which the server finds the extensions), patience (seconds to wait
# for what must come true); and define unprivileged COMMAND..., which runs it as
# a user that may run a server.
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

session_fd=()
session_client=()

# forget_sessions: for a process that is about to become another program, and
# may outlive a session: as long as it could write there, psql would not see its
# input end.
forget_sessions() {
	local fd
	for fd in "${session_fd[@]}"; do exec {fd}>&-; done
}

# open_session NAME [USER [DATABASE]]: a session that stays. Sets $session, for
# say() and the others, and $session_pid, its backend.
open_session() {
	local out
	sessions=$((${sessions:-0} + 1))
	session=$sessions
	out=$work/out$session
	mkfifo "$work/in$session"
	(
		forget_sessions
		exec "$bin/psql" -X -A -t -q -h "$work/$1" -U "${2:-postgres}" \
			-d "${3:-postgres}" <"$work/in$session" >>"$out" 2>&1
	) &
	session_client[session]=$!
	# The only writer: psql ends when it is closed.
	exec {session_fd[session]}>"$work/in$session"
	say "$session" "SELECT pg_backend_pid()"
	session_pid=$said
}

# begin SESSION STATEMENT: without waiting for its end.
begin() {
	# The session may be gone; its last words are what await finds.
	printf '%s;\n\\echo end of statement\n' "$2" >&"${session_fd[$1]}" 2>/dev/null || true
}

# await SESSION: until what was begun has ended; its result is in $said.
await() {
	wait_until "tail -n 1 '$work/out$1' | grep -qx 'end of statement' ||
		! kill -0 ${session_client[$1]} 2>/dev/null" || true
	said=$(grep -vx 'end of statement' "$work/out$1" || true)
	: >"$work/out$1"
}

# say SESSION STATEMENT: both.
say() {
	: >"$work/out$1"
	begin "$1" "$2"
	await "$1"
}

close_session() {
	exec {session_fd[$1]}>&-
	unset "session_fd[$1]"
	wait "${session_client[$1]}" 2>/dev/null || true
}

# wait_until COMMAND: for as long as patience lasts. Returns whether it came true.
wait_until() {
	local end=$((SECONDS + patience))
	until eval "$1"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}

# slot PID: what the table says of it: tier, weight, locks held, waits, reader.
slot() {
	"$table" show "$slots" "$1" | cut -d' ' -f2-6
}

# tier PID: tier and weight only.
tier() {
	slot "$1" | cut -d' ' -f1-2
}
