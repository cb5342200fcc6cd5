"""The package `xts-rdma` on the emulated Arm machine: agent and proxy under systemd, by the kernel's software RoCE.
Both are on the machine, whose device talks with itself; this machine's kernel has no RDMA."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from beds.dpu_machine import CONFIGURATION, SERVER_ADDRESS, Dpu
from beds.dpu_programs import PORT, PROGRAMS, until

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.timeout(4800)]
UNIT, FILE, CONTROL = "xts-proxy@rdma", "/etc/xts/xts-proxy-rdma.toml", "/run/xts/rdma.sock"
AGENT_FILE = "/etc/xts/xts-agent.toml"
INTERFACE, DEVICE, ADDRESS = "vrdma", "rxe0", "10.9.0.1"
AGENT = f"""interface = "{INTERFACE}"
queue = "rdma"
rdma_peer = "{ADDRESS}"
"""


def missing(dpu: Dpu, module: str) -> bool:
    return "not found" in dpu.run("modprobe", module, check=False)


@pytest.fixture(scope="module")
def device(dpu: Dpu) -> Iterator[None]:
    """A software RDMA device."""
    if missing(dpu, "rdma_rxe"):
        pytest.skip("the machine's kernel has no rdma_rxe")
    dpu.run("ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", f"{INTERFACE}p")
    for end in (INTERFACE, f"{INTERFACE}p"):
        dpu.run("ip", "link", "set", end, "up")
    dpu.run("ip", "address", "add", f"{ADDRESS}/24", "dev", INTERFACE)
    dpu.run("rdma", "link", "add", DEVICE, "type", "rxe", "netdev", INTERFACE)
    yield
    dpu.run("rdma", "link", "delete", DEVICE)
    dpu.run("ip", "link", "delete", INTERFACE)


@pytest.fixture(scope="module")
def services(dpu: Dpu, device: None) -> Iterator[None]:
    """Agent and proxy, as deploy/docs/how-to/rdma.md has them."""
    before = dpu.run("cat", AGENT_FILE)
    dpu.run("cp", "--preserve", CONFIGURATION, FILE)
    keys = {"queue": "rdma", "interface": INTERFACE, "control": CONTROL, "peer_mac": "", "queues": "all"}
    dpu.set_keys(FILE, **keys, token_key="", address=ADDRESS, hosts=[ADDRESS])
    dpu.write(AGENT_FILE, AGENT)
    try:
        for unit in (UNIT, "xts-agent"):
            dpu.run("systemctl", "start", unit, check=False, timeout_s=300)
            assert dpu.run("systemctl", "is-active", unit, check=False) == "active\n", dpu.journal(unit)
        until(lambda: queue(dpu)["connected"], "connection of the agent")
        yield
    finally:
        dpu.run("systemctl", "stop", "xts-agent.socket", "xts-agent", UNIT, timeout_s=300)
        dpu.write(AGENT_FILE, before)
        dpu.run("rm", FILE)


def queue(dpu: Dpu) -> dict[str, object]:
    """What the proxy says of its queue."""
    found: dict[str, object] = dpu.status("--control", CONTROL)["rdma"][0]
    return found


def transferred(dpu: Dpu, count: int) -> str:
    """By a program of a user of the machine, offloaded."""
    shutil.copy(PROGRAMS / "transfer.py", dpu.folder / "machine/transfer.py")
    program = "/usr/bin/python3", "/run/machine/transfer.py", SERVER_ADDRESS, str(PORT), str(count)
    return dpu.run("runuser", "-u", "nobody", "--", "xts", "run", "--strict", *program, check=False, timeout_s=600)


def test_the_package_has_the_modules_loaded(dpu: Dpu) -> None:
    """At boot, before anything here asks for them; the newest is the first in the kernel's list."""
    loaded = [line.split()[0] for line in dpu.run("cat", "/proc/modules").splitlines()]
    assert "rdma_ucm" in loaded and loaded.index("rdma_ucm") < loaded.index("ib_uverbs"), loaded


def test_bytes_there_and_back(dpu: Dpu, services: None, server: None) -> None:
    for count in (1, 1_000_000):
        assert transferred(dpu, count) == "the same\n", dpu.journal(UNIT) + dpu.journal("xts-agent")
    row = queue(dpu)
    assert (row["device"], row["peer"], row["problem"], row["connections"]) == (DEVICE, ADDRESS, "", 1)


def test_the_units_open_these_devices_and_no_others(dpu: Dpu, services: None) -> None:
    for unit in (UNIT, "xts-agent"):
        shown = dpu.run("systemctl", "show", "--property=DevicePolicy,DeviceAllow,PrivateDevices", unit)
        assert "DevicePolicy=closed" in shown and "PrivateDevices=no" in shown, shown
        for allowed in ("char-infiniband_verbs rw", "/dev/infiniband/rdma_cm rw"):
            assert allowed in shown, shown


def test_the_doctor_knows_the_device(dpu: Dpu, services: None) -> None:
    said = json.loads(dpu.run("xts", "doctor", "--json", check=False, timeout_s=300))
    [found] = [check["found"] for check in said["checks"] if check["name"] == f"RDMA {DEVICE}"]
    assert found.startswith("can carry queues"), found


def test_they_are_started_again(dpu: Dpu, services: None, server: None) -> None:
    """The agent finds the new proxy by itself, and the other way round."""
    for unit in (UNIT, "xts-agent"):
        dpu.run("systemctl", "restart", unit, timeout_s=300)
        until(lambda: transferred(dpu, 1) == "the same\n", f"service after the start of {unit}")


def test_a_device_that_is_removed_and_comes_back(dpu: Dpu, services: None, server: None) -> None:
    dpu.run("rdma", "link", "delete", DEVICE)
    dpu.run("rdma", "link", "add", DEVICE, "type", "rxe", "netdev", INTERFACE)
    until(lambda: transferred(dpu, 1) == "the same\n", "service by the device that is there again")
    assert "the RDMA device was removed" in dpu.journal(UNIT)
