#!/bin/sh
# The package's units over the life of a machine, under systemd: reboots, programs that
# die, a start that fails, a stop while UFS loads. Claims as in guest.sh; long.rs knows
# their names.

. ./machine.sh

show() { on systemctl show --value --property "$1" "$2"; }
metrics() { pgrep -f '^giveway metrics'; }
meta() { pgrep -f '^giveway meta run'; }
# A start with options that are as wrong the next time: what the claims' names begin with, the
# options, and what the error names.
refused() {
	echo "SCX_UFS_OPTIONS=\"$2\"" >$machine/etc/default/giveway
	on giveway start >$machine/tmp/said 2>&1
	claim "${1}_fails" "$? $(state)" "1 disabled"
	cat $machine/tmp/said
	claim "${1}_is_named" "$(grep -c -- "$3" $machine/tmp/said)" 1
	claim "${1}_has_a_remedy" "$(grep -c '/etc/default/giveway' $machine/tmp/said)" 1
	on systemctl start giveway; sleep 8
	claim "${1}_is_not_tried_again" \
		"$(show NRestarts giveway) $(on systemctl is-failed giveway)" "0 failed"
	on journalctl --no-pager -n 8 -u giveway
}
reboot() {
	shut_down
	claim "$1" "$(state) $(running)" "disabled 0"
	boot multi-user.target
}

boot multi-user.target
on dpkg -i /lab/giveway.deb
on systemctl enable --quiet giveway giveway-metrics
claim enabling_loads_nothing "$(state)" disabled

# A reboot.
reboot shutdown_before_it_was_loaded
until_enabled
claim boot_loads "$(state) $(running) $(on systemctl is-active giveway)" "enabled 1 active"
claim boot_serves_metrics "$(on systemctl is-active giveway-metrics) $(scrape)" "active 1"
reboot shutdown_unloads
until_enabled
claim boot_loads_again "$(state) $(running)" "enabled 1"

# Programs that die: the kernel's own scheduler is in force at once, then UFS again.
before=$(pgrep -x scx_ufs)
kill -KILL "$before"; sleep 1
claim crash_restores_the_kernel_default "$(state)" disabled
claim metrics_say_so "$(scrape)" 0
until_enabled
claim crash_restarts "$(state) $(another "$before" "$(pgrep -x scx_ufs)") $(show NRestarts giveway)" \
	"enabled another 1"
before=$(metrics)
kill -KILL "$before"; sleep 8
claim metrics_restart "$(another "$before" "$(metrics)") $(scrape)" "another 1"

# A stop while UFS loads, which takes seconds.
on systemctl stop giveway
claim stop "$? $(state)" "0 disabled"
on systemctl start --no-block giveway
for _ in $(seq 100); do pgrep -x scx_ufs && break; sleep 0.1; done
sleep 1
claim is_loading "$(state)" disabled
on timeout 30 systemctl stop giveway
claim stop_while_it_loads "$? $(state) $(running) $(on systemctl is-failed giveway)" \
	"0 disabled 0 inactive"
on systemctl start --no-block giveway; sleep 1
on timeout 30 giveway stop
claim giveway_stop_while_it_loads "$? $(state) $(running)" "0 disabled 0"

# Starts that fail: by an option that is no number, and by one that is out of its range.
refused wrong_option '--slice-us never' --slice-us
refused wrong_value '--floor-share 60' --floor-share
: >$machine/etc/default/giveway
on giveway start
claim start_after_a_failure "$? $(state) $(on systemctl is-active giveway)" "0 enabled active"

# The metascheduler's unit.
on giveway stop
on systemctl disable --quiet giveway
install_rusty
on systemctl enable --quiet giveway-meta
reboot shutdown_with_nothing_loaded
until_enabled
claim meta_loads_at_boot "$(state) $(pgrep -xc scx_rusty)" "enabled 1"
before=$(meta)
kill -KILL "$before"; sleep 2
claim meta_crash_restores_the_kernel_default "$(state) $(pgrep -xc scx_rusty)" "disabled 0"
until_enabled
claim meta_crash_restarts "$(state) $(another "$before" "$(meta)")" "enabled another"
before=$(pgrep -x scx_rusty)
kill -KILL "$before"; sleep 2
until_enabled
claim meta_replaces_a_dead_scheduler "$(state) $(another "$before" "$(pgrep -x scx_rusty)")" \
	"enabled another"
# From one unit to the other: the second looks once the first has unloaded its scheduler, so
# no start fails.
on systemctl start giveway
until_enabled
claim giveway_takes_over \
	"$(state) $(running) $(pgrep -xc scx_rusty) $(on systemctl is-active giveway-meta) $(show NRestarts giveway)" \
	"enabled 1 0 inactive 0"
on systemctl start giveway-meta
until_enabled
claim meta_takes_over \
	"$(state) $(running) $(pgrep -xc scx_rusty) $(on systemctl is-active giveway) $(show NRestarts giveway-meta)" \
	"enabled 0 1 inactive 0"
on systemctl start giveway
until_enabled

on systemctl enable --quiet giveway
on dpkg -P giveway
claim purge_of_what_is_enabled "$? $(state) $(running) $(metrics)" "0 disabled 0 "
claim nothing_of_it_failed "$(on systemctl list-units --all --failed --plain --no-legend 'giveway*')" ""
exit 0
