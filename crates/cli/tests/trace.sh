#!/bin/sh
# Records time-sensitive work beside background work with `giveway trace` while `giveway
# top` and `giveway metrics` count it. All of the work begins after both have begun, and
# ends before they end, so what is counted of its cgroups is the same. Leaves in /results:
# trace.json, top.json, and the boosts counted before and after.

cg=/sys/fs/cgroup
in_cgroup() { # NAME COMMAND...
	dir=$cg/$1; shift
	sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$dir" "$@"
}
until_true() { for _ in $(seq 600); do "$@" && return; sleep 0.1; done; exit 1; }
is_recording() { [ "$(cat /sys/kernel/tracing/instances/giveway-*/tracing_on 2>/dev/null)" = 1 ]; }
has_joined() { [ "$(cat $cg/background-reports/cgroup.procs | wc -l)" -ge 2 ]; }
boosts() { giveway metrics | sed -n 's/^giveway_boosts_total.* //p' | awk '{ n += $1 } END { print n }'; }

giveway start || exit
mkdir $cg/urgent $cg/background-reports $cg/locks
boosts >/results/boosts.before
giveway trace --seconds 600 -o /results/trace.json 2>/results/trace.said & trace=$!
until_true is_recording
giveway top --once --json --all --interval 9 >/results/top.json & top=$!
# Long enough for the first sample.
sleep 1

# A report on each CPU gives way to nothing but time-sensitive work. They are there until
# the recording ends: the recorder, which is not optimized, may be seconds behind, and
# knows nothing of who has ended before it looks.
for cpu in 0 1; do
	in_cgroup background-reports taskset -c $cpu sh -c 'while :; do :; done' &
done
until_true has_joined
# Longer runs, more than there are CPUs at times, and many wake-ups.
in_cgroup urgent stress-ng --quiet --cpu 4 --cpu-load 20 --cpu-load-slice 10 --timeout 4 &
work="$work $!"
in_cgroup urgent cyclictest --quiet --policy=other --threads=2 --interval=5000 --duration=4 &
work="$work $!"
# A background thread that holds a lock which time-sensitive work waits for.
in_cgroup locks ./convoy 400 &
work="$work $!"
wait $work
reports=$(cat $cg/background-reports/cgroup.procs)
kill -STOP $reports
sleep 0.5
kill -0 $top || { echo "the work took longer than the count of it"; exit 1; }
wait $top
boosts >/results/boosts.after
kill -INT $trace
wait $trace || exit
kill -KILL $reports
cat /results/trace.said
giveway stop
