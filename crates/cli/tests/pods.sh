#!/bin/sh
# A node: containerd runs pods by its Container Runtime Interface, the DaemonSet's
# containers load UFS and bring the pods' tiers to it. Claims as in guest.sh;
# pods/node.rs knows their names.
#
#   pod  namespace    class       annotation       tier
#   1    giveway      burstable                    the DaemonSet's own
#   2    shop         burstable   background       background
#   3    shop         burstable                    time-sensitive: the default
#   4    shop         besteffort                   background, as its class
#   5    kube-system  besteffort  time_sensitive   time-sensitive: it has the right
#   6    shop         besteffort  time_sensitive   background: refused
#   7    shop         besteffort  urgent           background: there is no such tier
#   8    shop         besteffort                   background, whatever it tries
#
# 2 to 7 burn CPU 0 unless they are frozen, and all are but for the two of which it is
# measured who gets it.

. ./machine.sh

node=/sys/fs/cgroup
uid() { echo 5c4f9c0e-1b8a-4d3e-9f00-00000000000$1; }
# The cgroup of a pod.
pod() { (cd $node && echo kubepods.slice/*/*-pod5c4f9c0e_1b8a_4d3e_9f00_00000000000$1.slice); }
kubelet() { on python3 /tmp/kubelet.py "$@"; }
mark() { on giveway mark "$(pod $1)"; }
# Rounds of 'giveway pods' begin every 2 s, those of UFS's marks every 1 s.
until_marked() { for _ in $(seq 100); do [ "$(mark $1)" = $2 ] && break; sleep 0.2; done; mark $1; }
rounds() { sleep 6; }
log() { cat $machine/var/log/pods/giveway/$1.log; }
used() { sed -n 's/^usage_usec //p' $node/$(pod $1)/cpu.stat; }
freeze() { for number in $1; do echo $2 >$node/$(pod $number)/cgroup.freeze; done; }
# Per cent of what two pods use together that is the first one's.
share() {
	freeze "$1 $2" 0; sleep 2
	set -- $1 $2 $(used $1) $(used $2); sleep 10
	set -- $1 $2 $(($(used $1) - $3)) $(($(used $2) - $4))
	freeze "$1 $2" 1; shift 2
	echo "used: $*" >&2
	echo $((100 * $1 / ($1 + $2)))
}
at_most() { [ "$1" -le $2 ] && echo "at most $2" || echo "$1"; }
between() { [ "$1" -ge $2 ] && [ "$1" -le $3 ] && echo between || echo "$1"; }

# An image that containerd has; its one layer is what is below ROOT.
image() { # NAME ROOT
	dir=$(mktemp -d)
	mkdir -p $dir/blobs/sha256
	tar -cf $dir/layer -C $2 .
	layer=$(blob $dir/layer)
	cat >$dir/config <<-END
	{"architecture":"amd64","os":"linux",
	 "config":{"Env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"Entrypoint":["sleep","infinity"]},
	 "rootfs":{"type":"layers","diff_ids":["$(digest "$layer")"]}}
	END
	config=$(blob $dir/config)
	cat >$dir/manifest <<-END
	{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
	 "config":{"mediaType":"application/vnd.oci.image.config.v1+json",$config},
	 "layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar",$layer}]}
	END
	manifest=$(blob $dir/manifest)
	cat >$dir/index.json <<-END
	{"schemaVersion":2,"manifests":[
	 {"mediaType":"application/vnd.oci.image.manifest.v1+json",$manifest,
	  "annotations":{"io.containerd.image.name":"docker.io/library/$1:latest"}}]}
	END
	echo '{"imageLayoutVersion":"1.0.0"}' >$dir/oci-layout
	tar -cf $machine/tmp/image.tar -C $dir .
	rm -r $dir
	on ctr --namespace k8s.io images import --snapshotter native /tmp/image.tar
}
# What an image says of one of its files, which moves there.
blob() {
	sum=$(sha256sum <$1 | cut -d' ' -f1)
	echo "\"digest\":\"sha256:$sum\",\"size\":$(stat -c %s $1)"
	mv $1 $dir/blobs/sha256/$sum
}
digest() { echo "$1" | cut -d'"' -f4; }

# A pod with one container, which burns CPU 0.
burner() { # NUMBER NAMESPACE CLASS [ANNOTATION]
	requests='{cpu: 500m}'
	[ $3 = burstable ] || requests='{}'
	cat >$machine/tmp/$1.yaml <<-END
	metadata: {name: pod-$1, namespace: $2, annotations: {${4:+"giveway/tier: $4"}}}
	spec:
	  containers:
	  - name: main
	    image: busybox
	    command: [taskset, "1", sh, -c, "while :; do :; done"]
	    resources: {requests: $requests}
	END
	run $1
	freeze $1 1
}
run() { kubelet run /tmp/$1.yaml $(uid $1); }
remove() { freeze $1 0; kubelet remove $(uid $1); }
pause() { for pid in $(cat $node/$(pod $1)/*/cgroup.procs); do
	grep -qz infinity /proc/$pid/cmdline && echo $pid
done; }

