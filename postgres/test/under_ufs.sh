# SPDX-License-Identifier: MIT OR Apache-2.0
# Cases that take UFS, sourced by guest.sh: what it makes of the slots of a
# server, and what becomes of them when one of the two is killed.
#
# They use the cluster "main" and the roles of cases.sh, and stand alone, too:
# ready() makes what is missing.

cases_under_ufs="
case_obeyed
case_boosted
case_killed_in_a_boost
case_ufs_restarted_under_load
case_ufs_maps_once
case_session_cgroups
"

# ready: UFS is loaded, and main runs with its extensions.
ready() {
	[ -n "$ufs_pid" ] || load_ufs 64
	if [ ! -d "$work/main" ]; then
		new_cluster main "max_parallel_workers = 8"
		start main
		sql main "CREATE ROLE app LOGIN; ALTER ROLE app SET giveway.tier = time_sensitive" >/dev/null
		sql main "CREATE EXTENSION giveway; CREATE EXTENSION giveway_test" >/dev/null
	fi
}

# obeyed PID: the tier and weight that UFS says it gives this process.
obeyed() {
	"$table" show "$slots" "$1" | cut -d' ' -f8,9
}

# figure PID COLUMN: what the view says of a process.
figure() {
	sql main "SELECT $2 FROM giveway_stat_activity WHERE pid = $1"
}

# UFS takes tier and weight from a server's slots, as they come and go.
case_obeyed() {
	ready
	open_session main
	say "$session" "SET giveway.tier = background"
	say "$session" "SET giveway.weight = 300"
	check_soon "a background session" "background 300" \
		"say $session 'SELECT giveway_test_burn(0.01)'; obeyed $session_pid"
	begin "$session" "BEGIN; SET LOCAL giveway.tier = time_sensitive;
		SELECT giveway_test_burn(0.05); COMMIT"
	await "$session"
	check_soon "after SET LOCAL" "background 300" \
		"say $session 'SELECT giveway_test_burn(0.01)'; obeyed $session_pid"
	# Of the two tiers each has been given CPU time.
	say "$session" "SET giveway.tier = time_sensitive"
	check_soon "an urgent session" "time_sensitive 300" \
		"say $session 'SELECT giveway_test_burn(0.01)'; obeyed $session_pid"
	check "CPU time in the view" t "$(figure "$session_pid" "cpu_ms > 50")"
	close_session "$session"
}

# three_on_one_cpu HOLD_S BURN_S: a background session holds a lock for HOLD_S of
# CPU time, an urgent one burns the CPU for BURN_S, another wants the lock. Sets
# holder, waiter and burner, and the same with _pid.
three_on_one_cpu() {
	open_session main
	holder=$session holder_pid=$session_pid
	say "$holder" "SET giveway.tier = background"
	open_session main app
	burner=$session burner_pid=$session_pid
	open_session main app
	waiter=$session waiter_pid=$session_pid
	for pid in "$holder_pid" "$burner_pid" "$waiter_pid"; do
		taskset -p -c 0 "$pid" >/dev/null
	done
	begin "$holder" "SELECT * FROM giveway_test_hold('lwlock', '{3}', $1)"
	sleep 0.1
	begin "$burner" "SELECT giveway_test_burn($2) > 0"
	sleep 0.1
	begin "$waiter" "SELECT * FROM giveway_test_hold('lwlock', '{3}', 0)"
}

close_three() {
	for session in "$holder" "$burner" "$waiter"; do
		close_session "$session"
	done
}

grant_to_app() {
	sql main "GRANT EXECUTE ON FUNCTION giveway_test_hold, giveway_test_burn TO app" >/dev/null
}

# An urgent waiter does not wait for as long as urgent work burns the CPU: the
# background holder is let finish. The view says so; without hints it is not so.
case_boosted() {
	ready
	grant_to_app
	three_on_one_cpu 0.4 4
	await "$waiter"
	check "waiter with hints" "in time" \
		"$(awk -F'|' '{ print ($1 < 1.0 ? "in time" : "waited " $1) }' <<<"$said")"
	check "boosts in the view" "t|t|0" \
		"$(figure "$holder_pid" "boosts > 0, boosted_ms > 50, boosts_expired")"
	await "$burner"
	await "$holder"
	close_three

	sql main "ALTER SYSTEM SET giveway.hints = off" >/dev/null
	reload main
	three_on_one_cpu 0.4 4
	await "$waiter"
	check "waiter without hints" "waited" \
		"$(awk -F'|' '{ print ($1 > 2.0 ? "waited" : "in time " $1) }' <<<"$said")"
	check "no boosts in the view" "0" "$(figure "$holder_pid" boosts)"
	await "$burner"
	await "$holder"
	close_three
	sql main "ALTER SYSTEM RESET giveway.hints" >/dev/null
	reload main
}

# SIGKILL of a boosted holder, and of its waiter: the server restarts its
# processes, their slots come free, and nothing of the boost is left.
case_killed_in_a_boost() {
	local victim pid loads
	ready
	grant_to_app
	loads=$(cat /sys/kernel/sched_ext/enable_seq)
	for victim in holder waiter; do
		three_on_one_cpu 60 60
		check_soon "a boost before the $victim is killed" t "figure $holder_pid 'boosts > 0'"
		pid=${victim}_pid
		kill -9 "${!pid}"
		await "$waiter"
		wait_until "sql main 'SELECT 1' | grep -qx 1" ||
			problem="$problem  the server does not come back
"
		for pid in "$holder_pid" "$burner_pid" "$waiter_pid"; do
			check_soon "slot of $pid, $victim killed" "" "slot $pid"
		done
		close_three
	done
	check "UFS" "enabled $loads" \
		"$(cat /sys/kernel/sched_ext/state /sys/kernel/sched_ext/enable_seq | tr '\n' ' ' | sed 's/ $//')"
	open_session main app
	check_soon "a session after that" "time_sensitive 100" \
		"say $session 'SELECT giveway_test_burn(0.01)'; obeyed $session_pid"
	close_session "$session"
}

