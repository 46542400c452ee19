# SPDX-License-Identifier: MIT OR Apache-2.0
# The cases of ../test.sh and guest.sh, in order: later ones use the cluster
# "main" that the first starts. Each is a function; it complains through check().
#
# Whose table it is, is the caller's business, who defines new_table SLOTS,
# replace_table [SLOTS] (another takes its place), regress CLUSTER [VARIANT] (run the
# suites of giveway/sql there, and say what differs from their results, or from
# that variant of them), and scheduler (what the extension says of UFS).

all_cases="
case_regression
case_without_a_table
case_nothing_is_set
case_updated
case_role_and_database_defaults
case_ceilings
case_parallel_workers
case_locks_are_seen
case_heavyweight_locks_are_seen
case_locks_are_held
case_system_processes
case_autovacuum
case_walsender
case_replication_has_ceilings
case_subscriber_has_ceilings
case_system_process_of_another
case_set_for_a_session
case_set_without_the_right
case_set_for_parallel_workers
case_io_priority
case_class_has_places
case_class_queue_is_left
case_class_nested_statements
case_class_computes_in_a_place
case_class_spare_place
case_class_lowered_in_a_transaction
case_class_queue_and_lock_table
case_class_page_pins
case_class_lock_holder_is_let_in
case_class_demotes
case_class_limits_settings
case_class_changes
case_class_of_a_role
case_class_under_load
case_class_dumped
case_class_rights
case_class_tables_altered
case_role_made_current
case_role_of_a_group
case_role_under_ceilings
case_role_changed_elsewhere
case_role_reads_what_concerns_it
case_role_of_parallel_workers
case_role_many
case_table_replaced
case_table_says_replaced
case_slot_taken
case_header_written_over
case_scribbled_over
case_slots_exhausted
case_every_slot_is_found
case_daemon_asked
case_two_clusters
case_killed_backend
case_postmaster_restart
case_pooler
case_not_preloaded
"

# The suites of giveway/sql, with a table: every store is seen from SQL.
case_regression() {
	new_table 64
	new_cluster main "max_parallel_workers = 8"
	start main
	problem=$(regress main)
	sql main "CREATE EXTENSION giveway; CREATE EXTENSION giveway_test" >/dev/null
	check "scheduler" "$scheduler" \
		"$(sql main "SELECT value FROM giveway_status() WHERE item = 'scheduler'")"
	check "version" "$(sed -n "s/default_version = '\(.*\)'/\1/p" "$suites/giveway.control")" \
		"$(sql main "SELECT extversion FROM pg_extension WHERE extname = 'giveway'")"
}

# The same suites without a table: nothing fails, one line in the log says why.
case_without_a_table() {
	new_cluster bare "giveway.hints_dir = '$work/nowhere'"
	start bare
	problem=$(regress bare 1)
	check "lines about it in the log" 1 \
		"$(grep -c 'settings have no effect yet' "$work/bare/log")"
	check "the remedy in the log" 1 "$(grep -c 'giveway start' "$work/bare/log")"

	# It appears later: a session that was there before gets its slot.
	open_session bare
	sql bare "CREATE EXTENSION giveway" >/dev/null
	say "$session" "SET giveway.tier = time_sensitive"
	"$table" create "$work/nowhere.table" 64
	mkdir "$work/nowhere"
	mv "$work/nowhere.table" "$work/nowhere/giveway_slots"
	check_soon "a slot, some time after" "time_sensitive 100" \
		"say $session 'SELECT 1'; '$table' show '$work/nowhere/giveway_slots' $session_pid | cut -d' ' -f2,3"
	check_soon "lines that say so in the log" 1 "grep -c 'tiers and locks are told' '$work/bare/log'"
	close_session "$session"
	stop bare
}

# A session that sets nothing has its cgroup's tier; background for a role lowers it.
case_nothing_is_set() {
	sql main "CREATE ROLE plain LOGIN" >/dev/null
	open_session main plain
	check "without a setting" "cgroup 100" "$(tier "$session_pid")"
	close_session "$session"
	sql main "ALTER ROLE plain SET giveway.tier = background" >/dev/null
	open_session main plain
	check "ALTER ROLE" "background 100" "$(tier "$session_pid")"
	say "$session" "SET giveway.tier = cgroup"
	check "SET to the default" "cgroup 100" "$(tier "$session_pid")"
	close_session "$session"
	# A ceiling also lowers sessions that ask for nothing.
	sql main "ALTER ROLE plain RESET giveway.tier;
		ALTER ROLE plain SET giveway.max_tier = background" >/dev/null
	open_session main plain
	check "ceiling" "background 100" "$(tier "$session_pid")"
	close_session "$session"
}

# An installation of the first version becomes one of the newest.
case_updated() {
	local all="SELECT array_agg(pg_describe_object(classid, objid, 0) ORDER BY 1)
			FROM pg_depend WHERE refobjid = (SELECT oid FROM pg_extension WHERE extname = 'giveway')"
	sql main "CREATE DATABASE old" >/dev/null
	check "update" "" "$(sql main "SET client_min_messages = error;
		CREATE EXTENSION giveway VERSION '0.1'; ALTER EXTENSION giveway UPDATE" postgres old)"
	check "version" "$(sql main "SELECT extversion FROM pg_extension WHERE extname = 'giveway'")" \
		"$(sql main "SELECT extversion FROM pg_extension WHERE extname = 'giveway'" postgres old)"
	check "objects" "$(sql main "$all")" "$(sql main "$all" postgres old)"
	# They speak of the calling process.
	check "functions that a parallel worker may run" 0 "$(sql main "SELECT count(*) FROM pg_proc
		WHERE proname ~ '^giveway_(slots|status|slot_usage)$' AND proparallel = 's'" postgres old)"
	sql main "DROP DATABASE old" >/dev/null
}

case_role_and_database_defaults() {
	sql main "CREATE DATABASE shop" >/dev/null
	sql main "CREATE ROLE app LOGIN; CREATE ROLE report LOGIN;
		ALTER ROLE app SET giveway.tier = time_sensitive" >/dev/null
	sql main "ALTER ROLE app IN DATABASE shop SET giveway.weight = 300" >/dev/null
	sql main "ALTER DATABASE shop SET giveway.weight = 50" >/dev/null

	open_session main app
	check "role" "time_sensitive 100" "$(tier "$session_pid")"
	say "$session" "SET giveway.tier = background"
	check "SET" "background 100" "$(tier "$session_pid")"
	say "$session" "RESET ALL"
	check "RESET ALL" "time_sensitive 100" "$(tier "$session_pid")"
	say "$session" "SET giveway.weight = 7"
	say "$session" "DISCARD ALL"
	check "DISCARD ALL" "time_sensitive 100" "$(tier "$session_pid")"
	close_session "$session"
	open_session main app shop
	check "role in database" "time_sensitive 300" "$(tier "$session_pid")"
	close_session "$session"
	open_session main report shop
	check "database" "cgroup 50" "$(tier "$session_pid")"
	close_session "$session"
	check_soon "slots after the sessions" "" "slot $session_pid"
}

# No session gets more than the ceiling, in whatever order settings are made.
case_ceilings() {
	sql main "ALTER ROLE report SET giveway.max_tier = background;
		ALTER ROLE report SET giveway.max_weight = 100" >/dev/null
	open_session main report
	say "$session" "SET giveway.tier = time_sensitive"
	say "$session" "SET giveway.weight = 10000"
	check "tier and weight held down" "background 100" "$(tier "$session_pid")"
	say "$session" "SET giveway.weight = 20"
	check "lower is free" "background 20" "$(tier "$session_pid")"
	say "$session" "SET giveway.max_tier = time_sensitive"
	check "an ordinary user" 'ERROR:  permission denied to set parameter "giveway.max_tier"' "$said"
	say "$session" "ALTER ROLE report SET giveway.max_tier = time_sensitive"
	check "neither for its role" 'ERROR:  permission denied to set parameter "giveway.max_tier"' "$said"
	check "still held down" "background 20" "$(tier "$session_pid")"
	sql main "GRANT SET ON PARAMETER giveway.max_tier TO report" >/dev/null
	say "$session" "SET giveway.max_tier = time_sensitive"
	check "with the right to" "time_sensitive 20" "$(tier "$session_pid")"
	close_session "$session"

	# From the client's connection options, too.
	check "PGOPTIONS" "background" "$(
		PGOPTIONS='-c giveway.tier=time_sensitive' sql main \
			"SELECT tier FROM giveway_slots() WHERE pid = pg_backend_pid()" report)"
	sql main "REVOKE SET ON PARAMETER giveway.max_tier FROM report" >/dev/null
}

# workers: tier and weight of the parallel workers that now run in main.
workers() {
	sql main "SELECT DISTINCT tier, weight FROM giveway_stat_activity
		WHERE backend_type = 'parallel worker'"
}

case_parallel_workers() {
	local force="SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
		SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off"
	local query="SELECT count(giveway_test_burn(0.05)) FROM many"
	sql main "CREATE TABLE many AS SELECT generate_series(1, 40);
		ALTER TABLE many SET (parallel_workers = 2); GRANT SELECT ON many TO report;
		ALTER ROLE report RESET giveway.max_tier;
		GRANT EXECUTE ON FUNCTION giveway_test_burn TO report" >/dev/null
	open_session main report
	say "$session" "$force"

	# The leader has the default from the configuration.
	begin "$session" "$query"
	check_soon "default" "cgroup|100" workers
	await "$session"
	say "$session" "SET giveway.weight = 30"
	begin "$session" "$query"
	check_soon "SET in the leader" "cgroup|30" workers
	await "$session"
	# And no worker gets around the ceiling.
	sql main "ALTER ROLE report SET giveway.max_tier = background" >/dev/null
	close_session "$session"
	open_session main report
	say "$session" "$force"
	say "$session" "SET giveway.tier = time_sensitive"
	say "$session" "SET giveway.weight = 40"
	begin "$session" "$query"
	check_soon "ceiling" "background|40" workers
	await "$session"
	close_session "$session"

	open_session main postgres
	say "$session" "$force"
	begin "$session" "BEGIN; SET LOCAL giveway.tier = time_sensitive; $query; COMMIT"
	check_soon "SET LOCAL in the leader" "time_sensitive|100" workers
	await "$session"
	close_session "$session"
	check_soon "slots of workers that ended" "" workers
}

# Held and awaited LWLocks, by whichever mode this server has.
case_locks_are_seen() {
	local mode
	mode=$(sql main "SELECT value FROM giveway_status() WHERE item = 'hints'")
	case $mode in
	stock | patched) ;;
	*) problem="  hints are $mode" ;;
	esac
	for n in 0 1 2 7 16; do
		check "$n locks" "$mode" "$(sql main "SELECT giveway_test_reader($n)")"
	done
	check "stock" stock "$(sql main "SET giveway.hints = stock; SELECT giveway_test_reader(3)")"
	check "off" none "$(sql main "SET giveway.hints = off; SELECT giveway_test_reader(3)")"
	check "off with the rest" none \
		"$(sql main "SET giveway.enabled = off; SELECT giveway_test_reader(3)")"
	if [ "$mode" = stock ]; then
		check "patched on a stock server" none \
			"$(sql main "SET giveway.hints = patched; SELECT giveway_test_reader(3)")"
		return
	fi

	# From outside, while it lasts: holder and waiter by address.
	for kind in lwlock spin; do
		open_session main
		local holder=$session holder_pid=$session_pid
		open_session main
		begin "$holder" "SELECT giveway_test_hold('$kind', '{3}', 1)"
		sleep 0.2
		begin "$session" "SELECT giveway_test_hold('$kind', '{3}', 0)"
		check_soon "$kind waiter" waits "slot $session_pid | cut -d' ' -f4"
		[ "$kind" = spin ] ||
			check "$kind holder" 1 "$(slot "$holder_pid" | cut -d' ' -f3)"
		await "$holder"
		await "$session"
		check "$kind after" "cgroup 100 0 - -" "$(slot "$session_pid")"
		close_session "$holder"
		close_session "$session"
	done
}

# UFS can walk from a waiter of a heavyweight lock to its holder.
case_heavyweight_locks_are_seen() {
	local waiter waiter_pid holder_pid
	open_session main
	waiter=$session waiter_pid=$session_pid
	open_session main
	holder_pid=$session_pid
	say "$session" "BEGIN; SELECT pg_advisory_xact_lock(7)"
	begin "$waiter" "SELECT pg_advisory_lock(7)"
	check_soon waits "{$holder_pid}" "sql main 'SELECT pg_blocking_pids($waiter_pid)'"
	check "holders" "{$holder_pid}" "$(sql main "SET giveway.heavyweight_hints = on;
		SELECT giveway_test_holders($waiter_pid)")"
	check "off by default" "" "$(sql main "SELECT giveway_test_holders($waiter_pid)")"
	check "off with the rest" "" "$(sql main "SET giveway.heavyweight_hints = on;
		SET giveway.hints = off; SELECT giveway_test_holders($waiter_pid)")"
	say "$session" "COMMIT"
	await "$waiter"
	close_session "$waiter"
	close_session "$session"
}

