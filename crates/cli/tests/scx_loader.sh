#!/bin/sh
# The metascheduler beside scx_loader, the sched_ext project's service that starts
# schedulers, on a machine with systemd, D-Bus and polkit. scx_loader is the released
# program; its registry's package lacks the files that it installs, so they are written
# here. What it starts is UFS, by names that it knows. Claims as in guest.sh; long.rs knows
# their names.

. ./machine.sh

loader="org.scx.Loader /org/scx/Loader org.scx.Loader"
call() { on busctl --timeout=20 call $loader "$@"; }
current() { on busctl get-property $loader CurrentScheduler; }
as_nobody() { on setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
# Who has started the scheduler.
starter() { ps -o comm= -p "$(ps -o ppid= -C "$1" | tr -d ' ')"; }
# The same scheduler in force for five seconds. One that scx_loader was told to stop while
# it loaded attaches for a moment, and is then tried again after a pause.
until_settled() {
	for _ in $(seq 40); do
		was=$(pgrep -x scx_rusty); sleep 5
		[ -n "$was" ] && [ "$(pgrep -x scx_rusty)" = "$was" ] && [ "$(state)" = enabled ] && return
	done
}
until_disabled() { for _ in $(seq 600); do [ "$(state)" = disabled ] && return; sleep 0.1; done; }
until_current() { for _ in $(seq 300); do current | grep -q "$1" && return; sleep 0.1; done; }

install -m 755 /lab/scx_loader $machine/usr/bin/
for name in scx_rusty scx_flow; do ln -s scx_ufs $machine/usr/bin/$name; done
mkdir -p $machine/etc/giveway $machine/etc/scx_loader $machine/usr/share/polkit-1/actions
cat >$machine/etc/systemd/system/scx_loader.service <<'END'
[Service]
Type=dbus
BusName=org.scx.Loader
ExecStart=/usr/bin/scx_loader
KillSignal=SIGINT
[Install]
WantedBy=multi-user.target
END
cat >$machine/usr/share/dbus-1/system.d/org.scx.Loader.conf <<'END'
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <policy user="root"><allow own="org.scx.Loader"/></policy>
  <policy context="default"><allow send_destination="org.scx.Loader"/></policy>
</busconfig>
END
cat >$machine/usr/share/polkit-1/actions/org.scx.Loader.policy <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE policyconfig PUBLIC "-//freedesktop//DTD PolicyKit Policy Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/PolicyKit/1/policyconfig.dtd">
<policyconfig>
  <action id="org.scx.loader.manage-schedulers">
    <defaults>
      <allow_any>no</allow_any><allow_inactive>no</allow_inactive><allow_active>no</allow_active>
    </defaults>
  </action>
</policyconfig>
END
# Two turns of a scheduler with an option, or one: the first line names what starts them.
configure() { # THROUGH TURNS
	cat >$machine/etc/giveway/meta.toml <<END
$1
[[scheduler]]
name = "scx_rusty"
command = ["scx_rusty", "--slice-us", "7000"]
ops = "ufs"
[[scheduler]]
name = "other"
command = ["scx_other"]
ops = "other"
$2
END
}
turn() { printf '[[turn]]\nscheduler = "%s"\ntimeslice_ms = %s\n' "$1" "$2"; }
through='through = "scx_loader"'

boot multi-user.target
on dpkg -i /lab/giveway.deb
on systemctl enable --now --quiet scx_loader
on systemctl start polkit
claim scx_loader_runs "$(on systemctl is-active scx_loader) $(current)" 'active s "unknown"'
on scx_loader --version

# Who does not know that it is there is refused.
on timeout 30 giveway start >$machine/tmp/said 2>&1
claim start_is_refused "$? $(state) $(grep -c 'scx_loader (process [0-9]*) decides' $machine/tmp/said)" \
	"1 disabled 1"
on giveway doctor >$machine/tmp/said
claim doctor_names_it "$(grep -c 'scx_loader (process' $machine/tmp/said)" 1
configure "" "$(turn scx_rusty 60000)"
on timeout 30 giveway meta run >$machine/tmp/said 2>&1
claim run_is_refused "$? $(state) $(grep -c 'through = "scx_loader"' $machine/tmp/said)" "1 disabled 1"
configure "$through" "$(turn other 60000)"
on timeout 30 giveway meta run >$machine/tmp/said 2>&1
claim unknown_is_refused "$? $(grep -c 'does not know scx_other, only .*scx_rusty' $machine/tmp/said)" "1 1"

# It starts what the metascheduler says, with its options.
configure "$through" "$(turn scx_rusty 60000)"
on systemctl start giveway-meta
until_settled
claim scx_loader_starts_it "$(state) $(starter scx_rusty) $(current)" 'enabled scx_loader s "scx_rusty"'
claim options_arrive "$(tr '\0' ' ' </proc/"$(pgrep -x scx_rusty)"/cmdline)" "scx_rusty --slice-us 7000 "

# Its own guard holds: nobody else's order counts.
as_nobody busctl --timeout=20 call $loader StopScheduler >$machine/tmp/said 2>&1
claim nobody_stops_nothing "$? $(state)" "1 enabled"
cat $machine/tmp/said

# Mishaps.
before=$(pgrep -x scx_rusty)
kill -KILL "$before"
until_settled
claim dead_scheduler_is_replaced "$(state) $(another "$before" "$(pgrep -x scx_rusty)") $(starter scx_rusty)" \
	"enabled another scx_loader"
before=$(pgrep -f '^giveway meta run')
kill -KILL "$before"; sleep 1
claim killed_daemon_leaves_it "$(state)" enabled
for _ in $(seq 300); do pgrep -f '^giveway meta run' && break; sleep 0.1; done
until_settled
claim daemon_takes_over "$(state) $(another "$before" "$(pgrep -f '^giveway meta run')") $(current)" \
	'enabled another s "scx_rusty"'
on systemctl restart scx_loader
until_current scx_rusty; until_settled
claim restarted_loader_goes_on "$(state) $(starter scx_rusty) $(on systemctl is-active giveway-meta)" \
	"enabled scx_loader active"
on systemctl stop giveway-meta
until_disabled
claim stop_stops_it "$(state) $(current) $(pgrep -xc scx_rusty)" 'disabled s "unknown" 0'

# Turns: the kernel's own scheduler and that, again and again.
configure "$through" "$(turn scx_rusty 3000; turn eevdf 1000)"
on systemctl start giveway-meta
for turn in 1 2 3; do until_enabled; until_disabled; echo "turn $turn"; done
until_enabled; sleep 1
claim it_takes_turns "$(state) $(on systemctl is-active giveway-meta) $(starter scx_rusty)" \
	"enabled active scx_loader"
on systemctl stop giveway-meta

# Its own default comes back.
printf 'default_sched = "scx_flow"\ndefault_mode = "Auto"\n' >$machine/etc/scx_loader/config.toml
on systemctl restart scx_loader
until_current scx_flow
configure "$through" "$(turn scx_rusty 60000)"
on systemctl start giveway-meta
until_current scx_rusty; until_settled
claim default_makes_room "$(state) $(pgrep -xc scx_flow) $(starter scx_rusty)" "enabled 0 scx_loader"
on systemctl stop giveway-meta
until_current scx_flow; until_enabled
claim default_returns "$(state) $(current) $(pgrep -xc scx_rusty)" 'enabled s "scx_flow" 0'

# Without it all is as ever.
on systemctl disable --now --quiet scx_loader
until_disabled
on giveway start
claim start_without_it "$? $(state)" "0 enabled"
on giveway stop
claim nothing_of_it_failed "$(on systemctl list-units --all --failed --plain --no-legend 'giveway*')" ""
on journalctl --no-pager -n 40 -u giveway-meta -u scx_loader
exit 0