# As systemd mounts it at boot: no process leaves what its namespace shows.
mount -o remount,nsdelegate $node
# The guest's kernel comes without the module of overlayfs.
cat >$machine/etc/containerd/config.toml <<-END
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/library/pause:latest"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
END
cp kubelet.py $machine/tmp
boot multi-user.target
on containerd --version
on runc --version
on dpkg -i /lab/giveway.deb

# What a Debian image has of all this, and the package.
mkdir -p /tmp/busybox/bin /tmp/giveway/etc /tmp/giveway/var /tmp/giveway/tmp
cp /bin/busybox /tmp/busybox/bin
chroot /tmp/busybox /bin/busybox --install -s /bin
dpkg -x giveway.deb /tmp/giveway
for library in $(ldd /tmp/giveway/usr/bin/* | grep -o '/lib[^ ]*' | sort -u); do
	cp -L --parents $library /tmp/giveway
done
cp -R /tmp/busybox/bin /tmp/giveway
cp $machine/etc/passwd $machine/etc/group /tmp/giveway/etc
ln -s /run /tmp/giveway/var/run
image pause /tmp/busybox
image busybox /tmp/busybox
image giveway /tmp/giveway

# The DaemonSet, by the recipe for tiers by class.
recipe='"--background-label=background,kubepods-besteffort,besteffort", "--time-sensitive-label="'
sed 's/"--cgroup-marks"/&, '"$recipe/" daemonset.yaml >$machine/tmp/1.yaml
claim recipe_is_in "$(grep -c besteffort $machine/tmp/1.yaml)" 1
run 1
until_enabled
claim daemon_loads_ufs "$(state) $(running)" "enabled 1"
claim daemon_warns_of_nothing "$(log ufs | grep -c WARN)" 0
claim node_sees_it "$(on giveway status | grep -c '^scheduler  UFS')" 1
claim daemon_serves_metrics "$(scrape)" 1

# Annotations.
burner 2 shop burstable background
burner 3 shop burstable
burner 4 shop besteffort
burner 5 kube-system besteffort time_sensitive
burner 6 shop besteffort time_sensitive
burner 7 shop besteffort urgent
claim lowered "$(until_marked 2 background)" background
claim raised "$(until_marked 5 time_sensitive)" time_sensitive
rounds
claim not_annotated "$(mark 3) $(mark 4)" "none none"
claim without_the_right "$(mark 6) $(log tiers | grep -c 'shop/pod-6: .*--may-raise shop')" "none 1"
claim no_such_tier "$(mark 7) $(log tiers | grep -c "shop/pod-7: .*unknown tier 'urgent'")" "none 1"
claim weights "$(cat $node/$(pod 2)/cpu.weight) $(cat $node/$(pod 4)/cpu.weight)" "20 1"

# What they are worth.
claim background_gives_way "$(at_most $(share 2 3) 5)" "at most 5"
claim class_gives_way "$(at_most $(share 4 3) 5)" "at most 5"
claim annotation_overrides_class "$(between $(share 5 3) 40 60)" between
claim refused_gives_way "$(at_most $(share 6 5) 5)" "at most 5"
claim unknown_gives_way "$(at_most $(share 7 5) 5)" "at most 5"

# containerd is restarted, and is away for a while.
before=$(cat $node/$(pod 2)/*/cgroup.procs)
on systemctl restart containerd; rounds
claim restart_leaves_pods "$(cat $node/$(pod 2)/*/cgroup.procs)" "$before"
claim restart_leaves_marks "$(mark 2) $(mark 5) $(mark 6)" "background time_sensitive none"
on systemctl stop containerd; rounds
claim absence_leaves_marks "$(mark 2) $(mark 5) $(mark 6)" "background time_sensitive none"
claim absence_is_told "$(log tiers | grep -q 'cannot connect to /run/containerd' && echo told)" told
on systemctl start containerd
burner 9 shop burstable background
claim marks_after_a_restart "$(until_marked 9 background)" background

# A pod ends; one with its UID has other annotations.
remove 9
claim nothing_is_left "$(ls -d $node/*/*/*pod5c4f9c0e*9.slice | wc -l) $(on giveway status | grep -c 009.slice)" \
	"0 0"
burner 9 shop burstable
rounds
claim mark_is_not_inherited "$(mark 9)" none
remove 9

