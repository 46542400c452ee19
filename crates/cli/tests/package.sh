#!/bin/sh
# Installs, upgrades and removes the package in a kernel with sched_ext: first as on
# a machine without systemd, then under systemd. Claims as in guest.sh; package.rs
# knows their names.

. ./machine.sh

# Without systemd.
on dpkg -i /lab/giveway.deb; claim plain_install "$? $(state) $(running)" "0 disabled 0"
on giveway start; claim plain_start "$? $(state)" "0 enabled"
on dpkg -i /lab/giveway.deb; claim plain_upgrade "$? $(state) $(running)" "0 enabled 1"
on dpkg -r giveway; claim plain_remove "$? $(state) $(running)" "0 disabled 0"
on dpkg -P giveway; claim plain_purge "$? $(ls -d $machine/run/giveway 2>&1 | grep -c 'No such')" "0 1"

# With systemd, as in a container.
boot basic.target

on dpkg -i /lab/giveway.deb; claim install "$? $(state) $(running)" "0 disabled 0"
claim not_enabled "$(on systemctl is-enabled giveway giveway-meta giveway-metrics | sort -u)" disabled
on giveway start; claim start "$? $(state) $(on systemctl is-active giveway)" "0 enabled active"
before=$(pgrep -x scx_ufs)
on dpkg -i /lab/giveway.deb; claim upgrade "$?" 0
until_enabled; claim upgrade_loads "$(state) $(running)" "enabled 1"
claim upgrade_restarts "$([ "$before" != "$(pgrep -x scx_ufs)" ] && echo another)" another
on systemctl start background.slice
on systemd-run --quiet --slice=background.slice sleep 1000
on giveway stop
on systemctl enable --quiet giveway
on dpkg -i /lab/giveway.deb; claim upgrade_of_stopped "$? $(state) $(running)" "0 disabled 0"
claim slice_stays "$(pgrep -xc sleep)" 1

# The metascheduler's unit. Its hint table is for all, though none is there before.
install_rusty; claim meta_install "$? $(grep -c 'scx_rusty is in' $machine/tmp/installed)" "0 1"
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
