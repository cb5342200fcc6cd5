"""Finds the pod of Kubernetes that a process belongs to, by the names of its cgroups.

The kubelet makes a cgroup for each pod, which contains those of its containers and has the pod's identifier in its
name:

    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope   systemd
    /kubepods/burstable/podUID/ID                                                                      cgroupfs

With version 1 of cgroups there is a line for each controller, with version 2 only one. A reader in a container of its
own sees the path relative to that container: "/../../podUID/ID". There is a prefix if the kubelet itself runs in a
cgroup.

A program may make cgroups below its own, with any name. So the first name that is a pod's counts, and before it there
may be only names that no unprivileged program can make: systemd delegates services and scopes to users, but never
slices.
"""

from __future__ import annotations

import re
from pathlib import Path

_HEX = "[0-9a-f]"
#: An identifier as the API server makes it; in systemd's names "_" stands for "-". Pods from files (static pods) have a
#: hash.
POD_UID = rf"{_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}|{_HEX}{{32}}"
_POD = re.compile(rf"(?:pod|(?:[a-z0-9_-]+-)?kubepods(?:-besteffort|-burstable)?-pod)({POD_UID})(?:\.slice)?")
_BEFORE = re.compile(r"\.\.|kubelet|kubepods|besteffort|burstable|[^/]*\.slice")


def pod_of_path(path: str) -> str | None:
    """The identifier of the pod that a cgroup belongs to, such as "8d4b3a80-…"; None: to none."""
    for name in path.split("/")[1:]:
        if found := _POD.fullmatch(name):
            return found[1].replace("_", "-")
        if not _BEFORE.fullmatch(name):
            return None
    return None


def pod_of_text(text: str) -> str | None:
    """As pod_of_path(), for the text of /proc/PID/cgroup. ValueError: it names two pods."""
    paths = [line.split(":", 2)[2] for line in text.split("\n") if line.count(":") >= 2]
    pods = {pod for path in paths if (pod := pod_of_path(path))}
    if len(pods) > 1:
        raise ValueError(f"its cgroups are of {len(pods)} pods: {', '.join(sorted(pods))}")
    return next(iter(pods), None)


def pod_of_process(pid: int) -> str | None:
    """As pod_of_text(). OSError: there is no such process, or what it belongs to is not known."""
    return pod_of_text(Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="surrogateescape"))