# waited RESULT: whether it is of a waiter that had to wait for half a second.
waited() {
	awk -F'|' '{ print ($1 > 0.2 ? "waited" : "did not wait: " $0) }' <<<"$1"
}

# The locks of the inversion experiment exclude one another, alone and chained.
case_locks_are_held() {
	local first second
	for kind in spin lwlock heavyweight; do
		open_session main
		first=$session
		open_session main
		begin "$first" "SELECT * FROM giveway_test_hold('$kind', '{1}', 0.6)"
		sleep 0.1
		say "$session" "SELECT * FROM giveway_test_hold('$kind', '{1}', 0)"
		check "$kind" waited "$(waited "$said")"
		await "$first"
		close_session "$first"
		close_session "$session"
	done
	for kind in lwlock heavyweight; do
		open_session main
		first=$session
		open_session main
		second=$session
		open_session main
		begin "$first" "SELECT * FROM giveway_test_hold('$kind', '{1}', 0.8)"
		sleep 0.1
		begin "$second" "SELECT * FROM giveway_test_hold('$kind', '{2, 1}', 0)"
		sleep 0.1
		say "$session" "SELECT * FROM giveway_test_hold('$kind', '{2}', 0)"
		check "$kind through another" waited "$(waited "$said")"
		await "$first"
		await "$second"
		close_session "$first"
		close_session "$second"
		close_session "$session"
	done
	for kind in spin lwlock heavyweight; do
		check "cost of $kind" t "$(sql main "SELECT giveway_test_cost('$kind', 1000) > 0")"
	done
	check "two spinlocks" "ERROR:  2 locks of kind \"spin\" cannot be held together" \
		"$(sql main "SELECT giveway_test_hold('spin', '{1, 2}', 0)" | head -1)"
	check "no such lock" "ERROR:  locks are numbered 0 to 15" \
		"$(sql main "SELECT giveway_test_hold('lwlock', '{16}', 0)")"
	check "an ordinary user" "ERROR:  permission denied for function giveway_test_hold" \
		"$(sql main "SELECT giveway_test_hold('lwlock', '{1}', 0)" app)"
}

# system NAME TYPE: tier of the processes of that type.
system() {
	sql "$1" "SELECT DISTINCT tier FROM giveway_stat_activity WHERE backend_type = '$2'"
}

# Processes without SQL have slots in their names, written by the launcher.
case_system_processes() {
	check_soon checkpointer time_sensitive "system main checkpointer"
	check_soon walwriter time_sensitive "system main walwriter"
	check "not listed" "" "$(system main "background writer")"
	if [ "$major" -ge 18 ]; then
		check_soon "io workers" time_sensitive "system main 'io worker'"
	fi
	sql main "ALTER SYSTEM SET giveway.system_processes = 'walwriter=background, background writer=time_sensitive'" >/dev/null
	reload main
	check_soon "walwriter after reload" background "system main walwriter"
	check_soon "background writer after reload" time_sensitive "system main 'background writer'"
	check_soon "not listed any more" "" "system main checkpointer"
	sql main "ALTER SYSTEM RESET giveway.system_processes" >/dev/null
	reload main
	check_soon "checkpointer again" time_sensitive "system main checkpointer"
}

# Autovacuum is background even where sessions are not.
case_autovacuum() {
	new_cluster vacuum "autovacuum = on" "autovacuum_naptime = 1s" \
		"autovacuum_vacuum_cost_delay = 100" "autovacuum_vacuum_cost_limit = 1" \
		"giveway.tier = time_sensitive"
	start vacuum
	sql vacuum "CREATE EXTENSION giveway;
		CREATE TABLE t (n int) WITH (autovacuum_vacuum_threshold = 1);
		INSERT INTO t SELECT generate_series(1, 20000); DELETE FROM t" >/dev/null
	check_soon "autovacuum worker" background "system vacuum 'autovacuum worker'"
	check "a session" time_sensitive "$(
		sql vacuum "SELECT tier FROM giveway_slots() WHERE pid = pg_backend_pid()")"
	stop vacuum
}

# receive [PGOPTIONS]: a WAL receiver of main; sets $receiver.
receive() {
	rm -rf "$work/wal"
	mkdir "$work/wal"
	PGOPTIONS=${1:-} "$bin/pg_receivewal" -h "$work/main" -U postgres -D "$work/wal" \
		>/dev/null 2>&1 &
	receiver=$!
}

end_receiver() {
	kill "$receiver"
	wait "$receiver" 2>/dev/null || true
	check_soon "receivers that have ended" "" "system main walsender"
}

# A sender is time-sensitive, unless its own client sets background.
case_walsender() {
	receive
	check_soon "walsender" time_sensitive "system main walsender"
	end_receiver
	receive "-c giveway.tier=background"
	check_soon "one that asks for less" background "system main walsender"
	end_receiver
	# What sessions have by default is not meant for it.
	configure main "giveway.tier = background"
	reload main
	receive
	check_soon "walsender beside background sessions" time_sensitive "system main walsender"
	end_receiver
	configure main "giveway.tier = cgroup"
	reload main
}

# With the right to replicate one gets a connection that takes SQL: no way around
# a ceiling.
case_replication_has_ceilings() {
	sql main "CREATE ROLE replicator LOGIN REPLICATION;
		ALTER ROLE replicator SET giveway.max_tier = background;
		ALTER ROLE replicator SET giveway.max_weight = 3" >/dev/null
	local mine="SELECT tier FROM giveway_slots() WHERE pid = pg_backend_pid()"
	local weight="SELECT weight FROM giveway_slots() WHERE pid = pg_backend_pid()"
	check "the weight" 3 "$("$bin/psql" -X -A -t -q -c "$weight" \
		"host=$work/main user=replicator dbname=postgres replication=database")"
	check "less" 2 "$("$bin/psql" -X -A -t -q -c "SET giveway.weight = 2" -c "$weight" \
		"host=$work/main user=replicator dbname=postgres replication=database")"
	sql main "ALTER ROLE replicator RESET giveway.max_weight" >/dev/null
	check "no more than its kind has" 100 "$("$bin/psql" -X -A -t -q -c "SET giveway.weight = 300" \
		-c "$weight" "host=$work/main user=replicator dbname=postgres replication=database")"
	check "SQL" background "$("$bin/psql" -X -A -t -q -c "$mine" \
		"host=$work/main user=replicator dbname=postgres replication=database")"
	check "SET" background "$("$bin/psql" -X -A -t -q -c "SET giveway.tier = time_sensitive" -c "$mine" \
		"host=$work/main user=replicator dbname=postgres replication=database")"
	sql main "ALTER ROLE replicator RESET giveway.max_tier" >/dev/null
	check "without a ceiling" time_sensitive "$("$bin/psql" -X -A -t -q -c "$mine" \
		"host=$work/main user=replicator dbname=postgres replication=database")"
}

# Background workers with a database run what users have written, so that ceilings hold.
case_subscriber_has_ceilings() {
	new_cluster logical "wal_level = logical" \
		"giveway.system_processes = 'background worker=time_sensitive'"
	start logical
	sql logical "CREATE EXTENSION giveway; ALTER ROLE postgres SET giveway.max_tier = background;
		ALTER ROLE postgres SET giveway.max_weight = 5; CREATE TABLE t (n int);
		CREATE PUBLICATION p FOR TABLE t" >/dev/null
	sql logical "SELECT pg_create_logical_replication_slot('s', 'pgoutput')" >/dev/null
	sql logical "CREATE DATABASE copy" >/dev/null
	sql logical "CREATE TABLE t (n int)" postgres copy >/dev/null
	sql logical "CREATE SUBSCRIPTION s CONNECTION 'host=$work/logical user=postgres dbname=postgres'
		PUBLICATION p WITH (create_slot = false, copy_data = false)" postgres copy >/dev/null
	check_soon "a subscriber" "background|5" 'sql logical "SELECT tier, weight
		FROM giveway_stat_activity WHERE backend_type LIKE '"'logical replication%worker'"'"'
	check_soon "a worker without a database" time_sensitive \
		"system logical 'logical replication launcher'"
	stop logical
}

