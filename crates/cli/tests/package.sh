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
on giveway start; claim start_again "$? $(state)" "0 enabled"
on dpkg -r giveway; claim remove "$? $(state) $(running)" "0 disabled 0"
on dpkg -P giveway; claim purge "$? $(on systemctl is-enabled giveway 2>&1)" "0 not-found"
exit 0
