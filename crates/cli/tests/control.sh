#!/bin/sh
# Tries to block `giveway start`, `stop` and `status`: as another user (65534), by every
# file and socket below /run/giveway, and as whatever else can hang on a machine. Takes
# root. Each claim ends in one line, `ok NAME` or `not ok NAME: what was there instead`;
# tests/control.rs and tests/control_in_kernel.rs know the names.
#
# The kernel is a directory, and the loader a shell called scx_ufs, told by its options
# what to do: so each can be made to hang. In a guest the last part tries the real ones;
# with GIVEWAY_NATIVE set, this machine's kernel is left alone.

bin=$(dirname $(command -v giveway)) real=yes
[ "$GIVEWAY_NATIVE" ] && real=
claim() { # NAME WHAT-IS-THERE WHAT-SHOULD-BE
	if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1: '$2' instead of '$3'"; fi
}
has() { # NAME TEXT PATTERN
	case $2 in *$3*) echo "ok $1" ;; *) echo "not ok $1: '$2' lacks '$3'" ;; esac
}
# A loaded machine, or an emulated one, takes its time: far less than for ever.
slack=${GIVEWAY_SLACK:-8}
# Runs a command of --timeout SECONDS; `took` says whether that was enough, `was` what the
# kernel said before.
within() { # SECONDS COMMAND...
	limit=$(($1 + slack)) begun=$(date +%s) was=$(state); shift
	timeout -s KILL $((limit + 30)) "$@"; status=$?
	took=$(($(date +%s) - begun))
	[ $took -le $limit ] && took=intime || took="$took s"
	return $status
}
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }

