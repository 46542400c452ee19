#!/bin/sh
# Whether background commands give way at a disk, by the disk's scheduler. The disk is
# null_blk's: it serves one request at a time, each in half a millisecond. Claims as in
# guest.sh; disk_in_kernel.rs knows their names.
#
# A scheduler chooses among the requests that it holds. So it gets room for all of them:
# with the two that a disk of depth one would have, readers wait for a place in their turn.
# BFQ keeps a disk idle for the next request of whom it serves if the disk has a head to
# move, as this one is said to have.

claim() { # NAME WHAT-IS-THERE WHAT-SHOULD-BE
	if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1: '$2' instead of '$3'"; fi
}
at_least() { [ "$1" -ge "$2" ] && echo "at least $2"; }
at_most() { [ "$1" -le "$2" ] && echo "at most $2"; }
# What an urgent reader reads in two seconds, one block after the other, in blocks. They
# begin when it has the disk open, and its own counter is read: how long it takes to start
# and to end does not count.
reads() {
	dd if=/dev/nullb0 of=/dev/null bs=4k iflag=direct 2>/dev/null &
	reader=$!
	until [ "$(readlink /proc/$reader/fd/0)" = /dev/nullb0 ]; do sleep 0.01; done
	from=$(read_by $reader)
	sleep 2
	echo $((($(read_by $reader) - from) / 4096))
	kill $reader
	wait $reader 2>/dev/null
}
read_by() { sed -n 's/^rchar: //p' /proc/$1/io; }

for module in configfs mq-deadline bfq; do busybox insmod $module.ko; done
busybox insmod null_blk.ko nr_devices=1 gb=1 queue_mode=2 irqmode=2 completion_nsec=500000 \
	submit_queues=1 hw_queue_depth=1
queue=/sys/block/nullb0/queue
cat $queue/scheduler
echo 1 >$queue/rotational
alone=$(reads)
echo "alone $alone"

# Beside sixteen background readers: percent of alone.
beside() { # SCHEDULER
	echo "$1" >$queue/scheduler
	[ "$1" = none ] || echo 128 >$queue/nr_requests
	readers=
	for i in $(seq 16); do
		giveway run --quiet --tier background -- dd if=/dev/nullb0 of=/dev/null bs=4k \
			iflag=direct skip=$((i * 15000)) 2>/dev/null &
		readers="$readers $!"
	done
	sleep 0.5
	share=$(($(reads) * 100 / alone))
	kill $readers
	wait $readers
	echo "$1: $share % of alone"
}
beside none
claim without_a_scheduler_all_are_equal "$(at_most $share 10)" "at most 10"
beside mq-deadline
claim mq_deadline_serves_urgent_first "$(at_least $share 85)" "at least 85"
beside bfq
claim bfq_serves_urgent_first "$(at_least $share 85)" "at least 85"
exit 0
