"""What people do to a network card while it carries queues: `ethtool`, another MTU, down and up, promiscuous mode, a
driver that is unbound, bound and loaded again, another network namespace, VLAN devices and bonds. In the machine of
`tests/vm/run --nics`, whose virtio cards have one queue each, on Debian's kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from beds.card_lab import MACS, ZeroCopyLab, found, missing
from beds.echo_server import ECHO
from beds.lab import skip_without_lab
from beds.operated_proxy import wait
from beds.patience import SLOWER
from beds.refused_interface import refusal_of_agent
from beds.transfer import TRANSFER
from xts_lab import lab as lab_module
from xts_lab import topology
from xts_proxy.status import control_socket

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

BACK_S, COMMAND_S, TRANSFER_S = 24.0 * SLOWER, 12.0 * SLOWER, 40.0 * SLOWER
HOST, DEVICE = topology.HOST_XTS, topology.DPU_XTS
ENDS = pytest.mark.parametrize("end", [HOST, DEVICE], ids=["host", "device"])


@pytest.fixture(scope="module", params=[HOST, DEVICE], ids=["zero copy at the host", "zero copy at the device"])
def lab(request: pytest.FixtureRequest) -> Iterator[ZeroCopyLab]:
    skip_without_lab("afxdp")
    if reason := missing():
        pytest.skip(reason)
    patched = pytest.MonkeyPatch()
    patched.setattr(lab_module, "START_TIMEOUT_S", BACK_S)
    made = ZeroCopyLab(f"t{os.getpid()}cards", request.param, queue="afxdp", relayed_max=0, reliable=True, mtu=1500)
    made.up()
    try:
        yield made
    finally:
        made.down()
        patched.undo()


@pytest.fixture(scope="module")
def port(lab: ZeroCopyLab) -> Iterator[str]:
    with lab.popen("net", [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def done(lab: ZeroCopyLab, end: topology.End, *words: str) -> subprocess.CompletedProcess[str]:
    return lab.run(end.role, list(words), capture_output=True, text=True, timeout=COMMAND_S)


def transfer(lab: ZeroCopyLab, port: str, end: topology.End, *commands: str) -> list[int]:
    """The commands' exit statuses, while a program sent both ways; AssertionError: a byte was lost."""
    with ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        program = stack.enter_context(lab.popen("host", [sys.executable, "-c", TRANSFER, port], text=True, **pipes))
        stack.callback(program.kill)
        assert program.stdout and program.stdout.readline() == "begun\n"
        statuses = [done(lab, end, *command.split()).returncode for command in commands]
        assert program.communicate("\n", timeout=TRANSFER_S)[0] == "as it was sent\n", lab.tail("agent") + lab.tail(
            "proxy"
        )
    return statuses


def serves(lab: ZeroCopyLab, port: str) -> None:
    """Sooner or later a program is served."""

    def answered() -> bool:
        command = [sys.executable, "-c", TRANSFER, port]
        asked = lab.run("host", command, input="\n", capture_output=True, text=True, timeout=TRANSFER_S)
        return asked.stdout.endswith("as it was sent\n")

    wait(answered, f"service:\n{lab.tail('agent')}{lab.tail('proxy')}", BACK_S)


@ENDS
def test_settings_of_ethtool(lab: ZeroCopyLab, port: str, end: topology.End) -> None:
    """Rings of another size, and offloads: the driver stops its queues for it."""
    name = end.interface
    commands = [f"ethtool -G {name} rx {size} tx {size}" for size in (128, 256)]
    commands += [f"ethtool -K {name} gro {how}" for how in ("off", "on")]
    assert transfer(lab, port, end, *commands, f"ethtool -L {name} combined 1") == [0] * 5


@ENDS
def test_down_and_up(lab: ZeroCopyLab, port: str, end: topology.End) -> None:
    assert transfer(lab, port, end, *(f"ip link set {end.interface} {how}" for how in ("down", "up"))) == [0, 0]


@ENDS
def test_promiscuous_mode(lab: ZeroCopyLab, port: str, end: topology.End) -> None:
    assert transfer(lab, port, end, *(f"ip link set {end.interface} promisc {how}" for how in ("on", "off"))) == [0, 0]


@ENDS
def test_another_mtu(lab: ZeroCopyLab, port: str, end: topology.End) -> None:
    for mtu in ("1400", "1500"):
        assert done(lab, end, "ip", "link", "set", end.interface, "mtu", mtu).returncode == 0
        serves(lab, port)