# Containers end and are started again.
kill -KILL $(cat $node/$(pod 2)/*/cgroup.procs | grep -vx "$(pause 2)"); sleep 2
freeze 2 0
kubelet restart /tmp/2.yaml $(uid 2) main
claim restarted_container_gives_way "$(mark 2) $(at_most $(share 2 3) 5)" "background at most 5"
kill -KILL $(pgrep -f '^giveway pods'); rounds
claim marks_outlive_tiers "$(mark 2) $(mark 5) $(mark 6)" "background time_sensitive none"
kubelet restart /tmp/1.yaml $(uid 1) tiers
burner 9 shop burstable background
claim tiers_continue "$(until_marked 9 background) $(mark 2) $(mark 5)" "background background time_sensitive"
remove 9
kill -KILL $(pgrep -x scx_ufs); sleep 2
claim dead_ufs_is_out "$(state)" disabled
claim without_ufs_they_share "$(between $(share 2 3) 30 70)" between
kubelet restart /tmp/1.yaml $(uid 1) ufs
until_enabled
claim restarted_ufs_heeds_marks "$(at_most $(share 2 3) 5) $(at_most $(share 6 5) 5)" "at most 5 at most 5"

# A pod that has lost its sandbox process runs on, in its tier.
kill -KILL $(pause 2); rounds
claim no_way_up_without_sandbox "$(mark 2) $(at_most $(share 2 3) 5)" "background at most 5"

# A pod that wants more than its class. Root in two of its containers may write to all of
# the node's cgroups; the user in the third to /run/giveway, as far as its modes let it.
besteffort=kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort
cat >$machine/tmp/8.yaml <<-END
metadata: {name: pod-8, namespace: shop}
spec:
  containers:
  - name: root
    image: giveway
    annotations: {giveway/tier: time_sensitive}
    command: [sleep, infinity]
    volumeMounts: [{name: cgroup, mountPath: /sys/fs/cgroup}]
  - name: climber
    image: busybox
    command:
    - sh
    - -c
    - |
      for own in /sys/fs/cgroup/$besteffort-pod5c4f9c0e_1b8a_4d3e_9f00_000000000008.slice/*/; do
        mkdir \$own/time_sensitive
        echo 0 >\$own/time_sensitive/cgroup.procs && break
      done
      exec taskset 1 sh -c "while :; do :; done"
    volumeMounts: [{name: cgroup, mountPath: /sys/fs/cgroup}]
  - name: user
    image: busybox
    command: [sleep, infinity]
    securityContext: {runAsUser: 65534}
    volumeMounts: [{name: run, mountPath: /run/giveway}]
  volumes:
  - name: cgroup
    hostPath: {path: /sys/fs/cgroup}
  - name: run
    hostPath: {path: /run/giveway}
END
run 8
in_pod() { kubelet exec $(uid 8) "$@" 2>&1; }
rounds
claim container_annotation_counts_for_nothing "$(mark 8)" none
in_pod root giveway mark "$(pod 8)" time_sensitive
claim root_in_a_pod_sets_no_mark "$? $(mark 8)" "1 none"
in_pod root giveway mark "$(pod 2)" none
claim root_in_a_pod_removes_no_mark "$? $(mark 2)" "1 background"
other=$(cd $node && grep -l . $(pod 5)/*/cgroup.procs | head -1)
in_pod root sh -c "echo 1 >/sys/fs/cgroup/$other"
claim root_in_a_pod_joins_no_other "$?" 1
claim root_in_a_pod_chooses_a_name "$(cat $node/$(pod 8)/*/time_sensitive/cgroup.procs | wc -l)" 1
claim chosen_name_gives_way "$(at_most $(share 8 3) 5)" "at most 5"
run_giveway() { ls -ln $machine/run/giveway; cat $machine/run/giveway/rule; }
before=$(run_giveway)
freeze 8 0
claim user_in_a_pod_tries "$(in_pod user sh -c 'cd /run/giveway && for file in * new; do
	true >>$file; echo marks ignored >$file; mv $file old; rm -rf $file; mkdir $file; ln -s / $file
done; echo tried' | grep -x tried)" tried
claim user_in_a_pod_changes_no_state "$(run_giveway)" "$before"

# Somebody with a part of the hierarchy pretends to be a pod that may rise.
mkdir -p $node/theirs
chown 65534 $node/theirs
pretended=theirs/kubepods/pod$(uid 5)
setpriv --reuid=65534 --clear-groups mkdir -p $node/$pretended
rounds
claim pretended_pod_gets_no_mark "$(on giveway mark $pretended)" none

# The node loses its label.
remove 1
claim removed_daemon_unloads_ufs "$(state) $(running) $(pgrep -f '^giveway')" "disabled 0 "
claim pods_run_on "$(cat $node/$(pod 2)/cgroup.procs $node/$(pod 5)/*/cgroup.procs | wc -l)" 2
exit 0
