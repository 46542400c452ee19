#!/bin/sh
# Asks `giveway doctor` and the loader on Linux 6.12 what UFS does without there.
# Each claim ends in a line as in guest.sh; tests/kernels.rs knows the names.

has() { # NAME TEXT PATTERN
	case $2 in *$3*) echo "ok $1" ;; *) echo "not ok $1: '$2' lacks '$3'" ;; esac
}
chmod 755 /lab /lab/giveway

said=$(giveway doctor)
echo "$said"
has cpu_max "$said" "note features     cpu.max is not enforced (before Linux 6.17)"
has real_time "$said" "note features     real-time tasks that want every CPU for 30 s end UFS"
case $said in *"has all that UFS uses"*) echo "not ok no_other_claim: $said" ;; *) echo "ok no_other_claim" ;; esac
# What it does without closes no way.
has native "$said" "UFS can be loaded here"
has json "$(giveway doctor --json | tr -d ' \n')" '"name":"features","health":"note","detail":"cpu.max'
giveway start 2>&1 && has start "$(cat /sys/kernel/sched_ext/root/ops)" ufs
has journal "$(cat /run/giveway/scx_ufs.log)" "cpu.max is not enforced (before Linux 6.17)"
giveway stop
