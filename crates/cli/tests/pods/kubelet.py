#!/usr/bin/python3
"""A kubelet's part in the life of a pod: its manifest as calls of the container runtime.

    kubelet.py run FILE UID                      cgroup, sandbox and containers
    kubelet.py restart FILE UID CONTAINER        another container after one that ended
    kubelet.py exec UID CONTAINER COMMAND...     its output and status
    kubelet.py remove UID                        all of it

No Debian release has a kubelet. As it does, with the systemd driver:

    FILE ──► slice kubepods-QOS-podUID    weight by CPU requests
         ──► RunPodSandbox                the pod's annotations; parent: the slice
         ──► CreateContainer              capabilities, mounts, seccomp, users
         ──► StartContainer

Messages are those of Kubernetes' api.proto. FILE has a Pod, or what has a template of
pods. The runtime knows what runs, so no state is kept here.

Known weakness: no probes, no restart unasked, no images pulled, no network but the
node's, and of the fields of a manifest only those of the tests.
"""

import os
import subprocess
import sys

import api_pb2
import grpc
import yaml
from google.protobuf import json_format

SERVICE = api_pb2.DESCRIPTOR.services_by_name["RuntimeService"]
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def call(name, **request):
    method = SERVICE.methods_by_name[name]
    question = json_format.ParseDict(request, getattr(api_pb2, method.input_type.name)())
    answer = getattr(api_pb2, method.output_type.name)
    with grpc.insecure_channel("unix:///run/containerd/containerd.sock") as channel:
        ask = channel.unary_unary(
            f"/{SERVICE.full_name}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return ask(question, timeout=120, wait_for_ready=True)


def template(path):
    with open(path) as file:
        manifest = yaml.safe_load(file)
    return manifest["spec"].get("template", manifest)


def shares(container):
    """As many as the kubelet gives: 1024 for a CPU, 2 for none."""
    wanted = str(container.get("resources", {}).get("requests", {}).get("cpu", "0"))
    milli = int(wanted[:-1]) if wanted.endswith("m") else 1000 * int(wanted)
    return max(2, milli * 1024 // 1000)


def slice_of(pod, uid):
    requested = any(shares(each) > 2 for each in pod["spec"]["containers"])
    qos = "burstable" if requested else "besteffort"
    return f"kubepods-{qos}-pod{uid.replace('-', '_')}.slice"


def sandbox_config(pod, uid):
    meta = pod["metadata"]
    name, namespace = meta.get("name", "giveway"), meta.get("namespace", "giveway")
    own = slice_of(pod, uid)
    return {
        "metadata": {"name": name, "uid": uid, "namespace": namespace},
        "log_directory": f"/var/log/pods/{name}",
        "labels": {"io.kubernetes.pod.uid": uid},
        "annotations": meta.get("annotations", {}),
        "linux": {
            "cgroup_parent": f"/kubepods.slice/{own.rsplit('-', 1)[0]}.slice/{own}",
            "security_context": {"namespace_options": namespaces(pod)},
        },
    }


def namespaces(pod):
    return {"network": "NODE", "pid": "NODE" if pod["spec"].get("hostPID") else "CONTAINER"}


def mounts(pod, container):
    paths = {each["name"]: each["hostPath"] for each in pod["spec"].get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        path = paths[mount["name"]]
        if path.get("type") == "DirectoryOrCreate":
            os.makedirs(path["path"], exist_ok=True)
        yield {
            "host_path": path["path"],
            "container_path": mount["mountPath"],
            "readonly": mount.get("readOnly", False),
        }


def security(pod, container):
    asked = pod["spec"].get("securityContext", {}) | container.get("securityContext", {})
    capabilities = asked.get("capabilities", {})
    seccomp = asked.get("seccompProfile", {}).get("type", "Unconfined")
    return {
        "capabilities": {
            "add_capabilities": capabilities.get("add", []),
            "drop_capabilities": capabilities.get("drop", []),
        },
        "privileged": asked.get("privileged", False),
        "run_as_user": {"value": asked.get("runAsUser", 0)},
        "readonly_rootfs": asked.get("readOnlyRootFilesystem", False),
        "no_new_privs": not asked.get("allowPrivilegeEscalation", True),
        "seccomp": {"profile_type": seccomp},
        "namespace_options": namespaces(pod),
    }


def container_config(pod, container, attempt):
    resources = {"cpu_shares": shares(container)}
    if memory := container.get("resources", {}).get("limits", {}).get("memory"):
        resources["memory_limit_in_bytes"] = int(memory[:-2]) * UNITS[memory[-2:]]
    return {
        "metadata": {"name": container["name"], "attempt": attempt},
        "image": {"image": f"docker.io/library/{container['image']}:latest"},
        "command": container.get("command", []),
        "args": container.get("args", []),
        "mounts": list(mounts(pod, container)),
        "annotations": container.get("annotations", {}),
        "labels": {"name": container["name"]},
        "log_path": f"{container['name']}.log",
        "linux": {"resources": resources, "security_context": security(pod, container)},
    }


def sandbox(uid):
    filter = {"label_selector": {"io.kubernetes.pod.uid": uid}}
    (found,) = call("ListPodSandbox", filter=filter).items
    return found.id


def containers(uid, name):
    """The youngest first."""
    filter = {"pod_sandbox_id": sandbox(uid), "label_selector": {"name": name}}
    found = call("ListContainers", filter=filter).containers
    return sorted(found, key=lambda each: -each.metadata.attempt)


def start(pod, uid, container, attempt):
    created = call(
        "CreateContainer",
        pod_sandbox_id=sandbox(uid),
        config=container_config(pod, container, attempt),
        sandbox_config=sandbox_config(pod, uid),
    )
    call("StartContainer", container_id=created.container_id)


def run(path, uid):
    pod = template(path)
    own = slice_of(pod, uid)
    subprocess.run(["systemctl", "start", own], check=True)
    total = sum(shares(each) for each in pod["spec"]["containers"])
    weight = 1 + (total - 2) * 9999 // 262142
    change = ["systemctl", "set-property", "--runtime", own, f"CPUWeight={weight}"]
    subprocess.run(change, check=True)
    config = sandbox_config(pod, uid)
    os.makedirs(config["log_directory"], exist_ok=True)
    call("RunPodSandbox", config=config)
    for container in pod["spec"]["containers"]:
        start(pod, uid, container, 0)


def restart(path, uid, name):
    pod = template(path)
    (container,) = [each for each in pod["spec"]["containers"] if each["name"] == name]
    start(pod, uid, container, containers(uid, name)[0].metadata.attempt + 1)


def execute(uid, name, *command):
    done = call("ExecSync", container_id=containers(uid, name)[0].id, cmd=list(command))
    print((done.stdout + done.stderr).decode(), end="")
    sys.exit(done.exit_code)


def remove(uid):
    """The runtime ends and removes the containers of a sandbox with it."""
    found = sandbox(uid)
    call("StopPodSandbox", pod_sandbox_id=found)
    call("RemovePodSandbox", pod_sandbox_id=found)
    for qos in ["burstable", "besteffort"]:
        own = f"kubepods-{qos}-pod{uid.replace('-', '_')}.slice"
        subprocess.run(["systemctl", "stop", own], check=True)


COMMANDS = {"run": run, "restart": restart, "exec": execute, "remove": remove}
COMMANDS[sys.argv[1]](*sys.argv[2:])
