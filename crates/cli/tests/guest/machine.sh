# A machine in memory on which packages can be installed, in the guest's kernel: the
# guest's root cannot be written to. Read by package.sh, pods.sh, scx_loader.sh and units.sh.
#
#   on COMMAND          runs a command on the machine
#   boot TARGET         starts systemd there, as the first process of a namespace
#   install_rusty       installs a scheduler for the metascheduler
#   shut_down           ends systemd and all that it has started; the disk stays
#   scrape              whether UFS is loaded, as 'giveway metrics' says

claim() { # NAME WHAT-IS-THERE WHAT-SHOULD-BE
	if [ "$2" = "$3" ]; then echo "ok $1"; else echo "not ok $1: '$2' instead of '$3'"; fi
}
# Whether the second of two process ids is there, and not the first.
another() { [ -n "$2" ] && [ "$1" != "$2" ] && echo another; }
state() { cat /sys/kernel/sched_ext/state; }
# Loading takes its time.
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
on() { chroot $machine "$@"; }

boot() { # TARGET
	unshare --pid --fork --mount --propagation private sh -c "
		cd $machine && umount proc && mount -t proc proc proc &&
		pivot_root . old && umount -l /old &&
		exec env container=lab /usr/lib/systemd/systemd --unit=$1" &
	outside=$!
	for _ in $(seq 600); do [ -S $machine/run/systemd/private ] && break; sleep 0.1; done
	first=$(pgrep -P $outside)
	on() { nsenter --target $first --mount --pid --root --wd=/ "$@"; }
	on timeout 120 systemctl is-system-running --wait
	on systemctl list-units --failed --no-legend --plain
}

shut_down() {
	on systemctl poweroff
	wait $outside
	umount -l $machine/run && mount -t tmpfs run $machine/run
}

# As Prometheus would.
scrape() {
	on bash -c 'exec 3<>/dev/tcp/127.0.0.1/9752 && printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 &&
		cat <&3' | tr -d '\r' | sed -n 's/^giveway_up //p'
}

# By compilers that make UFS under another name.
install_rusty() {
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
	on env PATH=/tmp/made:$PATH giveway meta schedulers --install scx_rusty \
		>$machine/tmp/installed 2>&1
}
