#!/bin/sh
# Tries `giveway run`, `start`, `stop` and `status` as root in a kernel with
# sched_ext and without systemd. Each claim ends in one line, `ok NAME` or
# `not ok NAME: what was there instead`; tests/in_kernel.rs knows the names.

claim() { # NAME WHAT-IS-THERE WHAT-SHOULD-BE
	if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1: '$2' instead of '$3'"; fi
}
has() { # NAME TEXT PATTERN
	case $2 in *$3*) echo "ok $1" ;; *) echo "not ok $1: '$2' lacks '$3'" ;; esac
}
until_there() { for _ in $(seq 600); do [ -e "$1" ] && return; sleep 0.1; done; }
until_state() { for _ in $(seq 600); do [ "$(cat $ext/state)" = "$1" ] && return; sleep 0.1; done; }
# Without those that have ended and that nobody has reaped yet.
running() { ps -C scx_ufs -o stat= | grep -vc Z; }
leaves() { ls $cg/giveway/background | grep -c '^run-'; }

cg=/sys/fs/cgroup ext=/sys/kernel/sched_ext
chmod 755 /lab /lab/giveway

# What the command sees of its tier.
seen=$(giveway run -q --tier background --weight 50 -- sh -c \
	'p=$(cut -d: -f3 /proc/self/cgroup); echo $p $(cat /sys/fs/cgroup$p/cpu.weight)')
has tier "$seen" "/giveway/background/run-"
claim weight "${seen##* }" 50
claim tier_weights "$(cat $cg/giveway/time_sensitive/cpu.weight $cg/giveway/background/cpu.weight | tr '\n' ' ')" "10000 1 "
claim leaf_removed "$(leaves)" 0

# And at the disk. `ionice` prints its own class.
at_the_disk() {
	giveway run -q "$@" -- sh -c \
		'p=$(cut -d: -f3 /proc/self/cgroup); echo $(ionice) $(cat /sys/fs/cgroup$p/io.weight)'
}
claim io_background "$(at_the_disk -t background -w 50)" "idle default 50"
has io_time_sensitive "$(at_the_disk -t time_sensitive -w 50)" "none: prio"
claim io_tier_weights "$(cat $cg/giveway/time_sensitive/io.weight $cg/giveway/background/io.weight | tr '\n' ' ')" "default 10000 default 1 "
claim io_of_background_runs "$(giveway run -q -t background -- cat $cg/giveway/io.weight)" "default 1"
claim io_of_time_sensitive_runs "$(giveway run -q -t time_sensitive -- cat $cg/giveway/io.weight)" "default 100"
claim io_after_runs "$(cat $cg/giveway/io.weight)" "default 1"
# Weights that an administrator gave stay, whatever runs.
given="$cg/giveway/io.weight $cg/giveway/background/io.weight $cg/giveway/background/cpu.weight"
give() { for file in $given; do echo $1 >$file; shift; done; }
give 300 7 5
claim given_weights_of_urgent_runs "$(giveway run -q -t time_sensitive -- cat $given | xargs)" "default 300 default 7 5"
claim given_weights_of_background_runs "$(giveway run -q -t background -- cat $given | xargs)" "default 300 default 7 5"
give 1 1 1
has io_raised "$(giveway run -q -t background -- giveway run -q -t time_sensitive -- ionice)" "none: prio"
claim io_kept "$(ionice -c 3 giveway run -q -t time_sensitive -- ionice)" idle

# Exit statuses.
giveway run -q -- sh -c 'exit 7'; claim status "$?" 7
# Agents and supervisors that leave their children to the kernel pass that on.
timeout -s KILL 20 sh -c "trap '' CHLD; exec giveway run -q -- sh -c 'exit 3'"
claim status_below_who_ignores_children "$?" 3
giveway run -q -- sh -c 'kill -9 $$'; claim killed "$?" 137
giveway run -q -- /no/such/command 2>/tmp/err; claim not_found "$?" 127
giveway run -q -- /etc/passwd 2>/tmp/err; claim not_executable "$?" 126
claim leaf_removed_after_failure "$(leaves)" 0