# The launcher writes into no slot of another cluster, though it has the number of one of
# the server's processes.
case_system_process_of_another() {
	local checkpointer
	check_soon checkpointer time_sensitive "system main checkpointer"
	checkpointer=$(sql main "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
	"$table" disown "$slots" "$checkpointer"
	sql main "ALTER SYSTEM SET giveway.system_processes = 'walwriter=background, checkpointer=time_sensitive'" >/dev/null
	reload main
	check_soon "the next round" background "system main walwriter"
	check "left alone" background "$(tier "$checkpointer" | cut -d' ' -f1)"
	sql main "ALTER SYSTEM RESET giveway.system_processes" >/dev/null
	replace_table
	reload main
	check_soon "checkpointer again" time_sensitive "system main checkpointer"
}

# first_line STATEMENT USER: of the result in main, without the details of an error.
first_line() {
	sql main "$1" "$2" | head -n 1
}

# imposed PID: what the view says was set for it.
imposed() {
	sql main "SELECT imposed_tier, imposed_weight FROM giveway_stat_activity WHERE pid = $1"
}

# An administrator sets tier and weight of a session, whatever it does or asks for.
case_set_for_a_session() {
	sql main "CREATE ROLE worker LOGIN; CREATE ROLE capped LOGIN;
		ALTER ROLE worker SET giveway.tier = time_sensitive;
		ALTER ROLE capped SET giveway.max_tier = background;
		ALTER ROLE capped SET giveway.max_weight = 50" >/dev/null
	open_session main worker
	begin "$session" "SELECT pg_sleep(60)"
	check "lowered" t "$(sql main "SELECT giveway_set($session_pid, 'background', 7)")"
	check "in the middle of a statement" "background 7" "$(tier "$session_pid")"
	check "seen" "background|7" "$(imposed "$session_pid")"
	sql main "SELECT pg_cancel_backend($session_pid)" >/dev/null
	await "$session"
	say "$session" "SET giveway.tier = cgroup"
	say "$session" "SET giveway.weight = 90"
	check "whatever it asks for" "background 7" "$(tier "$session_pid")"
	replace_table
	check_soon "in another table" "background 7" "say $session 'SELECT 1'; tier $session_pid"
	check "only the weight" t "$(sql main "SELECT giveway_set($session_pid, weight => 8)")"
	check "its own tier" "cgroup 8" "$(tier "$session_pid")"
	check "taken back" t "$(sql main "SELECT giveway_set($session_pid)")"
	check "its own" "cgroup 90" "$(tier "$session_pid")"
	check "nothing is seen" "|" "$(imposed "$session_pid")"
	sql main "SELECT giveway_set($session_pid, 'background')" >/dev/null
	close_session "$session"
	# The next session may have the number of the last among the processes.
	open_session main worker
	check "another session" "time_sensitive 100" "$(tier "$session_pid")"
	close_session "$session"

	open_session main capped
	sql main "SELECT giveway_set($session_pid, 'time_sensitive', 300)" >/dev/null
	check "above its ceilings" "time_sensitive 300" "$(tier "$session_pid")"
	sql main "SELECT giveway_set($session_pid)" >/dev/null
	check "and back" "background 50" "$(tier "$session_pid")"
	close_session "$session"

	receive
	check_soon "walsender" time_sensitive "system main walsender"
	sql main "SELECT giveway_set(pid, 'background') FROM pg_stat_replication" >/dev/null
	check "lowered, too" background "$(system main walsender)"
	end_receiver

	check "no session" 'WARNING:  PID 1 is not a PostgreSQL session
f' "$(sql main "SELECT giveway_set(1, 'background')")"
	check "no tier" 'ERROR:  there is no tier "urgent"
HINT:  Write background, cgroup or time_sensitive.' \
		"$(sql main "SELECT giveway_set(pg_backend_pid(), 'urgent')")"
	check "no weight" 'ERROR:  weight 0 is out of range
HINT:  Write 1 to 10000.' "$(sql main "SELECT giveway_set(pg_backend_pid(), weight => 0)")"
}

# io_class PID: the I/O priority class of a process.
io_class() {
	ionice -p "$1" | cut -d: -f1
}

# io_during WHAT EXPECTED STATEMENT: of the session while it sleeps in the statement, which
# is cancelled then.
io_during() {
	begin "$session" "$3"
	check_soon "$1: asleep" PgSleep \
		"sql main 'SELECT wait_event FROM pg_stat_activity WHERE pid = $session_pid'"
	check "$1" "$2" "$(io_class "$session_pid")"
	sql main "SELECT pg_cancel_backend($session_pid)" >/dev/null
	await "$session"
	check "$1: afterwards" "$usual" "$(io_class "$session_pid")"
}

# A background session is in the idle class of I/O while it only reads.
case_io_priority() {
	local usual
	sql main "CREATE TABLE io AS SELECT 1 AS n;
		CREATE FUNCTION writes() RETURNS void LANGUAGE plpgsql
			AS 'BEGIN INSERT INTO io VALUES (2); PERFORM pg_sleep(60); END';
		CREATE FUNCTION reads() RETURNS bigint LANGUAGE plpgsql
			AS 'BEGIN PERFORM count(*) FROM io; PERFORM pg_sleep(60); RETURN 1; END'" >/dev/null
	open_session main
	usual=$(io_class "$session_pid")
	say "$session" "SET giveway.tier = background"
	io_during "off by default" "$usual" "SELECT pg_sleep(60)"
	say "$session" "SET giveway.io_priority = on"
	io_during "a query" idle "SELECT pg_sleep(60) FROM io"
	io_during "what it calls" idle "SELECT reads()"
	io_during "a query that writes" "$usual" \
		"WITH w AS (INSERT INTO io VALUES (2) RETURNING n) SELECT pg_sleep(60) FROM w"
	io_during "a query that calls what writes" "$usual" "SELECT writes()"
	io_during "a query that locks rows" "$usual" \
		"SELECT pg_sleep(60) FROM (SELECT n FROM io FOR UPDATE) AS locked"
	io_during "a command" "$usual" "CREATE TABLE made AS SELECT 1 AS n FROM pg_sleep(60)"
	io_during "a query of a command" idle "DO 'BEGIN PERFORM pg_sleep(60); END'"
	say "$session" "BEGIN"
	say "$session" "DECLARE cursor CURSOR FOR SELECT pg_sleep(60)"
	check "between fetches" "$usual" "$(io_class "$session_pid")"
	io_during "a fetch" idle "FETCH cursor"
	say "$session" "ROLLBACK"
	say "$session" "BEGIN"
	say "$session" "INSERT INTO io VALUES (3)"
	io_during "after it has written" "$usual" "SELECT pg_sleep(60)"
	say "$session" "ROLLBACK"
	begin "$session" "COPY io TO PROGRAM 'cat >/dev/null; sleep 2'"
	check_soon "COPY" idle "io_class $session_pid"
	await "$session"
	say "$session" "SET giveway.tier = time_sensitive"
	io_during "a time-sensitive query" "$usual" "SELECT pg_sleep(60)"
	close_session "$session"

	open_session main
	say "$session" "SET giveway.io_priority = on; SET giveway.tier = background;
		SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
		SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off"
	begin "$session" "SELECT count(giveway_test_burn(0.05)) FROM many"
	check_soon "parallel workers" idle "for pid in \$(sql main \"SELECT pid FROM
		giveway_stat_activity WHERE backend_type = 'parallel worker'\"); do
		io_class \$pid; done | sort -u"
	await "$session"
	close_session "$session"
}

# Without the right to set ceilings one can lower whom one may cancel, and raise nobody.
case_set_without_the_right() {
	local denied="ERROR:  permission denied to set the tier of another role's session"
	local kept='ERROR:  permission denied to change what an administrator has set for this session'
	sql main "CREATE ROLE warden LOGIN; GRANT pg_signal_backend TO warden;
		CREATE ROLE operator LOGIN;
		GRANT SET ON PARAMETER giveway.max_tier, giveway.max_weight TO operator" >/dev/null
	open_session main worker
	check "another role" "$denied" \
		"$(first_line "SELECT giveway_set($session_pid, 'background')" capped)"
	check "with pg_signal_backend" t \
		"$(sql main "SELECT giveway_set($session_pid, 'background', 20)" warden)"
	check "lowered" "background 20" "$(tier "$session_pid")"
	check "its own role takes that back" t "$(sql main "SELECT giveway_set($session_pid)" worker)"
	check "its own" "time_sensitive 100" "$(tier "$session_pid")"
	say "$session" "SET giveway.tier = background"
	sql main "SELECT giveway_set($session_pid, 'time_sensitive', 9000)" warden >/dev/null
	check "nobody is raised" "background 100" "$(tier "$session_pid")"
	sql main "SELECT giveway_set($session_pid, 'time_sensitive')" worker >/dev/null
	check "not by its own role either" "background 100" "$(tier "$session_pid")"

	check "with the right" t \
		"$(sql main "SELECT giveway_set($session_pid, 'cgroup', 9000)" operator)"
	check "raised" "cgroup 9000" "$(tier "$session_pid")"
	check "no other changes that" "$kept" \
		"$(first_line "SELECT giveway_set($session_pid, 'background')" worker)"
	check "nor takes it back" "$kept" "$(first_line "SELECT giveway_set($session_pid)" warden)"
	check "it stays" "cgroup 9000" "$(tier "$session_pid")"
	close_session "$session"

	open_session main capped
	say "$session" "SELECT giveway_set(pg_backend_pid(), 'time_sensitive', 10000)"
	check "no way around one's ceilings" "background 50" "$(tier "$session_pid")"
	say "$session" "SELECT giveway_set(pid, 'background') FROM pg_stat_activity WHERE usename = 'postgres'"
	sql main "SELECT giveway_set($session_pid, 'time_sensitive', 10000)" capped >/dev/null
	check "nor from another session" "background 50" "$(tier "$session_pid")"
	close_session "$session"

	open_session main worker
	say "$session" "SELECT giveway_set(pg_backend_pid(), 'background', 1)"
	check "by its client" "background 1" "$(tier "$session_pid")"
	say "$session" "DISCARD ALL"
	check "not for the pool's next" "time_sensitive 100" "$(tier "$session_pid")"
	check "nothing is seen" "|" "$(imposed "$session_pid")"
	sql main "SELECT giveway_set($session_pid, 'background', 1)" operator >/dev/null
	say "$session" "DISCARD ALL"
	check "by right it stays" "background 1" "$(tier "$session_pid")"
	close_session "$session"

	open_session main postgres
	check "a superuser's session" "$denied" \
		"$(first_line "SELECT giveway_set($session_pid, 'background')" operator)"
	check "is left alone" "cgroup 100" "$(tier "$session_pid")"
	close_session "$session"
}

# Workers have what was set for their leader, before they started or while they run.
case_set_for_parallel_workers() {
	local query="SELECT count(giveway_test_burn(0.05)) FROM many"
	local late="$query; $query"
	open_session main postgres
	say "$session" "SET parallel_setup_cost = 0"
	say "$session" "SET parallel_tuple_cost = 0"
	say "$session" "SET min_parallel_table_scan_size = 0"
	say "$session" "SET parallel_leader_participation = off"
	begin "$session" "$late"
	check_soon "before" "cgroup|100" workers
	sql main "SELECT giveway_set($session_pid, 'background', 30)" >/dev/null
	check "while they run" "background|30" "$(workers)"
	await "$session"
	begin "$session" "$query"
	check_soon "those that start later" "background|30" workers
	sql main "SELECT giveway_set(min(pid), 'time_sensitive') FROM pg_stat_activity
		WHERE backend_type = 'parallel worker'" >/dev/null
	check "a worker stands for its leader" "time_sensitive 100" "$(tier "$session_pid")"
	await "$session"
	close_session "$session"
}

# class NAME COLUMN...: what giveway_stat_classes says of it.
class() {
	sql main "SELECT $2 FROM giveway_stat_classes WHERE class = '$1'"
}

# class_state PID: whether it runs or waits, and in which class.
class_state() {
	sql main "SELECT class, class_state FROM giveway_stat_activity WHERE pid = $1"
}

# set_class SETTING...: class "desk", which role clerk is of, has these limits only.
set_class() {
	local setting columns= values=
	# A place that got lost fails a case, and does not keep it waiting for ever.
	case $* in *queue_timeout*) ;; *) set -- "$@" "queue_timeout='15s'" ;; esac
	for setting in "$@"; do
		columns="$columns, ${setting%%=*}"
		values="$values, ${setting#*=}"
	done
	sql main "DELETE FROM giveway_class WHERE class = 'desk';
		INSERT INTO giveway_class (class$columns) VALUES ('desk'$values);
		INSERT INTO giveway_class_role VALUES ('clerk', 'desk')"
}

# occupy: a session of clerk's that runs a statement until it is cancelled; sets
# $busy, $busy_pid. Sessions of the class are opened before, for that takes a statement.
occupy() {
	local last=$session last_pid=$session_pid
	open_session main clerk
	busy=$session busy_pid=$session_pid
	session=$last session_pid=$last_pid
	begin "$busy" "SELECT pg_sleep(600)"
	check_soon "the first runs" "desk|running" "class_state $busy_pid"
}

# vacate: the end of that.
vacate() {
	sql main "SELECT pg_cancel_backend($busy_pid)" >/dev/null
	await "$busy"
	close_session "$busy"
}

# No more statements run at a time than the class has places; who waits comes in turn.
case_class_has_places() {
	local second second_pid before
	sql main "CREATE ROLE clerk LOGIN; CREATE SCHEMA AUTHORIZATION clerk;
		GRANT CREATE, TEMPORARY ON DATABASE postgres TO clerk;
		GRANT EXECUTE ON FUNCTION giveway_test_burn TO clerk; GRANT SELECT ON many TO clerk" >/dev/null
	check "a class" "" "$(set_class concurrency=1)"
	open_session main clerk
	second=$session second_pid=$session_pid
	open_session main clerk
	occupy
	before=$(class desk admitted)
	begin "$second" "SELECT 'second'"
	check_soon "the second" "desk|waiting" "class_state $second_pid"
	begin "$session" "SELECT 'third'"
	check_soon "the third" "desk|waiting" "class_state $session_pid"
	check "counted" "1|2|0" "$(class desk "running, waiting, admitted - $before")"
	check "its wait event" Extension "$(sql main "SELECT wait_event_type
		FROM pg_stat_activity WHERE pid = $second_pid")"
	check "a superuser" 1 "$(sql main "SELECT 1")"
	check "a role without a class" 2 "$(sql main "SELECT 2" app)"
	vacate
	await "$second"
	check "the second after the first" second "$said"
	await "$session"
	check "the third after it" third "$said"
	check "figures" "0|0|2|2|0|0" \
		"$(class desk "running, waiting, admitted - $before, waited, timeouts, cancelled")"
	check "time waited" t "$(class desk "waited_ms > 50")"
	# Between statements nobody has a place, in a transaction or outside.
	say "$second" "BEGIN; SELECT 1"
	say "$session" "SELECT 'not held up'"
	check "beside an idle transaction" "not held up" "$said"
	close_session "$second"
	close_session "$session"
	set_class concurrency=0 "queue_timeout='0'"
	check "no place at all" 'ERROR:  there was no place in class "desk" for 0 ms' \
		"$(first_line "SELECT 1" clerk)"
	check "what takes none" "64MB" "$(sql main "SET work_mem = '64MB'; BEGIN; SHOW work_mem; COMMIT" clerk)"
	set_class concurrency=NULL
	check "no limit" 1 "$(sql main "SELECT 1" clerk)"
}

# Whoever leaves the queue, or ends with a place, however that comes, leaves no trace.
case_class_queue_is_left() {
	local timed_out='ERROR:  there was no place in class "desk" for 300 ms'
	local before
	set_class concurrency=1 "queue_timeout='300ms'"
	open_session main clerk
	before=$(class desk "timeouts + cancelled")
	occupy
	say "$session" "SELECT 1"
	check "queue_timeout" "$timed_out
DETAIL:  Its concurrency is 1, and 1 statements run.
HINT:  Try again later, or raise concurrency or queue_timeout of the class." "$said"
	check "SQLSTATE" 53400 "$("$bin/psql" -X -A -t -q -h "$work/main" -U clerk -d postgres \
		-v VERBOSITY=sqlstate -c "SELECT 1" 2>&1 | sed 's/ERROR:  //')"
	sql main "UPDATE giveway_class SET queue_timeout = '15s'" >/dev/null
	say "$session" "SET statement_timeout = 200"
	say "$session" "SELECT 1"
	check "statement_timeout" "ERROR:  canceling statement due to statement timeout" "$said"
	say "$session" "SET statement_timeout = 0"
	begin "$session" "SELECT 1"
	check_soon "it waits" "desk|waiting" "class_state $session_pid"
	sql main "SELECT pg_cancel_backend($session_pid)" >/dev/null
	await "$session"
	check "cancelled" "ERROR:  canceling statement due to user request" "$said"
	begin "$session" "SELECT 1"
	check_soon "it waits again" "desk|waiting" "class_state $session_pid"
	sql main "SELECT pg_terminate_backend($session_pid)" >/dev/null
	await "$session"
	close_session "$session"
	check_soon "terminated in the queue" "1|0" 'class desk "running, waiting"'
	check "timed out and cancelled" 5 "$(class desk "timeouts + cancelled - $before")"
	vacate
	open_session main clerk
	occupy
	begin "$session" "SELECT 'its turn'"
	check_soon "the next" "desk|waiting" "class_state $session_pid"
	sql main "SELECT pg_terminate_backend($busy_pid)" >/dev/null
	await "$session"
	check "after one that was terminated" "its turn" "$said"
	close_session "$busy"
	say "$session" "SELECT 1 / 0"
	check "after an error" "0|0" "$(class desk "running, waiting")"
	close_session "$session"
}

