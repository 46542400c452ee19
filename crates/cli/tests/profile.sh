#!/bin/sh
# The recipe of docs/operate/metascheduler.md for power profiles, run as it is written there
# (recipe.sh), on a machine with systemd, D-Bus, polkit and power-profiles-daemon. Claims as
# in guest.sh; profile/mod.rs knows their names.

. ./machine.sh

ppd="net.hadess.PowerProfiles /net/hadess/PowerProfiles net.hadess.PowerProfiles"
choose() { on busctl --timeout=20 set-property $ppd ActiveProfile s "$1"; }
profile() { on busctl --timeout=20 get-property $ppd ActiveProfile; }
until_state() { for _ in $(seq 300); do [ "$(state)" = "$1" ] && return; sleep 0.1; done; }

boot multi-user.target
on dpkg -i /lab/giveway.deb
on powerprofilesctl version
claim profiles_are_there "$(profile)" 's "balanced"'

on sh -e /lab/recipe.sh
claim recipe_runs "$?" 0
until_state enabled
claim balanced_loads_ufs "$(state) $(running) $(on systemctl is-active giveway-meta)" "enabled 1 active"

choose power-saver
until_state disabled
claim power_saver_unloads_it "$(profile) $(state)" 's "power-saver" disabled'
choose balanced
until_state enabled
claim balanced_loads_it_again "$(state)" enabled

# The daemon of the profiles restarts, and what watches it.
on systemctl restart power-profiles-daemon
choose power-saver
until_state disabled
claim restarted_daemon_is_followed "$(state)" disabled
on systemctl kill --signal=KILL giveway-profile
choose balanced
until_state enabled
claim killed_watch_is_replaced "$(state)" enabled
claim profiles_are_in_the_journal \
	"$(on journalctl --no-pager -o cat -u giveway-profile | grep -c '^power profile')" 5

# At boot.
shut_down
boot multi-user.target
until_state enabled
claim boot_follows_the_profile "$(profile) $(state)" 's "balanced" enabled'
choose power-saver
until_state disabled
claim change_after_boot_is_followed "$(state)" disabled
claim nothing_of_it_failed "$(on systemctl list-units --all --failed --plain --no-legend 'giveway*')" ""
on journalctl --no-pager -n 40 -u giveway-profile -u giveway-meta -u power-profiles-daemon
exit 0
