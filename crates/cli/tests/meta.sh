#!/bin/sh
# Tries `giveway meta` as root in a kernel with sched_ext: EEVDF and UFS take
# turns, the scheduler is killed, one fails to load, the daemon is killed. Each
# claim ends in one line, `ok NAME` or `not ok NAME: what was there instead`;
# tests/meta_in_kernel.rs knows the names.

claim() { # NAME WHAT-IS-THERE WHAT-SHOULD-BE
	if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1: '$2' instead of '$3'"; fi
}
has() { # NAME TEXT PATTERN
	case $2 in *$3*) echo "ok $1" ;; *) echo "not ok $1: '$2' lacks '$3'" ;; esac
}
ext=/sys/kernel/sched_ext log=/tmp/meta.log
until_state() { for _ in $(seq 600); do [ "$(cat $ext/state)" = "$1" ] && return; sleep 0.05; done; }
until_said() { for _ in $(seq 600); do grep -q "$1" $log && return; sleep 0.05; done; }
said() { grep -c "$1" $log; }
# The beginning of a turn, and so much of it that the supervisor knows, too.
until_turn() { until_state disabled; until_state enabled; sleep 0.1; }
processes() { ps -C scx_ufs -o stat= | grep -vc Z; }

cat >meta.toml <<END
[[scheduler]]
name = "bad"
command = ["sh", "-c", "echo the verifier says no; exit 1"]
ops = "bad"

[[application]]
name = "spin"
command = ["sh", "-c", "echo '{\"throughput_per_s\": 5, \"p99_s\": 0.01}'"]

[[turn]]
scheduler = "eevdf"
timeslice_ms = 100
[[turn]]
scheduler = "scx_ufs"
timeslice_ms = 300
[[turn]]
scheduler = "bad"
timeslice_ms = 50

[limits]
back_off_s = 0.5
END

# What there is.
list=$(giveway meta schedulers)
has list_usable "${list%%not usable*}" scx_ufs
has list_unusable "${list##*not usable}" "scx_rusty is not installed"

# Somebody locks what an older version has left, which he could read.
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
chmod 755 /lab /lab/giveway
mkdir -p /run/giveway/meta; : >/run/giveway/meta/lock; chmod 644 /run/giveway/meta/lock
as_nobody flock /run/giveway/meta/lock sleep 1000 &
sleep 1

# Nobody runs.
giveway meta status >/dev/null; claim status_when_out "$?" 1

# UFS, measured beside EEVDF and one that does not load.
sed '/turn/,/timeslice/d' meta.toml >measure.toml
sed -i '1i schedulers = ["scx_ufs", "bad"]\nmeasurements = "/tmp/m.json"' measure.toml
giveway meta measure --config measure.toml --repetitions 1 >/tmp/measured 2>&1
claim measure "$?" 0
has measure_counts "$(cat /tmp/measured)" "2 readings, 1 faults, 0 left out"
has measure_words "$(cat /tmp/m.json)" "the verifier says no"
claim measure_leaves "$(cat $ext/state)" disabled
has plan "$(giveway meta plan --config measure.toml)" "eevdf all the time"

# Somebody else's scheduler is neither measured over nor pushed aside.
giveway start >/dev/null
giveway meta measure --config measure.toml >/tmp/measured 2>&1
claim measure_occupied "$?" 1
giveway meta run --config meta.toml 2>$log & daemon=$!
until_said "loaded by another program"
has aside "$(giveway meta status)" "which another program loaded"
claim one_process "$(processes)" 1
giveway stop >/dev/null
until_said "resuming"
claim one_daemon "$(giveway meta run --config meta.toml 2>&1 | grep -c 'runs already')" 1

# Turns: the state is what the log says, and never two.
until_said "scx_ufs is attached"
has bad_said "$(until_said 'bad failed to load'; cat $log)" "last output: the verifier says no; not tried again"
until_turn
has ops "$(cat $ext/root/ops)" ufs
claim one_at_a_time "$(processes)" 1
claim lock_is_root_s "$(stat -c '%a %U' /run/giveway/meta/lock)" "600 root"
claim status_by_others "$(as_nobody giveway meta status | head -1)" "metascheduler  runs"
pkill -u 65534

# The scheduler is killed in its turn: Linux's own, and it is tried again.
until_turn
before=$(said "scx_ufs is attached")
kill -9 $(pgrep -x scx_ufs)
until_said "scx_ufs exited: killed by SIGKILL"
has killed_said "$(cat $log)" "scx_ufs exited: killed by SIGKILL"
has killed_status "$(giveway meta status)" "fault          scx_ufs (1 so far)"
for _ in $(seq 200); do [ "$(said 'scx_ufs is attached')" -gt "$before" ] && break; sleep 0.05; done
claim killed_tried_again "$([ "$(said 'scx_ufs is attached')" -gt "$before" ] && echo yes)" yes

# A scheduler that hangs (stopped) in its turn does not answer and is killed.
sed -i 's/^back_off_s.*/&\nstop_s = 0.3/' meta.toml
until_said "the configuration has changed"
until_turn
kill -STOP $(pgrep -x scx_ufs)
until_said "did not stop when asked"
has stopped_said "$(cat $log)" "scx_ufs did not stop when asked and was killed"
until_state disabled
claim stopped_is_out "$(cat $ext/state)" disabled

# A pause, and its end.
giveway meta pause
until_said "paused: "; sleep 1
claim paused "$(cat $ext/state) $(processes)" "disabled 0"
has paused_status "$(giveway meta status)" "metascheduler  paused"
giveway meta resume
before=$(said "scx_ufs is attached")
for _ in $(seq 200); do [ "$(said 'scx_ufs is attached')" -gt "$before" ] && break; sleep 0.05; done
claim resumed "$([ "$(said 'scx_ufs is attached')" -gt "$before" ] && echo yes)" yes
has metrics "$(cat /run/giveway/meta/metrics.prom)" 'faults_total{scheduler="bad"}'

# `giveway stop` is for good, though UFS was to have more turns, and no fault of UFS.
until_turn
faults() { giveway meta status | grep -c 'scx_ufs (1 so far)'; }
before=$(faults); giveway stop >/tmp/said 2>/tmp/err; claim stop_in_a_turn "$?" 0
has stop_says_who_is_paused "$(cat /tmp/err)" "'giveway meta resume' has it go on"
sleep 2; claim stop_is_for_good "$(cat $ext/state) $(processes)" "disabled 0"
claim stop_is_no_fault "$(faults)" "$before"
scx_ufs --monitor 100 >/dev/null 2>&1 & monitor=$!
until_monitor() { for _ in $(seq 600); do [ "$(processes)" = 1 ] && return; sleep 0.1; done; }
until_monitor; giveway stop >/tmp/said; claim stop_while_paused "$? $(cat /tmp/said)" "0 UFS is not loaded"
claim monitor_stays "$(processes)" 1
kill -9 $monitor; giveway meta resume

# The daemon is killed while a scheduler is in force: the scheduler goes, too.
until_turn
kill -9 $daemon; wait $daemon
until_state disabled
claim daemon_killed "$(cat $ext/state) $(processes)" "disabled 0"

# Told to end, it leaves Linux's own in force.
giveway meta run --config meta.toml 2>$log & daemon=$!
until_said "scx_ufs is attached"
kill -TERM $daemon; wait $daemon; claim ended "$?" 0
claim ended_leaves "$(cat $ext/state) $(processes)" "disabled 0"
