# SPDX-License-Identifier: GPL-2.0-only
# The cases of ../test.sh. Each is a function that starts its own server and complains
# through check().

all_cases="
case_session
case_users
case_global_default
case_ceiling
case_ceiling_is_passed
case_switched_off
case_pool
case_pool_prepared
case_pool_packet
case_without_a_table
case_daemon_asked
case_daemon_is_deaf
case_slots_exhausted
case_slot_taken
case_table_replaced
case_scribbled_over
case_uninstalled
case_churn
"

# A new table, and a server with it.
serve() {
	"$table" create "$slots" 64
	start "$@"
}

# A session that says nothing takes no slot; SET is in the slot at once, and stays.
case_session() {
	serve main
	check "status" on "$(status main giveway_status)"
	open_session main app
	check "without a setting" "" "$(tier "$session_tid")"
	say "$session" "SET SESSION giveway_tier = 'background'"
	check "SET" "background 100" "$(tier "$session_tid")"
	say "$session" "SELECT 1"
	check "after another command" "background 100" "$(tier "$session_tid")"
	say "$session" "SET giveway_weight = 300"
	check "weight" "background 300" "$(tier "$session_tid")"
	begin "$session" "SET STATEMENT giveway_tier = 'time_sensitive' FOR SELECT SLEEP(2)"
	check_soon "SET STATEMENT" "time_sensitive 300" "tier $session_tid"
	await "$session"
	check "after it" "background 300" "$(tier "$session_tid")"
	say "$session" "SET giveway_tier = DEFAULT, giveway_weight = DEFAULT"
	check "DEFAULT" "cgroup 100" "$(tier "$session_tid")"
	say "$session" "SET giveway_tier = 'urgent'"
	check "no such tier" 1 "$(grep -c "can't be set to the value of 'urgent'" <<<"$said")"
	say "$session" "SET giveway_tier = 'background'"
	check "slots" 1 "$(status main giveway_slots)"
	close_session "$session"
	# The server keeps the thread for another session.
	check_soon "after the session" "" "tier $session_tid"
	open_session main app
	check "another session" "" "$(tier "$session_tid")"
	close_session "$session"
	stop main
}

case_users() {
	serve users --giveway-background-users=" backup,report , " --giveway-time-sensitive-users=app
	open_session users report
	check "background user" "background 100" "$(tier "$session_tid")"
	say "$session" "SELECT @@giveway_tier"
	check "its variable" background "$said"
	say "$session" "\\x"
	say "$session" "SELECT 1"
	check "after a reset" "background 100" "$(tier "$session_tid")"
	close_session "$session"
	open_session users app
	check "time-sensitive user" "time_sensitive 100" "$(tier "$session_tid")"
	close_session "$session"
	sql users "SET GLOBAL giveway_background_users = 'app,app2'"
	open_session users report
	check "no longer named" "" "$(tier "$session_tid")"
	close_session "$session"
	# Of both lists, one says how it begins and the other how far it may rise.
	open_session users app
	check "in both lists" "background 100" "$(tier "$session_tid")"
	close_session "$session"
	sql users "SET GLOBAL giveway_background_users = NULL"
	check "emptied" "" "$(sql users 'SELECT @@giveway_background_users')"
	# The account counts, not the name that an anonymous client gives.
	sql users "CREATE USER ''@localhost; SET GLOBAL giveway_time_sensitive_users = 'boss'"
	check "anonymous" cgroup \
		"$(sql users "SHOW STATUS LIKE 'giveway_session_tier'" boss | cut -f2)"
	sql users "DROP USER ''@localhost"
	sql users "SET GLOBAL giveway_background_users = 'report'"
	check "another user of the connection" "cgroup background background" \
		"$("$client" "$work/users/socket" app change report | xargs)"
	stop users
}

case_global_default() {
	serve global
	open_session global app
	before=$session
	before_tid=$session_tid
	sql global "SET GLOBAL giveway_tier = 'background', GLOBAL giveway_time_sensitive_users = 'report'"
	open_session global app
	check "a later session" "background 100" "$(tier "$session_tid")"
	close_session "$session"
	say "$before" "SELECT 1"
	check "an earlier one" "" "$(tier "$before_tid")"
	close_session "$before"
	open_session global report
	check "named" "time_sensitive 100" "$(tier "$session_tid")"
	close_session "$session"
	stop global
}