# With one place, nothing that a statement starts waits for the place it holds itself.
case_class_nested_statements() {
	local statement before figures="let_in, timeouts, waited"
	set_class concurrency=1 "queue_timeout='1s'"
	before=$(class desk "$figures")
	check "tables and functions" "" "$(sql main "
		CREATE TABLE parent (n int PRIMARY KEY);
		CREATE TABLE child (n int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
		CREATE TABLE log (n int);
		CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
			INSERT INTO log SELECT count(*) FROM parent; RETURN NULL; END \$\$;
		CREATE TRIGGER noted AFTER INSERT ON parent FOR EACH ROW EXECUTE FUNCTION noted();
		CREATE FUNCTION fact(n int) RETURNS int LANGUAGE plpgsql AS \$\$ BEGIN
			RETURN CASE WHEN n = 0 THEN 1 ELSE n * (SELECT clerk.fact(n - 1)) END; END \$\$;
		CREATE FUNCTION failing() RETURNS int LANGUAGE plpgsql AS \$\$ BEGIN
			PERFORM 1 / 0 FROM parent; EXCEPTION WHEN OTHERS THEN
			RETURN (SELECT count(*) FROM log); END \$\$;
		CREATE FUNCTION constant() RETURNS int LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN
			RETURN (SELECT count(*) FROM pg_class WHERE false); END \$\$;
		CREATE PROCEDURE batch() LANGUAGE plpgsql AS \$\$ BEGIN
			INSERT INTO log VALUES (1); COMMIT; INSERT INTO log VALUES (2); ROLLBACK;
			PERFORM clerk.fact(2); END \$\$" clerk)"
	open_session main clerk
	while read -r statement; do
		say "$session" "$statement"
		case $said in *ERROR*) problem="$problem  $statement: $said
" ;; esac
		check "after: $statement" "0|0" "$(class desk "running, waiting")"
	done <<-'END'
		INSERT INTO parent SELECT generate_series(1, 3)
		SELECT fact(5), failing(), constant()
		CALL batch()
		DO $$ BEGIN PERFORM fact(3); EXECUTE 'SELECT 1'; COMMIT; PERFORM failing(); END $$
		BEGIN; INSERT INTO child VALUES (1), (2); COMMIT
		BEGIN; INSERT INTO child VALUES (3); SET CONSTRAINTS ALL IMMEDIATE; COMMIT
		BEGIN; DECLARE c CURSOR FOR SELECT fact(n) FROM parent; FETCH 1 FROM c; MOVE 1 FROM c; FETCH ALL FROM c; COMMIT
		BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT fact(n) FROM parent; COMMIT; FETCH ALL FROM h; CLOSE h
		BEGIN; SAVEPOINT a; SELECT failing(); ROLLBACK TO a; SELECT 1; COMMIT
		PREPARE p AS SELECT fact(4); EXECUTE p; EXPLAIN ANALYZE EXECUTE p; DEALLOCATE p
		COPY (SELECT fact(n) FROM parent) TO STDOUT
		CREATE TABLE made AS SELECT fact(n) FROM parent
		CREATE INDEX CONCURRENTLY made_fact ON made (fact)
		CREATE MATERIALIZED VIEW seen AS SELECT fact(n) FROM parent
		REFRESH MATERIALIZED VIEW seen
		VACUUM ANALYZE made
		WITH d AS (DELETE FROM log RETURNING n) SELECT count(fact(1)) FROM d
		SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0
		SET parallel_leader_participation = off
		SELECT count(giveway_test_burn(0.001)) FROM many
	END
	check "let in, turned away, made to wait" "$before" "$(class desk "$figures")"
	# Nor does it lose its place to another before it ends.
	local second=$session second_pid=$session_pid
	open_session main clerk
	begin "$session" "DO \$\$ BEGIN FOR i IN 1..40 LOOP PERFORM pg_sleep(0.05); END LOOP; END \$\$"
	check_soon "runs" "desk|running" "class_state $session_pid"
	begin "$second" "SELECT 1"
	check_soon "waits" "desk|waiting" "class_state $second_pid"
	sleep 0.3
	check "still" "desk|waiting" "$(class_state "$second_pid")"
	await "$session"
	await "$second"
	close_session "$second"
	# COMMIT does not wait, but to store the rows of a cursor.
	say "$session" "BEGIN; INSERT INTO child VALUES (1)"
	occupy
	say "$session" "COMMIT"
	check "COMMIT" "" "$said"
	vacate
	say "$session" "BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT fact(n) FROM parent; INSERT INTO child VALUES (1)"
	occupy
	begin "$session" "COMMIT"
	check_soon "COMMIT with rows to compute" "desk|waiting" "class_state $session_pid"
	vacate
	await "$session"
	check "stored" "" "$said"
	say "$session" "FETCH ALL FROM h"
	check "the cursor" "1
2
6" "$said"
	close_session "$session"
}

# Whatever computes for a client does so in a place, outside of queries, too.
case_class_computes_in_a_place() {
	local statement before
	set_class concurrency=1
	check "tables and functions" "" "$(sql main "
		CREATE FUNCTION placed(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN
			RAISE NOTICE '%', (SELECT state FROM public.giveway_class_sessions()
				WHERE pid = pg_backend_pid()); RETURN n; END \$\$;
		CREATE FUNCTION placed() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
			PERFORM clerk.placed(pg_trigger_depth()); RETURN NULL; END \$\$;
		CREATE DOMAIN positive AS int;
		CREATE TABLE watched (n positive);
		INSERT INTO watched VALUES (1);
		CREATE TABLE ranges (n int) PARTITION BY RANGE (n);
		CREATE TRIGGER emptied BEFORE TRUNCATE ON watched EXECUTE FUNCTION placed();
		CREATE CONSTRAINT TRIGGER late AFTER INSERT ON watched DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION placed()" clerk | grep -v '^NOTICE:  running$')"
	open_session main clerk
	while read -r statement; do
		say "$session" "$statement"
		check "$statement" "NOTICE:  running" "$(grep '^NOTICE\|ERROR' <<<"$said" | sort -u)"
		check "after: $statement" "0|0" "$(class desk "running, waiting")"
	done <<-'END'
		SELECT placed(7)
		EXPLAIN SELECT placed(7)
		BEGIN; DECLARE c CURSOR FOR SELECT placed(7); COMMIT
		CREATE TABLE first PARTITION OF ranges FOR VALUES FROM (placed(1)) TO (10)
		ALTER DOMAIN positive ADD CHECK (placed(VALUE) > 0)
		TRUNCATE watched
		ALTER DOMAIN positive DROP CONSTRAINT positive_check; INSERT INTO watched VALUES (2)
		BEGIN; INSERT INTO watched VALUES (3); COMMIT
		BEGIN; INSERT INTO watched VALUES (4); SET CONSTRAINTS ALL IMMEDIATE; COMMIT
		BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT placed(n) FROM watched; COMMIT; CLOSE h
	END
	# A statement that is only parsed, which puts views in place, and the client's query for
	# the names of its types.
	before=$(class desk admitted)
	say "$session" "SELECT n FROM watched \\gdesc
		\\echo"
	check "\\gdesc" 2 "$(class desk "admitted - $before")"
	# And without a place it does not.
	say "$session" "BEGIN; INSERT INTO watched VALUES (5)"
	sql main "UPDATE giveway_class SET concurrency = 0, queue_timeout = '0'" >/dev/null
	say "$session" "COMMIT"
	check "COMMIT, with a trigger" 'ERROR:  there was no place in class "desk" for 0 ms' \
		"$(head -n 1 <<<"$said")"
	while read -r statement; do
		say "$session" "$statement"
		check "$statement" 'ERROR:  there was no place in class "desk" for 0 ms' \
			"$(head -n 1 <<<"$said")"
	done <<-'END'
		EXPLAIN SELECT placed(7)
		SELECT placed(7)
		CREATE TABLE second PARTITION OF ranges FOR VALUES FROM (placed(11)) TO (20)
		TRUNCATE watched
		COMMENT ON TABLE watched IS 'nothing'
	END
	say "$session" "BEGIN; SAVEPOINT a; SELECT placed(7); ROLLBACK TO a; LOCK TABLE watched;
		SET LOCAL work_mem = '64kB'; SHOW work_mem; LISTEN x; COMMIT"
	check "what takes none" "64kB" "$(tail -n 1 <<<"$said")"
	close_session "$session"
	check "rolled back" 0 "$(sql main "SELECT count(*) FROM clerk.watched WHERE n = 5")"
}

# Functions that the client calls by the protocol take a place. Between two calls it is
# free for others.
case_class_spare_place() {
	local caller caller_pid before
	sql main "GRANT ALL ON FUNCTION lo_create(oid) TO clerk" >/dev/null
	set_class concurrency=1
	open_session main clerk
	caller=$session caller_pid=$session_pid
	open_session main clerk
	before=$(class desk "waited + let_in")
	say "$caller" "BEGIN"
	say "$caller" "\\lo_import /dev/null"
	check "a call" "desk|running" "$(class_state "$caller_pid")"
	say "$session" "SELECT 'in its place'"
	check "another" "in its place" "$said"
	check "taken back" "|" "$(class_state "$caller_pid")"
	say "$caller" "SELECT 'goes on'"
	check "the caller" "goes on" "$said"
	say "$caller" "\\lo_import /dev/null"
	check "again" "desk|running" "$(class_state "$caller_pid")"
	say "$caller" "ROLLBACK"
	check "the end" "0|0" "$(class desk "running, waiting")"
	check "made to wait, let in" "$before" "$(class desk "waited + let_in")"
	sql main "UPDATE giveway_class SET concurrency = 0, queue_timeout = '0'" >/dev/null
	say "$caller" "\\lo_import /dev/null"
	check "without a place" 1 "$(grep -c 'there was no place in class' <<<"$said")"
	close_session "$caller"
	close_session "$session"
}

# A limit that was lowered holds for a session in the middle of a transaction, too, and that
# does not bring back the old one.
case_class_lowered_in_a_transaction() {
	local second second_pid
	set_class concurrency=2
	open_session main clerk
	second=$session second_pid=$session_pid
	open_session main clerk
	say "$session" "BEGIN"
	say "$session" "SELECT 1"
	say "$session" "SELECT 1"
	sql main "UPDATE giveway_class SET concurrency = 0" >/dev/null
	begin "$second" "SELECT 'second'"
	check_soon "the other waits" "desk|waiting" "class_state $second_pid"
	# Anything new to it would have it look at catalogs, and so come across the change.
	begin "$session" "SELECT 1"
	check_soon "the one in the transaction, too" "desk|waiting" "class_state $session_pid"
	check "nobody runs" "0|2" "$(class desk "running, waiting")"
	sql main "UPDATE giveway_class SET concurrency = 1" >/dev/null
	await "$second"
	check "raised again" second "$said"
	await "$session"
	check "in turn" 1 "$said"
	close_session "$second"
	close_session "$session"
}

# Who waits in the queue leaves the table of locks alone, as long as nobody waits for one.
case_class_queue_and_lock_table() {
	set_class concurrency=1
	open_session main clerk
	occupy
	begin "$session" "SELECT count(*) FROM many"
	check_soon "waits" "desk|waiting" "class_state $session_pid"
	check "stops at the table of locks" f \
		"$(sql main "SELECT giveway_test_stops_at_locks($session_pid, 2.5)")"
	check "waits still" "desk|waiting" "$(class_state "$session_pid")"
	vacate
	await "$session"
	check "its turn" 40 "$said"
	close_session "$session"
}

# A cursor keeps a page pinned. Who waits for that with the only place holds up nobody.
case_class_page_pins() {
	local vacuum vacuum_pid before
	set_class concurrency=1
	sql main "CREATE TABLE pinned AS SELECT generate_series(1, 10) AS n" clerk >/dev/null
	open_session main clerk
	vacuum=$session vacuum_pid=$session_pid
	open_session main clerk
	before=$(class desk let_in)
	say "$session" "BEGIN; DECLARE c CURSOR FOR SELECT n FROM pinned; FETCH 1 FROM c"
	begin "$vacuum" "VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) pinned"
	check_soon "waits for the pin" BufferPin "sql main 'SELECT wait_event_type
		FROM pg_stat_activity WHERE pid = $vacuum_pid'"
	say "$session" "FETCH 1 FROM c"
	check "the cursor goes on" 2 "$said"
	check "let in" 1 "$(class desk "let_in - $before")"
	say "$session" "COMMIT"
	await "$vacuum"
	check "and so does the other" "" "$said"
	close_session "$vacuum"
	close_session "$session"
}

# Who waits in the queue with a lock that one who runs wants gets in.
case_class_lock_holder_is_let_in() {
	local holder before
	sql main "CREATE TABLE clerk.account (n int); INSERT INTO clerk.account VALUES (1);
		ALTER TABLE clerk.account OWNER TO clerk" >/dev/null
	set_class concurrency=1
	open_session main clerk
	holder=$session
	open_session main clerk
	before=$(class desk let_in)
	say "$holder" "BEGIN; UPDATE account SET n = n + 1"
	begin "$session" "UPDATE account SET n = n + 1"
	check_soon "the other has the place" "desk|running" "class_state $session_pid"
	say "$holder" "SELECT n FROM account"
	check "the holder goes on" 2 "$said"
	check "counted" 1 "$(class desk "let_in - $before")"
	say "$holder" "COMMIT"
	await "$session"
	check "and so does the other" 3 "$(sql main "SELECT n FROM clerk.account")"
	# So does one whose snapshot keeps an index from being made.
	say "$holder" "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"
	begin "$session" "CREATE INDEX CONCURRENTLY ON account (n)"
	check_soon "it waits for the snapshot" virtualxid "sql main 'SELECT wait_event
		FROM pg_stat_activity WHERE pid = $session_pid'"
	say "$holder" "SELECT 'goes on'"
	check "who has it" "goes on" "$said"
	check "counted, too" 2 "$(class desk "let_in - $before")"
	say "$holder" "COMMIT"
	await "$session"
	# A lock that nobody waits for helps nobody.
	begin "$session" "SELECT pg_sleep(2.5)"
	check_soon "runs" "desk|running" "class_state $session_pid"
	say "$holder" "BEGIN; LOCK TABLE account; SELECT 1"
	check "still as many" 2 "$(class desk "let_in - $before")"
	close_session "$holder"
	close_session "$session"
}

# A statement that has used its CPU time goes on in the background, until it ends.
case_class_demotes() {
	local force="SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
		SET min_parallel_table_scan_size = 0; SET parallel_leader_participation = off"
	sql main "ALTER ROLE clerk SET giveway.tier = time_sensitive" >/dev/null
	set_class "demote_after='300ms'"
	open_session main clerk
	say "$session" "SELECT giveway_test_burn(0.1)"
	begin "$session" "SELECT giveway_test_burn(6)"
	check "before" "time_sensitive 100" "$(tier "$session_pid")"
	check_soon "demoted" "background 100" "tier $session_pid"
	check "seen" t "$(sql main "SELECT demoted FROM giveway_stat_activity WHERE pid = $session_pid")"
	check "raised by right all the same" "time_sensitive 100" "$(
		sql main "SELECT giveway_set($session_pid, 'time_sensitive')" >/dev/null; tier "$session_pid")"
	check "and left alone again" "background 100" "$(
		sql main "SELECT giveway_set($session_pid)" >/dev/null; tier "$session_pid")"
	sql main "SELECT pg_cancel_backend($session_pid)" >/dev/null
	await "$session"
	check "restored after an error" "time_sensitive 100" "$(tier "$session_pid")"
	check "counted" 1 "$(class desk demotions)"
	# Sleep is no CPU time, and neither is what statements before it used.
	say "$session" "SELECT pg_sleep(2.2)"
	begin "$session" "SELECT giveway_test_burn(0.1), pg_sleep(2.2)"
	await "$session"
	check "not counted" 1 "$(class desk demotions)"
	# Workers' CPU time counts, and they are demoted with their leader.
	say "$session" "$force"
	begin "$session" "SELECT count(giveway_test_burn(0.1)) FROM many"
	check_soon "workers" "background|100" workers
	check "their leader" "background 100" "$(tier "$session_pid")"
	sql main "SELECT pg_cancel_backend($session_pid)" >/dev/null
	await "$session"
	check "restored" "time_sensitive 100" "$(tier "$session_pid")"
	check "counted once" 2 "$(class desk demotions)"
	close_session "$session"
	sql main "ALTER ROLE clerk RESET giveway.tier" >/dev/null
}

