# SPDX-License-Identifier: MIT OR Apache-2.0
# Cases and sessions of tests in throw-away servers, PostgreSQL's here and MariaDB's in
# ../../mariadb. Who sources it sets work (a directory), table (the program of table.c),
# slots (the table), patience (seconds to wait for what must come true) and echo (the
# client's command that prints the words behind it); and defines session_client NAME
# [ARGUMENT...], which becomes a client of the server NAME.

# check WHAT EXPECTED ACTUAL
check() {
	[ "$2" = "$3" ] || problem="$problem  $1: expected \"$2\", got \"$3\"
"
}

# check_soon WHAT EXPECTED COMMAND: the command's output comes to be that.
check_soon() {
	wait_until "[ \"\$($3)\" = '$2' ]" || check "$1" "$2" "$(eval "$3")"
}

# run_cases CASE...: a line for each; returns whether all passed.
run_cases() {
	local passed=0 failed=0 skipped=0 case
	for case in "$@"; do
		problem=
		skip=
		"$case"
		if [ -n "$problem" ]; then
			failed=$((failed + 1))
			printf 'FAILED   %s\n%s\n' "$case" "$problem"
		elif [ -n "$skip" ]; then
			skipped=$((skipped + 1))
			printf 'SKIPPED  %s: %s\n' "$case" "$skip"
		else
			passed=$((passed + 1))
			printf 'passed   %s\n' "$case"
		fi
	done
	echo "test: $passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ]
}

# wait_until COMMAND: for as long as patience lasts. Returns whether it came true.
wait_until() {
	local end=$((SECONDS + patience))
	until eval "$1"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}

session_fd=()
session_pids=()

# forget_sessions: for a process that is about to become another program, and may
# outlive a session: as long as it could write there, a client would not see its
# input end.
forget_sessions() {
	local fd
	for fd in "${session_fd[@]}"; do exec {fd}>&-; done
}

# connect NAME [ARGUMENT...]: a session that stays. Sets $session, for say() and the
# others.
connect() {
	sessions=$((${sessions:-0} + 1))
	session=$sessions
	mkfifo "$work/in$session"
	(
		forget_sessions
		session_client "$@"
	) <"$work/in$session" >>"$work/out$session" 2>&1 &
	session_pids[session]=$!
	# The only writer: the client ends when it is closed.
	exec {session_fd[session]}>"$work/in$session"
}

# begin SESSION STATEMENT: without waiting for its end. The client says by itself when it
# is there: it sends no further command.
begin() {
	# The session may be gone; its last words are what await finds.
	printf '%s;\n%s end of statement\n' "$2" "$echo" >&"${session_fd[$1]}" 2>/dev/null || true
}

# await SESSION: until what was begun has ended; its result is in $said.
await() {
	wait_until "tail -n 1 '$work/out$1' | grep -qx 'end of statement' ||
		! kill -0 ${session_pids[$1]} 2>/dev/null" || true
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
	wait "${session_pids[$1]}" 2>/dev/null || true
}

# tier ID: tier and weight in the slot of a process or thread; nothing if it has none.
tier() {
	"$table" show "$slots" "$1" | cut -d' ' -f2,3
}
