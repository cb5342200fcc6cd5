"""Pods behind processes: names of cgroups as nodes have them, the plug-in's directory, and the agent's questions."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.device_plugin import OfferingEndpoint, running_plugin
from beds.kubelet import Kubelet, wait_for
from hypothesis import given
from hypothesis import strategies as st
from xts_agent import pod_cgroup
from xts_agent.pod_cgroup import pod_of_path, pod_of_text
from xts_agent.pods import Pod, Pods
from xts_kubernetes.pod_directory import UnknownPod, name_of
from xts_messages.attaching.attachments import NotReady

UID = "8d4b3a80-53e5-4a5b-9a92-5f2c9a1e7d10"
OTHER = "11111111-2222-3333-4444-555555555555"
UNDER = UID.replace("-", "_")
ID = "3f" * 32

#: As /proc/PID/cgroup has them behind the controllers.
OF_THE_POD = {
    "systemd, containerd, burstable": "/kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod{UNDER}.slice/cri-containerd-{ID}.scope",
    "systemd, cri-o, guaranteed": f"/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{ID}.scope",
    "systemd, cri-o, its child": f"/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{ID}.scope/container",
    "systemd, docker": "/kubepods.slice/kubepods-besteffort.slice/"
    f"kubepods-besteffort-pod{UNDER}.slice/docker-{ID}.scope",
    "cgroupfs, containerd": f"/kubepods/burstable/pod{UID}/{ID}",
    "cgroupfs, guaranteed": f"/kubepods/pod{UID}/{ID}",
    "cgroupfs, cri-o": f"/kubepods/besteffort/pod{UID}/crio-{ID}",
    "kind": f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDER}.slice/cri-containerd-{ID}.scope",
    "kind, cgroupfs": f"/kubelet/kubepods/burstable/pod{UID}/{ID}",
    "seen from another pod": f"/../../kubepods-burstable-pod{UNDER}.slice/cri-containerd-{ID}.scope",
    "seen from another class": f"/../../../kubepods-besteffort.slice/kubepods-besteffort-pod{UNDER}.slice/x.scope",
    "cgroupfs, seen from another pod": f"/../../pod{UID}/{ID}",
    "a program within, that calls itself another pod": f"/kubepods/pod{UID}/{ID}/kubepods/pod{OTHER}/{ID}",
}
OF_NO_POD = {
    "the root": "/",
    "nothing": "",
    "a service": "/system.slice/containerd.service",
    "a user": "/user.slice/user-1000.slice/user@1000.service/app.slice",
    "a user who makes such names": "/user.slice/user-1000.slice/user@1000.service/"
    f"kubepods.slice/kubepods-pod{UNDER}.slice",
    "a service with rights to make such names": f"/system.slice/builder.service/kubepods/pod{UID}/{ID}",
    "a session": f"/user.slice/user-0.slice/session-1.scope/pod{UID}",
    "a container of podman": f"/machine.slice/libpod-{ID}.scope/kubepods/pod{UID}",
    "its own pod, without the name": f"/../cri-containerd-{ID}.scope",
    "no identifier": "/kubepods/podabc/x",
    "too long an identifier": f"/kubepods/pod{UID}0/x",
    "an identifier in capitals": f"/kubepods/pod{UID.upper()}/x",
}


@pytest.mark.parametrize("name", OF_THE_POD)
def test_a_cgroup_of_a_pod(name: str) -> None:
    assert pod_of_path(OF_THE_POD[name]) == UID


@pytest.mark.parametrize("name", OF_NO_POD)
def test_a_cgroup_of_no_pod(name: str) -> None:
    assert pod_of_path(OF_NO_POD[name]) is None


def test_a_static_pod() -> None:
    assert pod_of_path(f"/kubepods/burstable/pod{'0a' * 16}/{ID}") == "0a" * 16


def test_version_1_and_both() -> None:
    path = OF_THE_POD["cgroupfs, containerd"]
    lines = [
        "11:memory:" + path,
        "2:cpu,cpuacct:" + path,
        "1:name=systemd:" + path,
        "0::/system.slice/containerd.service",
    ]
    assert pod_of_text("\n".join(lines) + "\n") == UID
    assert pod_of_text("0::/\n") is None and pod_of_text("") is None and pod_of_text("garbage\n::\n") is None
    with pytest.raises(ValueError, match="2 pods"):
        pod_of_text("\n".join([*lines, f"5:pids:/kubepods/pod{OTHER}/x"]))


@given(st.text(), st.sampled_from(sorted(OF_NO_POD)))
def test_no_text_behind_makes_a_pod(behind: str, name: str) -> None:
    if name in ("the root", "nothing", "no identifier"):
        return  # where a pod's name may begin yet
    assert pod_of_path(OF_NO_POD[name] + "/" + behind) is None or ".." in OF_NO_POD[name]


# --- what the plug-in knows --------------------------------------------------------------------------------


def test_names_of_pods(tmp_path: Path) -> None:
    (tmp_path / f"shop_web-1.a_{UID}").mkdir()
    for noise in ("x", f"shop_{UID}", f"a_b_c_{OTHER}", f"_web_{OTHER}", f"shop_Web_{OTHER}"):
        (tmp_path / noise).mkdir()
    assert name_of(UID, tmp_path) == ("shop", "web-1.a")
    with pytest.raises(UnknownPod, match="no folder"):
        name_of(OTHER, tmp_path)
    with pytest.raises(UnknownPod, match="No such file"):
        name_of(UID, tmp_path / "none")


def test_a_pod_that_was_replaced(tmp_path: Path) -> None:
    for at, uid in ((1000, UID), (2000, OTHER)):
        folder = tmp_path / f"shop_web-0_{uid}"
        folder.mkdir()
        os.utime(folder, (at, at))
    assert name_of(OTHER, tmp_path) == ("shop", "web-0")
    with pytest.raises(UnknownPod, match="newer pod shop/web-0"):
        name_of(UID, tmp_path)


# --- what the agent asks -----------------------------------------------------------------------------------


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    with Kubelet(tmp_path) as kubelet:
        (tmp_path / "logs" / f"shop_web_{UID}").mkdir(parents=True)
        yield kubelet


@pytest.fixture
def pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pods]:
    monkeypatch.setattr(pod_cgroup, "pod_of_process", {1: UID, 2: OTHER}.get)
    made = Pods(str(tmp_path / "pods" / "pods.sock"))
    yield made
    made.close()


def ask(pods: Pods, pid: int) -> Pod | None:
    """As the agent does: again when there is something new."""
    while True:
        try:
            return pods.of_process(pid)
        except NotReady:
            limit = pods.timeout_s()
            assert limit is not None
            wait_for(pods.collect, "an answer")


def test_who_is_asked(tmp_path: Path, kubelet: Kubelet, pods: Pods) -> None:
    kubelet.pods = {
        ("shop", "web"): {"main": ["xts0-0", "xts0-1"], "side": ["xts0-2"], "none": []},
        ("shop", "other"): {"main": ["xts0-3"]},
    }
    with (
        OfferingEndpoint(tmp_path / "xts" / "endpoint.sock") as endpoint,
        running_plugin(tmp_path, endpoint.path) as (_, log),
    ):
        found = ask(pods, 1)
        assert found == Pod(UID, "shop", "web", 3) and found.cgroup == "/kubernetes/shop/web"
        assert ask(pods, 3) is None
        with pytest.raises(OSError, match=f"pod {OTHER} is not known: there is no folder"):
            ask(pods, 2)
        assert f"pod {OTHER}: there is no folder" in log.read_text()


def test_claims_count(tmp_path: Path, kubelet: Kubelet, pods: Pods) -> None:
    """Each device once, though two containers have the claim, and none of another driver."""
    kubelet.pods = {("shop", "web"): {"main": ["xts0-9"]}, ("shop", "other"): {}}
    mine = [("queue.xts.io", "worker-1", "xts0-0"), ("queue.xts.io", "worker-1", "xts0-1")]
    kubelet.claims = {
        ("shop", "web"): [*mine, mine[0], ("gpu.example.com", "worker-1", "gpu-0")],
        ("shop", "other"): mine,
    }
    with (
        OfferingEndpoint(tmp_path / "xts" / "endpoint.sock") as endpoint,
        running_plugin(tmp_path, endpoint.path),
    ):
        assert ask(pods, 1) == Pod(UID, "shop", "web", 3)


def test_a_pod_that_the_kubelet_does_not_list(tmp_path: Path, kubelet: Kubelet, pods: Pods) -> None:
    with (
        OfferingEndpoint(tmp_path / "xts" / "endpoint.sock") as endpoint,
        running_plugin(tmp_path, endpoint.path),
    ):
        with pytest.raises(OSError, match="lists no pod shop/web"):
            ask(pods, 1)
        kubelet.end()
        (tmp_path / "kubelet.sock").unlink(missing_ok=True)
        time.sleep(1)  # for as long as a refusal is kept
        with pytest.raises(OSError, match="does not list its pods"):
            ask(pods, 1)


def test_a_process_that_has_no_number_here_gets_nothing(pods: Pods) -> None:
    with pytest.raises(OSError, match="in a PID namespace that the agent, without the host's, cannot see") as refused:
        pods.of_process(0)
    assert refused.value.errno == errno.EUSERS


def test_no_plug_in_and_one_that_comes_later(tmp_path: Path, kubelet: Kubelet, pods: Pods) -> None:
    with pytest.raises(OSError, match="cannot be asked: No such file"):
        ask(pods, 1)
    kubelet.pods = {("shop", "web"): {"main": ["xts0-0"]}}
    with OfferingEndpoint(tmp_path / "xts" / "endpoint.sock") as endpoint, running_plugin(tmp_path, endpoint.path):
        found = ask(pods, 1)
        assert found and found.queues == 1


@pytest.mark.parametrize(
    "answer",
    [None, b"{}", b"\xff\xfe", b'{"pod": 5}', b"[" * 4000, b'{"pod": "other", "queues": 9}', b'{"queues": "many"}'],
    ids=["silence", "empty", "bytes", "type", "deep", "of another", "half"],
)
def test_a_plug_in_that_is_none(tmp_path: Path, pods: Pods, answer: bytes | None) -> None:
    path = tmp_path / "pods" / "pods.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hostile:
        hostile.bind(str(path))
        hostile.listen()
        with pytest.raises(NotReady):
            pods.of_process(1)
        with hostile.accept()[0] as connection:
            assert UID.encode() in connection.recv(5000)
            if answer is not None:
                connection.send(answer)
            with pytest.raises(OSError, match="does not answer"):
                ask(pods, 1)


def test_a_directory_that_is_asked_nonsense(tmp_path: Path, kubelet: Kubelet) -> None:
    with (
        OfferingEndpoint(tmp_path / "xts" / "endpoint.sock") as endpoint,
        running_plugin(tmp_path, endpoint.path) as (
            process,
            _,
        ),
    ):
        path = str(tmp_path / "pods" / "pods.sock")
        for question in (b"x", b"{}", b'{"pod": 1}', b"[" * 4000):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
                asking.connect(path)
                asking.send(question)
                asking.settimeout(10)
                assert asking.recv(100) == b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.connect(path)
            asking.settimeout(10)
            asking.send(b'{"pod": "../../etc"}')
            assert b"that is no identifier" in asking.recv(500)
        assert process.poll() is None