# work_mem and parallel workers of the class are its sessions' default, and their most.
case_class_limits_settings() {
	local show="SHOW work_mem"
	sql main "ALTER ROLE clerk SET work_mem = '9MB'" >/dev/null
	set_class work_mem=8192 max_parallel_workers_per_gather=1
	open_session main clerk
	say "$session" "SELECT current_setting('work_mem'), current_setting('max_parallel_workers_per_gather')"
	check "defaults" "8MB|1" "$said"
	say "$session" "SET work_mem = '1GB'"
	say "$session" "SELECT current_setting('work_mem')"
	check "cut" 8MB "$said"
	say "$session" "SET work_mem = '2MB'"
	say "$session" "SELECT current_setting('work_mem')"
	check "less" 2MB "$said"
	say "$session" "BEGIN; SET LOCAL work_mem = '1GB'; SELECT current_setting('work_mem'); COMMIT"
	check "SET LOCAL" 8MB "$said"
	say "$session" "SHOW work_mem"
	check "after it" 2MB "$said"
	say "$session" "CREATE FUNCTION clerk.greedy() RETURNS text LANGUAGE plpgsql SET work_mem = '1GB'
		AS \$\$ BEGIN RETURN (SELECT current_setting('work_mem')); END \$\$"
	say "$session" "SELECT clerk.greedy()"
	check "in a function" 8MB "$said"
	say "$session" "SHOW work_mem"
	check "after that" 2MB "$said"
	say "$session" "BEGIN; DECLARE c CURSOR FOR SELECT current_setting('work_mem') FROM many"
	say "$session" "SET LOCAL work_mem = '1GB'; FETCH 1 FROM c"
	check "before a FETCH" 8MB "$said"
	say "$session" "COMMIT"
	say "$session" "SET hash_mem_multiplier = 1000"
	say "$session" "SELECT current_setting('hash_mem_multiplier')"
	check "what hashes may take of it" 2 "$said"
	say "$session" "RESET ALL"
	say "$session" "SHOW work_mem"
	check "RESET" 8MB "$said"
	say "$session" "SET max_parallel_workers_per_gather = 4; SET parallel_setup_cost = 0;
		SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0"
	say "$session" "EXPLAIN (COSTS off) SELECT count(*) FROM many"
	check "planned for" "Workers Planned: 1" "$(grep -o 'Workers Planned: .*' <<<"$said")"
	set_class work_mem=NULL
	say "$session" "SELECT current_setting('work_mem')"
	check "the role's again" 9MB "$said"
	close_session "$session"
	sql main "ALTER ROLE clerk RESET work_mem" >/dev/null
}

# What is written in the tables holds at once, for those that wait, too.
case_class_changes() {
	local second
	set_class concurrency=1
	open_session main clerk
	second=$session
	occupy
	begin "$second" "SELECT 'let in'"
	check_soon "waits" "desk|waiting" "class_state $session_pid"
	sql main "BEGIN; UPDATE giveway_class SET concurrency = 2; ROLLBACK" >/dev/null
	sleep 1.2
	check "not committed" "desk|waiting" "$(class_state "$session_pid")"
	sql main "UPDATE giveway_class SET concurrency = 2 WHERE class = 'desk'" >/dev/null
	await "$second"
	check "raised" "let in" "$said"
	sql main "UPDATE giveway_class SET concurrency = 1 WHERE class = 'desk'" >/dev/null
	begin "$second" "SELECT 'renamed'"
	check_soon "waits again" "desk|waiting" "class_state $session_pid"
	sql main "UPDATE giveway_class SET class = 'bench' WHERE class = 'desk'" >/dev/null
	await "$second"
	check "a class of another name" renamed "$said"
	check "the role's class" bench "$(sql main "SELECT class FROM giveway_class_role")"
	sql main "UPDATE giveway_class SET class = 'desk', queue_timeout = '300ms'" >/dev/null
	begin "$second" "SELECT 1"
	await "$second"
	check "queue_timeout" 1 "$(grep -c '^ERROR:  there was no place' <<<"$said")"
	sql main "ALTER SYSTEM SET giveway.classes = off" >/dev/null
	reload main
	check_soon "switched off" 1 "say $second 'SELECT 1'; echo \"\$said\""
	say "$second" "SET giveway.classes = on"
	check "by superusers only" 'ERROR:  permission denied to set parameter "giveway.classes"' "$said"
	sql main "ALTER SYSTEM RESET giveway.classes" >/dev/null
	reload main
	check_soon "and on" 1 "say $second 'SELECT 1'; grep -c '^ERROR:  there was no place' <<<\"\$said\""
	sql main "BEGIN; DROP EXTENSION giveway; CREATE EXTENSION giveway; COMMIT" >/dev/null
	say "$second" "SELECT 'free'"
	check "without the rows" free "$said"
	vacate
	set_class concurrency=0 "queue_timeout='0'"
	say "$second" "SELECT 1"
	check "tables made anew" 1 "$(grep -c '^ERROR:  there was no place' <<<"$said")"
	sql main "TRUNCATE giveway_class CASCADE" >/dev/null
	say "$second" "SELECT 'free again'"
	check "TRUNCATE" "free again" "$said"
	close_session "$second"
}

# The nearest assignment counts: the role's own, its groups', everybody's.
case_class_of_a_role() {
	local full='ERROR:  there was no place in class "%s" for 0 ms'
	open_session main clerk
	sql main "CREATE ROLE staff; CREATE ROLE guests; GRANT staff TO clerk; DELETE FROM giveway_class;
		INSERT INTO giveway_class SELECT c, 0, '0' FROM unnest('{all,desk,guests,staff}'::name[]) c;
		INSERT INTO giveway_class_role VALUES ('-', 'all')" >/dev/null
	expect() {
		say "$session" "SELECT 1"
		check "$1" "$(printf "$full" "$1")" "$(head -n 1 <<<"$said")"
	}
	expect all
	sql main "INSERT INTO giveway_class_role VALUES ('staff', 'staff'), ('guests', 'guests')" >/dev/null
	expect staff
	sql main "GRANT guests TO clerk" >/dev/null
	expect guests
	sql main "INSERT INTO giveway_class_role VALUES ('clerk', 'desk')" >/dev/null
	expect desk
	sql main "DELETE FROM giveway_class_role WHERE role = 'clerk'::regrole; REVOKE guests FROM clerk" >/dev/null
	expect staff
	sql main "DROP ROLE staff" >/dev/null
	expect all
	check "superusers" 1 "$(sql main "SELECT 1")"
	sql main "ALTER ROLE clerk SUPERUSER" >/dev/null
	say "$session" "SELECT 'in'"
	check "one who becomes one" in "$said"
	sql main "ALTER ROLE clerk NOSUPERUSER" >/dev/null
	expect all
	close_session "$session"
	sql main "DELETE FROM giveway_class; DROP ROLE guests" >/dev/null
}

# Many sessions that come and go, by each protocol, some killed: no place gets lost, and
# there are never more than the class has.
case_class_under_load() {
	local protocol most=0 now loads=() running
	set_class concurrency=3
	echo "SELECT pg_sleep(0.002); BEGIN; SELECT 1; END" >"$work/simple.sql"
	printf 'BEGIN;\nSELECT 1;\nSELECT pg_sleep(0.002);\nEND;\n' >"$work/extended.sql"
	for protocol in simple extended prepared; do
		"$bin/pgbench" -h "$work/main" -U clerk -c 6 -T 4 -n -M "$protocol" \
			-f "$work/$([ $protocol = simple ] || echo extended)$([ $protocol != simple ] || echo simple).sql" \
			postgres >"$work/load.$protocol" 2>&1 &
		loads+=($!)
	done
	for _ in $(seq 20); do
		now=$(class desk "running")
		[ "${now:-0}" -le "$most" ] || most=$now
		sql main "SELECT CASE WHEN random() < 0.3 THEN pg_terminate_backend(pid) ELSE pg_cancel_backend(pid) END
			FROM giveway_class_sessions() WHERE random() < 0.1" >/dev/null
		sleep 0.1
	done
	for running in "${loads[@]}"; do wait "$running" || true; done
	check "most at a time" 3 "$most"
	check_soon "places after" "0|0" 'class desk "running, waiting"'
	check "many came in" t "$(class desk "admitted > 300 AND waited > 100")"
	check "processes that crashed" 0 "$(grep -c 'terminated by signal\|TRAP' "$work/main/log")"
}

