#!/bin/sh
# Prometheus scrapes `giveway metrics` beside work of every kind that the dashboard shows,
# and is asked what each panel asks: lines of queries.tsv, a claim's name and an expression.
# Claims as in guest.sh; dashboard/mod.rs knows their names.

claim() { # NAME WHAT-IS-THERE WHAT-SHOULD-BE
	if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1: '$2' instead of '$3'"; fi
}
prometheus=http://127.0.0.1:9090
ask() { timeout 60 promtool query instant $prometheus "$1"; }
# Whether an answer has numbers, and one above 0.
judge() {
	awk '$(NF - 2) == "=>" && $(NF - 1) ~ /^[-+.0-9e]+$/ { n++; above += $(NF - 1) > 0 }
		END { print n ? (above ? "above 0" : "all 0") : "no data" }'
}
cg=/sys/fs/cgroup
in_cgroup() { # NAME COMMAND...
	dir=$cg/$1; shift
	sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$dir" "$@"
}

ip link set lo up
# The floor's turn comes within seconds.
giveway start -- --floor-deadline-ms 200 || exit
echo +cpu >$cg/cgroup.subtree_control
# Before `giveway metrics`: a cgroup that is younger has no series for a minute.
mkdir $cg/urgent $cg/background-reports $cg/locks $cg/capped
echo "20000 100000" >$cg/capped/cpu.max
giveway metrics --listen 127.0.0.1:9752 &

cat >/tmp/prometheus.yml <<'END'
global:
  scrape_interval: 2s
scrape_configs:
  - job_name: giveway
    static_configs:
      - targets: ["127.0.0.1:9752"]
END
promtool check config /tmp/prometheus.yml
claim prometheus_takes_its_configuration "$?" 0
prometheus --version 2>&1 | head -1
prometheus --config.file=/tmp/prometheus.yml --storage.tsdb.path=/tmp/prometheus \
	--web.listen-address=127.0.0.1:9090 --log.level=warn &
for _ in $(seq 100); do ask giveway_up 2>&1 | grep -q '=> 1 ' && break; sleep 0.5; done
claim prometheus_scrapes_giveway "$(ask giveway_up | judge)" "above 0"

for cpu in 0 1; do
	in_cgroup background-reports taskset -c $cpu sh -c 'while :; do :; done' &
done
in_cgroup capped sh -c 'while :; do :; done' &
in_cgroup locks ./convoy 100000 &
# Half of the time there is a CPU for background work.
for _ in 1 2 3 4; do
	in_cgroup urgent stress-ng --quiet --cpu 2 --cpu-load 40 --timeout 3
	in_cgroup urgent stress-ng --quiet --cpu 2 --timeout 3
done

# Machines to choose from.
claim instances_are_listed "$(promtool query labels $prometheus instance)" 127.0.0.1:9752
while IFS='	' read -r name expr; do
	ask "$expr" >/tmp/answer 2>&1
	status=$?
	echo "$name: $expr"; cat /tmp/answer
	claim "$name" "$status $(judge </tmp/answer)" "0 above 0"
done <queries.tsv

# What an alarm asks.
giveway stop
for _ in $(seq 60); do ask 'giveway_up == 0' | grep -q '=> 0 ' && break; sleep 0.5; done
claim alarm_sees_that_ufs_is_away "$(ask 'giveway_up == 0' | judge)" "all 0"
exit 0