# Signals reach the command, and its answer comes back.
giveway run -q -- sh -c 'trap "exit 3" TERM; : >/tmp/ready; while :; do sleep 0.1; done' &
until_there /tmp/ready; kill -TERM $!; wait $!; claim signal "$?" 3

# A supervisor that was killed leaves its leaf; the next run tidies up.
giveway run -q -- sh -c ': >/tmp/sleeping; exec sleep 1000' & pid=$!
until_there /tmp/sleeping; kill -9 $pid; wait $pid
claim orphan_kept "$(leaves)" 1
kill $(cat $cg/giveway/background/run-$pid/cgroup.procs); sleep 1
giveway run -q -- true; claim orphan_swept "$(leaves)" 0

# What a child leaves running is told.
has left_running "$(giveway run -- sh -c 'sleep 30 & exit 0' 2>&1 >/dev/null)" "1 tasks of the command still run"

# The note without UFS.
has note "$(giveway run -- true 2>&1)" "UFS is not loaded"
claim quiet "$(giveway run -q -- true 2>&1)" ""

# Other users.
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
as_nobody giveway run -q -- true 2>/tmp/err; claim undelegated "$?" 125
has undelegated_remedy "$(cat /tmp/err)" "systemd-run --user --scope"
delegate() { # DIRECTORY, which gets a child
	mkdir -p $1/own
	for dir in $1 $1/own; do
		chown 65534 $dir $dir/cgroup.procs $dir/cgroup.subtree_control $dir/cgroup.threads
	done
}
delegate $cg/theirs
in_theirs() { ( sh -c 'echo $PPID' >$1/cgroup.procs; shift; as_nobody "$@" ); }
seen=$(in_theirs $cg/theirs/own giveway run -q -w 30 -- cat /proc/self/cgroup 2>&1)
has delegated "$seen" "0::/theirs/giveway/background/run-"
# As systemd delegates: without the io controller.
mkdir $cg/part; echo +cpu +cpuset >$cg/part/cgroup.subtree_control; delegate $cg/part/theirs
claim io_undelegated "$(in_theirs $cg/part/theirs/own giveway run -q -w 30 -- ionice 2>&1)" idle
mkdir -p $cg/background-x
in_theirs $cg/background-x giveway run -q -t time_sensitive -- true 2>/tmp/err
claim raising "$?" 125
has raising_error "$(cat /tmp/err)" "only root"

# Another scheduler in the way: the kernel's words, said by a directory.
mkdir -p /tmp/other/root; echo enabled >/tmp/other/state; echo lavd_1.1 >/tmp/other/root/ops
mount --bind /tmp/other $ext
giveway start 2>/tmp/err; claim start_occupied "$?" 1
has start_occupied_names "$(cat /tmp/err)" "another sched_ext scheduler is loaded: lavd_1.1"
giveway stop 2>/tmp/err; claim stop_occupied "$?" 1
umount $ext

# Loading and unloading.
as_nobody giveway start 2>/tmp/err; claim start_not_root "$?" 1
giveway stop >/tmp/said; claim stop_when_out "$? $(cat /tmp/said)" "0 UFS is not loaded"
giveway start -- --no-such-option 2>/tmp/err; claim start_bad_option "$?" 1
has start_bad_option_says "$(cat /tmp/err)" "no-such-option"
claim start_bad_option_leaves "$(cat $ext/state) $(running)" "disabled 0"
giveway start 2>&1; claim start "$? $(cat $ext/state)" "0 enabled"
has start_ops "$(cat $ext/root/ops)" "ufs"
has doctor_native "$(giveway doctor)" "UFS can be loaded here"
has doctor_features "$(giveway doctor)" "the kernel has all that UFS uses"
giveway start >/tmp/said; claim start_again "$? $(cat /tmp/said)" "0 UFS is loaded already"
giveway start -- --verbose 2>/tmp/err; claim start_again_with_options "$?" 1
claim no_note "$(giveway run -- true 2>&1)" ""
giveway run -q -w 70 -- sh -c ': >/tmp/listed; sleep 1000' & run=$!
until_there /tmp/listed; giveway status >/tmp/said; cat /tmp/said
has status_scheduler "$(cat /tmp/said)" "scheduler  UFS (ufs"
has status_uptime "$(cat /tmp/said)" "uptime     "
has status_leaf "$(grep "run-$run" /tmp/said)" "    70      2  /giveway/background/run-$run"
kill $run; wait $run
# Processes, each with the tier that UFS has it in: SCHED_FIFO is none of UFS's.
cp $(command -v sleep) /tmp/napper
nap() { "$@" /tmp/napper 1000 & naps="$naps $!"; }
nap env; nap giveway run -q -t background --; nap chrt --idle 0; nap chrt --fifo 1
for _ in $(seq 100); do [ $(pgrep -cx napper) = 4 ] && break; sleep 0.1; done
giveway top --once --all --interval 0.5 --filter napper >/tmp/said; cat /tmp/said
claim process_tiers "$(awk '$2 == "napper" { print $3 }' /tmp/said | sort | xargs)" "- bg bg ts"
kill $naps; wait $naps
giveway stop; claim stop "$? $(cat $ext/state)" "0 disabled"
claim stop_leaves "$(running)" 0
has status_last_exit "$(giveway status)" "last exit  "