# An ordinary user does not get above the ceiling, whatever it says.
case_ceiling() {
	serve ceiling --giveway-max-tier=background --giveway-max-weight=200
	open_session ceiling app
	check "nothing said" "background 100" "$(tier "$session_tid")"
	held() {
		say "$session" "$2"
		check "$1" "background ${3:-100}" "$(tier "$session_tid")"
	}
	held "SET" "SET giveway_tier = 'time_sensitive'"
	held "SET SESSION" "SET SESSION giveway_tier = 'time_sensitive'"
	held "SET @@" "SET @@session.giveway_tier = 2"
	held "SET DEFAULT" "SET giveway_tier = DEFAULT"
	held "prepared" "PREPARE s FROM 'SET giveway_tier = ''time_sensitive'''; EXECUTE s"
	local procedure
	for procedure in rise rise_as_caller; do
		say "$session" "SET giveway_tier = 'background'"
		held "procedure $procedure" "CALL shop.$procedure()"
		say "$session" "SELECT @@giveway_tier"
		check "$procedure runs" time_sensitive "$said"
	done
	held "after a reset" "\\x
		SET giveway_tier = 'time_sensitive'"
	held "weight" "SET giveway_weight = 10000" 200
	say "$session" "SET giveway_weight = DEFAULT"
	begin "$session" "SET STATEMENT giveway_tier = 'time_sensitive' FOR SELECT SLEEP(1)"
	wait_until "sql ceiling 'SHOW PROCESSLIST' | grep -q SLEEP"
	check "SET STATEMENT" "background 100" "$(tier "$session_tid")"
	await "$session"
	say "$session" "SHOW STATUS LIKE 'giveway_session_tier'"
	check "what it is told" "Giveway_session_tier background" "$(tr '\t' ' ' <<<"$said")"
	local variable
	for variable in max_tier tier; do
		say "$session" "SET GLOBAL giveway_$variable = 'time_sensitive'"
		check "SET GLOBAL $variable" 1 "$(grep -c 'ERROR 1227' <<<"$said")"
	done
	for variable in background_users time_sensitive_users; do
		say "$session" "SET GLOBAL giveway_$variable = 'app'"
		check "SET GLOBAL $variable" 1 "$(grep -c 'ERROR 1227' <<<"$said")"
	done
	say "$session" "SET SESSION giveway_max_tier = 'time_sensitive'"
	check "SET SESSION max_tier" 1 "$(grep -c 'ERROR 1229' <<<"$said")"
	for variable in unlimited begun tier_set; do
		say "$session" "SET giveway_$variable = 1"
		check "hidden $variable" 1 "$(grep -c 'ERROR 1193' <<<"$said")"
	done
	held "in the end" "SET giveway_tier = 'time_sensitive'"
	sql ceiling "SET GLOBAL giveway_max_tier = 'time_sensitive'"
	say "$session" "SELECT 1"
	check "the ceiling is raised" "time_sensitive 100" "$(tier "$session_tid")"
	close_session "$session"
	stop ceiling
}

# Who may.
case_ceiling_is_passed() {
	serve passed --giveway-max-tier=background --giveway-max-weight=200 \
		--giveway-time-sensitive-users=report
	local user
	for user in root admin report; do
		open_session passed "$user"
		say "$session" "SET giveway_tier = 'time_sensitive', giveway_weight = 1000"
		check "$user" "time_sensitive 1000" "$(tier "$session_tid")"
		close_session "$session"
	done
	stop passed
}

case_switched_off() {
	serve off --giveway-background-users=report
	open_session off report
	sql off "SET GLOBAL giveway_enabled = OFF"
	say "$session" "SELECT 1"
	check "off" "cgroup 100" "$(tier "$session_tid")"
	check "status" "giveway_enabled is OFF" "$(status off giveway_status)"
	sql off "SET GLOBAL giveway_enabled = ON"
	say "$session" "SELECT 1"
	check "on" "background 100" "$(tier "$session_tid")"
	close_session "$session"
	stop off
}

# What slots say beside the cgroup's tier. A pool's threads are not in the processlist.
said_in_slots() {
	"$table" show "$slots" | cut -d' ' -f2 | grep -v cgroup | sort | xargs
}

