"""Groups: every script of calls goes the same way on kernel and on XTS sockets, in a network with two interfaces."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from beds import multicast_namespace
from beds.scripts import RUN_S, scripts
from beds.shm_proxy import SYSTEM
from system.sockets.programs.call_multicast import TOPICS

assert TOPICS  # which have the scripts
Traces = dict[str, list[Any]]
pytestmark = pytest.mark.skipif(not multicast_namespace.is_possible(), reason="this user may make no network namespace")


def in_namespace(*arguments: str) -> Traces:
    program = [sys.executable, str(SYSTEM / "sockets/programs" / arguments[0]), *arguments[1:]]
    done = subprocess.run(
        multicast_namespace.command(*program), capture_output=True, text=True, timeout=RUN_S, check=False
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def kernel() -> Traces:
    return in_namespace("call_multicast.py", "kernel")


@pytest.fixture(scope="module", params=["libxts", "preload"])
def offloaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Traces:
    return in_namespace("multicast_proxy.py", str(tmp_path_factory.mktemp("proxy")), request.param)


#: They name interfaces that are not there, on sockets that are not bound.
UNDECIDED = (
    *("errors_of_membership", "errors_of_membership_v6", "errors_of_groups"),
    *("options_of_senders", "options_of_senders_v6"),
)


@pytest.mark.parametrize("name", scripts("multicast"))
def test_goes_as_on_the_kernel(name: str, kernel: Traces, offloaded: Traces, request: pytest.FixtureRequest) -> None:
    if name in UNDECIDED and "preload" in request.node.name:
        pytest.skip("on an undecided socket, an interface that this host does not have may be the device's")
    assert not [entry for entry in kernel[name] if entry[0] == "failed"], kernel[name]
    assert offloaded[name] == kernel[name]


@pytest.mark.parametrize("how", ["preload", "install", "kernel"])
def test_a_host_without_the_interface_joins_on_the_device(how: str, tmp_path: Path) -> None:
    """The program is in a network namespace where nothing is: a join before bind() is the device's."""
    said = in_namespace("multicast_proxy.py", str(tmp_path), "apart", how)
    assert said == {"received": None if how == "kernel" else "hello", "bind": "ENODEV" if how == "kernel" else None}


def test_a_host_is_told_the_devices_interfaces(tmp_path: Path) -> None:
    told = in_namespace("multicast_proxy.py", str(tmp_path), "interfaces")
    assert isinstance(told["interfaces"], list)
    by_name = {one["name"]: one for one in told["interfaces"]}
    assert set(by_name) == {"mc0", "mc0p", "mc1", "mc1p"}
    assert [one["index"] for one in told["interfaces"]] == sorted(one["index"] for one in told["interfaces"])
    assert all(one["multicast"] for one in told["interfaces"])
    assert {"10.77.0.1", "10.77.0.2", "fd77::1"} <= set(by_name["mc0"]["addresses"])


def test_interfaces_that_come_later_are_known(tmp_path: Path) -> None:
    """Without a reload; and they are forgotten when they go."""
    assert in_namespace("multicast_proxy.py", str(tmp_path), "later") == {
        "received": "hello", "same number": True, "after": 0,
    }  # fmt: skip