# Classes go with a dump of their database.
case_class_dumped() {
	local rows="SELECT c, r.role FROM giveway_class c LEFT JOIN giveway_class_role r USING (class) ORDER BY 1, 2"
	set_class concurrency=7 "queue_timeout='3s'" "demote_after='5min'" work_mem=4096 \
		max_parallel_workers_per_gather=0
	sql main "CREATE ROLE leaver; INSERT INTO giveway_class_role VALUES ('-', 'desk'), ('leaver', 'desk');
		DROP ROLE leaver" >/dev/null
	sql main "CREATE DATABASE copied" >/dev/null
	"$bin/pg_dump" -h "$work/main" -U postgres -t 'giveway*' -e giveway postgres >"$work/dump.sql" 2>"$work/dump.log" ||
		problem="  $(cat "$work/dump.log")"
	check "restored" "" "$("$bin/psql" -X -q -h "$work/main" -U postgres -d copied -v ON_ERROR_STOP=1 \
		-f "$work/dump.sql" 2>&1 >/dev/null)"
	check "rows" '(desk,7,00:00:03,00:05:00,4096,0)|-
(desk,7,00:00:03,00:05:00,4096,0)|clerk' "$(sql main "$rows" postgres copied)"
	open_session main clerk copied
	say "$session" "SHOW work_mem; SELECT 1"
	say "$session" "SHOW work_mem"
	check "in force" 4MB "$said"
	close_session "$session"
	sql main "DROP DATABASE copied" >/dev/null
	sql main "DELETE FROM giveway_class" >/dev/null
}

# Only the extension's own tables count, and only its owner writes them.
case_class_rights() {
	local denied="ERROR:  permission denied for table giveway_class"
	set_class concurrency=0 "queue_timeout='0'"
	sql main "ALTER ROLE clerk SET giveway.classes = off" >/dev/null
	check "a class" "$denied" "$(sql main "UPDATE giveway_class SET concurrency = 9" clerk)"
	check "its roles" "${denied}_role" "$(sql main "DELETE FROM giveway_class_role" clerk)"
	check "the view is everybody's" "desk|0" \
		"$(sql main "SELECT class, concurrency FROM giveway_stat_classes" clerk)"
	sql main "ALTER ROLE clerk RESET giveway.classes" >/dev/null
	check "in force" 1 "$(sql main "SELECT 1" clerk | grep -c '^ERROR:  there was no place')"
	check "nonsense" "3" "$(for row in "'a', -1" "'b', 1, '-1s'" "'', 1"; do
		sql main "INSERT INTO giveway_class VALUES ($row)"; done | grep -c 'violates check constraint')"
	# A version without the tables, and tables of a user in its schema.
	sql main "CREATE DATABASE spoofed" >/dev/null
	sql main "SET client_min_messages = error; CREATE EXTENSION giveway VERSION '0.3';
		GRANT CREATE ON SCHEMA public TO clerk" postgres spoofed >/dev/null
	sql main "CREATE TABLE giveway_class (class name, concurrency int, queue_timeout interval,
			demote_after interval, work_mem int, workers int);
		CREATE TABLE giveway_class_role (role regrole, class name);
		INSERT INTO giveway_class VALUES ('desk', 0, '0'); INSERT INTO giveway_class_role VALUES ('-', 'desk')" \
		clerk spoofed >/dev/null
	check "no tables of ours" 1 "$(sql main "SELECT 1" app spoofed)"
	sql main "DROP DATABASE spoofed" >/dev/null
	sql main "DELETE FROM giveway_class; ALTER ROLE clerk RESET ALL" >/dev/null
}

# Whatever their owner does to the tables of classes, the server runs on.
case_class_tables_altered() {
	sql main "CREATE DATABASE altered" >/dev/null
	sql main "CREATE EXTENSION giveway; GRANT USAGE ON SCHEMA public TO clerk;
		INSERT INTO giveway_class (class, concurrency, queue_timeout) VALUES ('desk', 0, '0');
		INSERT INTO giveway_class_role VALUES ('-', 'desk');
		ALTER TABLE giveway_class_role ALTER COLUMN class DROP NOT NULL;
		INSERT INTO giveway_class_role VALUES ('clerk', NULL);
		ALTER TABLE giveway_class_role DROP CONSTRAINT giveway_class_role_class_fkey,
			DROP CONSTRAINT giveway_class_role_pkey;
		ALTER TABLE giveway_class_role ALTER COLUMN role DROP NOT NULL;
		INSERT INTO giveway_class_role VALUES (NULL, 'desk');
		ALTER TABLE giveway_class DROP CONSTRAINT giveway_class_pkey;
		ALTER TABLE giveway_class ALTER COLUMN class DROP NOT NULL;
		INSERT INTO giveway_class VALUES (NULL, 1)" postgres altered >/dev/null
	check "nulls are skipped" 1 "$(sql main "SELECT 1" clerk altered | grep -c '^ERROR:  there was no place')"
	sql main "ALTER TABLE giveway_class ALTER COLUMN queue_timeout DROP DEFAULT,
		DROP CONSTRAINT giveway_class_queue_timeout_check;
		ALTER TABLE giveway_class ALTER COLUMN queue_timeout TYPE boolean USING true" postgres altered >/dev/null
	check "another type" 1 "$(sql main "SELECT 1" clerk altered)"
	check_soon "said in the log" t "grep -q 'no class holds' '$work/main/log' && echo t"
	sql main "ALTER TABLE giveway_class DROP COLUMN queue_timeout CASCADE" postgres altered >/dev/null
	check "a column less" 1 "$(sql main "SELECT 1" clerk altered)"
	sql main "DROP DATABASE altered" >/dev/null
}

# follow MODE: from now on sessions in main follow roles so.
follow() {
	sql main "ALTER SYSTEM SET giveway.follow_role = $1" >/dev/null
	reload main
	check_soon "follow_role" "$1" "sql main 'SHOW giveway.follow_role'"
}

# As a pooler or PostgREST does it: who logs in is not who runs the transaction.
case_role_made_current() {
	sql main "CREATE ROLE authenticator LOGIN NOINHERIT; CREATE ROLE visitor; CREATE ROLE customer;
		GRANT visitor, customer TO authenticator;
		ALTER ROLE visitor SET giveway.tier = background; ALTER ROLE visitor SET giveway.weight = 10;
		ALTER ROLE customer SET giveway.tier = time_sensitive" >/dev/null
	open_session main authenticator
	say "$session" "SET ROLE visitor"
	check "off" "cgroup 100" "$(tier "$session_pid")"
	say "$session" "RESET ROLE"
	follow current
	say "$session" "SELECT 1"
	check "the login role" "cgroup 100" "$(tier "$session_pid")"
	say "$session" "BEGIN; SET LOCAL ROLE visitor"
	check "SET LOCAL ROLE" "background 10" "$(tier "$session_pid")"
	say "$session" "COMMIT"
	check "after COMMIT, with nothing more said" "cgroup 100" "$(tier "$session_pid")"
	say "$session" "BEGIN; SELECT set_config('role', 'customer', true)"
	check "set_config" "time_sensitive 100" "$(tier "$session_pid")"
	say "$session" "SELECT 1 / 0"
	check "after an error, before ROLLBACK" "cgroup 100" "$(tier "$session_pid")"
	say "$session" "ROLLBACK"
	say "$session" "BEGIN; SET LOCAL ROLE customer; SAVEPOINT a; SET LOCAL ROLE visitor"
	check "in a savepoint" "background 10" "$(tier "$session_pid")"
	say "$session" "SELECT 1 / 0"
	check "after an error there" "time_sensitive 100" "$(tier "$session_pid")"
	say "$session" "ROLLBACK TO a; COMMIT"
	say "$session" "SET ROLE visitor"
	check "SET ROLE" "background 10" "$(tier "$session_pid")"
	say "$session" "DISCARD ALL"
	check "DISCARD ALL" "cgroup 100" "$(tier "$session_pid")"
	say "$session" "SET ROLE customer"
	replace_table
	check_soon "in another table" "time_sensitive 100" "say $session 'SELECT 1'; tier $session_pid"
	sql main "SELECT giveway_set($session_pid, 'background')" >/dev/null
	say "$session" "SET ROLE none"
	say "$session" "SET ROLE customer"
	check "what is imposed holds" "background 100" "$(tier "$session_pid")"
	close_session "$session"
	# From the start of a session on.
	sql main "ALTER ROLE authenticator SET role = 'visitor'" >/dev/null
	open_session main authenticator
	check "ALTER ROLE ... SET role" "background 10" "$(tier "$session_pid")"
	say "$session" "SET ROLE none"
	check "none" "cgroup 100" "$(tier "$session_pid")"
	close_session "$session"
	sql main "ALTER ROLE authenticator RESET role" >/dev/null
	follow off
}

# Roles that are members of a group have what it says, unless they say so themselves.
case_role_of_a_group() {
	sql main "CREATE ROLE analysts; CREATE ROLE shop; CREATE ROLE ann LOGIN; CREATE ROLE chief LOGIN SUPERUSER;
		GRANT analysts TO ann, chief, customer;
		ALTER ROLE analysts SET giveway.tier = background; ALTER ROLE analysts SET giveway.weight = 5" >/dev/null
	follow membership
	open_session main ann
	# No statement yet: what was said last is of the first transaction.
	check "at once" "background 5" "$(tier "$session_pid")"
	say "$session" "SET giveway.weight = 6"
	check "SET" "background 6" "$(tier "$session_pid")"
	say "$session" "RESET giveway.weight"
	sql main "GRANT shop TO ann; ALTER ROLE shop SET giveway.tier = cgroup" >/dev/null
	say "$session" "SELECT 1"
	check "the highest of two groups" "cgroup 5" "$(tier "$session_pid")"
	sql main "ALTER ROLE ann SET giveway.tier = background" >/dev/null
	say "$session" "SELECT 1"
	check "its own" "background 5" "$(tier "$session_pid")"
	sql main "ALTER ROLE ann RESET giveway.tier; REVOKE analysts FROM ann" >/dev/null
	say "$session" "SELECT 1"
	check "no member any more" "cgroup 100" "$(tier "$session_pid")"
	close_session "$session"
	open_session main chief
	check "a superuser is a member of everything" "cgroup 100" "$(tier "$session_pid")"
	close_session "$session"
	# The group's ceiling holds for SQL in a replication connection, too.
	sql main "ALTER ROLE shop SET giveway.max_tier = background; GRANT shop TO replicator" >/dev/null
	check "replication=database" background "$("$bin/psql" -X -A -t -q \
		-c "SELECT tier FROM giveway_slots() WHERE pid = pg_backend_pid()" \
		"host=$work/main user=replicator dbname=postgres replication=database")"
	sql main "ALTER ROLE shop RESET giveway.max_tier; REVOKE shop FROM replicator;
		REVOKE analysts FROM customer; DROP ROLE chief" >/dev/null
	follow off
}

# Nobody gets above the ceiling of who logged in by a role, unless that is allowed.
case_role_under_ceilings() {
	local denied='ERROR:  permission denied to set parameter "giveway'
	sql main "ALTER ROLE authenticator SET giveway.max_tier = background;
		ALTER ROLE customer SET giveway.max_tier = time_sensitive;
		ALTER ROLE customer SET giveway.max_weight = 300;
		ALTER ROLE visitor SET giveway.max_weight = 10" >/dev/null
	follow current
	open_session main authenticator
	say "$session" "SET ROLE customer"
	check "SET ROLE" "background 100" "$(tier "$session_pid")"
	say "$session" "SET giveway.tier = time_sensitive"
	say "$session" "SET giveway.weight = 9999"
	check "and SET" "background 300" "$(tier "$session_pid")"
	say "$session" "SET ROLE visitor"
	check "a lower ceiling" "background 10" "$(tier "$session_pid")"
	say "$session" "SET giveway.role_raises = on"
	check "role_raises" "$denied.role_raises\"" "$said"
	say "$session" "SET giveway.follow_role = off"
	check "follow_role" "$denied.follow_role\"" "$said"
	say "$session" "SET giveway.max_weight = 9999"
	check "max_weight" "$denied.max_weight\"" "$said"
	check "still" "background 10" "$(tier "$session_pid")"
	sql main "ALTER DATABASE postgres SET giveway.role_raises = on" >/dev/null
	close_session "$session"
	open_session main authenticator
	say "$session" "SET ROLE customer"
	check "allowed" "time_sensitive 100" "$(tier "$session_pid")"
	say "$session" "RESET ROLE"
	check "and back" "background 100" "$(tier "$session_pid")"
	close_session "$session"
	# A ceiling for all is one for who logs in.
	sql main "ALTER DATABASE postgres RESET giveway.role_raises;
		ALTER ROLE authenticator RESET giveway.max_tier;
		ALTER DATABASE postgres SET giveway.max_tier = background" >/dev/null
	open_session main authenticator
	say "$session" "SET ROLE customer"
	check "the database's ceiling" "background 100" "$(tier "$session_pid")"
	close_session "$session"
	sql main "ALTER DATABASE postgres RESET giveway.max_tier" >/dev/null
	follow off
}