# Whichever thread runs the command has the session's tier, until it ends.
case_pool() {
	serve pool --thread-handling=pool-of-threads --thread-pool-size=1
	open_session pool app
	local low=$session
	say "$low" "SET giveway_tier = 'background'"
	check "between commands" "" "$(said_in_slots)"
	open_session pool app
	local high=$session
	say "$high" "SET giveway_tier = 'time_sensitive'"
	begin "$low" "SELECT SLEEP(1.5)"
	begin "$high" "SELECT SLEEP(1.5)"
	check_soon "both run" "background time_sensitive" said_in_slots
	await "$low"
	await "$high"
	check_soon "after both" "" said_in_slots
	# By turns: a thread's tier is that of whose turn it is.
	local turn
	for turn in 1 2 3; do
		begin "$low" "SELECT SLEEP(0.5)"
		sleep 0.2
		check "turn $turn, background" background "$(said_in_slots)"
		await "$low"
		begin "$high" "SELECT SLEEP(0.5)"
		sleep 0.2
		check "turn $turn, time-sensitive" time_sensitive "$(said_in_slots)"
		await "$high"
	done
	close_session "$low"
	close_session "$high"
	check_soon "without sessions" "" said_in_slots
	stop pool
}

# The server announces a prepared statement as it does others.
case_pool_prepared() {
	serve prepared --thread-handling=pool-of-threads --thread-pool-size=1 \
		--giveway-background-users=backup
	"$client" "$work/prepared/socket" backup prepared "SELECT SLEEP(1.5)" &
	local pid=$!
	sleep 0.8
	check "while it runs" background "$(said_in_slots)"
	wait "$pid" || check "client" 0 "$?"
	check_soon "after" "" said_in_slots
	stop prepared
}

# Of a packet with two statements, the second announces itself by the table that it locks.
case_pool_packet() {
	serve packet --thread-handling=pool-of-threads --thread-pool-size=1 \
		--giveway-background-users=backup
	sql packet "delimiter //
		SELECT 1; SELECT SLEEP(1.5) FROM shop.t//" backup >/dev/null &
	local pid=$!
	sleep 0.8
	check "the second" background "$(said_in_slots)"
	wait "$pid"
	check_soon "after" "" said_in_slots
	stop packet
}

# Nothing fails, and the status says why; a table that appears later is found.
case_without_a_table() {
	rm -rf "$work/nowhere"
	start bare --giveway-hints-dir="$work/nowhere/bpf"
	check "status" 1 "$(status bare giveway_status | grep -c 'giveway start')"
	check "lines in the log" 1 "$(grep -c 'settings have no effect yet' "$work/bare/log.err")"
	open_session bare app
	say "$session" "SET giveway_tier = 'background'"
	say "$session" "SELECT 'well'"
	check "a session" well "$said"
	mkdir -p "$work/nowhere/bpf"
	"$table" create "$work/nowhere/bpf/giveway_slots" 16
	# Who asks need not wait for a session to find it.
	check_soon "status then" on "status bare giveway_status"
	check_soon "a slot, some time after" "background 100" \
		"say $session 'SELECT 1'; slots=$work/nowhere/bpf/giveway_slots tier $session_tid"
	check "lines that say so" 1 "$(grep -c 'tiers are told to UFS' "$work/bare/log.err")"
	close_session "$session"
	stop bare
}

# behind_a_daemon HOW: the table is where only the daemon may go.
behind_a_daemon() {
	rm -rf "$work/closed"
	mkdir -p "$work/closed/bpf"
	"$table" create "$work/closed/table" 16
	chmod 0 "$work/closed/bpf"
	"$table" listen "$work/closed/hints.sock" "$1" "$work/closed/table" &
	helpers="$helpers $!"
	wait_until "[ -S '$work/closed/hints.sock' ]"
}

case_daemon_asked() {
	behind_a_daemon answer
	start asked --giveway-hints-dir="$work/closed/bpf"
	open_session asked app
	say "$session" "SET giveway_tier = 'background'"
	check_soon "its table" "background 100" \
		"say $session 'SELECT 1'; slots=$work/closed/table tier $session_tid"
	close_session "$session"
	stop asked
}

# Sessions do not wait for it.
case_daemon_is_deaf() {
	local how began took
	for how in deaf full slow close; do
		behind_a_daemon "$how"
		start "$how" --giveway-hints-dir="$work/closed/bpf" --giveway-background-users=app
		began=$(date +%s%N)
		check "$how: a session" 1 "$(sql "$how" "SET giveway_weight = 5; SELECT 1" app)"
		took=$((($(date +%s%N) - began) / 1000000))
		[ "$took" -lt 1000 ] || check "$how: ms to connect and ask" "less than 1000" "$took"
		check "$how: status" 1 "$(status "$how" giveway_status |
			grep -c 'has not answered\|has no table\|another version')"
		stop "$how"
	done
}