# A scheduler that was killed can be started again.
giveway start; pkill -9 scx_ufs; until_state disabled
giveway status; claim killed_is_out "$(giveway status --json | grep -c '"ufs": false')" 1
giveway start; claim start_after_kill "$? $(cat $ext/state)" "0 enabled"
giveway stop; claim stop_after_kill "$? $(cat $ext/state)" "0 disabled"

# What any user can do keeps root from nothing. Files and directories are locked by
# somebody who can only read them, as an older version left them, and as they are now.
hold_all() {
	for file in $(find /run/giveway -xdev -type f -o -type d); do
		as_nobody flock "$file" sleep 1000 2>/dev/null & holders="$holders $!"
	done
	sleep 1
}
# What flock has started has the lock, too.
release() { pkill -u 65534; wait $holders; }
mkdir -p /run/giveway/meta
for file in lock meta/lock; do rm -f /run/giveway/$file; : >/run/giveway/$file; chmod 644 /run/giveway/$file; done
hold_all; timeout 60 giveway start --timeout 30; claim start_beside_a_holder "$? $(cat $ext/state)" "0 enabled"
hold_all; timeout 60 giveway stop --timeout 30; claim stop_beside_a_holder "$? $(cat $ext/state)" "0 disabled"
claim locks_are_root_s "$(cd /run/giveway; stat -c '%a %U' lock loader.lock | sort -u)" "600 root"
release

# Another command of root's is waited for, for so long, and named.
giveway start & start=$!
for _ in $(seq 600); do [ -s /run/giveway/lock ] && break; sleep 0.02; done
kill -STOP $start
timeout 60 giveway start --timeout 1 2>/tmp/err; claim start_waits "$?" 1
has start_names_the_holder "$(cat /tmp/err)" "process $start (giveway start, user 0) holds /run/giveway/lock"
kill -CONT $start; wait $start; claim start_goes_on "$? $(cat $ext/state)" "0 enabled"
giveway stop

# Processes that are called as those that count, and are somebody else's.
mkdir -p /tmp/names; for name in scx_loader scx_ufs; do cp $(command -v sleep) /tmp/names/$name; done
as_nobody /tmp/names/scx_loader 1000 &
as_nobody /tmp/names/scx_ufs 1000 &
sleep 1; ufs=$(pgrep -x -u 65534 scx_ufs)
claim doctor_beside_a_namesake "$(giveway doctor | grep -c scx_loader)" 0
timeout 60 giveway start; claim start_beside_namesakes "$? $(cat $ext/state)" "0 enabled"
# Without a file of its process it is looked for by name.
rm -f /run/giveway/scx_ufs.pid
claim status_beside_a_namesake "$(giveway status --json | grep -c "\"pid\": $ufs,")" 0
timeout 60 giveway stop; claim stop_beside_namesakes "$? $(cat $ext/state)" "0 disabled"
claim namesakes_are_left_alone "$(pgrep -u 65534 -c 'scx_(loader|ufs)')" 2
pkill -u 65534