# Settings and roles are changed in another session, and another database.
case_role_changed_elsewhere() {
	sql main "ALTER ROLE visitor RESET giveway.max_weight; CREATE TABLE first (); CREATE TABLE second ();
		GRANT SELECT ON first, second TO visitor" >/dev/null
	sql main "CREATE DATABASE elsewhere" >/dev/null
	follow current
	open_session main authenticator
	say "$session" "SET ROLE visitor"
	sql main "ALTER ROLE visitor SET giveway.weight = 11" postgres elsewhere >/dev/null
	say "$session" "SELECT 1"
	check "ALTER ROLE in another database" "background 11" "$(tier "$session_pid")"
	sql main "ALTER ROLE visitor IN DATABASE postgres SET giveway.weight = 12;
		ALTER ROLE visitor IN DATABASE elsewhere SET giveway.weight = 13" >/dev/null
	say "$session" "SELECT 1"
	check "for this database" "background 12" "$(tier "$session_pid")"
	say "$session" "BEGIN; SELECT FROM first"
	sql main "ALTER ROLE visitor IN DATABASE postgres SET giveway.weight = 14" >/dev/null
	say "$session" "SELECT FROM second"
	say "$session" "SELECT 1"
	check "within a transaction" "background 14" "$(tier "$session_pid")"
	say "$session" "COMMIT"
	sql main "BEGIN; ALTER ROLE visitor IN DATABASE postgres SET giveway.weight = 15; ROLLBACK" >/dev/null
	say "$session" "SELECT 1"
	check "rolled back" "background 14" "$(tier "$session_pid")"
	sql main "ALTER ROLE visitor RENAME TO guest" >/dev/null
	say "$session" "SELECT 1"
	check "renamed" "background 14" "$(tier "$session_pid")"
	sql main "ALTER ROLE guest IN DATABASE postgres RESET ALL" >/dev/null
	say "$session" "SELECT 1"
	check "RESET ALL" "background 11" "$(tier "$session_pid")"
	sql main "DROP OWNED BY guest; DROP ROLE guest" >/dev/null
	say "$session" "SELECT 1"
	check "dropped" "cgroup 100" "$(tier "$session_pid")"
	say "$session" "RESET ROLE"
	check "and left" "cgroup 100" "$(tier "$session_pid")"
	say "$session" "SELECT 2"
	check "it goes on" 2 "$said"
	close_session "$session"
	sql main "DROP DATABASE elsewhere" >/dev/null
	sql main "DROP TABLE first, second" >/dev/null
	follow off
}

# Sessions read the settings of roles again after changes of tiers and weights only.
case_role_reads_what_concerns_it() {
	local before began during elapsed altering
	sql main "ALTER ROLE authenticator SET giveway.follow_role = current;
		CREATE ROLE bystander; ALTER ROLE customer SET giveway.weight = 61" >/dev/null
	open_session main authenticator
	say "$session" "SET ROLE customer"
	# reads: how often this session, the only one that follows roles, has gone through them.
	reads() {
		say "$session" "SELECT pg_stat_force_next_flush()"
		sql main "SELECT pg_stat_get_numscans('pg_db_role_setting'::regclass)"
	}
	before=$(reads)
	sql main "ALTER ROLE bystander SET search_path = elsewhere; ALTER ROLE customer SET work_mem = '5MB'" >/dev/null
	say "$session" "SELECT 1"
	sql main "ALTER ROLE bystander PASSWORD 'secret'; GRANT bystander TO app; CREATE ROLE other;
		ALTER DATABASE postgres SET giveway.weight = 100" >/dev/null
	say "$session" "SELECT 1"
	check "what does not concern it" "$before" "$(reads)"
	sql main "ALTER ROLE customer SET giveway.weight = 62" >/dev/null
	say "$session" "SELECT 1"
	check "what does" "time_sensitive 62" "$(tier "$session_pid")"
	check "is read once" $((before + 1)) "$(reads)"
	sql main "ALTER ROLE customer RESET giveway.weight" >/dev/null
	say "$session" "SELECT 1"
	check "what is taken back" "time_sensitive 100" "$(tier "$session_pid")"
	# Where many roles have settings, it rests between two times: here for 200 ms.
	sql main "INSERT INTO pg_db_role_setting SELECT 0, 1000000000 + i, '{search_path=x}' FROM generate_series(1, 20000) i" >/dev/null
	now_ms() { sql main "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"; }
	began=$(now_ms)
	before=$(reads)
	sql main "DO \$\$ BEGIN FOR i IN 1..100000000 LOOP
		EXECUTE format('ALTER ROLE customer SET giveway.weight = %s', 50 + i % 9); COMMIT; END LOOP; END \$\$" >/dev/null &
	altering="SELECT pid FROM pg_stat_activity WHERE query LIKE 'DO%ALTER ROLE customer%'"
	wait_until "[ -n \"\$(sql main \"\$altering\")\" ]" || problem="$problem  nobody alters roles
"
	say "$session" "DO \$\$ BEGIN FOR i IN 1..300 LOOP PERFORM 1; COMMIT; PERFORM pg_sleep(0.001); END LOOP; END \$\$"
	during=$(($(reads) - before))
	elapsed=$(($(now_ms) - began))
	[ $during -le $((elapsed / 200 + 1)) ] ||
		problem="$problem  rests between: $during reads in $elapsed ms
"
	sql main "SELECT pg_cancel_backend(pid) FROM ($altering) AS a" >/dev/null
	wait $!
	sql main "ALTER ROLE customer SET giveway.weight = 70" >/dev/null
	check_soon "in the end" "time_sensitive 70" "say $session 'SELECT 1'; tier $session_pid"
	sql main "DELETE FROM pg_db_role_setting WHERE setrole > 1000000000" >/dev/null
	close_session "$session"
	sql main "ALTER ROLE authenticator RESET giveway.follow_role; ALTER ROLE customer RESET work_mem;
		ALTER DATABASE postgres RESET giveway.weight; DROP ROLE bystander, other; ALTER ROLE customer RESET giveway.weight" >/dev/null
}

# Workers have what their leader's role in effect says, and function settings of their own.
case_role_of_parallel_workers() {
	sql main "GRANT SELECT ON many TO customer; GRANT EXECUTE ON FUNCTION giveway_test_burn TO customer;
		ALTER ROLE customer SET giveway.weight = 250" >/dev/null
	follow current
	open_session main authenticator
	say "$session" "SET parallel_setup_cost = 0"
	say "$session" "SET parallel_tuple_cost = 0"
	say "$session" "SET min_parallel_table_scan_size = 0"
	say "$session" "SET parallel_leader_participation = off"
	begin "$session" "BEGIN; SET LOCAL ROLE customer; SELECT count(giveway_test_burn(0.05)) FROM many; COMMIT"
	check_soon "workers" "time_sensitive|250" workers
	await "$session"
	check "the result" 40 "$said"
	close_session "$session"
	follow off
}

