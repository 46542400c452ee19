#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# PostgreSQL's own suites in a guest of the lab, under UFS, on a server that has
# the extension preloaded and all hints on.
#
#	bash test/installcheck.sh [regress|isolation]...	default: both
#
# Runs as root in /lab, in which it finds what guest.sh does, and suites/
# (../build-server.sh MAJOR suites). Sessions are background, as they are by
# default, and the server's own processes time-sensitive.
set -eu

here=/lab/test
. "$here/guest_setup.sh"

load_ufs 255 --boost-heavyweight
new_cluster main "shared_buffers = 128MB" "autovacuum = on" \
	"max_prepared_transactions = 2" "giveway.heavyweight_hints = on"
start main
loads=$(cat /sys/kernel/sched_ext/enable_seq)
suites=/lab/suites
failed=0
[ $# -gt 0 ] || set -- regress isolation
for suite in "$@"; do
	out=$work/$suite
	install -d -o postgres "$out"
	program=pg_regress
	schedule=parallel_schedule
	if [ "$suite" = isolation ]; then
		program=pg_isolation_regress
		schedule=isolation_schedule
	fi
	unprivileged "$suites/bin/$program" --host="$work/main" --user=postgres \
		--bindir="$bin" --dlpath="$suites/lib" --inputdir="$suites/$suite" \
		--outputdir="$out" --schedule="$suites/$suite/$schedule" \
		--max-concurrent-tests=20 || failed=1
	[ ! -f "$out/regression.diffs" ] || cp "$out/regression.diffs" "/results/$suite.diffs"
done
sql main "SELECT 'slots: ' || value FROM giveway_status() WHERE item = 'slots'" || true
cp "$work/main/log" "$work/ufs.log" /results/
if [ "$(cat /sys/kernel/sched_ext/state /sys/kernel/sched_ext/enable_seq | tr '\n' ' ')" != "enabled $loads " ]; then
	echo "UFS did not stay loaded: $(tail -5 "$work/ufs.log")"
	failed=1
fi
if grep 'terminated by signal\|PANIC' "$work/main/log"; then
	failed=1
fi
exit "$failed"