def test_queues_have_zero_copy(lab: ZeroCopyLab) -> None:
    """Or the tests here would say nothing of it. The host's end tries it when it was proved."""
    has = "zero copy: the driver virtio_net has it"

    def told() -> str:
        found = done(lab, HOST, "xts", "doctor", "--json")
        checks = {check["name"]: check["found"] for check in json.loads(found.stdout)["checks"]}
        return str(checks[f"queues of {HOST.interface}"])

    if lab.end is HOST:
        wait(lambda: has in told(), "zero copy", BACK_S)
        return
    copied = told()
    reasons = "or zero copy on virtio_net", "the other end answers no more", "no probe was answered yet"
    assert "copy mode: " in copied and any(reason in copied for reason in reasons), copied
    interface = control_socket.ask(str(lab.control), control_socket.Question("status", False))["interface"]
    assert has in interface["copying"]


@contextmanager
def ended_transfer(lab: ZeroCopyLab, port: str) -> Iterator[None]:
    """A program that sends both ways meanwhile is told in the end that its connection is lost."""
    with ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        program = stack.enter_context(lab.popen("host", [sys.executable, "-c", TRANSFER, port], text=True, **pipes))
        stack.callback(program.kill)
        assert program.stdout and program.stdout.readline() == "begun\n"
        yield
        said, told = program.communicate(timeout=BACK_S)
        assert (program.returncode, said) != (0, "as it was sent\n")
        assert "Error: " in told.strip().splitlines()[-1], told


def log_has(lab: ZeroCopyLab, end: topology.End, words: str) -> None:
    program = "agent" if end is HOST else "proxy"
    wait(lambda: f"{end.interface} {words}" in lab.tail(program, 60), f"line in the log: {words}", BACK_S)


@ENDS
def test_the_driver_is_bound_again(lab: ZeroCopyLab, port: str, end: topology.End) -> None:
    """The interface goes, and comes back where it came from at first; whoever looks after interfaces names it."""
    number = virtio_of(MACS[end])
    driver = Path("/sys/bus/virtio/drivers/virtio_net")
    with ended_transfer(lab, port):
        (driver / "unbind").write_text(number)
        log_has(lab, end, "is not there")
        (driver / "bind").write_text(number)
        wait(lambda: MACS[end] in found(), "interface", BACK_S)
        lab.put_card(end)
    serves(lab, port)
    log_has(lab, end, "was made again")


@ENDS
def test_the_card_is_moved_away_and_back(lab: ZeroCopyLab, port: str, end: topology.End) -> None:
    """To another network namespace: its number may be the same, and its queues are lost."""
    with ended_transfer(lab, port):
        assert done(lab, end, "ip", "link", "set", end.interface, "netns", "1").returncode == 0
        log_has(lab, end, "is not there")
        lab.put_card(end)
    serves(lab, port)


def test_the_driver_is_loaded_again(lab: ZeroCopyLab, port: str) -> None:
    """Which takes both cards away at once."""
    with ended_transfer(lab, port):
        subprocess.run(["modprobe", "-r", "virtio_net"], check=True)
        for end in MACS:
            log_has(lab, end, "is not there")
        subprocess.run(["modprobe", "virtio_net"], check=True)
        wait(lambda: set(MACS.values()) <= found().keys(), "interfaces", BACK_S)
        for end in MACS:
            lab.put_card(end)
    serves(lab, port)
    test_queues_have_zero_copy(lab)


def virtio_of(mac: str) -> str:
    """The number of the card with this address, in sysfs of a network namespace that does not have it."""
    at = sorted(MACS.values()).index(mac)
    nets = sorted(
        folder.name for folder in Path("/sys/bus/virtio/drivers/virtio_net").iterdir() if "virtio" in folder.name
    )
    return nets[at]


@pytest.mark.parametrize(("kind", "words"), [("vlan", "is a VLAN device, and an XDP"), ("bond", "is a bond, whose")])
def test_what_is_made_of_cards(lab: ZeroCopyLab, kind: str, words: str) -> None:
    more = {"vlan": ["link", "eth0", "name", "other0", "type", "vlan", "id", "5"], "bond": ["other0", "type", "bond"]}
    subprocess.run(["modprobe", "-a", "8021q", "bonding"], check=False)
    answer = refusal_of_agent(lab, more[kind], COMMAND_S)
    assert answer.returncode == 2 and f"other0 {words}" in answer.stderr
