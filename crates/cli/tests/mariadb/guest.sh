#!/bin/bash
# MariaDB under UFS: sysbench's oltp_read_write beside two loops of mysqldump, whose user
# is in the background by SQL. Claims as in guest.sh; mariadb.rs knows their names.
#
#	CPU 0, 1	the server
#	CPU 2		sysbench, which always has work: 4 threads without pauses
#	CPU 3		the clients of mysqldump, so that only the server's work is compared
#
# The same load and CPUs in every arm:
#
#	arm		scheduler	background users
#	alone		EEVDF		(nobody dumps)
#	eevdf		EEVDF		none
#	ufs		UFS		none
#	ufs_sql		UFS		backup
#	ufs_alone	UFS		(nobody dumps)
#
# Each is measured $rounds times in turn; a round's share is that of its own `alone`.
rounds=3 seconds=2

claim() { # NAME WHAT-IS-THERE WHAT-SHOULD-BE
	if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1: '$2' instead of '$3'"; fi
}
at_least() { [ "$1" -ge "$2" ] && echo "at least $2"; }
at_most() { [ "$1" -le "$2" ] && echo "at most $2"; }

data=/dev/shm/data socket=/dev/shm/socket
export PATH=$PATH:/lab
chmod 755 /lab /lab/giveway /lab/scx_ufs
cp -a /srv/mariadb $data
mkdir /dev/shm/plugins
cp giveway.so /dev/shm/plugins/
sql() { mariadb --no-defaults -N -B -S $socket "$@"; }
status() { sql -e "SHOW STATUS LIKE 'giveway_$1'" | cut -f2; }

taskset -c 0,1 mariadbd --no-defaults --datadir=$data --user=mysql --socket=$socket \
	--skip-networking --plugin-dir=/dev/shm/plugins --plugin-load-add=giveway \
	--innodb-buffer-pool-size=64M --innodb-log-file-size=16M >/dev/shm/log 2>&1 &
server=$!
until sql -e 'SELECT 1' >/dev/null 2>&1; do
	kill -0 $server || { cat /dev/shm/log; exit 1; }
	sleep 0.2
done
sql -e 'SELECT VERSION()'
grep giveway /dev/shm/log
claim plugin_loads "$(sql -e "SELECT plugin_status FROM information_schema.plugins WHERE plugin_name = 'giveway'")" ACTIVE
case $(status status) in *"giveway start"*) echo ok says_what_is_missing ;; *) echo "not ok says_what_is_missing: $(status status)" ;; esac
# What the plugin looks up in the server is in this version, too.
for symbol in _Z19check_global_accessP3THD11privilege_tb thd_priv_user thread_handling; do
	claim has_$symbol "$(grep -ac $symbol "$(command -v mariadbd)" | sed 's/[1-9][0-9]*/some/')" some
done

# dumps: until killed. Each that ends is a line in /dev/shm/dumps.
dumps() {
	while taskset -c 3 mariadb-dump --no-defaults -S $socket -u backup --single-transaction \
		sbtest >/dev/null; do
		echo >>/dev/shm/dumps
	done
}

# What sysbench reaches: sets tps (in tenths) and p95 (in us).
oltp() {
	taskset -c 2 sysbench oltp_read_write --db-driver=mysql --mysql-socket=$socket \
		--mysql-user=app --tables=4 --table-size=5000 --threads=4 --time=$seconds \
		--percentile=95 --rand-seed=$((round + 1)) run >/dev/shm/said 2>&1 ||
		cat /dev/shm/said
	tps=$(sed -n 's/.*transactions: .*(\([0-9]*\)\.\([0-9]\).*/\1\2/p' /dev/shm/said)
	p95=$(sed -n 's/.*95th percentile: *\([0-9]*\)\.\([0-9]*\)/\1\20/p' /dev/shm/said)
}

# measure ARM: one line of figures; keeps the share of `alone` for the medians.
measure() {
	: >/dev/shm/dumps
	loops=
	case $1 in
	*alone) ;;
	*)
		for i in 1 2; do
			dumps &
			loops="$loops $!"
		done
		sleep 0.3
		;;
	esac
	oltp
	[ -z "$loops" ] || {
		kill $loops
		pkill -x mariadb-dump
		wait $loops
	} 2>/dev/null
	# Their sessions may not reach into the next arm.
	for _ in $(seq 50); do
		left=$(sql -e "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'backup'")
		[ "$left" != 0 ] || break
		sleep 0.1
	done
	[ "$left" = 0 ] || echo "$left dumps are left"
	[ $1 != alone ] || alone=$tps
	share=$((tps * 1000 / alone))
	echo "$share" >>/dev/shm/share.$1
	echo "$p95" >>/dev/shm/p95.$1
	wc -l </dev/shm/dumps >>/dev/shm/dumps.$1
	echo "round $((round + 1)) $1: $((tps / 10)).$((tps % 10)) transactions/s, $share per mille of alone, p95 $p95 us, $(wc -l </dev/shm/dumps) dumps"
}
median() { sort -n "$1" | sed -n "$(((rounds + 1) / 2))p"; }
ufs() { # on, off
	if [ $1 = on ]; then giveway start --timeout 60; else giveway stop; fi || exit 1
	[ $1 = off ] || for _ in $(seq 12); do [ "$(status status)" = on ] && break; sleep 1; done
}

# Caches are warm from here on.
round=0
oltp
for round in $(seq 0 $((rounds - 1))); do
	measure alone
	measure eevdf
	ufs on
	measure ufs
	sql -e "SET GLOBAL giveway_background_users = 'backup'"
	measure ufs_sql
	sql -e "SET GLOBAL giveway_background_users = ''"
	measure ufs_alone
	[ $round != 0 ] || {
		claim table_is_had "$(status status)" on
		claim no_slot_is_left "$(status slots)" 0
	}
	ufs off
done
for arm in alone eevdf ufs ufs_sql ufs_alone; do
	echo "median $arm: $(median /dev/shm/share.$arm) per mille of alone, p95 $(median /dev/shm/p95.$arm) us, $(median /dev/shm/dumps.$arm) dumps"
done
claim without_ufs_dumps_cost "$(at_most "$(median /dev/shm/share.eevdf)" 900)" "at most 900"
claim without_the_setting_dumps_cost "$(at_most "$(median /dev/shm/share.ufs)" 900)" "at most 900"
claim dumps_give_way_by_sql "$(at_least "$(median /dev/shm/share.ufs_sql)" 950)" "at least 950"
kill $server
wait $server
exit 0