# done_so_far: transactions of pgbench in main.
done_so_far() {
	sql main "SELECT count(*) FROM pgbench_history"
}

# UFS leaves, orderly or not, and comes back, while clients work: what sessions
# have said is in force again, and so is what they say meanwhile.
case_ufs_restarted_under_load() {
	local load before pid signal weight=200
	ready
	"$bin/pgbench" -h "$work/main" -U postgres -i -q postgres >/dev/null 2>&1
	"$bin/pgbench" -h "$work/main" -U postgres -n -c 4 -R 40 -T 3600 postgres \
		>"$work/pgbench.log" 2>&1 &
	load=$!
	open_session main app
	pid=$session_pid
	for signal in TERM KILL; do
		say "$session" "SET giveway.weight = $weight"
		check_soon "before SIG$signal" "time_sensitive $weight" \
			"say $session 'SELECT giveway_test_burn(0.01)'; obeyed $pid"
		unload_ufs "$signal"
		check "slot while UFS is away" "time_sensitive $weight" "$(tier "$pid")"
		check "status while UFS is away" 'UFS is not attached: load it with "giveway start"' \
			"$(say "$session" "SELECT value FROM giveway_status() WHERE item = 'scheduler'"
			printf %s "$said")"
		weight=$((weight + 50))
		say "$session" "SET giveway.weight = $weight"
		before=$(done_so_far)
		check_soon "clients without UFS" t "sql main 'SELECT count(*) > $before FROM pgbench_history'"
		load_ufs "$ufs_slots"
		check "slot when UFS is back" "time_sensitive $weight" "$(tier "$pid")"
		check_soon "what was said meanwhile" "time_sensitive $weight" \
			"say $session 'SELECT giveway_test_burn(0.01)'; obeyed $pid"
		before=$(done_so_far)
		check_soon "clients with UFS" t "sql main 'SELECT count(*) > $before FROM pgbench_history'"
	done
	check "pgbench still runs" 0 "$(kill -0 "$load"; echo $?)"
	kill "$load"
	wait "$load" 2>/dev/null || true
	check "errors of pgbench" "" "$(grep -i 'error\|abort\|fatal' "$work/pgbench.log")"
	close_session "$session"
}

# mappings: BPF maps in UFS's memory.
mappings() {
	grep -c 'anon_inode:bpf-map' "/proc/$ufs_pid/maps"
}

# UFS looks for slots of the dead every five seconds, and maps the table for it
# once, or it would run out of mappings in some days.
case_ufs_maps_once() {
	local before
	ready
	sleep 6
	before=$(mappings)
	sleep 12
	check "mappings after two more sweeps" "$before" "$(mappings)"
}

# cgroup PID
cgroup() {
	sed 's/^0:://' "/proc/$1/cgroup"
}

# With the option, sessions are in cgroups by tier and weight; no other process is.
case_session_cgroups() {
	local top=/sys/fs/cgroup/pg postmaster pid foreign
	ready
	postmaster=$(head -1 "$work/main/data/postmaster.pid")
	mkdir "$top"
	for pid in "$postmaster" $(ps -o pid= --ppid "$postmaster"); do
		echo "$pid" >"$top/cgroup.procs" 2>/dev/null || true
	done
	unload_ufs
	load_ufs "$ufs_slots" --session-cgroups "$top"

	open_session main app
	pid=$session_pid
	say "$session" "SET giveway.weight = 450"
	check_soon "an urgent session" /pg/time_sensitive/weight-500 "cgroup $pid"
	check "the postmaster" /pg/server "$(cgroup "$postmaster")"
	check "the weight of its cgroup" 500 "$(cat "$top/time_sensitive/weight-500/cpu.weight")"
	say "$session" "SET giveway.tier = background"
	check_soon "a background session" /pg/background/weight-500 "cgroup $pid"
	say "$session" "SELECT giveway_test_burn(0.01)"
	check "as UFS has it" "background 450" "$(obeyed "$pid")"

	# A process number written into a slot moves no process from elsewhere.
	sleep 1000 &
	foreign=$!
	"$table" plant "$slots" "$foreign" "$pid"
	say "$session" "SET giveway.weight = 9"
	check_soon "another weight" /pg/background/weight-10 "cgroup $pid"
	check "a process that is not the server's" / "$(cgroup "$foreign")"
	kill "$foreign"
	wait "$foreign" 2>/dev/null || true

	open_session main
	say "$session" "SET giveway.tier = background"
	say "$session" "SET giveway.enabled = off"
	sleep 3
	check "a session without settings" /pg/server "$(cgroup "$session_pid")"
	say "$session" "SET giveway.enabled = on"
	check_soon "a session with a tier" /pg/background/weight-100 "cgroup $session_pid"
	say "$session" "SET giveway.enabled = off"
	check_soon "a session that has reset its tier" /pg/server "cgroup $session_pid"
	close_session "$session"
	unload_ufs
	load_ufs "$ufs_slots"
}