# More roles than are remembered, each in a transaction of its own, and many groups.
case_role_many() {
	local i wrong=
	sql main "DO \$\$ BEGIN FOR i IN 1..100 LOOP
			EXECUTE format('CREATE ROLE many_%s; GRANT many_%s TO authenticator;
				ALTER ROLE many_%s SET giveway.weight = %s', i, i, i, i);
		END LOOP; END \$\$;
		CREATE ROLE of_all LOGIN" >/dev/null
	sql main "DO \$\$ BEGIN FOR i IN 1..100 LOOP EXECUTE format('GRANT many_%s TO of_all', i);
		END LOOP; END \$\$" >/dev/null
	follow current
	open_session main authenticator
	for i in $(seq 100) $(seq 100); do
		say "$session" "BEGIN; SET LOCAL ROLE many_$i"
		[ "$(tier "$session_pid")" = "cgroup $i" ] || wrong="$wrong many_$i"
		say "$session" "COMMIT"
		[ "$(tier "$session_pid")" = "cgroup 100" ] || wrong="$wrong after_$i"
	done
	check "each role" "" "$wrong"
	close_session "$session"
	open_session main of_all
	sql main "ALTER ROLE many_57 SET giveway.weight = 5000" >/dev/null
	say "$session" "SELECT 1"
	check "the highest of a hundred" "cgroup 5000" "$(tier "$session_pid")"
	close_session "$session"
	sql main "DO \$\$ BEGIN FOR i IN 1..100 LOOP EXECUTE format('DROP ROLE many_%s', i);
		END LOOP; END \$\$; DROP ROLE of_all" >/dev/null
	follow off
}

# UFS makes another table: sessions move to it at the end of a transaction.
case_table_replaced() {
	open_session main app
	replace_table
	check "not there yet" "" "$(slot "$session_pid")"
	check_soon "there" "time_sensitive 100" "say $session 'SELECT 1'; tier $session_pid"
	check_soon "special processes, too" time_sensitive "system main checkpointer"
	close_session "$session"
}

# tables_mapped PID: how often the process has a table mapped.
tables_mapped() {
	unprivileged grep -c 'giveway_slots\|bpf-map' "/proc/$1/maps" || true
}

# launcher: its process number.
launcher() {
	ps -o pid=,args= --ppid "$(head -1 "$work/main/data/postmaster.pid")" |
		awk '/giveway launcher/ { print $1 }'
}

# A table that says it is replaced, and is not: no process maps it again, or leaves it.
case_table_says_replaced() {
	local speaker
	replace_table
	open_session main app
	check_soon "a slot" "time_sensitive 100" "say $session 'SELECT 1'; tier $session_pid"
	speaker=$(launcher)
	"$table" poke "$slots" 32 1
	for _ in 1 2 3; do
		sleep 1.1
		say "$session" "SELECT 1"
		check "still there" "time_sensitive 100" "$(tier "$session_pid")"
	done
	check "mappings of a session" 1 "$(tables_mapped "$session_pid")"
	check "mappings of the launcher" 1 "$(tables_mapped "$speaker")"
	close_session "$session"
	replace_table
}

# A session whose slot another process has taken gets another, and leaves that one alone.
case_slot_taken() {
	open_session main app
	check_soon "a slot" "time_sensitive 100" "say $session 'SELECT 1'; tier $session_pid"
	"$table" take "$slots" "$session_pid"
	check "taken" "" "$(tier "$session_pid")"
	check_soon "another" "time_sensitive 100" "say $session 'SELECT 1'; tier $session_pid"
	say "$session" "SET giveway.tier = background"
	check "which it speaks in" "background 100" "$(tier "$session_pid")"
	close_session "$session"
	check_soon "given back" "" "tier $session_pid"
	check "the taker's" 1 "$("$table" show "$slots" | grep -c '^1 ')"
	replace_table
}

# What page 0 says of the table's size is asked once. Later it may say anything.
case_header_written_over() {
	local size number at=12 speaker
	replace_table
	size=$("$table" size "$slots")
	check_soon "a checkpointer's slot" time_sensitive "system main checkpointer"
	open_session main
	say "$session" "SET giveway.tier = time_sensitive"
	check_soon "a slot" "time_sensitive 100" "say $session 'SELECT 1'; tier $session_pid"
	speaker=$(launcher)
	for number in 0 1 2 1073741824 4294967295; do
		"$table" poke "$slots" $at $number
		say "$session" "SELECT count(*) > 0 FROM giveway_stat_activity WHERE slot > 0"
		check "the view with $number slots" t "$said"
		check "a new session with $number slots" t "$(sql main "SELECT count(*) >= 0 FROM giveway_slots()")"
		"$table" wipe "$slots"
		check_soon "a slot of a table of $number" "time_sensitive 100" \
			"say $session 'SELECT 1'; tier $session_pid"
		check_soon "a checkpointer's of a table of $number" 1 \
			"say $session \"SELECT count(*) FROM giveway_stat_activity
				WHERE backend_type = 'checkpointer' AND tier = 'time_sensitive'\"; echo \$said"
	done
	"$table" poke "$slots" $at $((size + 1))
	check "the launcher is the same" "$speaker" "$(launcher)"
	check "processes that crashed" 0 "$(grep -c 'terminated by signal' "$work/main/log")"
	close_session "$session"
}

# Whatever a program writes there that may write the table, the server runs on.
case_scribbled_over() {
	local scribbler speaker started
	"$bin/pgbench" -h "$work/main" -U postgres -i -q postgres >/dev/null 2>&1
	speaker=$(launcher)
	open_session main app
	echo "SELECT count(*) FROM giveway_stat_activity; SELECT count(*) FROM giveway_status();
		SELECT count(*) FROM giveway_stat_slots;" >"$work/views.sql"
	(
		forget_sessions
		exec "$table" scribble "$slots"
	) &
	scribbler=$!
	# Sessions come and go, others stay and look.
	"$bin/pgbench" -h "$work/main" -U postgres -c 2 -T 4 -n -f "$work/views.sql" postgres \
		>"$work/views.log" 2>&1 &
	started=$!
	"$bin/pgbench" -h "$work/main" -U postgres -c 4 -T 4 -C -n postgres \
		>"$work/pgbench.log" 2>&1 || problem="  $(tail -3 "$work/pgbench.log")"
	wait "$started" || problem="  $(tail -3 "$work/views.log")"
	check "parallel query" 40 "$(sql main "SELECT count(*) FROM many")"
	say "$session" "SELECT count(*) > 0 FROM giveway_stat_activity"
	check "a session that was there before" t "$said"
	close_session "$session"
	kill "$scribbler" || problem="  the scribbler has ended by itself"
	wait "$scribbler" 2>/dev/null || true
	check "the launcher is the same" "$speaker" "$(launcher)"
	check "processes that crashed" 0 "$(grep -c 'terminated by signal' "$work/main/log")"
	check "errors" "" "$(grep -A1 'lock .* is not held\|PANIC' "$work/main/log")"
	replace_table
}

# With no slot left everything works, and a slot that gets free is taken. Who has
# none is counted, and the first is named in the log.
case_slots_exhausted() {
	local before
	replace_table
	"$table" fill "$slots"
	before=$(sql main "SELECT without_room FROM giveway_stat_slots")
	open_session main app
	check_soon "counted" t "sql main 'SELECT without_room > $before AND used = slots FROM giveway_stat_slots'"
	check "lines about it in the log" 1 "$(grep -c 'slots of the table are taken' "$work/main/log")"
	check "no slot" "" "$(slot "$session_pid")"
	say "$session" "SET giveway.tier = background"
	check "SET all the same" "" "$said"
	say "$session" "SELECT value FROM giveway_status() WHERE item = 'this session'"
	check "status" "has no slot: there was no room; it will try again" "$said"
	check "what the status warns of" t "$(sql main "SELECT value LIKE '%without a slot have no ceiling%'
		FROM giveway_status() WHERE item = 'slots'")"
	check "locks" "none" \
		"$(sql main "SELECT replace(giveway_test_reader(2), 'no slot', 'none')")"
	replace_table
	check_soon "a slot later" "background 100" "say $session 'SELECT 1'; tier $session_pid"
	close_session "$session"
}

# The last slots of a large table are as good as the first.
case_every_slot_is_found() {
	replace_table 1023
	# One for this session, others for the server's processes and the views below.
	"$table" fill "$slots" 12
	open_session main app
	check_soon "one of the last slots" "time_sensitive 100" "say $session 'SELECT 1'; tier $session_pid"
	check "the status does not warn" f "$(sql main "SELECT value LIKE '%without a slot have no ceiling%'
		FROM giveway_status() WHERE item = 'slots'")"
	check "in the view" "time_sensitive" \
		"$(sql main "SELECT tier FROM giveway_slots() WHERE pid = $session_pid")"
	close_session "$session"
	check_soon "given back" "" "tier $session_pid"
	replace_table
}

# A server that may not enter the directory asks the daemon. One that is deaf, slow
# or busy keeps nobody waiting, nor does one that hangs up.
case_daemon_asked() {
	local how daemon report at=$work/asked began
	unprivileged mkdir -p "$at/bpf"
	# It is no table, and opening it is refused.
	unprivileged mkfifo "$at/bpf/giveway_slots"
	for how in deaf full slow close answer; do
		rm -f "$at/table"
		"$table" create "$at/table" 64
		"$table" listen "$at/hints.sock" $how "$at/table" &
		daemon=$!
		wait_until "[ -S '$at/hints.sock' ]" || problem="  no daemon"
		began=$SECONDS
		new_cluster "asks_$how" "giveway.hints_dir = '$at/bpf'"
		start "asks_$how"
		open_session "asks_$how"
		say "$session" "SET giveway.tier = time_sensitive"
		say "$session" "SELECT 2"
		check "$how: a session" 2 "$said"
		sql "asks_$how" "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'" \
			>"$work/asks_$how/checkpointer"
		if [ $how = answer ]; then
			check_soon "answer: a slot" "time_sensitive 100" \
				"say $session 'SELECT 1'; '$table' show '$at/table' $session_pid | cut -d' ' -f2,3"
			check_soon "answer: slots by the launcher" 1 "'$table' show '$at/table' |
				cut -d' ' -f1 | grep -cx \$(head -1 '$work/asks_$how/checkpointer')"
		fi
		if [ $how = answer ]; then
			# A report that is one statement, and its parallel workers.
			sql "asks_$how" "CREATE TABLE pages AS SELECT generate_series(1, 1000) AS number"
			PGOPTIONS="-c giveway.tier=background -c min_parallel_table_scan_size=0 \
				-c parallel_setup_cost=0 -c parallel_tuple_cost=0" \
				sql "asks_$how" "SELECT count(pg_sleep(0.01)) FROM pages" >/dev/null &
			report=$!
			check_soon "answer: a first statement and its workers" 3 \
				"'$table' show '$at/table' | cut -d' ' -f2 | grep -cx background"
			sql "asks_$how" "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
				WHERE query LIKE '%count(pg_sleep%' AND pid <> pg_backend_pid()" >/dev/null
			wait "$report"
		fi
		[ $how != deaf ] || check_soon "$how: lines in the log" 1 \
			"grep -c 'has not answered' '$work/asks_$how/log'"
		close_session "$session"
		stop "asks_$how"
		# A second for each of the launcher's rounds above, and much for a busy machine.
		[ $((SECONDS - began)) -lt 40 ] || problem="$problem  $how: $((SECONDS - began)) s
"
		kill "$daemon"
		wait "$daemon" 2>/dev/null || true
		rm "$at/hints.sock"
	done

	# A session that is older than the daemon: who asks for the status has it.
	start asks_answer
	sql asks_answer "CREATE EXTENSION giveway" >/dev/null
	open_session asks_answer
	(
		forget_sessions
		exec "$table" listen "$at/hints.sock" answer "$at/table"
	) &
	daemon=$!
	wait_until "[ -S '$at/hints.sock' ]" || problem="  no daemon"
	say "$session" "SELECT value FROM giveway_status() WHERE item = 'table'"
	check "answer: the status" mapped "$said"
	close_session "$session"
	stop asks_answer
	kill "$daemon"
	wait "$daemon" 2>/dev/null || true
}

# Two clusters with one table see their own slots only.
case_two_clusters() {
	new_cluster other
	start other
	sql other "CREATE EXTENSION giveway" >/dev/null
	open_session main
	local pid=$session_pid first=$session
	open_session other
	check "own" 1 "$(sql other "SELECT count(*) FROM giveway_slots() WHERE pid = $session_pid")"
	check "not the other's" 0 "$(sql other "SELECT count(*) FROM giveway_slots() WHERE pid = $pid")"
	check "nor the other way" 0 \
		"$(sql main "SELECT count(*) FROM giveway_slots() WHERE pid = $session_pid")"
	check "domains" 2 "$("$table" show "$slots" | cut -d' ' -f7 | sort -u | wc -l)"
	close_session "$first"
	# A process that was killed just before the end is swept at the end.
	"$table" plant "$slots" 999999 "$session_pid"
	close_session "$session"
	stop other
	check "slots of a cluster that has ended" 1 \
		"$("$table" show "$slots" | cut -d' ' -f7 | sort -u | wc -l)"
}

# SIGKILL of a backend, in the middle of holding a lock: the server restarts
# its processes, as ever; slots of the dead are swept, others stay.
case_killed_backend() {
	open_session main
	local pid=$session_pid
	begin "$session" "SELECT giveway_test_hold('lwlock', '{1}', 20)"
	sleep 0.2
	kill -9 "$pid"
	wait_until "sql main 'SELECT 1' | grep -qx 1" || problem="  the server does not come back"
	check_soon "slot of the killed" "" "slot $pid"
	open_session main app
	check "after the restart" "time_sensitive 100" "$(tier "$session_pid")"
	check "locks" "$(sql main "SELECT value FROM giveway_status() WHERE item = 'hints'")" \
		"$(sql main "SELECT giveway_test_reader(4)")"
	# The sweeper takes the dead, not the living.
	"$table" plant "$slots" "$pid" "$session_pid"
	check_soon "swept" "" "slot $pid"
	check "the living" "time_sensitive 100" "$(tier "$session_pid")"
	close_session "$session"
}

case_postmaster_restart() {
	stop main
	check "slots of a stopped server" "" "$("$table" show "$slots")"
	start main
	open_session main app
	check "after the start" "time_sensitive 100" "$(tier "$session_pid")"
	close_session "$session"
}

# PgBouncer in transaction mode: one server connection, several clients.
case_pooler() {
	local pooler=/usr/sbin/pgbouncer version
	[ -n "${PGBOUNCER:-}" ] && pooler=$PGBOUNCER
	if [ ! -x "$pooler" ]; then
		skip="pgbouncer is not installed (scripts/setup.sh)"
		return
	fi
	version=$("$pooler" --version | sed -n 's/^PgBouncer 1\.\([0-9]*\).*/\1/p')
	mkdir "$work/pool"
	{
		echo "[databases]"
		echo "* = host=$work/main"
		echo "[pgbouncer]"
		echo "listen_addr ="
		echo "listen_port = 5432"
		echo "unix_socket_dir = $work/pool"
		echo "auth_type = any"
		echo "pool_mode = transaction"
		echo "default_pool_size = 1"
		echo "logfile = $work/pool/log"
		[ "$version" -lt 20 ] || echo "track_extra_parameters = giveway.tier, giveway.weight"
	} >"$work/pool/ini"
	sed -i '/^\* = /s/$/ user=app/' "$work/pool/ini"
	"$pooler" "$work/pool/ini" >"$work/pool/out" 2>&1 &
	local pooler_pid=$!
	wait_until "sql pool 'SELECT 1' app | grep -qx 1" || problem="  $(cat "$work/pool/out")"

	local mine="SELECT tier, weight FROM giveway_slots() WHERE pid = pg_backend_pid()"
	open_session pool app
	local first=$session
	open_session pool app
	say "$first" "BEGIN; SET LOCAL giveway.tier = background; SET LOCAL giveway.weight = 9; $mine; COMMIT"
	check "SET LOCAL" "background|9" "$said"
	say "$session" "$mine"
	check "the next client" "time_sensitive|100" "$said"
	if [ "$version" -ge 20 ]; then
		say "$first" "SET giveway.weight = 11"
		say "$session" "$mine"
		check "the other's SET" "time_sensitive|100" "$said"
		say "$first" "$mine"
		check "its own SET" "time_sensitive|11" "$said"
	fi
	close_session "$first"
	close_session "$session"
	kill "$pooler_pid"
	wait "$pooler_pid" 2>/dev/null || true
	[ -n "$problem" ] || [ "$version" -ge 20 ] ||
		skip="SET LOCAL passed; pgbouncer 1.$version is older than 1.20 and cannot track a SET"
}

# A session that loads the library for itself has everything but the launcher.
case_not_preloaded() {
	stop main
	configure main "shared_preload_libraries = ''"
	start main
	check "LOAD" "cgroup|100" "$(sql main "LOAD 'giveway'; SELECT tier, weight
		FROM giveway_slots() WHERE pid = pg_backend_pid()")"
	check "status" "no: name giveway in shared_preload_libraries, or only sessions that load it count" \
		"$(sql main "SELECT value FROM giveway_status() WHERE item = 'preloaded'")"
	check "hints" 1 "$(sql main "SELECT count(*) FROM giveway_status()
		WHERE item = 'hints' AND value IN ('stock', 'patched')")"
	check "giveway_set" "ERROR:  giveway was not loaded at the start of the server" "$(
		sql main "SELECT giveway_set(pg_backend_pid(), 'background')" | head -n 1)"
	stop main
	# As the cases after this one expect it.
	configure main "shared_preload_libraries = 'giveway, giveway_test'"
	start main
}
