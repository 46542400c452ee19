# SPDX-License-Identifier: GPL-2.0-only
# Throw-away servers for tests, and what to ask them. Sourced by ../test.sh, which sets
# work (a directory), hints (the directory of the table), slots (the table), table (the
# program of table.c), patience (seconds to wait for what must come true). Needs
# postgres/test/sessions.sh.
#
# A server is a directory $work/NAME: its data, its socket, its log, its pid.

# start NAME [OPTION...]: all are copies of the first, with these accounts, none of which
# has a password: root, app, report, backup, and "admin" with SUPER.
start() {
	local name=$1
	shift
	if [ ! -d "$work/template" ]; then
		mariadb-install-db --no-defaults --datadir="$work/template/data" --skip-test-db \
			--auth-root-authentication-method=normal >"$work/install.log" 2>&1 ||
			die "no data directory: $(tail -5 "$work/install.log")"
		run_server template --plugin-load-add=giveway
		sql template "CREATE DATABASE shop; CREATE TABLE shop.t (id INT) ENGINE=InnoDB;
			INSERT INTO shop.t VALUES (1);
			CREATE USER app, report, backup, admin; GRANT SUPER ON *.* TO admin;
			GRANT ALL ON shop.* TO app, report, backup, admin; DROP USER IF EXISTS ''@localhost;
			CREATE PROCEDURE shop.rise() SQL SECURITY DEFINER
				SET SESSION giveway_tier = 'time_sensitive';
			CREATE PROCEDURE shop.rise_as_caller() SQL SECURITY INVOKER
				SET SESSION giveway_tier = 'time_sensitive'"
		stop template
		rm "$work/template/log.err"
	fi
	[ -d "$work/$name" ] || cp -r "$work/template" "$work/$name"
	run_server "$name" --plugin-load-add=giveway --loose-giveway-hints-dir="$hints" "$@"
}

# run_server NAME [OPTION...]: without the plugin, unless they say so.
run_server() {
	local name=$1
	shift
	mariadbd --no-defaults --datadir="$work/$name/data" --socket="$work/$name/socket" \
		--pid-file="$work/$name/pid" --log-error="$work/$name/log.err" --skip-networking \
		--plugin-dir="$work/plugins" --innodb-buffer-pool-size=16M --innodb-flush-method=fsync \
		--innodb-flush-log-at-trx-commit=0 --lc-messages-dir=/usr/share/mysql "$@" \
		>>"$work/$name/log.err" 2>&1 &
	wait_until "[ -S '$work/$name/socket' ] && [ \"\$(sql $name 'SELECT 1')\" = 1 ]" ||
		die "server $name does not start: $(tail -5 "$work/$name/log.err")"
}

stop() {
	local pid
	pid=$(cat "$work/$1/pid")
	kill "$pid"
	wait_until "! kill -0 $pid 2>/dev/null" || check "$1 stops" yes no
}

# sql NAME STATEMENT [USER]: the result, without decoration; what goes wrong is part of it.
sql() {
	mariadb --no-defaults -N -B --force -S "$work/$1/socket" -u "${3:-root}" -e "$2" 2>&1 || true
}

# status NAME VARIABLE: what SHOW STATUS says.
status() {
	sql "$1" "SHOW STATUS LIKE '$2'" | cut -f2
}

# What prints words, in the client.
echo='\! echo'

session_client() {
	exec mariadb --no-defaults -N -B -n --force -S "$work/$1/socket" -u "${2:-root}"
}

# open_session NAME [USER]: a session that stays. Sets $session, for say() and the others,
# and $session_tid, the thread that has run its first command.
open_session() {
	connect "$@"
	session_tid=$(thread "$session")
}

# thread SESSION: the thread that runs this very command of it.
thread() {
	say "$1" "SELECT tid FROM information_schema.processlist WHERE id = CONNECTION_ID()"
	echo "$said"
}

# used: how many slots are.
used() {
	"$table" show "$slots" | wc -l
}
