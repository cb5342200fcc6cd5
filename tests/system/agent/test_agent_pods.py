"""The agent on a node of Kubernetes: a pod has the queues that it was allocated, and is a tenant by its name.

The kubelet is a stand-in, the device plug-in and the agent are real, and the processes are in cgroups that are named as
a kubelet names them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.device_plugin import running_plugin
from beds.kubelet import Kubelet, wait_for
from beds.lab import raise_or_skip
from beds.ready import readable
from xts_lab import topology
from xts_lab.lab import Lab
from xts_lab.wire import Wire
from xts_messages.attaching.attach import list_queues
from xts_proxy.status import control_socket

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

TENANTS = """
[[tenant]]
name = "shop"
cgroups = ["/kubernetes/shop"]
[[policy.rule]]
action = "allow"
tenants = ["shop", "default"]
"""
SHOP, OTHER, NONE, LATER = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "1234")
#: Joins the cgroup before it attaches, and stays until it is told to end.
MEMBER = """
import pathlib, sys
pathlib.Path(sys.argv[1], "cgroup.procs").write_text("0")
import xts_socket
try:
    listener = xts_socket.create_server(("198.18.0.1", 0))
except OSError as error:
    print(error, flush=True)
else:
    print("listening", flush=True)
    sys.stdin.read()
"""


def unified() -> Path:
    """Where version 2 of cgroups is mounted. Skips the test where that is nowhere, or nothing can be made there."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2" and "rw" in options.split(","):
            return Path(place)
    pytest.skip("no cgroups of version 2 that can be written")


@pytest.fixture(scope="module")
def cgroups() -> Iterator[dict[str, Path]]:
    """One for each pod, as the kubelet's systemd driver names them."""
    top = unified() / f"kubepods-test{id(object())}.slice"
    made = {}
    for uid in (SHOP, OTHER, NONE, LATER):
        folder = top / f"kubepods-besteffort-pod{uid.replace('-', '_')}.slice" / "cri-containerd-x.scope"
        folder.mkdir(parents=True)
        made[uid] = folder
    try:
        yield made
    finally:
        for folder in made.values():
            wait_for(lambda procs=folder / "cgroup.procs": not procs.read_text(), "all of them have ended")
            folder.rmdir()
            folder.parent.rmdir()
        top.rmdir()


@pytest.fixture(scope="module")
def kubelet() -> Iterator[Kubelet]:
    with tempfile.TemporaryDirectory(prefix="xts-kubelet-", dir="/run") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the agent, which is nobody, connects within
        yield from _kubelet(folder)


def _kubelet(folder: Path) -> Iterator[Kubelet]:
    for name, uid in (("shop_web", SHOP), ("other_web", OTHER), ("shop_none", NONE)):
        (folder / "logs" / f"{name}_{uid}").mkdir(parents=True)
    with Kubelet(folder) as kubelet:
        yield kubelet


@pytest.fixture(scope="module")
def lab(kubelet: Kubelet) -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "pods", tables=TENANTS, wire=Wire.CABLE)  # its agent is our own
    try:
        raised.stop_program("agent")
        command = [sys.executable, "-m", "xts_agent", "--interface", topology.HOST_XTS.interface, "--pods-only"]
        command += ["--peer-mac", topology.mac_address(raised.name, topology.DPU_XTS)]
        command += ["--endpoint", str(raised.endpoint), "--token-key", str(raised.token_key)]
        command += ["--pods", str(kubelet.folder / "pods" / "pods.sock")]
        raised.spawn("host", command, name="agent", ready=True)
        yield raised
    finally:
        assert not raised.down()


@contextlib.contextmanager
def member(lab: Lab, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = ["python", "-c", MEMBER, str(folder)]
    with lab.popen("host", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin
            process.stdin.close()
            assert process.wait(20) == 0


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    assert readable(process.stdout, 20)
    return process.stdout.readline().strip()


def test_a_pod_has_what_it_was_allocated(lab: Lab, kubelet: Kubelet, cgroups: dict[str, Path]) -> None:
    with running_plugin(kubelet.folder, Path(lab.endpoint)):
        kubelet.await_list(lambda devices: len(devices) == 8, "the queues of the agent")
        kubelet.pods = {
            ("shop", "web"): {"main": ["xts0-0"], "side": ["xts0-1"]},
            ("other", "web"): {"main": ["xts0-2"]},
            ("shop", "none"): {"main": []},
        }
        with (
            member(lab, cgroups[SHOP]) as first,
            member(lab, cgroups[SHOP]) as second,
            member(lab, cgroups[OTHER]) as other,
        ):
            assert {line(one) for one in (first, second, other)} == {"listening"}
            (queues,) = list_queues(str(lab.endpoint))
            assert (queues.interface, queues.queues, queues.used) == ("xts0", 8, 3)
            with member(lab, cgroups[SHOP]) as more:
                assert "pod shop/web has 2 queues, and was allocated 2" in line(more)
            with member(lab, cgroups[NONE]) as none:
                assert "pod shop/none was allocated no queue" in line(none)
            with member(lab, unified()) as outside:
                assert "is in no pod, and queues are for pods" in line(outside)
            status = control_socket.ask(str(Path(lab.directory) / "proxy.sock"), control_socket.Question(ask="status"))
            found = [c["tenant"] for c in status["channels"] if c["listeners"]]
            assert sorted(found) == ["default", "shop", "shop"]
        with member(lab, cgroups[SHOP]) as again:
            assert line(again) == "listening"


def test_without_a_plug_in_pods_get_nothing(lab: Lab, cgroups: dict[str, Path]) -> None:
    with member(lab, cgroups[LATER]) as process:
        assert f"pod {LATER} is not known: the device plug-in" in line(process)