# Labels and default tier are those that UFS was loaded with.
mkdir -p $cg/batch-y
cgroup='cut -d: -f3 /proc/self/cgroup'
# CPU time of a tier so far, in whole seconds.
used() { giveway metrics | sed -n "s/^giveway_tier_run_seconds_total{tier=\"$1\"} \([0-9]*\).*/\1/p"; }
spin='timeout 3 sh -c "while :; do :; done"; true'
giveway start -- --background-label=batch
has run_label "$(giveway run -q -t background -- sh -c "$cgroup")" "/giveway/batch/run-"
has run_label_of_others "$(in_theirs $cg/theirs/own giveway run -q -t background -- sh -c "$cgroup")" "/theirs/giveway/batch/run-"
before=$(used background); giveway run -q -t background -- sh -c "$spin"
claim run_label_counts "$([ $(($(used background) - before)) -ge 2 ] && echo yes)" yes
claim status_labelled "$(giveway status | grep -c '  /batch-y$') $(giveway status | grep -c '  /background-x$')" "1 0"
has status_labels "$(as_nobody giveway status)" "labels     background: batch"
has mark_note "$(giveway mark /batch-y background 2>&1)" "UFS was loaded without --cgroup-marks"
giveway stop
giveway start -- --time-sensitive-label=web --default-tier=background --cgroup-marks
has run_default "$(giveway run -q -t time_sensitive -- sh -c "$cgroup")" "/giveway/web/run-"
in_theirs $cg/theirs/own giveway run -q -t time_sensitive -- true 2>/tmp/err
claim raising_above_the_default "$?" 125
has status_default "$(giveway status)" "default    background"
claim mark_without_note "$(giveway mark /batch-y none 2>&1)" ""
# What is marked counts in UFS's own statistics, and says so in the list.
giveway mark /batch-y time_sensitive
before=$(used time_sensitive); ( sh -c 'echo $PPID' >$cg/batch-y/cgroup.procs; sh -c "$spin" )
claim mark_counts "$([ $(($(used time_sensitive) - before)) -ge 2 ] && echo yes)" yes
claim status_marked "$(giveway status | grep -c '  /batch-y  (marked)$')" 1
# A trace knows these, too: a mark, a name that its user has chosen, SCHED_IDLE, cpu.idle.
mkdir $cg/plain $cg/web; echo +cpu >$cg/web/cgroup.subtree_control
mkdir $cg/web/work $cg/web/idle; echo 1 >$cg/web/idle/cpu.idle
in_theirs $cg/theirs/own mkdir $cg/theirs/own/web
tick() { # NAME CGROUP COMMAND...: a thread of this name, which runs now and then
	cp $(readlink -f /bin/sh) /tmp/$1; name=$1 dir=$2; shift 2
	sh -c 'echo $$ >$0/cgroup.procs; exec "$@"' $dir "$@" /tmp/$name -c 'while :; do sleep 0.05; done' &
	ticking="$ticking $name-$!"
}
ticking=
tick t-marked $cg/batch-y; tick t-chosen $cg/theirs/own/web; tick t-default $cg/plain
tick t-policy $cg/web/work chrt --idle 0; tick t-idle $cg/web/idle; tick t-web $cg/web/work
sleep 1; giveway trace --seconds 4 -o /tmp/tiers.json
# Not of the children that are to be a sleep: they may have ended when they are looked up.
tiers_of() { grep "\"name\":\"$1 $2\"" /tmp/tiers.json | grep -o '"tier":"[^"]*"' | sort -u | cut -d'"' -f4 | xargs; }
for it in $ticking; do kill -9 ${it##*-}; traced="$traced ${it%-*} $(tiers_of ${it%-*} ${it##*-})"; done
claim trace_tiers "$traced" " t-marked time_sensitive t-chosen background t-default background t-policy background t-idle background t-web time_sensitive"
giveway stop
# The next one has others.
giveway start; has run_label_of_the_next "$(giveway run -q -t background -- sh -c "$cgroup")" "/giveway/background/run-"
giveway stop
exit 0