case_slots_exhausted() {
	serve full --giveway-background-users=app
	"$table" fill "$slots" 1
	open_session full app
	check "the last slot" "background 100" "$(tier "$session_tid")"
	local first=$session
	open_session full app
	check "no room" "" "$(tier "$session_tid")"
	say "$session" "SELECT 'well'"
	check "it runs" well "$said"
	check "counted" 1 "$(status full giveway_without_room)"
	check "lines in the log" 1 "$(grep -c 'slots of the table are taken' "$work/full/log.err")"
	close_session "$session"
	close_session "$first"
	stop full
}

case_slot_taken() {
	serve taken --giveway-background-users=app
	open_session taken app
	"$table" take "$slots" "$session_tid"
	check_soon "another slot" "background 100" "say $session 'SELECT 1'; tier $session_tid"
	"$table" wipe "$slots"
	check_soon "after all were wiped" "background 100" "say $session 'SELECT 1'; tier $session_tid"
	close_session "$session"
	stop taken
}

case_table_replaced() {
	serve replaced --giveway-background-users=app
	open_session replaced app
	"$table" replace "$slots" 32
	check "the new table" 32 "$("$table" size "$slots")"
	check_soon "a slot in it" "background 100" "say $session 'SELECT 1'; tier $session_tid"
	close_session "$session"
	check_soon "and given back" 0 used
	stop replaced
}

# Noise in the table harms no session.
case_scribbled_over() {
	serve noise --giveway-background-users=app
	open_session noise app
	"$table" scribble "$slots" &
	local scribbler=$! end=$((SECONDS + 4)) count=0
	helpers="$helpers $scribbler"
	while [ "$SECONDS" -lt "$end" ]; do
		say "$session" "SET giveway_tier = 'background'; SELECT 'well'"
		[ "$said" = well ] || break
		check "another session" 1 "$(sql noise "SET giveway_weight = 7; SELECT 1" app)"
		count=$((count + 1))
	done
	kill "$scribbler"
	check "a session" well "$said"
	[ "$count" -gt 10 ] || check "rounds" "more than 10" "$count"
	check "status" 1 "$(sql noise "SHOW STATUS LIKE 'giveway%'" | grep -c Giveway_slots)"
	close_session "$session"
	stop noise
}

# Sessions go on; their slots are given back; it can be installed again.
case_uninstalled() {
	"$table" create "$slots" 64
	start gone --giveway-background-users=app
	sql gone "INSTALL SONAME 'giveway'" >/dev/null
	open_session gone app
	local first=$session first_tid=$session_tid
	open_session gone app
	check "before" "background 100" "$(tier "$session_tid")"
	begin "$first" "SELECT SLEEP(1)"
	sql gone "UNINSTALL SONAME 'giveway'" >/dev/null
	await "$first"
	say "$first" "SELECT 'well'"
	check "a session that ran" well "$said"
	say "$session" "SELECT 'well'"
	check "an idle one" well "$said"
	check_soon "slots" 0 used
	say "$session" "SET giveway_tier = 'background'"
	check "the variable is gone" 1 "$(grep -c 'ERROR 1193' <<<"$said")"
	check "installed again" "" "$(sql gone "INSTALL SONAME 'giveway'")"
	# A session that was there before begins with the end of its first command.
	say "$session" "SET giveway_tier = 'background'"
	check "again" "background 100" "$(tier "$session_tid")"
	close_session "$session"
	close_session "$first"
	check_soon "slots at last" 0 used
	stop gone
}

# Threads come and go: no slot stays.
case_churn() {
	local how
	for how in one-thread-per-connection pool-of-threads; do
		"$table" create "$slots" 64
		start "churn-$how" --thread-handling="$how" --thread-cache-size=2 \
			--giveway-background-users=app
		seq 200 | xargs -P 8 -I{} mariadb --no-defaults -N -B -S "$work/churn-$how/socket" \
			-u app -e "SET giveway_weight = 5; SELECT COUNT(*) FROM shop.t" >"$work/churn"
		check "$how: sessions that ran" 200 "$(grep -cx 1 "$work/churn")"
		# Threads of the pool keep theirs.
		[ "$how" = pool-of-threads ] || check_soon "$how: slots after them" 0 used
		check_soon "$how: slots that say something" "" said_in_slots
		[ "$(used)" -le 20 ] || check "$how: slots" "at most 20" "$(used)"
		check "$how: found no room" 0 "$(status "churn-$how" giveway_without_room)"
		stop "churn-$how"
	done
}