# A kernel and a /run of our own, and a place for programs that others can reach.
mount --make-rprivate /
top=$(mktemp -d); chmod 755 $top
mkdir $top/bin $top/kernel
cp $bin/giveway $top/bin/giveway; cp $(readlink -f /bin/sh) $top/bin/scx_ufs; chmod 755 $top/bin/*
real_bin=$bin bin=$top/bin; PATH=$bin:$PATH
ext=/sys/kernel/sched_ext
[ "$real" ] || { mount -t tmpfs kernel /sys/kernel; mkdir -p $ext; }
mount -t tmpfs kernel $top/kernel; mkdir $top/kernel/root
mount --bind $top/kernel $ext
mount -t tmpfs -o mode=755 run /run
# Where the kernel has it; what is written there stays here.
: >$top/sysrq; mount --bind $top/sysrq /proc/sysrq-trigger 2>/dev/null || sysrq=none
say() { printf '%s\n' "$2" >$ext/root/ops; printf '%s\n' "$1" >$ext/state; }
say disabled ''
state() { cat $ext/state; }
# What a loader does: loads, and at its end the kernel unloads. It sleeps in children.
loads="echo ufs_1 >$ext/root/ops; echo enabled >$ext/state"
unloads="echo disabled >$ext/state"
# Words of options may not have blanks in the unit's way; here they may.
loader() { # TIMEOUT SCRIPT
	limit=$1; shift
	within $limit giveway start --timeout $limit -- -c "$1"
}
polite="trap '$unloads; exit 0' TERM INT; $loads; while :; do sleep 0.1; done"
rude="trap '' TERM INT; $loads; while :; do sleep 0.1; done"
# The kernel unloads what the process had when it is gone.
watch_over() { (while kill -0 $1 2>/dev/null; do sleep 0.1; done; say disabled '') & }
loaders() { ps -C scx_ufs -o stat= | grep -vc Z; }
pid() { cat /run/giveway/scx_ufs.pid; }

# 1. Other users.
loader 20 "$polite"; claim start "$? $(state) $took" "0 enabled intime"
claim modes "$(cd /run/giveway; stat -c '%a %U' . lock)" "755 root
600 root"
within 5 giveway status >/dev/null; claim status "$? $took" "0 intime"
as_nobody flock /run/giveway/lock true 2>/dev/null; claim nobody_cannot_open_the_lock "$?" 66
planted=0
for name in lock options rule rule.new scx_ufs.log scx_ufs.pid.new meta hints.sock; do
	as_nobody ln -sfn /etc/passwd /run/giveway/$name 2>/dev/null && planted=$((planted + 1))
	as_nobody sh -c ": >>/run/giveway/$name" 2>/dev/null && planted=$((planted + 1))
done
claim nobody_plants_nothing "$planted" 0
for file in $(find /run/giveway -xdev); do as_nobody flock "$file" sleep 1000 2>/dev/null & done
mkdir $top/names
for name in scx_loader scx_ufs; do
	cp $(command -v sleep) $top/names/$name; as_nobody $top/names/$name 1000 &
done
sleep 1
within 20 giveway stop --timeout 20
claim stop_beside_holders_and_namesakes "$? $was $(state) $took" "0 enabled disabled intime"
loader 20 "$polite"; claim start_beside_holders_and_namesakes "$? $(state) $took" "0 enabled intime"
rm /run/giveway/scx_ufs.pid
within 20 giveway stop --timeout 20
claim stop_without_a_pid_file "$? $was $(state) $took" "0 enabled disabled intime"
claim namesakes_stay "$(pgrep -u 65534 -c 'scx_(loader|ufs)')" 2

# A bus that takes connections and says nothing, beside such a process.
perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un($ARGV[0]));
	listen(S, 1); sleep 1000' $top/bus & silent=$!
while [ ! -S $top/bus ]; do sleep 0.1; done; chmod 666 $top/bus
bus() { DBUS_SYSTEM_BUS_ADDRESS=unix:path=$top/bus "$@"; }
bus loader 20 "$polite"; claim start_beside_a_silent_bus "$? $(state) $took" "0 enabled intime"
within 20 giveway stop --timeout 20
$top/names/scx_loader 1000 & rival=$!
bus loader 20 "$polite" 2>$top/err
claim rival_of_root_s_without_a_bus "$? $(state) $took" "1 disabled intime"
has rival_is_named "$(cat $top/err)" "scx_loader (process $rival)"
kill $rival $silent; pkill -u 65534

# What was planted while the directory was open to all.
chmod 777 /run/giveway; echo precious >$top/precious
for name in lock scx_ufs.log scx_ufs.pid scx_ufs.pid.new options rule; do
	rm -f /run/giveway/$name; as_nobody ln -s $top/precious /run/giveway/$name
done
within 5 giveway status >/dev/null; claim status_beside_links "$? $took" "0 intime"
loader 20 "$polite"; claim start_beside_links "$? $(state) $took" "0 enabled intime"
within 20 giveway stop --timeout 20
claim stop_beside_links "$? $was $(state) $took" "0 enabled disabled intime"
claim links_are_not_followed "$(cat $top/precious) $(stat -c %a /run/giveway)" "precious 755"
for name in lock scx_ufs.log scx_ufs.pid rule; do rm -f /run/giveway/$name; mkfifo /run/giveway/$name; done
within 5 giveway status >/dev/null; claim status_beside_pipes "$? $took" "0 intime"
loader 20 "$polite"; claim start_beside_pipes "$? $(state) $took" "0 enabled intime"
within 20 giveway stop --timeout 20
claim stop_beside_pipes "$? $was $(state) $took" "0 enabled disabled intime"
rm -r /run/giveway; (umask 077; loader 20 "$polite"; giveway stop)
claim directory_below_a_narrow_umask "$(stat -c %a /run/giveway)" 755
rm -r /run/giveway; ln -s $top /run/giveway
within 5 giveway start --timeout 5 2>$top/err
claim start_beside_a_linked_directory "$? $took" "1 intime"
has linked_directory_is_named "$(cat $top/err)" "/run/giveway is no directory of this user's"
rm /run/giveway

# 2. What root's own processes do.
loader 20 "$polite"
flock -o /run/giveway/lock sleep 1000 & holder=$!; sleep 0.5
within 2 giveway start --timeout 2 2>$top/err; claim start_waits_for_a_holder "$? $took" "1 intime"
has holder_is_named "$(cat $top/err)" "process $holder (flock, user 0) holds /run/giveway/lock"
has holder_has_a_remedy "$(cat $top/err)" "kill -9 $holder"
within 2 giveway stop --timeout 2 2>$top/err
claim stop_beside_a_holder_of_root_s "$? $was $(state) $took" "0 enabled disabled intime"
has stop_names_the_holder "$(cat $top/err)" "process $holder (flock, user 0) holds"
kill $holder; wait $holder

loader 20 "$polite"; kill -STOP $(pid)
within 5 giveway status >/dev/null; claim status_of_a_stopped_loader "$? $took" "0 intime"
within 6 giveway stop --timeout 6
claim stop_of_a_stopped_loader "$? $was $(state) $(loaders) $took" "0 enabled disabled 0 intime"
loader 20 "$rude"; watch_over $(pid)
within 4 giveway stop --timeout 4 2>$top/err
claim stop_of_a_stuck_loader "$? $was $(state) $(loaders) $took" "0 enabled disabled 0 intime"
# One whose death the kernel does not notice: SysRq.
if [ ! "$sysrq" ]; then
	loader 20 "$rude"; (until grep -q S $top/sysrq; do sleep 0.1; done; say disabled '') &
	within 4 giveway stop --timeout 4 2>$top/err
	claim sysrq_stop "$? $was $(state) $took" "0 enabled disabled intime"
	has sysrq_is_said "$(cat $top/err)" "SysRq-S"
fi
# One that never loads is given up.
loader 2 "trap '' TERM; while :; do sleep 0.1; done" 2>$top/err
claim start_of_a_stuck_loader "$? $(state) $(loaders) $took" "1 disabled 0 intime"

# 3. What becomes of /run.
# A file that is open for writing, as the log, would keep /run writable.
loader 20 "exec >/dev/null 2>&1; $polite"; sleep 0.5; mount -o remount,ro /run
within 6 giveway status >/dev/null; claim status_on_a_read_only_run "$? $took" "0 intime"
within 6 giveway stop --timeout 6 2>$top/err
claim stop_on_a_read_only_run "$? $was $(state) $took" "0 enabled disabled intime"
has read_only_run_is_said "$(cat $top/err)" "Read-only file system"
within 6 giveway start --timeout 6 2>$top/err
claim start_on_a_read_only_run "$? $(state) $took" "1 disabled intime"
has read_only_run_has_a_remedy "$(cat $top/err)" "remount,rw"
mount -o remount,rw /run
loader 20 "$polite"; mount -o remount,size=1M /run; head -c 4M /dev/zero >/run/fill 2>/dev/null
within 6 giveway status >/dev/null; claim status_on_a_full_run "$? $took" "0 intime"
within 6 giveway stop --timeout 6 2>$top/err
claim stop_on_a_full_run "$? $was $(state) $took" "0 enabled disabled intime"
within 6 giveway start --timeout 6 -- -c "$polite" 2>$top/err
claim start_on_a_full_run "$? $(state) $took" "0 enabled intime"
within 6 giveway stop --timeout 6 2>$top/err
claim stop_without_files "$? $was $(state) $took" "0 enabled disabled intime"
rm -f /run/fill; rm -r /run/giveway
mount -o remount,nr_inodes=1 /run 2>/dev/null
within 6 giveway stop --timeout 6 >$top/said 2>&1
claim stop_without_a_directory "$? $took" "0 intime"
mount -o remount,nr_inodes=0 /run

# 4. A systemd that does not answer.
mkdir -p /run/systemd/system $top/silent; printf '#!/bin/sh\nexec sleep 1000\n' >$top/silent/systemctl
chmod 755 $top/silent/systemctl; cp $top/silent/systemctl $top/silent/journalctl
PATH=$top/silent:$PATH within 12 giveway status >/dev/null
claim status_beside_a_silent_systemd "$? $took" "0 intime"
# Whether the unit is there, and with which options, nobody knows.
PATH=$top/silent:$PATH
without_systemd() { mv /run/systemd /run/hidden; "$@"; mv /run/hidden /run/systemd; }
loader 6 "$polite" 2>$top/err
claim start_beside_a_silent_systemd "$? $(state) $took" "1 disabled intime"
has silent_systemd_is_said "$(cat $top/err)" "systemd has not said within 3.0 s whether giveway.service is"
without_systemd loader 20 "$polite"
within 20 giveway stop --timeout 20
claim stop_beside_a_silent_systemd "$? $was $(state) $took" "0 enabled disabled intime"
# One that answers the second time, as after a daemon-reload.
cat >$top/silent/systemctl <<END
#!/bin/sh
[ -e $top/asked ] || { : >$top/asked; exec sleep 1000; }
echo LoadState=not-found; echo ActiveState=inactive
END
loader 20 "$polite"; claim start_beside_a_slow_systemd "$? $(state) $took" "0 enabled intime"
within 20 giveway stop --timeout 20
# One that starts again what was killed, unless it is told to stop, which it hears late.
cat >$top/silent/systemctl <<END
#!/bin/sh
case "\$*" in
show*) echo LoadState=loaded; [ -e $top/told ] && echo ActiveState=inactive || echo ActiveState=active ;;
stop*) [ -e $top/killed ] || exec sleep 1000; : >$top/told ;;
kill*) : >$top/killed ;;
esac
END
without_systemd loader 20 "$rude"; watch_over $(pid)
within 12 giveway stop --timeout 12 2>$top/err
claim stop_is_told_again "$? $was $(state) $took $(ls $top/told)" "0 enabled disabled intime $top/told"
# One that knows the unit, and then hangs.
cat >$top/silent/systemctl <<END
#!/bin/sh
case \$1 in show) echo LoadState=loaded; echo ActiveState=active; exit 0;; reset-failed) exit 0;; esac
exec sleep 1000
END
within 4 giveway start --timeout 4 2>$top/err
claim start_beside_a_hanging_systemd "$? $took" "1 intime"
has hanging_systemd_is_said "$(cat $top/err)" "systemctl has not answered within"
without_systemd loader 20 "$polite"
within 8 giveway stop --timeout 8 2>$top/err
claim stop_beside_a_hanging_systemd "$? $was $(state) $took" "0 enabled disabled intime"
rm -r $top/silent /run/systemd

# 5. The real loader and its socket, as another user sees them.
[ "$real" ] || exit 0
umount -l $ext /run; [ "$sysrq" ] || umount /proc/sysrq-trigger
cp $real_bin/scx_ufs $top/bin/scx_ufs
# Whatever is inherited, nothing is made that others may write to.
umask 0
within 60 giveway start --timeout 60; claim real_start "$? $(state) $took" "0 enabled intime"
flood='use Socket; my @s; for (1..$ARGV[1]) {
	socket(my $s, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0) or last;
	connect($s, pack_sockaddr_un($ARGV[0])); push @s, $s } print "full\n"; $| = 1; sleep 1000'
# Connected and silent, as many as there can be; and again while the loader is stopped.
flood() {
	as_nobody perl -e "$flood" /run/giveway/hints.sock $1 >$top/full &
	until grep -q full $top/full; do sleep 0.1; done
}
: >$top/full; chmod 666 $top/full; flood 900
within 10 giveway status >$top/said; claim real_status_beside_silent_clients "$? $took" "0 intime"
has real_slots_beside_silent_clients "$(cat $top/said)" "slots in use"
within 20 giveway top --once >/dev/null; claim real_top_beside_silent_clients "$? $took" "0 intime"
claim real_sockets_of_root_s "$(as_nobody perl -MSocket -e '
	socket(S, AF_UNIX, SOCK_STREAM, 0);
	print connect(S, pack_sockaddr_un("/var/run/scx/root/stats")) ? "open" : "closed"')" closed
claim real_files_are_not_for_others "$(
	find /run/giveway /run/scx -xdev ! -type l -perm -2 ! -name hints.sock)" ""
umask 022
kill -STOP $(pid); : >$top/full; flood 900
within 10 giveway status >/dev/null; claim real_status_of_a_stopped_loader "$? $took" "0 intime"
within 20 giveway top --once >/dev/null 2>$top/err
claim real_top_of_a_stopped_loader "$? $took" "1 intime"
has real_top_says_so "$(cat $top/err)" "UFS has not answered"
within 20 giveway stop --timeout 20
claim real_stop_of_a_stopped_loader "$? $was $(state) $took" "0 enabled disabled intime"
pkill -u 65534
# Frozen: it neither answers nor goes on.
within 60 giveway start --timeout 60
mkdir /sys/fs/cgroup/frozen; pid >/sys/fs/cgroup/frozen/cgroup.procs; echo 1 >/sys/fs/cgroup/frozen/cgroup.freeze
within 20 giveway stop --timeout 20
claim real_stop_of_a_frozen_loader "$? $was $(state) $took" "0 enabled disabled intime"
# A reader of statistics is no loader.
within 60 giveway start --timeout 60; rm /run/giveway/scx_ufs.pid
loader=$(pgrep -nx scx_ufs); scx_ufs --monitor 100 >/dev/null & monitor=$!; sleep 1
claim real_status_beside_a_monitor "$(giveway status --json | grep -c "\"pid\": $loader,")" 1
within 20 giveway stop --timeout 20
claim real_stop_beside_a_monitor "$? $was $(state) $took" "0 enabled disabled intime"
kill $monitor
# Ten thousand cgroups that come and go.
within 60 giveway start --timeout 60
giveway metrics --listen 127.0.0.1:9752 2>/dev/null & server=$!
scrape() {
	perl -MIO::Socket::INET -e 'for (1..100) {
		my $s = IO::Socket::INET->new("127.0.0.1:9752"); $s or sleep(1), next;
		print $s "GET /metrics HTTP/1.1\r\n\r\n"; print <$s>; last
	}' | grep '^giveway_' | sed 's/ [^ ]*$//'
}
scrape >$top/series
for round in $(seq 20); do
	dirs=$(seq -f "/sys/fs/cgroup/short-$round-%.0f" 500)
	mkdir $dirs; [ $((round % 5)) = 0 ] && scrape >>$top/series; rmdir $dirs
done
sleep 1; scrape >>$top/series
claim real_series_after_short_lived_cgroups "$([ $(sort -u $top/series | wc -l) -le 5000 ] && echo few)" few
claim real_series_are_there "$([ $(sort -u $top/series | wc -l) -ge 20 ] && echo some)" some
kill $server; giveway stop
exit 0
