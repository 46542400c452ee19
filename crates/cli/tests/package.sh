#!/bin/sh
# Installs, upgrades and removes the package in a kernel with sched_ext: first as on
# a machine without systemd, then under systemd. Claims as in guest.sh; package.rs
# knows their names.
#
# The guest's root cannot be written to, so a copy of it in memory is the machine.

claim() { # NAME WHAT-IS-THERE WHAT-SHOULD-BE
	if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1: '$2' instead of '$3'"; fi
}
state() { cat /sys/kernel/sched_ext/state; }
until_enabled() { for _ in $(seq 600); do [ "$(state)" = enabled ] && return; sleep 0.1; done; }
# Without those that have ended and that nobody has reaped yet.
running() { ps -C scx_ufs -o stat= | grep -vc Z; }

machine=/tmp/machine
mkdir $machine
mount -t tmpfs -o size=90% machine $machine
cp -ax /bin /etc /lib /lib64 /sbin /usr /var $machine
# The image's own keeps packages from stopping and restarting units.
rm -f $machine/usr/sbin/policy-rc.d
# Without /boot, and so without the kernel's configuration, as in many containers.
for dir in dev lab old proc run sys tmp; do mkdir $machine/$dir; done
for dir in dev lab sys; do mount --rbind /$dir $machine/$dir; done
mount -t proc proc $machine/proc
mount -t tmpfs run $machine/run
mount -t tmpfs tmp $machine/tmp

# Without systemd.
on() { chroot $machine "$@"; }
on dpkg -i /lab/giveway.deb; claim plain_install "$? $(state) $(running)" "0 disabled 0"
on giveway start; claim plain_start "$? $(state)" "0 enabled"
on dpkg -i /lab/giveway.deb; claim plain_upgrade "$? $(state) $(running)" "0 enabled 1"
on dpkg -r giveway; claim plain_remove "$? $(state) $(running)" "0 disabled 0"
on dpkg -P giveway; claim plain_purge "$? $(ls -d $machine/run/giveway 2>&1 | grep -c 'No such')" "0 1"

# With systemd as the first process of a namespace, as in a container.
unshare --pid --fork --mount --propagation private sh -c "
	cd $machine && umount proc && mount -t proc proc proc &&
	pivot_root . old && umount -l /old &&
	exec env container=lab /usr/lib/systemd/systemd --unit=basic.target" &
for _ in $(seq 600); do [ -S $machine/run/systemd/private ] && break; sleep 0.1; done
first=$(pgrep -P $!)
on() { nsenter --target $first --mount --pid --root --wd=/ "$@"; }
on timeout 120 systemctl is-system-running --wait
on systemctl list-units --failed --no-legend --plain

on dpkg -i /lab/giveway.deb; claim install "$? $(state) $(running)" "0 disabled 0"
claim not_enabled "$(on systemctl is-enabled giveway giveway-meta giveway-metrics | sort -u)" disabled
on giveway start; claim start "$? $(state) $(on systemctl is-active giveway)" "0 enabled active"
before=$(pgrep -x scx_ufs)
on dpkg -i /lab/giveway.deb; claim upgrade "$?" 0
# The unit is started; loading takes its time.
until_enabled; claim upgrade_loads "$(state) $(running)" "enabled 1"
claim upgrade_restarts "$([ "$before" != "$(pgrep -x scx_ufs)" ] && echo another)" another
on systemctl start background.slice
on systemd-run --quiet --slice=background.slice sleep 1000
on giveway stop
on systemctl enable --quiet giveway
on dpkg -i /lab/giveway.deb; claim upgrade_of_stopped "$? $(state) $(running)" "0 disabled 0"
claim slice_stays "$(pgrep -xc sleep)" 1

# The metascheduler's unit, with a scheduler that has been installed: compilers that make
# UFS under another name. Its hint table is for all, though none is there before.
mkdir -p $machine/tmp/made $machine/etc/giveway
cat >$machine/tmp/made/cargo <<'END'
#!/bin/sh
while [ $# -gt 1 ]; do [ "$1" = --root ] && dir=$2; shift; done
mkdir -p $dir/bin && ln -sf /usr/bin/scx_ufs $dir/bin/$1
END
ln -s /bin/true $machine/tmp/made/clang
chmod 755 $machine/tmp/made/cargo
cat >$machine/etc/giveway/meta.toml <<'END'
[[scheduler]]
name = "scx_rusty"
command = ["scx_rusty"]
ops = "ufs"
[[turn]]
scheduler = "scx_rusty"
timeslice_ms = 60000
END
on env PATH=/tmp/made:$PATH giveway meta schedulers --install scx_rusty >/tmp/installed 2>&1
claim meta_install "$? $(grep -c 'scx_rusty is in' /tmp/installed)" "0 1"
on umount -l /run/giveway/bpf
on systemctl start giveway-meta
for _ in $(seq 300); do [ "$(state)" = enabled ] && break; sleep 0.1; done
claim meta_in_force "$(state) $(pgrep -xc scx_rusty)" "enabled 1"
claim meta_table "$(on ls /run/giveway/bpf)" giveway_slots
on giveway meta status; on journalctl --no-pager -n 20 -u giveway-meta
on systemctl stop giveway-meta; claim meta_stop "$? $(state)" "0 disabled"
claim meta_table_stays "$(on ls /run/giveway/bpf)" giveway_slots

on giveway start; claim start_again "$? $(state)" "0 enabled"
on dpkg -r giveway; claim remove "$? $(state) $(running)" "0 disabled 0"
on dpkg -P giveway; claim purge "$? $(on systemctl is-enabled giveway 2>&1)" "0 not-found"
exit 0
